"""Malformed `__sycl_usm_array_interface__`: an exception, never a crash or a wrong view."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import dpctl
import dpctl.memory
import numpy as np
import pytest
import usmq
from arrow_structs import capsule

ABSENT = object()
REFUSED = (ValueError, TypeError, OverflowError, BufferError, usmq.Error)
HUGE = 2**40


class Raises:
    def _get_capsule(self) -> Any:
        raise ZeroDivisionError


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def _get_capsule(self) -> Any:
        return self.answer


def used_capsule() -> Any:
    made = dpctl.SyclQueue()._get_capsule()
    dpctl.SyclQueue(made)
    return made


def malloced(_: int) -> Any:
    """Return memory that no SYCL context knows."""
    buffer = ctypes.create_string_buffer(64)
    KEPT.append(buffer)
    return (ctypes.addressof(buffer), False)


KEPT: list[Any] = []

# One change of a good description of 64 bytes each; a callable gets their address.
MALFORMED: dict[str, dict[str, Any]] = {
    "version missing": {"version": ABSENT},
    "version 0": {"version": 0},
    "version 2": {"version": 2},
    "version -1": {"version": -1},
    "version of 70 bits": {"version": 2**70},
    "version a string": {"version": "1"},
    "version None": {"version": None},
    "data missing": {"data": ABSENT},
    "data None": {"data": None},
    "data empty": {"data": ()},
    "data a number": {"data": lambda p: p},
    "data of one": {"data": lambda p: (p,)},
    "data of three": {"data": lambda p: (p, False, 0)},
    "data a dict": {"data": lambda p: {p: False, 1: 2}},
    "pointer null": {"data": (0, False)},
    "pointer None": {"data": (None, False)},
    "pointer a string": {"data": ("1", False)},
    "pointer negative": {"data": (-8, False)},
    "pointer of 65 bits": {"data": (2**64, False)},
    "pointer at the top": {"data": (2**64 - 8, False)},
    "pointer to host memory": {"data": malloced},
    "pointer elsewhere": {"data": lambda p: (p + 2**42, False)},
    "syclobj missing": {"syclobj": ABSENT},
    "syclobj None": {"syclobj": None},
    "syclobj a number": {"syclobj": 3},
    "syclobj an object": {"syclobj": object()},
    "syclobj no filter": {"syclobj": "CPU"},
    "syclobj an empty filter": {"syclobj": ""},
    "syclobj an absent device": {"syclobj": "gpu:99"},
    "syclobj a platform": {"syclobj": lambda _: dpctl.SyclDevice().sycl_platform},
    "syclobj another capsule": {"syclobj": lambda _: capsule(1, b"dltensor")},
    "syclobj a used capsule": {"syclobj": lambda _: used_capsule()},
    "syclobj whose capsule is None": {"syclobj": Answers(None)},
    "syclobj whose capsule is another": {"syclobj": lambda _: Answers(capsule(1, b"nosuch"))},
    "syclobj whose capsule is used": {"syclobj": lambda _: Answers(used_capsule())},
    "shape missing": {"shape": ABSENT},
    "shape None": {"shape": None},
    "shape a number": {"shape": 64},
    "shape a string": {"shape": "64"},
    "shape of strings": {"shape": ("64",)},
    "shape of fractions": {"shape": (1.5,)},
    "shape of tuples": {"shape": ((2,),)},
    "shape negative": {"shape": (-1,)},
    "shape negative twice": {"shape": (-8, -8)},
    "shape far too long": {"shape": (HUGE,)},
    "shape over 64 bits": {"shape": (2**64,)},
    "shape over 63 bits": {"shape": (2**63,)},
    "shape whose size overflows": {"shape": (HUGE, HUGE)},
    "shape whose size overflows to 0": {"shape": (2**32, 2**32)},
    "shape whose bytes overflow": {"shape": (2**61,), "typestr": "<c16"},
    "shape of one dimension too many": {"shape": (64,), "strides": (1, 1)},
    "typestr of objects": {"typestr": "|O"},
    "typestr of bytes": {"typestr": "|S1"},
    "typestr of void": {"typestr": "|V1"},
    "typestr of text": {"typestr": "<U1"},
    "typestr of dates": {"typestr": "<M8[s]", "shape": (8,)},
    "typestr of records": {"typestr": [("a", "u1")]},
    "typestr unknown": {"typestr": "nosuch"},
    "typestr empty": {"typestr": ""},
    "typestr a number": {"typestr": 4},
    "typestr of the other byte order": {"typestr": ">f4", "shape": (16,)},
    "typestr of a width that is none": {"typestr": "<f3", "shape": (16,)},
    "strides a number": {"strides": 1},
    "strides of strings": {"strides": ("1",)},
    "strides of fractions": {"strides": (1.5,)},
    "strides too few": {"strides": ()},
    "strides too many": {"strides": (1, 1)},
    "strides far too long": {"strides": (HUGE,)},
    "strides far before": {"strides": (-HUGE,)},
    "strides that overflow": {"strides": (2**62,), "shape": (5,)},
    "strides that overflow backwards": {"strides": (-(2**63),), "shape": (3,)},
    "strides that wrap back into place": {"strides": (2**63,), "shape": (3,)},
    "offset None": {"offset": None},
    "offset a string": {"offset": "1"},
    "offset a fraction": {"offset": 1.5},
    "offset far behind": {"offset": HUGE},
    "offset far before": {"offset": -HUGE},
    "offset over 64 bits": {"offset": 2**64},
    "offset that overflows in bytes": {"offset": 2**61, "typestr": "<f8", "shape": (1,)},
}


class Foreign:
    def __init__(self, interface: Any) -> None:
        self.__sycl_usm_array_interface__ = interface


@pytest.fixture
def memory() -> Any:
    return dpctl.memory.MemoryUSMShared(64, queue=dpctl.SyclQueue())


def good(memory: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "data": (memory._pointer, False),
        "shape": (64,),
        "typestr": "|u1",
        "strides": (1,),
        "offset": 0,
        "syclobj": memory.sycl_queue,
    }


def malformed(memory: Any, change: dict[str, Any]) -> dict[str, Any]:
    interface = good(memory)
    if "shape" in change and "strides" not in change:
        interface["strides"] = None
    for key, value in change.items():
        if value is ABSENT:
            del interface[key]
        else:
            interface[key] = value(memory._pointer) if callable(value) else value
    return interface


def test_the_unmodified_description_is_valid(memory: Any) -> None:
    assert usmq.asarray(Foreign(good(memory)), copy=False).ptr == memory._pointer


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_description_is_refused(memory: Any, name: str) -> None:
    for copy in (False, None, True):
        with pytest.raises(REFUSED):
            usmq.asarray(Foreign(malformed(memory, MALFORMED[name])), copy=copy)


@pytest.mark.parametrize(
    "interface", [None, 3, "x", [], (), {}, MappingProxyType({"version": 1}), dict], ids=str
)
def test_an_interface_that_is_not_a_dict_is_refused(interface: Any) -> None:
    with pytest.raises(REFUSED):
        usmq.asarray(Foreign(interface), copy=False)


def test_the_error_names_the_invalid_key(memory: Any) -> None:
    for name, word in [
        ("version 2", "version"),
        ("data of one", "data"),
        ("syclobj a number", "syclobj"),
        ("shape negative", "shape"),
        ("typestr of objects", "typestr|dtype"),
        ("strides too many", "strides"),
        ("offset a string", "offset"),
    ]:
        with pytest.raises(REFUSED, match=word):
            usmq.asarray(Foreign(malformed(memory, MALFORMED[name])), copy=False)


def foreign_context(kind: str) -> Callable[[usmq.Queue], Any]:
    queue: Callable[[usmq.Queue], dpctl.SyclQueue] = lambda q: dpctl.SyclQueue(q._get_capsule())  # noqa: E731
    return {
        "queue": queue,
        "context": lambda q: queue(q).sycl_context,
        "queue capsule": lambda q: q._get_capsule(),
        "context capsule": lambda q: q.context._get_capsule(),
        "holder": lambda q: Answers(q._get_capsule()),
    }[kind]


@pytest.mark.parametrize("kind", ["queue", "context", "queue capsule", "context capsule", "holder"])
def test_a_pointer_of_another_context_is_refused(
    memory: Any, queue_of_other_context: usmq.Queue, kind: str
) -> None:
    interface = good(memory) | {"syclobj": foreign_context(kind)(queue_of_other_context)}
    with pytest.raises(REFUSED):
        usmq.asarray(Foreign(interface), copy=False)


def test_freed_memory_is_refused() -> None:
    memory = dpctl.memory.MemoryUSMDevice(256 << 20, queue=dpctl.SyclQueue())
    interface = good(memory)
    del memory
    with pytest.raises(REFUSED):
        usmq.asarray(Foreign(interface), copy=False)


def test_an_exception_of_the_producer_propagates(memory: Any) -> None:
    class Broken:
        @property
        def __sycl_usm_array_interface__(self) -> Any:
            raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        usmq.asarray(Broken())
    with pytest.raises(ZeroDivisionError):
        usmq.asarray(Foreign(good(memory) | {"syclobj": Raises()}))


def test_an_attribute_error_means_no_interface() -> None:
    class Without:
        @property
        def __sycl_usm_array_interface__(self) -> Any:
            raise AttributeError("not on this device")

        def __len__(self) -> int:
            return 0

    with pytest.raises((TypeError, ValueError, BufferError)):
        usmq.asarray(Without(), copy=False)


def test_a_dict_that_changes_while_it_is_read_is_harmless(memory: Any) -> None:
    interface = good(memory)

    class Clears:
        def __index__(self) -> int:
            interface.clear()
            return 64

    interface["shape"] = (Clears(),)
    try:
        x = usmq.asarray(Foreign(interface), copy=False)
    except (*REFUSED, KeyError):
        return
    assert (x.ptr, x.shape) == (memory._pointer, (64,))


def test_a_refusal_leaks_no_reference(memory: Any) -> None:
    queue = memory.sycl_queue
    names = ["version 2", "pointer to host memory", "shape negative", "typestr of objects"]
    before = sys.getrefcount(queue), sys.getrefcount(memory)
    for _ in range(100):
        for name in names:
            interface = malformed(memory, MALFORMED[name]) | {"syclobj": queue}
            with pytest.raises(REFUSED):
                usmq.asarray(Foreign(interface), copy=False)
    del interface
    usmq.trim_memory()  # while the release thread still has owners to release
    after = sys.getrefcount(queue), sys.getrefcount(memory)
    assert after[0] - before[0] < 10
    assert after[1] - before[1] < 10
    KEPT.clear()


def test_refusals_do_not_change_the_memory(memory: Any) -> None:
    np.asarray(memory)[:] = 5
    for change in MALFORMED.values():
        with pytest.raises(REFUSED):
            usmq.asarray(Foreign(malformed(memory, change)), copy=False)
    assert set(np.asarray(memory).tolist()) == {5}
