"""Simulates the distributed flights with any number of workers, from measured costs. Pure.

A discrete-event simulation: the scheduler handles one message after another, the client sends one
byte after another, a worker runs one task after another, and the workers of one machine share its
device. `flights` makes the graph of `benches/scaling.py`, `simulate` runs it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

# As in usmq.dask: the number of partial results that one task merges.
SPLIT_EVERY = 8
PHASES = ("upload", "map", "reduce", "group")


@dataclass(frozen=True)
class Costs:
    """What `benches/scaling.py` measures, in seconds and bytes."""

    # The scheduler's time for a task: half when it assigns it, half when the task has ended.
    task: float
    # The scheduler's time for a heartbeat of a worker.
    heartbeat: float
    # The client's and the scheduler's time for a byte that passes through them.
    upload_byte: float
    # The time of a transfer between workers without its bytes, and for a byte.
    transfer: float
    transfer_byte: float
    # The time of a device for a row in each phase.
    row: dict[str, float]
    # The time of a worker for a task in each phase that does not depend on its rows.
    call: dict[str, float] = field(default_factory=dict)
    row_bytes: float = 28.0
    # The bytes of a partial result.
    partial_bytes: float = 4096.0


@dataclass
class Task:
    """A task of the graph: the tasks it needs, its time on the device, and its result."""

    phase: str
    needs: tuple[int, ...]
    seconds: float
    nbytes: float
    # Bytes that the client sends with the task.
    sent: float = 0.0


@dataclass
class Result:
    """The time of each phase, and how busy each resource was: its busy time by the total."""

    phases: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    transfers: int = 0

    @property
    def total(self) -> float:
        """The time of all phases."""
        return sum(self.phases.values())

    @property
    def bottleneck(self) -> str:
        """The resource that is busy for the largest part of the time."""
        return max(self.busy, key=lambda name: self.busy[name])


def heartbeat_interval(workers: int) -> float:
    """Return the seconds between two heartbeats of a worker, as dask chooses them."""
    if workers <= 10:
        return 0.5
    if workers < 50:
        return 1.0
    return 2.0 if workers < 200 else workers / 100


def flights(costs: Costs, rows: int, parts: int, *, upload: bool) -> list[Task]:
    """Return the graph: read or upload, map, check of the schemas, reduce, group.

    Without `upload` the workers read their rows, at no cost: that depends on the storage.
    """
    each = rows / parts
    tasks: list[Task] = []

    def add(phase: str, needs: tuple[int, ...], rows: float, nbytes: float, sent: float = 0) -> int:
        seconds = rows * costs.row.get(phase, 0.0) + (costs.call.get(phase, 0.0) if rows else 0.0)
        tasks.append(Task(phase, needs, seconds, nbytes, sent))
        return len(tasks) - 1

    def merged(phase: str, found: list[int]) -> int:
        while len(found) > SPLIT_EVERY:
            found = [
                add(phase, tuple(found[at : at + SPLIT_EVERY]), 0, costs.partial_bytes)
                for at in range(0, len(found), SPLIT_EVERY)
            ]
        return add(phase, tuple(found), 0, costs.partial_bytes)

    size = each * costs.row_bytes
    sent = size if upload else 0.0
    whole = [add("upload", (), each if upload else 0, size, sent) for _ in range(parts)]
    mapped = [add("map", (part,), each, size) for part in whole]
    schema = add("map", (mapped[0],), 0, 1000)
    checked = [add("map", (part, schema), 0, size) for part in mapped[1:]]
    ready = [mapped[0], *checked]
    merged("reduce", [add("reduce", (part,), each, costs.partial_bytes) for part in ready])
    found = merged("group", [add("group", (part,), each, costs.partial_bytes) for part in ready])
    add("group", (found,), 0, costs.partial_bytes)
    return tasks


class _Serial:
    """A resource that serves one request after another, and how long it was busy."""

    def __init__(self, speed: float = 1.0) -> None:
        self.free, self.busy, self._speed = 0.0, 0.0, speed

    def serve(self, now: float, seconds: float) -> float:
        """Return when a request that arrives now is done."""
        took = seconds / self._speed
        self.free = max(now, self.free) + took
        self.busy += took
        return self.free


class _Run:
    """The state of a simulation."""

    def __init__(self, costs: Costs, tasks: list[Task], workers: int, per_machine: int) -> None:
        self.costs, self.tasks = costs, tasks
        # Heartbeats take a part of the scheduler's time for as long as the cluster lives.
        load = workers * costs.heartbeat / heartbeat_interval(workers)
        if load >= 1:
            raise ValueError(f"{workers} workers: heartbeats alone take {load:.1f} schedulers")
        self.scheduler, self.client = _Serial(1 - load), _Serial()
        self.inputs = [_Serial() for _ in range(workers)]
        self.devices = [_Serial() for _ in range(-(-workers // per_machine))]
        self.per_machine = per_machine
        self.where: list[int] = [-1] * len(tasks)
        self.copies: set[tuple[int, int]] = set()
        self.queued = [0] * workers
        self.turn: Iterator[int] = itertools.cycle(range(workers))
        self.transfers = 0

    def place(self, number: int) -> int:
        """Return the worker of a task: the one with most of its data, else the next in turn."""
        held: Counter[int] = Counter()
        for need in self.tasks[number].needs:
            held[self.where[need]] += int(self.tasks[need].nbytes)
        if not held:
            return next(self.turn)
        most = max(held.values())
        return min((worker for worker, size in held.items() if size == most), key=self._load)

    def _load(self, worker: int) -> tuple[int, int]:
        return self.queued[worker], worker

    def phase(self, numbers: list[int], now: float) -> float:
        """Run the tasks of one phase; return when the last one has ended."""
        mine = set(numbers)
        waiting = {at: {need for need in self.tasks[at].needs if need in mine} for at in numbers}
        followers: dict[int, list[int]] = {}
        for at, needs in waiting.items():
            for need in needs:
                followers.setdefault(need, []).append(at)
        events = [(now, at) for at in numbers if not waiting[at]]
        ended: list[tuple[float, int]] = []
        heapq.heapify(events)
        last = now
        while events or ended:
            if events and (not ended or events[0][0] <= ended[0][0]):
                heapq.heappush(ended, self._start(*heapq.heappop(events)))
                continue
            when, at = heapq.heappop(ended)
            when = self.scheduler.serve(when, self.costs.task / 2)
            self.queued[self.where[at]] -= 1
            last = max(last, when)
            for follower in followers.get(at, []):
                waiting[follower].discard(at)
                if not waiting[follower]:
                    heapq.heappush(events, (when, follower))
        return last

    def _start(self, now: float, at: int) -> tuple[float, int]:
        """Assign a task, move what it needs, and run it; return its end and its number."""
        task, costs = self.tasks[at], self.costs
        sent = self.client.serve(now, task.sent * costs.upload_byte) if task.sent else now
        begin = self.scheduler.serve(sent, costs.task / 2)
        worker = self.where[at] = self.place(at)
        self.queued[worker] += 1
        for need in task.needs:
            if self.where[need] != worker and (need, worker) not in self.copies:
                self.copies.add((need, worker))
                self.transfers += 1
                took = costs.transfer + self.tasks[need].nbytes * costs.transfer_byte
                begin = max(begin, self.inputs[worker].serve(begin, took))
        return self.devices[worker // self.per_machine].serve(begin, task.seconds), at


def simulate(costs: Costs, tasks: list[Task], workers: int, per_machine: int = 1) -> Result:
    """Return the time of each phase with so many workers, of which some share a machine.

    Raises
    ------
    ValueError
        The scheduler cannot even handle the heartbeats.
    """
    if workers < 1 or per_machine < 1:
        raise ValueError(f"{workers} workers, {per_machine} on a machine: 1 or more are needed")
    run, result, now = _Run(costs, tasks, workers, per_machine), Result(), 0.0
    for phase in PHASES:
        end = run.phase([at for at, task in enumerate(tasks) if task.phase == phase], now)
        result.phases[phase], now = end - now, end
    result.transfers = run.transfers
    if now > 0:
        result.busy = {
            "scheduler": run.scheduler.busy / now,
            "client": run.client.busy / now,
            "devices": sum(device.busy for device in run.devices) / now / len(run.devices),
            "transfers": max(link.busy for link in run.inputs) / now,
        }
    return result
