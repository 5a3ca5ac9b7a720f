"""A package of another author, which uses only dpctl and dpnp."""

from __future__ import annotations

from typing import Any

import dpctl
import dpnp


def ramp(n: int, queue: dpctl.SyclQueue) -> Any:
    """Return 0 to n - 1 on a queue."""
    return dpnp.arange(n, dtype="f4", sycl_queue=queue)


def halved(x: Any) -> Any:
    """Return a new array with half of each element."""
    return dpnp.asarray(x) / 2


def double(x: Any) -> None:
    """Double each element in place."""
    view = dpnp.asarray(x)
    view *= 2
