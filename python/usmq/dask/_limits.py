"""Reads limits of device memory: bytes, a size as text, or a fraction of the device's memory."""

import contextlib
import math
from typing import Any

from dask.utils import parse_bytes

import usmq


def parse_limit(given: Any, name: str) -> int | float | None:
    """Return bytes as an int, a fraction of the device's memory as a float, or None.

    Numbers above 0 and up to 1, also as text, are fractions, as in dask and dask-cuda.

    Raises
    ------
    ValueError
        The limit has another form, or is negative.
    """
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    number = math.nan
    with contextlib.suppress(TypeError, ValueError):
        number = float(given)
    if number < 0:
        raise ValueError(f"{name} must be 0 or more, not {given}")
    if 0 < number <= 1:
        return number
    with contextlib.suppress(AttributeError, OverflowError, TypeError, ValueError):
        # dask reads text without a number as 1.
        if not math.isnan(number) or str(given).strip()[:1].isdecimal():
            return int(parse_bytes(given) if math.isnan(number) else number)
    raise ValueError(
        f"{name} is a number of bytes, a size as '2 GiB', a fraction of the device's memory as 0.8,"
        f" or None, not {given!r}"
    )


def in_bytes(limit: int | float, device: usmq.Device) -> int:
    """Return a limit in bytes on this device."""
    return int(limit * device.global_mem_size) if isinstance(limit, float) else limit


def shared(limit: int | float | None, workers: int) -> int | float | None:
    """Return the limit of one of several workers with one device: its part of a fraction."""
    return limit / workers if isinstance(limit, float) else limit
