"""Signals: created on the current queue, which all packages of this style share."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import usmq

__all__ = ["grid", "tones"]

_SOURCE = resources.files(__name__).joinpath("signals.cpp").read_text(encoding="utf-8")


def grid(low: float, high: float, n: int) -> usmq.Array:
    """Return ``n`` float32 numbers from ``low`` to ``high``, both included, at equal distances.

    Raises
    ------
    ValueError
        If ``n`` is less than two.
    """
    if n < 2:
        raise ValueError(f"a grid has two ends, so n must be two or more: {n}")
    # Read once: another thread may change the process default between two reads.
    queue = usmq.current_queue()
    result = usmq.empty(n, "f4", queue=queue)
    usmq.Kernel.from_sycl(_SOURCE, "pkg4_grid", queue=queue)(n, low, high, result)
    return result


def tones(n: int, amplitudes: Mapping[int, float]) -> usmq.Array:
    """Return one period of a signal: a sum of sines, as ``n`` float32 samples.

    Parameters
    ----------
    n
        The number of samples.
    amplitudes
        The height of each sine, by the number of its periods in the signal.
    """
    queue = usmq.current_queue()
    periods = usmq.asarray(list(amplitudes), "u4", queue=queue)
    heights = usmq.asarray(list(amplitudes.values()), "f4", queue=queue)
    result = usmq.empty(n, "f4", queue=queue)
    kernel = usmq.Kernel.from_sycl(_SOURCE, "pkg4_tones", queue=queue)
    kernel(n, len(amplitudes), periods, heights, result)
    return result
