"""A filter object that owns its queue and uses the Fourier transforms of oneMKL through dpnp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import dpnp
import usmq

__all__ = ["Filter", "UsmArray"]


class UsmArray(Protocol):
    """An array in USM, of usmq or of any other library."""

    @property
    def __sycl_usm_array_interface__(self) -> Mapping[str, Any]: ...


class Filter:
    """Periodic convolution with fixed taps; their transform is kept on the filter's queue.

    Parameters
    ----------
    taps
        The weights of an element and of those before it.
    size
        The length of the signals.
    queue
        Where the filter lives: whatever usmq takes as a queue; None means the current one. It is
        asked for here and never again.

    Raises
    ------
    ValueError
        If there are no taps, or more than ``size``.
    """

    def __init__(
        self,
        taps: Sequence[float],
        size: int,
        queue: str | usmq.Device | usmq.Queue | None = None,
    ) -> None:
        if not 0 < len(taps) <= size:
            raise ValueError(f"a filter of size {size} takes 1 to {size} taps: {len(taps)}")
        self._size = size
        with usmq.use_queue(queue) as self._queue:
            padded = usmq.asarray([*taps, *[0.0] * (size - len(taps))], "f4")
        self._transform = dpnp.fft.rfft(dpnp.asarray(padded))

    @property
    def queue(self) -> usmq.Queue:
        """The queue on which the filter lives and works."""
        return self._queue

    def __call__(self, signal: UsmArray) -> usmq.Array:
        """Return the filtered signal, on the filter's queue.

        A signal from elsewhere is brought here: with a copy only where the queue cannot reach it.

        Parameters
        ----------
        signal
            float32, one-dimensional, of the filter's size.

        Raises
        ------
        ValueError
            If the signal is of another size.
        """
        here = usmq.collocate(signal, queue=self._queue)
        if here.shape != (self._size,):
            raise ValueError(f"the filter takes {self._size} elements: its signal is {here.shape}")
        product = dpnp.fft.rfft(dpnp.asarray(here)) * self._transform
        return usmq.asarray(dpnp.fft.irfft(product, n=self._size), copy=False)
