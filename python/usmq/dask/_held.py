"""Finds the arrays inside of containers and objects, to measure and to spill their memory."""

import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from dask.sizeof import sizeof

import usmq
from usmq.dask._peer_arrays import register

# Types without parts, for speed.
ATOMS = {int, float, complex, bool, str, bytes, bytearray, type(None), np.ndarray}
# Objects that refer to things that are not theirs.
OTHERS = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def held(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the USM kind and the bytes of each array and column in a value, once each."""
    seen, stack = set(), [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind in ATOMS or id(item) in seen:
            continue
        seen.add(id(item))
        if kind is usmq.Table:
            stack += [column for batch in item.batches for column in batch.columns]
        elif kind is usmq.Array or kind is usmq.Column:
            yield item.usm_type, item.nbytes
        elif hasattr(kind, "__sycl_usm_array_interface__"):
            yield from of_interface(item)
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, (list, tuple, set, frozenset, deque)):
            stack += item
        elif not isinstance(item, OTHERS):
            stack += parts(item)


def of_interface(item: Any) -> Iterator[tuple[str, int]]:
    """Yield the USM kind and the bytes of an object with the array interface."""
    register()
    try:
        array = (
            item if hasattr(item, "usm_type") and hasattr(item, "nbytes") else usmq.asarray(item)
        )
        yield array.usm_type, int(array.nbytes)
    except Exception:  # It says that it is an array, and is none: nothing to measure or spill.
        return


def parts(item: Any) -> Iterable[Any]:
    """Return the values of an object's attributes."""
    values: Iterable[Any] = getattr(item, "__dict__", {}).values()
    kind: Any = type(item)
    if slots := slots_of(kind):
        return [*values, *(getattr(item, name, None) for name in slots)]
    return values


@functools.lru_cache(1000)
def slots_of(kind: Any) -> list[str]:
    """Return the names of the slots of a class and its bases."""
    names = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
    return [name for name in names if isinstance(name, str)]


def device_bytes(value: Any) -> int:
    """Return the bytes of device memory in a value, also inside of containers and objects."""
    return sum(nbytes for usm_type, nbytes in held(value) if usm_type == "device")


@sizeof.register(object)
def size_of_object(item: Any) -> int:
    """Return the size that dask counts for an object of a class that it does not know.

    dask asks for the size of the object only. Its arrays count here, unless its own `__sizeof__`
    includes them.
    """
    own = sys.getsizeof(item)
    has_own = isinstance(type(item).__sizeof__, FunctionType)
    if has_own or isinstance(item, (usmq.Array, usmq.Column, usmq.Table)):
        return own
    return own + sum(nbytes for _, nbytes in held(item))
