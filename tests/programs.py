"""Random programs on every device, against numpy: `tests/run programs --seconds 60 --seed 1`.

A program has five arrays and sixty steps, without a wait between them. Each thread runs one program
after the other, with the seeds N, N + threads, … A wrong value or an error prints the seed and the
steps, and ends the run. `--threads 1 --count 1 --seed N` repeats one program. `--target gpu:0`
names a device instead of all root devices, and may be given several times.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import usmq

DTYPES = ("i1", "u2", "i4", "i8", "f4", "bool")
SIZES = (0, 1, 17, 4096, 40_000)
ARRAYS, STEPS = 5, 60

triple = usmq.elementwise("const T *x, T *y", "y[i] = y[i] * 3 + x[i]")
total = usmq.reduction("const T *x", "long", "x[i]", "a + b", "0")


@dataclass
class Program:
    """The arrays, what numpy says that they hold, and the steps so far."""

    rand: random.Random
    queues: list[usmq.Queue]
    arrays: list[usmq.Array] = field(default_factory=list)
    models: list[np.ndarray] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def host(self, size: int, dtype: str) -> np.ndarray:
        """Random bytes: of a bool any byte, of a number small values."""
        values = np.array(self.rand.choices(range(100), k=size), "u1")
        return values.view("?") if dtype == "bool" else values.astype(dtype)

    def make(self, size: int, dtype: str) -> tuple[usmq.Array, np.ndarray]:
        host = self.host(size, dtype)
        kind = self.rand.choice(("device", "shared", "host"))
        made = usmq.asarray(host, queue=self.rand.choice(self.queues), usm_type=kind)
        return made, host.view("u1").astype("?") if dtype == "bool" else host

    def replace(self, position: int, array: usmq.Array, model: np.ndarray) -> None:
        self.arrays[position], self.models[position] = array, model

    def check(self, array: usmq.Array, model: np.ndarray) -> None:
        got = array.to_numpy()
        if got.dtype != model.dtype or not np.array_equal(got, model):
            wrong = np.flatnonzero(got != model)[:4]
            raise AssertionError(f"{array!r}: at {wrong} {got[wrong]}, right {model[wrong]}")


def fill(p: Program, at: int) -> None:
    value = p.rand.randrange(2 if p.models[at].dtype == "?" else 99)
    p.arrays[at].fill(value)
    p.models[at][:] = value


def write(p: Program, at: int) -> None:
    host = p.host(p.models[at].size, p.arrays[at].dtype)
    p.arrays[at].copy_from(host)
    p.models[at][:] = host.view("u1").astype("?") if host.dtype == "?" else host


def assign(p: Program, at: int) -> None:
    """Move a part of another array, of any type and queue, into this one."""
    other = p.rand.randrange(ARRAYS)
    size = min(p.models[at].size, p.models[other].size)
    if not converts(p.models[other][:size], p.models[at].dtype):
        return
    source = usmq.collocate(p.arrays[other][:size], like=p.arrays[at])
    p.arrays[at][:size] = source.astype(p.arrays[at].dtype)
    p.models[at][:size] = p.models[other][:size].astype(p.models[at].dtype)


def shift(p: Program, at: int) -> None:
    """Copy between views that overlap."""
    x, y = p.arrays[at], p.models[at]
    x[1:].copy_from(x[:-1])
    y[1:] = y[:-1].copy()


def interleave(p: Program, at: int) -> None:
    x, y = p.arrays[at], p.models[at]
    half = y.size // 2
    x[: 2 * half : 2].copy_from(x[1 : 2 * half : 2])
    y[: 2 * half : 2] = y[1 : 2 * half : 2]


def grows_exactly(model: np.ndarray) -> bool:
    """Whether a few launches stay exact: integers wrap, floats have 24 bits."""
    return model.dtype != "?" and (model.dtype != "f4" or not (abs(model) > 1e4).any())


def converts(model: np.ndarray, dtype: Any) -> bool:
    """Whether C++ defines the conversion: of floats, that of values in range."""
    return (
        model.dtype != "f4"
        or np.dtype(dtype).kind not in "iu"
        or not ((model < 0) | (model > 127)).any()
    )


def launch(p: Program, at: int) -> None:
    if not grows_exactly(p.models[at]):
        return
    y = p.arrays[at].copy()
    triple(p.arrays[at], y)
    p.replace(p.rand.randrange(ARRAYS), y, (p.models[at] * 4).astype(p.models[at].dtype))


def replay(p: Program, at: int) -> None:
    if not grows_exactly(p.models[at]):
        return
    x, y = p.arrays[at], p.arrays[at].copy()
    with usmq.capture() as graph:
        triple(x, y)
        triple(x, y)
    graph.replay()
    graph.replay()
    expected = p.models[at].copy()
    for _ in range(4):
        expected = (expected * 3 + p.models[at]).astype(expected.dtype)
    p.replace(p.rand.randrange(ARRAYS), y, expected)


def move(p: Program, at: int) -> None:
    p.arrays[at] = usmq.collocate(p.arrays[at], queue=p.rand.choice(p.queues))


def cast(p: Program, at: int) -> None:
    dtype = p.rand.choice(DTYPES)
    if converts(p.models[at], dtype):
        p.replace(at, p.arrays[at].astype(dtype), p.models[at].astype(dtype))


def exchange(p: Program, at: int) -> None:
    """Pass the array through a protocol. DLPack names no context but the default one."""
    x = p.arrays[at]
    if p.rand.random() < 0.5:
        interface = x.__sycl_usm_array_interface__
        p.arrays[at] = usmq.asarray(
            SimpleNamespace(__sycl_usm_array_interface__=interface, owner=x)
        )
    elif x.queue.context == usmq.Queue(x.device).context:
        p.arrays[at] = usmq.from_dlpack(x)


def column(p: Program, at: int) -> None:
    if p.models[at].dtype != "?":
        values = usmq.from_arrow(usmq.Column(p.arrays[at], name="x")).values()
        p.check(values, p.models[at])
        p.arrays[at] = values.copy()


def count(p: Program, at: int) -> None:
    got, right = total(p.arrays[at]).item(), int(p.models[at].sum(dtype="i8"))
    if p.models[at].dtype != "f4" and got != right:
        raise AssertionError(f"the sum of {p.arrays[at]!r} is {got}, right {right}")


def read(p: Program, at: int) -> None:
    p.check(p.arrays[at], p.models[at])


def renew(p: Program, at: int) -> None:
    p.replace(at, *p.make(p.rand.choice(SIZES), p.rand.choice(DTYPES)))


OPERATIONS = (
    *(fill, write, assign, shift, interleave, launch, replay, move, cast, exchange, column),
    *(count, read, renew),
)


def run(seed: int, queues: list[usmq.Queue]) -> None:
    program = Program(random.Random(seed), queues)
    for _ in range(ARRAYS):
        array, model = program.make(program.rand.choice(SIZES), program.rand.choice(DTYPES))
        program.arrays.append(array)
        program.models.append(model)
    try:
        for _ in range(STEPS):
            at = program.rand.randrange(ARRAYS)
            operation = program.rand.choice(OPERATIONS)
            x = program.arrays[at]
            program.steps.append(
                f"{operation.__name__} {at}: {x.dtype}[{x.size}] {x.usm_type} {x.queue}"
            )
            operation(program, at)
        for array, model in zip(program.arrays, program.models, strict=True):
            program.check(array, model)
    except BaseException:
        print(f"seed {seed}:", *program.steps, sep="\n  ", flush=True)
        raise


def queues_of(targets: list[str]) -> Iterator[usmq.Queue]:
    for target in targets or [device.filter_string for device in usmq.devices()]:
        device = usmq.Device(target)
        yield usmq.Queue(device)
        yield usmq.Queue(device, in_order=False)
        yield usmq.Queue(device, profiling=True)
        yield usmq.Queue(device, context=usmq.Context([device]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="programs for each thread, instead of a time")
    parser.add_argument("--target", action="append", default=[])
    options = parser.parse_args()
    queues = list(queues_of(options.target))
    faulthandler.dump_traceback_later((options.count or options.seconds) + 300, exit=True)
    end, done, failed = time.monotonic() + options.seconds, [0] * options.threads, threading.Event()

    def work(thread: int) -> None:
        while not failed.is_set():
            if done[thread] == options.count or (not options.count and time.monotonic() > end):
                return
            try:
                run(options.seed + done[thread] * options.threads + thread, queues)
            except BaseException:
                traceback.print_exc()
                failed.set()
            done[thread] += 1

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = ", ".join(sorted({queue.device.filter_string for queue in queues}))
    outcome = "WRONG" if failed.is_set() else "exact"
    print(f"{sum(done)} programs, {sum(done) * STEPS} steps on {names}: {outcome}")
    return failed.is_set()


if __name__ == "__main__":
    sys.exit(main())
