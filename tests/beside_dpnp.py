"""Operations of dpnp on memory of usmq, and reads by usmq after them, without a wait between.

`tests/run dpnp` runs every cell: 26 operations, four ways to share memory, in-order and
out-of-order queues, 20 rounds of each. In a round a slow kernel of usmq fills the operands, then
dpnp computes, and numpy checks the result; then dpnp changes an operand, which usmq reads.
`--threads` lets two threads of dpnp and two of usmq do this at once. A round that takes longer than
60 seconds is a hang: the program prints the stacks and ends.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import dpctl
import dpnp
import numpy as np
import usmq

WAYS = ("dpnp.asarray", "dpnp.from_dlpack", "usmq.asarray", "usmq.from_dlpack")
ORDERS = ("in order", "out of order")
LIMIT = 60
SIZE = 32
_RANDOM = np.random.default_rng(0)
A = _RANDOM.normal(size=(SIZE, SIZE))
A = A @ A.T + SIZE * np.eye(SIZE)
B = _RANDOM.uniform(1, 2, size=(SIZE, SIZE))

Operation = Callable[[Any, Any, Any], Any]
OPERATIONS: dict[str, Operation] = {
    "add": lambda m, a, b: a + b,
    "subtract": lambda m, a, b: a - b,
    "multiply": lambda m, a, b: a * b,
    "divide": lambda m, a, b: a / b,
    "exp": lambda m, a, b: m.exp(b),
    "sqrt": lambda m, a, b: m.sqrt(b),
    "abs": lambda m, a, b: abs(a),
    "power": lambda m, a, b: b**b,
    "hypot": lambda m, a, b: m.hypot(a, b),
    "maximum": lambda m, a, b: m.maximum(a, b),
    "less": lambda m, a, b: a < b,
    "sum": lambda m, a, b: a.sum(),
    "sort": lambda m, a, b: m.sort(a),
    "cumsum": lambda m, a, b: m.cumsum(b),
    "dot": lambda m, a, b: m.dot(a.ravel(), b.ravel()),
    "matmul": lambda m, a, b: a @ b,
    "solve": lambda m, a, b: m.linalg.solve(a, b),
    "inv": lambda m, a, b: m.linalg.inv(a),
    "det": lambda m, a, b: m.linalg.det(b),
    "cholesky": lambda m, a, b: m.linalg.cholesky(a),
    "eigvalsh": lambda m, a, b: m.linalg.eigvalsh(a),
    "svd": lambda m, a, b: m.linalg.svd(a)[1],
    "qr": lambda m, a, b: abs(m.linalg.qr(a)[1]),
    "norm": lambda m, a, b: m.linalg.norm(a),
    "fft": lambda m, a, b: m.fft.fft(b),
    "rfft": lambda m, a, b: m.fft.rfft(b),
}
RESULTS = {name: operation(np, A, B) for name, operation in OPERATIONS.items()}

# Copies after a loop whose length the caller chooses.
SLOW = """
#include <usmq/kernel.h>
USMQ_KERNEL(1) void slow(const double *from, double *to, int rounds) {
  double v = 0;
  for (int k = 0; k < rounds; ++k) v = v * 0.5 + 0.5;
  to[global_id(0)] = v > 0.4 ? from[global_id(0)] : 0;
}
"""
_LONG = 20_000


class Shared(NamedTuple):
    """Two arrays of zeros in usmq, the same memory in dpnp, and what a kernel fills them with."""

    ours: tuple[usmq.Array, usmq.Array]
    theirs: tuple[Any, Any]
    sources: tuple[usmq.Array, usmq.Array]


def share(way: str, queue: usmq.Queue) -> Shared:
    """Share memory of usmq with dpnp, or memory of dpnp with usmq."""
    sources = usmq.asarray(A, queue=queue), usmq.asarray(B, queue=queue)
    if way.startswith("dpnp."):
        ours = usmq.zeros(A.shape, "f8", queue=queue), usmq.zeros(B.shape, "f8", queue=queue)
        convert = getattr(dpnp, way.removeprefix("dpnp."))
        return Shared(ours, (convert(ours[0]), convert(ours[1])), sources)
    theirs = [dpnp.zeros(A.shape, dtype="f8", sycl_queue=usmq.dpctl_queue(queue)) for _ in range(2)]
    if way == "usmq.asarray":
        ours = usmq.asarray(theirs[0]), usmq.asarray(theirs[1])
    else:
        ours = usmq.from_dlpack(theirs[0], queue=queue), usmq.from_dlpack(theirs[1], queue=queue)
    return Shared(ours, (theirs[0], theirs[1]), sources)


def play(kernel: usmq.Kernel, shared: Shared, name: str, rounds: int = _LONG) -> str | None:
    """Play one round; return what was wrong."""
    for source, target in zip(shared.sources, shared.ours, strict=True):
        kernel(target.size, source, target, np.int32(rounds))
    first, second = shared.theirs
    result = dpnp.asnumpy(OPERATIONS[name](dpnp, first, second))
    if not np.allclose(result, RESULTS[name], rtol=1e-6, atol=1e-6):
        return f"{name}: dpnp read before the kernel had ended, or computed wrongly"
    first *= 2
    if not np.array_equal(shared.ours[0].to_numpy(), 2 * A):
        return f"{name}: usmq read before dpnp had ended"
    return None


def cells(target: str, ways: list[str], orders: list[str], rounds: int, names: list[str]) -> int:
    """Run every cell; return how many were wrong."""
    kernel = usmq.Kernel.from_sycl(SLOW, "slow", queue=target)
    wrong = 0
    for way in ways:
        for order in orders:
            found = set()
            for name in names:
                for _ in range(rounds):
                    faulthandler.dump_traceback_later(LIMIT, exit=True)
                    queue = usmq.Queue(target, in_order=order == "in order")
                    found.add(play(kernel, share(way, queue), name))
            faulthandler.cancel_dump_traceback_later()
            found -= {None}
            wrong += len(found)
            print(
                f"{way}, {order}: {len(names)} operations, {rounds} rounds:",
                "; ".join(sorted(map(str, found))) or "right",
                flush=True,
            )
    return wrong


class Storm:
    """Threads of dpnp and of usmq, in pairs that share half of their queues.

    No two threads of dpnp share a queue: on a CPU they compute wrong values without usmq, too
    (tests/coexistence/control.py, `blas`).
    """

    def __init__(self, target: str, way: str, seconds: float) -> None:
        self.kernel = usmq.Kernel.from_sycl(SLOW, "slow", queue=target)
        self.theirs, self.way = usmq.dpctl_queue(target), way
        self.common = [[self.new(True), self.new(False)] for _ in range(2)]
        self.end = time.monotonic() + seconds
        self.rounds = [0] * 4
        self.wrong: set[str] = set()

    def new(self, in_order: bool) -> usmq.Queue:
        """Return a new queue: with the same arguments, usmq returns the same queue."""
        options = {"property": "in_order"} if in_order else {}
        queue = dpctl.SyclQueue(self.theirs.sycl_context, self.theirs.sycl_device, **options)
        return usmq.Queue(queue)

    def queue(self, number: int, chance: random.Random) -> usmq.Queue:
        """Return a queue that the other thread of the pair uses, too, or a new one."""
        if chance.random() < 0.5:
            return chance.choice(self.common[number % 2])
        return self.new(in_order=chance.random() < 0.5)

    def dpnp(self, number: int) -> None:
        """Play rounds with dpnp."""
        chance = random.Random(number)
        while time.monotonic() < self.end:
            shared = share(self.way, self.queue(number, chance))
            for _ in range(chance.randrange(1, 5)):
                name = chance.choice(list(OPERATIONS))
                if problem := play(self.kernel, shared, name, chance.choice([10, _LONG])):
                    self.wrong.add(problem)
                self.rounds[number] += 1

    def usmq(self, number: int) -> None:
        """Play rounds of usmq alone."""
        chance = random.Random(number)
        while time.monotonic() < self.end:
            queue = self.queue(number, chance)
            x, y = usmq.asarray(A, queue=queue), usmq.empty(A.shape, "f8", queue=queue)
            self.kernel(x.size, x, y, np.int32(chance.choice([10, _LONG])))
            if not np.array_equal(y.copy().to_numpy(), A):
                self.wrong.add("a copy of usmq")
            self.rounds[number] += 1

    def run(self) -> int:
        """Run all threads; return how many kinds of errors were found."""
        # The first calls of dpnp in several threads at once can hang without usmq, too.
        for name in OPERATIONS:
            play(self.kernel, share(self.way, self.common[0][0]), name)
        works = [self.dpnp, self.dpnp, self.usmq, self.usmq]
        threads = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            # In some hangs no thread gets Python's lock, so a timer without it ends the program.
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            before, begun = list(self.rounds), time.monotonic()
            while self.rounds == before and any(thread.is_alive() for thread in threads):
                assert time.monotonic() < begun + LIMIT, f"no round has ended for {LIMIT} seconds"
                time.sleep(0.1)
        faulthandler.cancel_dump_traceback_later()
        text = "; ".join(sorted(self.wrong)) or "right"
        print(f"{self.way}, threads: rounds {self.rounds}: {text}", flush=True)
        return len(self.wrong)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu", help="a selector of the device")
    parser.add_argument("--way", action="append", choices=WAYS, help="all by default")
    parser.add_argument("--order", action="append", choices=ORDERS, help="both by default")
    parser.add_argument("--operation", action="append", choices=OPERATIONS, help="all by default")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=float, metavar="SECONDS", help="run threads instead")
    options = parser.parse_args()
    # By DLPack several threads hang: docs/reliability.md.
    ways = options.way or (["dpnp.asarray", "usmq.asarray"] if options.threads else list(WAYS))
    if options.threads:
        return sum(Storm(options.target, way, options.threads).run() for way in ways) != 0
    orders, names = options.order or list(ORDERS), options.operation or list(OPERATIONS)
    return cells(options.target, ways, orders, options.rounds, names) != 0


if __name__ == "__main__":
    sys.exit(main())
