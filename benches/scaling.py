"""Measure the distributed flights phase by phase, and compare them with a simple model.

    python benches/scaling.py [--workers 1 2 4] [--parts N]

It measures the parameters of the model on this machine and the flights with each number of workers,
and prints both beside each other: the table of docs/scaling.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import usmq
from distributed import Client
from usmq._flights import data_folder, load
from usmq.dask import LocalUsmCluster, LogicalTable

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import flights_dask

TASKS = 400
MIB = 2**20


def timed(work: Callable[[], Any], times: int = 5) -> float:
    """Return the median of some runs, in seconds, after one that does not count."""
    work()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def nothing(number: int) -> int:
    """Do nothing: the cost of a task itself."""
    return number


def zeros(nbytes: int) -> usmq.Array:
    """Create data to send."""
    return usmq.zeros(nbytes, "u1")


def length(array: usmq.Array) -> int:
    """Read the received data."""
    return len(array)


def messages(dask_scheduler: Any) -> int:
    """Count the messages that the scheduler has sent to workers and clients."""
    streams = [*dask_scheduler.stream_comms.values(), *dask_scheduler.client_comms.values()]
    return sum(stream.message_count for stream in streams)


def sent(dask_worker: Any) -> int:
    """Count the messages that a worker has sent to the scheduler."""
    return int(dask_worker.batched_stream.message_count)


def per_task(client: Client) -> tuple[float, float]:
    """Return the seconds and the messages of one task among many."""

    def run() -> None:
        client.gather(client.map(nothing, range(TASKS), pure=False))

    def count() -> int:
        return int(client.run_on_scheduler(messages)) + sum(client.run(sent).values())

    run()
    before = count()
    run()
    messages_each = (count() - before) / TASKS
    return timed(run) / TASKS, messages_each


def transfer(client: Client, nbytes: int) -> float:
    """Return the seconds that an array takes to another worker, once it is made."""
    here, there = list(client.scheduler_info(n_workers=-1)["workers"])[:2]

    def run() -> float:
        array = client.submit(zeros, nbytes, workers=here, pure=False)
        client.gather(client.submit(length, array, workers=here, pure=False))
        start = time.perf_counter()
        client.gather(client.submit(length, array, workers=there, pure=False))
        return time.perf_counter() - start

    run()
    return statistics.median(run() for _ in range(5))


def phases(client: Client, flights: Any, parts: int) -> dict[str, float]:
    """Return the seconds of each phase of the flights, when kernels are built."""
    airports = usmq.from_arrow(flights.airports.select(["lat", "lon"]))
    airport_of = [usmq.from_arrow(flights.airport_of(name)) for name in ("origin", "dest")]
    small = client.scatter([airports, *airport_of], broadcast=True)
    took: dict[str, list[float]] = {"upload": [], "map": [], "reduce": [], "group": []}

    def phase(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = work()
        took[name].append(time.perf_counter() - start)
        return value

    carriers = len(flights.dictionary("carrier"))

    def once() -> None:
        whole = phase("upload", lambda: LogicalTable.from_arrow(flights.table, parts).wait())
        table = phase("map", lambda: whole.map_partitions(flights_dask.with_miles, *small).wait())
        phase("reduce", lambda: table.reduce(flights_dask.errors, sum, carriers).result())
        phase("group", lambda: table.group_by("carrier").aggregate(flights_dask.DELAYS).wait())

    for _ in range(6):
        once()
    # The first run builds kernels.
    return {name: statistics.median(times[1:]) for name, times in took.items()}


def main() -> int:
    """Measure, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    arguments.add_argument("--parts", type=int, default=8)
    given = arguments.parse_args()
    flights = load(data_folder(None)).with_reals("f8")
    rows, nbytes = flights.table.num_rows, flights.table.nbytes
    print(f"{rows:,} rows, {nbytes:,} bytes, {given.parts} partitions")
    with (
        LocalUsmCluster(n_workers=2, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        seconds, count = per_task(client)
        print(f"task: {seconds * 1e3:.2f} ms, {count:.1f} messages")
        small, large = transfer(client, 8), transfer(client, 64 * MIB)
        rate = 64 / (large - small)
        print(f"transfer: {small * 1e3:.1f} ms for nothing, then {rate:.0f} MiB/s")
    for workers in given.workers:
        with (
            LocalUsmCluster(n_workers=workers, dashboard_address=":0") as cluster,
            cluster.get_client() as client,
        ):
            found = phases(client, flights, given.parts)
            moved = sum(client.run(flights_dask.copied).values())
        text = "  ".join(f"{name} {took * 1e3:7.1f} ms" for name, took in found.items())
        total = sum(found.values())
        print(f"{workers} workers: {text}  all {total * 1e3:7.1f} ms, {moved:,} bytes sent")
    return 0


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main())
