"""The flights of 2013, in parts on dask workers with a device each: statistics per carrier.

    python examples/flights_dask.py [--workers N] [--parts N] [--data FOLDER]

It needs `pip install 'usmq[dask,demo]'`. Each part goes to a worker once, as Arrow; what comes
back is one row per carrier. numpy computes the same from the whole table, and both are compared.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from importlib.resources import files
from typing import Any

import numpy as np
import usmq
from usmq._flights import DataError, Flights, data_folder, load
from usmq._reference import Check, Reference
from usmq.dask import LocalUsmCluster

# Work-items of the summing kernel.
WORKERS = 64


def upload(part: Any) -> usmq.Table:
    """Put a part of the flights on this worker's device."""
    table: usmq.Table = usmq.from_arrow(part)
    return table


def bitmap(column: usmq.Column) -> tuple[usmq.Array, int]:
    """Return the validity bitmap and its first bit; Arrow has none where nothing is null."""
    bits, first = column.validity(), column.bit_offset
    if bits is None:
        bits = usmq.full((first + len(column) + 7) // 8, 255, "u1", queue=column.queue)
    return bits, first


def summarize(
    table: usmq.Table, airports: usmq.Table, airport_of: list[usmq.Column], carriers: int
) -> tuple[Any, Any]:
    """Return counts and sums per carrier, and for all, of one part."""
    source = files("usmq").joinpath("kernels", "flights.cpp").read_text(encoding="utf-8")
    source = re.sub(r"\bREAL\b", "double", source)
    great_circle, partials = (
        usmq.Kernel.from_sycl(source, name) for name in ("great_circle", "carrier_partials")
    )
    n = table.num_rows
    miles = usmq.empty(n, "f8")
    counts = usmq.empty((WORKERS, carriers + 1, 3), "i4")
    sums = usmq.empty((WORKERS, carriers + 1, 2), "f8")
    places = [column.values() for column in airport_of]
    degrees = [airports[name].values() for name in ("lat", "lon")]
    ends = [table[name].values() for name in ("origin", "dest")]
    great_circle(n, *degrees, *ends, *places, miles, n)
    delay, recorded = table["arr_delay"], table["distance"]
    delays = (delay.values(), *bitmap(delay))
    distances = (recorded.values(), *bitmap(recorded), miles)
    carrier = table["carrier"].values()
    partials(WORKERS, carrier, *delays, *distances, counts, sums, n, WORKERS, carriers)
    return counts.to_numpy().sum(axis=0), sums.to_numpy().sum(axis=0)


def add(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Add up what the parts found."""
    counts, sums = zip(*parts, strict=True)
    return sum(counts), sum(sums)


def copied(dask_worker: Any) -> int:
    """Return the bytes that went from this worker to others."""
    return sum(entry["total"] for entry in dask_worker.transfer_outgoing_log)


def table_of(flights: Flights, counts: Any, sums: Any) -> Any:
    """Return the summary as a pyarrow table, by carrier."""
    import pyarrow as pa
    from usmq._flights import by_carrier

    with np.errstate(invalid="ignore"):
        means = sums / counts[:, 1:]
    columns = {"carrier": flights.summary_rows()}
    columns |= dict(zip(("flights", "delays", "errors"), counts.T, strict=True))
    columns |= dict(zip(("mean_delay", "mean_error"), means.T, strict=True))
    return by_carrier(pa.table({name: pa.array(values) for name, values in columns.items()}))


def run(flights: Flights, workers: int | None, parts: int) -> Any:
    """Compute the summary on a cluster; print what took how long and what moved."""
    carriers = len(flights.dictionary("carrier"))
    rows = -(-flights.table.num_rows // parts)
    slices = [flights.table.slice(first * rows, rows) for first in range(parts)]
    with (
        LocalUsmCluster(n_workers=workers, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        start = time.perf_counter()
        airports, *airport_of = client.scatter(
            [
                usmq.from_arrow(flights.airports.select(["lat", "lon"])),
                *(usmq.from_arrow(flights.airport_of(name)) for name in ("origin", "dest")),
            ],
            broadcast=True,
        )
        # Not by their hash: dask takes slices of one pyarrow table for the same.
        tables = client.map(upload, client.scatter(slices, hash=False))
        found = [
            client.submit(summarize, table, airports, airport_of, carriers) for table in tables
        ]
        counts, sums = client.submit(add, found).result(timeout=300)
        took = time.perf_counter() - start
        between = client.run(copied)
        print(
            f"{flights.table.num_rows:,} flights in {parts} parts on {len(between)} workers: "
            f"{took:.2f} s, kernels built included; workers sent {sum(between.values()):,} bytes"
        )
    return table_of(flights, counts, sums)


def main() -> int:
    """Run once, and compare with numpy."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--workers", type=int, help="default: one per device")
    arguments.add_argument("--parts", type=int, default=8)
    arguments.add_argument("--data", help="folder of the CSV files")
    given = arguments.parse_args()
    try:
        flights = load(data_folder(given.data)).with_reals("f8")
    except DataError as problem:
        print(f"flights_dask: {problem}", file=sys.stderr)
        return 1
    summary = run(flights, given.workers, given.parts)
    reference, check = Reference(flights), Check("f8")
    check.summary(summary, reference.summarize(reference.great_circle()))
    for wrong in check.problems:
        print(wrong, file=sys.stderr)
    if not check.problems:
        print(f"{check.numbers} numbers agree with numpy's")
    return 1 if check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
