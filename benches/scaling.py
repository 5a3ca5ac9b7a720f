"""Measure the distributed flights phase by phase, and simulate them with more workers.

    python benches/scaling.py [--workers 1 2 4] [--parts N]
    python benches/scaling.py --simulate

The first form measures the costs of `scaling_model.py` on this machine and the flights with each
number of workers, and compares these with the simulation: the exit status is 1 if one differs by
more than a factor of 2. It refuses a busy machine, unless --busy is given. Both forms then simulate
10, 100 and 1,000 workers; --simulate does so with the costs that docs/scaling.md has published.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import usmq
from distributed import Client
from usmq._flights import data_folder, load
from usmq.dask import LocalUsmCluster, LogicalTable

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.append(str(Path(__file__).parent))
import flights_dask
import scaling_model as model

TASKS = 400
MIB = 2**20
# The bytes of a transfer whose time counts per byte: a small one varies by milliseconds.
SENT = 512 * MIB
# The factor of the rows from which the cost of a row is computed.
MORE = 16
# A load average above this disturbs the measurements.
QUIET = 1.5
# The largest factor between a measured and a simulated time.
AGREEMENT = 2.0
ROWS = 336_776
# The costs on the page, of 2026-11-25: the means of two runs.
PUBLISHED = model.Costs(
    task=1.655e-3,
    heartbeat=3.7e-3,
    upload_byte=1.0e-9,
    transfer=8.7e-3,
    transfer_byte=0.076e-9,
    row={"map": 1.85e-9, "reduce": 9.15e-9, "group": 32.6e-9},
    call={"upload": 13.2e-3, "map": 0.795e-3, "reduce": 1.5e-3, "group": 4.72e-3},
)
# The measured seconds on the page: the means of the same runs.
MEASURED = {
    1: {"upload": 0.1283, "map": 0.0335, "reduce": 0.03, "group": 0.0653},
    2: {"upload": 0.1136, "map": 0.0381, "reduce": 0.031, "group": 0.0598},
    4: {"upload": 0.1202, "map": 0.0467, "reduce": 0.0366, "group": 0.0731},
}


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
    return statistics.median(run() for _ in range(9))


def phases(client: Client, flights: Any, parts: int, times: int = 1) -> dict[str, float]:
    """Return the seconds of each phase of so many times the flights, when kernels are built."""
    rows = pa.concat_tables([flights.table] * times)
    airports = usmq.from_arrow(flights.airports.select(["lat", "lon"]))
    airport_of = [usmq.from_arrow(flights.airport_of(name)) for name in ("origin", "dest")]
    # With `hash`, the same data gets the key of a call before, which the scheduler is releasing.
    small = client.scatter([airports, *airport_of], broadcast=True, hash=False)
    took: dict[str, list[float]] = {"upload": [], "map": [], "reduce": [], "group": []}

    def phase(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = work()
        took[name].append(time.perf_counter() - start)
        return value

    carriers = len(flights.dictionary("carrier"))

    def once() -> None:
        whole = phase("upload", lambda: LogicalTable.from_arrow(rows, parts).wait())
        table = phase("map", lambda: whole.map_partitions(flights_dask.with_miles, *small).wait())
        phase("reduce", lambda: table.reduce(flights_dask.errors, sum, carriers).result())
        phase("group", lambda: table.group_by("carrier").aggregate(flights_dask.DELAYS).wait())

    for _ in range(6):
        once()
    # The first run builds kernels.
    return {name: statistics.median(times[1:]) for name, times in took.items()}


def idle_load(seconds: float = 5.0) -> float:
    """Return the CPU time of this process, with scheduler and nannies, for each second at rest."""
    start, cpu = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - start)


def per_heartbeat(idle: dict[int, float]) -> float:
    """Return the seconds for a heartbeat: what more workers add to the load at rest."""
    few, many = min(idle), max(idle)
    beats = many / model.heartbeat_interval(many) - few / model.heartbeat_interval(few)
    return max(idle[many] - idle[few], 0.0) / beats


def costs_of(
    client: Client,
    found: dict[str, float],
    larger: dict[str, float],
    heartbeat: float,
    rows: int,
    nbytes: int,
    parts: int,
) -> model.Costs:
    """Return the costs of the model, from two workers and the phases of two sizes on one."""
    task, messages_each = per_task(client)
    small, large = transfer(client, 8), transfer(client, SENT)
    per_byte = max(large - small, 0.0) / SENT
    row = {name: max(larger[name] - found[name], 0.0) / (MORE - 1) / rows for name in found}
    graph = model.flights(replace(PUBLISHED, row={}, call={}), rows, parts, upload=True)
    count = {name: sum(each.phase == name for each in graph) for name in model.PHASES}
    call = {
        name: max(found[name] - count[name] * task - rows * row[name], 0.0) / parts
        for name in model.PHASES
    }
    print(f"task: {task * 1e3:.2f} ms of the scheduler, {messages_each:.1f} messages")
    for name in model.PHASES:
        print(f"{name}: {call[name] * 1e3:.2f} ms for a part, {row[name] * 1e9:.1f} ns for a row")
    print(f"transfer: {small * 1e3:.1f} ms, {per_byte * 1e9:.3f} ns for a byte")
    print(f"heartbeat: {heartbeat * 1e3:.2f} ms")
    return model.Costs(
        task=task,
        heartbeat=heartbeat,
        upload_byte=row["upload"] * rows / nbytes,
        transfer=small,
        transfer_byte=per_byte,
        row={name: row[name] for name in model.PHASES[1:]},
        call=call,
        row_bytes=nbytes / rows,
    )


def compare(
    costs: model.Costs, measured: dict[int, dict[str, float]], rows: int, parts: int
) -> bool:
    """Print measured and simulated times of this machine; return whether they agree."""
    agrees = True
    print("| workers | measured | simulated | factor |")
    print("|---|---|---|---|")
    graph = model.flights(costs, rows, parts, upload=True)
    for workers, phases_of in measured.items():
        simulated = model.simulate(costs, graph, workers, per_machine=workers).total
        found = sum(phases_of.values())
        factor = simulated / found
        agrees &= 1 / AGREEMENT <= factor <= AGREEMENT
        print(f"| {workers} | {found * 1e3:.0f} ms | {simulated * 1e3:.0f} ms | {factor:.2f} |")
    return agrees


def grow(costs: model.Costs, rows: int = 1_000_000_000) -> None:
    """Print the simulated times of many workers, each with its own machine, and what is busiest."""
    print(f"\n{rows:,} rows that each worker reads itself:\n")
    print("| workers | partitions | scheduler | device | merge | total | busiest |")
    print("|---|---|---|---|---|---|---|")
    for each in (8, 1):
        for workers in (1, 10, 100, 1000):
            parts = each * workers
            graph = model.flights(costs, rows, parts, upload=False)
            found = model.simulate(costs, graph, workers)
            device = rows * sum(costs.row.values()) / workers
            scheduler = found.busy["scheduler"] * found.total
            merge = found.busy["transfers"] * found.total
            name = found.bottleneck
            print(
                f"| {workers:,} | {parts:,} | {scheduler:.1f} s | {device:.1f} s | {merge:.1f} s "
                f"| {found.total:.1f} s | {name}, {found.busy[name]:.0%} |"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or take the published costs, and print the tables."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    about.add_argument("--parts", type=int, default=8)
    about.add_argument("--simulate", action="store_true", help="measure nothing")
    about.add_argument("--busy", action="store_true", help="measure on a busy machine, too")
    given = about.parse_args(arguments)
    if given.simulate:
        agrees = compare(PUBLISHED, MEASURED, ROWS, 8)
        grow(PUBLISHED)
        return 0 if agrees else 1
    load_average = os.getloadavg()[0]
    if load_average > QUIET and not given.busy:
        about.error(
            f"the load average is {load_average:.1f}, and other work disturbs the measurement; "
            f"wait until it is below {QUIET}, or use --busy"
        )
    if 1 not in given.workers or len(set(given.workers)) < 2:
        about.error(
            "--workers must include 1, for the cost of a row, and another, for that of a worker"
        )
    flights = load(data_folder(None)).with_reals("f8")
    rows, nbytes = flights.table.num_rows, flights.table.nbytes
    print(f"{rows:,} rows, {nbytes:,} bytes, {given.parts} partitions")
    measured: dict[int, dict[str, float]] = {}
    idle: dict[int, float] = {}
    larger: dict[str, float] = {}
    for workers in given.workers:
        with (
            LocalUsmCluster(n_workers=workers, dashboard_address=":0") as cluster,
            cluster.get_client() as client,
        ):
            found = measured[workers] = phases(client, flights, given.parts)
            moved = sum(client.run(flights_dask.copied).values())
            if workers == 1:
                larger = phases(client, flights, given.parts, MORE)
            idle[workers] = idle_load()
        text = "  ".join(f"{name} {took * 1e3:7.1f} ms" for name, took in found.items())
        total = sum(found.values())
        print(f"{workers} workers: {text}  all {total * 1e3:7.1f} ms, {moved:,} bytes sent")
    with (
        LocalUsmCluster(n_workers=2, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        beat = per_heartbeat(idle)
        costs = costs_of(client, measured[1], larger, beat, rows, nbytes, given.parts)
    print()
    agrees = compare(costs, measured, rows, given.parts)
    grow(costs)
    return 0 if agrees else 1


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main())
