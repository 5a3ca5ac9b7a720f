"""y += a * x on a device: scope, arrays, a kernel from a file, and the result on the host."""

from __future__ import annotations

import sys
from pathlib import Path

import usmq


def main(target: str | None = None) -> None:
    """Run on the device that a filter string names, else on the current queue's."""
    source = Path(__file__).with_name("axpy.cpp").read_text(encoding="utf-8")
    with usmq.use_queue(target) as queue:
        x = usmq.arange(5, dtype="f4")
        y = usmq.full(5, 1.0, "f4")
        axpy = usmq.Kernel.from_sycl(source, "axpy")
    axpy(x.size, 2.0, x, y)  # runs where its arrays are
    print(f"{queue.device.name}: {y.to_numpy().tolist()}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
