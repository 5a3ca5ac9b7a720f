"""Vector arithmetic: the caller names the queue in every call."""

from __future__ import annotations

from importlib import resources

import usmq

__all__ = ["axpy", "constant"]

_SOURCE = resources.files(__name__).joinpath("axpy.cpp").read_text(encoding="utf-8")


def constant(n: int, value: float, *, queue: str | usmq.Device | usmq.Queue) -> usmq.Array:
    """Return ``n`` float32 elements of one value.

    Parameters
    ----------
    n
        The number of elements.
    value
        What each of them is.
    queue
        Where they are made: whatever usmq takes as a queue, those of other libraries too.
    """
    return usmq.full(n, value, "f4", queue=queue)


def axpy(
    a: float, x: usmq.Array, y: usmq.Array, *, queue: str | usmq.Device | usmq.Queue
) -> usmq.Array:
    """Return ``a * x + y``, computed on ``queue``.

    Nothing is copied to get there: both arrays must be usable from the queue as they are.

    Parameters
    ----------
    a
        The factor of ``x``.
    x, y
        float32, of one shape.
    queue
        The queue of the work and the result: anything that usmq accepts as a queue.

    Raises
    ------
    ValueError
        If the shapes differ.
    usmq.PlacementError
        If the queue cannot use an array; the error names the array and the call that fixes it.
    """
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape: {x.shape} and {y.shape}")
    queue = usmq.follow(x, y, queue=queue)
    result = usmq.empty(x.shape, "f4", queue=queue)
    kernel = usmq.Kernel.from_sycl(_SOURCE, "pkg1_axpy", queue=queue)
    kernel(x.size, a, x, y, result, queue=queue)
    return result
