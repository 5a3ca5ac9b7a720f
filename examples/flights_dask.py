"""Statistics per carrier of the flights of 2013, on dask workers with one device each.

    python examples/flights_dask.py [--workers N] [--parts N] [--data FOLDER]

It needs `pip install 'usmq[dask,demo]'`. Each part is sent to a worker once, as Arrow; one
row per carrier is returned. The results are compared with those of numpy for the whole table.
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
from usmq._demo_reference import Check, Reference
from usmq._flights import ALL, DataError, Flights, by_carrier, data_folder, load
from usmq.dask import LocalUsmCluster, LogicalTable

# Work-items of the summing kernel.
LANES = 64
DELAYS: list[tuple[str | list[str], str]] = [
    ([], "count_all"),
    ("arr_delay", "count"),
    ("arr_delay", "mean"),
]


def kernel(name: str) -> usmq.Kernel:
    """Build one of the demo's kernels; a worker does so once."""
    source = files("usmq").joinpath("kernels", "flights.cpp").read_text(encoding="utf-8")
    return usmq.Kernel.from_sycl(re.sub(r"\bREAL\b", "double", source), name)


def with_miles(task: usmq.TaskContext) -> usmq.Table:
    """Add the great-circle distance of each flight to a part of the table."""
    table, airports = task.arg(usmq.Table), task.arg(usmq.Table)
    airport_of = [column.values() for column in task.rest()]
    ends = [table[name].values() for name in ("origin", "dest")]
    degrees = [airports[name].values() for name in ("lat", "lon")]
    miles = task.memory.empty(table.num_rows, "f8")
    kernel("great_circle")(table.num_rows, *degrees, *ends, *airport_of, miles, table.num_rows)
    kept = ("carrier", "arr_delay", "distance")
    return usmq.Table({name: table[name] for name in kept} | {"miles": miles})


def errors(task: usmq.TaskContext) -> Any:
    """Count and add up how far a part's recorded distances are off, by carrier and for all."""
    table, carriers = task.arg(usmq.Table), task.arg(int)
    counts = task.memory.empty((LANES, carriers + 1, 3), "i4")
    sums = task.memory.empty((LANES, carriers + 1, 2), "f8")
    columns: list[Any] = [table["carrier"].values()]
    for column in (table["arr_delay"], table["distance"]):
        columns += [column.values(), *bitmap(column)]
    columns += [table["miles"].values(), counts, sums]
    kernel("carrier_partials")(LANES, *columns, table.num_rows, LANES, carriers)
    return np.stack([counts.to_numpy()[..., 2].sum(0), sums.to_numpy()[..., 1].sum(0)])


def bitmap(column: usmq.Column) -> tuple[usmq.Array, int]:
    """Return the validity bitmap and its first bit; Arrow has none where nothing is null."""
    bits, first = column.validity(), column.bit_offset
    if bits is None:
        bits = usmq.full((first + len(column) + 7) // 8, 255, "u1", queue=column.queue)
    return bits, first


def copied(dask_worker: Any) -> int:
    """Return the bytes that went from this worker to others."""
    return sum(entry["total"] for entry in dask_worker.transfer_outgoing_log)


def summary(flights: Flights, per_carrier: Any, for_all: Any, off: Any) -> Any:
    """Return a pyarrow table: a row for each carrier, and a last one for all."""
    import pyarrow as pa

    rows = {row["carrier"]: row for row in per_carrier.to_pylist()}
    rows[ALL] = for_all.to_pylist()[0]
    names = flights.summary_rows()
    delays = [rows[name] for name in names.to_pylist()]
    columns = {
        "carrier": names,
        "flights": [row["count_all"] for row in delays],
        "delays": [row["arr_delay_count"] for row in delays],
        "errors": off[0].astype("i8"),
        "mean_delay": pa.array([row["arr_delay_mean"] for row in delays], pa.float64()),
        "mean_error": off[1] / np.where(off[0] == 0, np.nan, off[0]),
    }
    return by_carrier(pa.table(columns))


def run(flights: Flights, workers: int | None, parts: int) -> Any:
    """Compute the summary on a cluster; print what took how long and what moved."""
    with (
        LocalUsmCluster(n_workers=workers, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        start = time.perf_counter()
        airports = usmq.from_arrow(flights.airports.select(["lat", "lon"]))
        airport_of = [usmq.from_arrow(flights.airport_of(name)) for name in ("origin", "dest")]
        small = client.scatter([airports, *airport_of], broadcast=True)
        table = LogicalTable.from_arrow(flights.table, parts).map_partitions(with_miles, *small)
        off = table.reduce(errors, sum, len(flights.dictionary("carrier")))
        per_carrier = table.group_by("carrier").aggregate(DELAYS).start()
        for_all = table.group_by([]).aggregate(DELAYS).start()
        found = per_carrier.to_arrow(), for_all.to_arrow(), off.result(timeout=300)
        took = time.perf_counter() - start
        between = client.run(copied)
        print(
            f"{flights.table.num_rows:,} flights in {parts} parts on {len(between)} workers: "
            f"{took:.2f} s, kernels built included; workers sent {sum(between.values()):,} bytes"
        )
    return summary(flights, *found)


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
    found = run(flights, given.workers, given.parts)
    reference, check = Reference(flights), Check("f8")
    check.summary(found, reference.summarize(reference.great_circle()))
    for wrong in check.problems:
        print(wrong, file=sys.stderr)
    if not check.problems:
        print(f"{check.numbers} numbers agree with numpy's")
    return 1 if check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
