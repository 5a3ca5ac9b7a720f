"""The dask rows of `make bench`: answer "row side count" on stdin with ns per operation.

Both sides of a row are the same calls to the same two workers, with an array of usmq or of numpy;
those of the flights differ in the number of workers. Started by `run.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import usmq
from distributed import Client, wait
from usmq._flights import data_folder, load
from usmq.dask import LocalUsmCluster, LogicalTable

SMALL, LARGE, LARGEST = 1 << 10, 256 << 20, 1 << 30
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "flights_dask.py"


def device_array(size: int) -> usmq.Array:
    """Return an array whose elements are in memory, as those of a numpy array are."""
    array = usmq.full(size, 1, "u1")
    array.wait()
    return array


def host_array(size: int) -> np.ndarray[Any, Any]:
    """Return a numpy array."""
    return np.full(size, 1, "u1")


# Both cost only dask's own work for a task and the size of their results.
MAKERS: dict[str, Callable[[int], Any]] = {"usmq": device_array, "peer": host_array}


def arrived(array: Any) -> int:
    """Wait until the elements are in the memory that the worker's tasks use."""
    if isinstance(array, usmq.Array):
        array.wait()
    return int(array.size)


def same(array: Any, _number: int) -> Any:
    """Do nothing, as a task."""
    return array


def transfer(client: Client, make: Callable[[int], Any], size: int, count: int) -> float:
    """Return seconds from asking for an array of the other worker to having it."""
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    seconds = 0.0
    for _ in range(count):
        array = client.submit(make, size, workers=[first], pure=False)
        wait(array)
        begin = time.perf_counter()
        done = client.submit(arrived, array, workers=[second], pure=False)
        if done.result(timeout=60) != size:
            raise RuntimeError("the array did not arrive")
        seconds += time.perf_counter() - begin
        del array, done
    return seconds / count


def task(client: Client, side: str, count: int) -> float:
    """Return seconds per task of a graph whose tasks do nothing."""
    first, _ = client.scheduler_info(n_workers=-1)["workers"]
    root = client.submit(MAKERS[side], 1000, workers=[first], pure=False)
    wait(root)
    begin = time.perf_counter()
    tasks = client.map(same, [root] * count, range(count), workers=[first], pure=False)
    wait(tasks)
    return (time.perf_counter() - begin) / count


def pin(core: int) -> None:
    """Let all threads of this process, and those that they start, run on one core only."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


class Flights:
    """Return the example and its data."""

    def __init__(self) -> None:
        self.run = runpy.run_path(str(EXAMPLE))["run"]
        self.data = load(data_folder(None)).with_reals("f8")

    def seconds(self, side: str) -> float:
        """Return the seconds that the example reports, on two workers or on one."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            self.run(self.data, 2 if side == "usmq" else 1, 8)
        took = re.search(r"(\d+\.\d+) s\b", text.getvalue())
        if took is None:
            raise RuntimeError(f"{EXAMPLE.name} does not report its time: {text.getvalue()}")
        return float(took[1])


class LargeFlights:
    """The same computation on more rows, on workers that have one core each.

    The rows are on the workers before the time begins, and the first computation does not count, so
    that neither the upload nor the builds of kernels do. Each worker is pinned to a core, as if it
    were a machine of one core: the CPU driver computes on two cores even for a sub-device of one
    compute unit, since the thread that waits computes, too.
    """

    TIMES, PARTS = 32, 8

    def __init__(self) -> None:
        self.example = runpy.run_path(str(EXAMPLE))
        self.flights = load(data_folder(None)).with_reals("f8")

    def seconds(self, workers: int, count: int) -> float:
        """Return the seconds of a computation on so many workers."""
        with (
            LocalUsmCluster(n_workers=workers, dashboard_address=":0") as cluster,
            cluster.get_client() as client,
        ):
            cores = sorted(os.sched_getaffinity(0))
            for number, worker in enumerate(client.scheduler_info(n_workers=-1)["workers"]):
                client.run(pin, cores[number % len(cores)], workers=[worker])
            rows = pa.concat_tables([self.flights.table] * self.TIMES)
            table = LogicalTable.from_arrow(rows, self.PARTS).wait()
            small = [
                usmq.from_arrow(self.flights.airports.select(["lat", "lon"])),
                *(usmq.from_arrow(self.flights.airport_of(name)) for name in ("origin", "dest")),
            ]
            small = client.scatter(small, broadcast=True)
            self.compute(table, small)
            begin = time.perf_counter()
            for _ in range(count):
                self.compute(table, small)
            return (time.perf_counter() - begin) / count

    def compute(self, table: LogicalTable, small: list[Any]) -> None:
        """Compute distances, errors and delays per carrier, and check the number of flights."""
        example = self.example
        made = table.map_partitions(example["with_miles"], *small)
        off = made.reduce(example["errors"], sum, len(self.flights.dictionary("carrier")))
        found = made.group_by("carrier").aggregate(example["DELAYS"]).to_arrow()
        off.result(timeout=300)
        rows = sum(found["count_all"].to_pylist())
        if rows != self.TIMES * self.flights.table.num_rows:
            raise RuntimeError(f"{rows} flights were counted")


def of_row(row: str, side: str) -> Callable[[Client, int], float]:
    """Return the measurement of one side of a row."""
    if row == "dask.task":
        return lambda client, count: task(client, side, count)
    if row == "dask.transfer_1k" and side == "usmq":
        return lambda client, count: transfer(client, host_array, SMALL, count)
    size = LARGEST if row == "dask.transfer_1g" else LARGE
    return lambda client, count: transfer(client, MAKERS[side], size, count)


def main() -> None:
    """Answer requests until stdin ends."""
    flights: Flights | None = None
    large: LargeFlights | None = None
    with contextlib.ExitStack() as stack:
        client: Client | None = None
        print("ready", flush=True)
        for line in sys.stdin:
            row, side, text = line.split()
            count = int(text)
            if row.startswith("dask.flights_large"):
                stack.close()
                client = None
                large = large or LargeFlights()
                workers = int(row.removeprefix("dask.flights_large"))
                seconds = large.seconds(workers if side == "usmq" else 1, count)
            elif row == "dask.flights":
                # It starts its own workers, which then have the devices to themselves.
                stack.close()
                client = None
                flights = flights or Flights()
                seconds = flights.seconds(side)
            else:
                if client is None:
                    cluster = LocalUsmCluster(n_workers=2, dashboard_address=":0")
                    client = stack.enter_context(stack.enter_context(cluster).get_client())
                measure = of_row(row, side)
                # The first run is not measured, as in the other rows.
                measure(client, count // 8 + 1)
                seconds = measure(client, count)
            print(seconds * 1e9, flush=True)


if __name__ == "__main__":
    main()
