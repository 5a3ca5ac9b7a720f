"""Histograms: the work runs on the queue of the data."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any, Protocol

import usmq

__all__ = ["UsmArray", "histogram"]

_SOURCE = resources.files(__name__).joinpath("histogram.cpp").read_text(encoding="utf-8")


class UsmArray(Protocol):
    """An array in USM, of usmq or of any other library."""

    @property
    def __sycl_usm_array_interface__(self) -> Mapping[str, Any]: ...


def histogram(x: UsmArray, edges: UsmArray) -> usmq.Array:
    """Count the elements of ``x`` between adjacent ``edges``, on the queue of both arrays.

    As in numpy, a bin includes its lower edge and excludes its upper one; the last includes both;
    elements outside all bins and NaN are not counted.

    Parameters
    ----------
    x
        float32, contiguous, of any shape.
    edges
        float32, contiguous, ascending, two or more, on the queue of ``x``.

    Returns
    -------
    usmq.Array
        The counts, uint32, one less than the edges, on the queue of the data.

    Raises
    ------
    ValueError
        If there are not two edges, in one dimension.
    usmq.PlacementError
        If the arrays are on different queues; the error names both and the call that fixes it.
    """
    x, edges = usmq.asarray(x, copy=False), usmq.asarray(edges, copy=False)
    if edges.ndim != 1 or edges.size < 2:
        raise ValueError(f"edges must be two or more, in one dimension: its shape is {edges.shape}")
    queue = usmq.follow(x, edges)
    counts = usmq.zeros(edges.size - 1, "u4", queue=queue)
    kernel = usmq.Kernel.from_sycl(_SOURCE, "pkg3_histogram", queue=queue)
    kernel(x.size, x, edges, counts.size, counts)
    return counts
