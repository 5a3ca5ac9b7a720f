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

# Wrong values of each key in a good description of 64 bytes; a callable gets their address.
VALUES: dict[str, list[Any]] = {
    "version": [ABSENT, 0, 2, -1, 2**70, "1", 1.0, (), None],
    "data": [
        *[ABSENT, None, (), lambda p: p, lambda p: (p,), lambda p: (p, False, 0)],
        *[lambda p: {p: False, 1: 2}, malloced, lambda p: (p + 2**42, False)],
        *[(at, False) for at in (0, None, "1", 1.5, -8, 64, 2**63, 2**64 - 8, 2**64, 2**90)],
    ],
    "syclobj": [
        *[ABSENT, None, 3, object(), b"cpu", "CPU", "", "gpu:99", Answers(None), Answers(3)],
        *[lambda _: dpctl.SyclDevice().sycl_platform, lambda _: np.zeros(1)],
        *[lambda _: used_capsule(), lambda _: Answers(used_capsule())],
        *[lambda _: capsule(1, b"dltensor"), lambda _: capsule(1, b"x" * 300)],
        *[lambda _: Answers(capsule(1, b"nosuch")), lambda _: capsule(1, b"SyclDeviceRef")],
    ],
    "shape": [
        *[ABSENT, None, 64, "64", ("64",), (1.5,), ((2,),), (None,), (-1,), (-8, -8)],
        *[(HUGE,), (2**64,), (2**63,), (2**70,), (HUGE, HUGE), (2**32, 2**32), (2**62, 4)],
    ],
    "typestr": [
        *["|O", "O", "|S1", "|S3", "|V1", "<U1", "<m8[s]", [("a", "u1")], "nosuch", "", "f"],
        *["é", 4, None, b"<f4"],
    ],
    "strides": [1, ("1",), (1.5,), (), (1, 1), (HUGE,), (-HUGE,)],
    "offset": [None, "1", 1.5, (), HUGE, -HUGE, 2**64, 2**70],
}
MALFORMED: list[dict[str, Any]] = [{key: value} for key in VALUES for value in VALUES[key]]
MALFORMED += [
    {"shape": (2**61,), "typestr": "<c16"},
    {"shape": (64,), "strides": (1, 1)},
    {"shape": (8,), "typestr": "<M8[s]"},
    {"shape": (16,), "typestr": ">f4"},  # of the other byte order
    {"shape": (16,), "typestr": "<f3"},
    {"strides": (2**62,), "shape": (5,)},
    {"strides": (-(2**63),), "shape": (3,)},
    {"strides": (2**63,), "shape": (3,)},  # wraps back into place
    {"offset": 2**61, "typestr": "<f8", "shape": (1,)},
]


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


def malformed(good: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    interface = dict(good)
    if "shape" in change and "strides" not in change:
        interface["strides"] = None
    for key, value in change.items():
        if value is ABSENT:
            del interface[key]
        else:
            interface[key] = value(good["data"][0]) if callable(value) else value
    return interface


def test_the_unmodified_description_is_valid(memory: Any) -> None:
    assert usmq.asarray(Foreign(good(memory)), copy=False).ptr == memory._pointer


@pytest.mark.parametrize("change", MALFORMED, ids=" and ".join)
def test_a_malformed_description_is_refused(memory: Any, change: dict[str, Any]) -> None:
    np.asarray(memory)[:] = 5
    for copy in (False, None, True):
        with pytest.raises(REFUSED):
            usmq.asarray(Foreign(malformed(good(memory), change)), copy=copy)
    assert set(np.asarray(memory).tolist()) == {5}


@pytest.mark.parametrize(
    "interface", [None, 3, "x", [], (), {}, MappingProxyType({"version": 1}), dict], ids=str
)
def test_an_interface_that_is_not_a_dict_is_refused(interface: Any) -> None:
    with pytest.raises(REFUSED):
        usmq.asarray(Foreign(interface), copy=False)


def test_the_error_names_the_invalid_key(memory: Any) -> None:
    for change, word in [
        ({"version": 2}, "version"),
        ({"data": lambda p: (p,)}, "data"),
        ({"syclobj": 3}, "syclobj"),
        ({"shape": (-1,)}, "shape"),
        ({"typestr": "|O"}, "typestr|dtype"),
        ({"strides": (1, 1)}, "strides"),
        ({"offset": "1"}, "offset"),
    ]:
        with pytest.raises(REFUSED, match=word):
            usmq.asarray(Foreign(malformed(good(memory), change)), copy=False)


OTHER_CONTEXTS: dict[str, Callable[[usmq.Queue], Any]] = {
    "queue": lambda q: dpctl.SyclQueue(q._get_capsule()),
    "context": lambda q: dpctl.SyclQueue(q._get_capsule()).sycl_context,
    "queue capsule": lambda q: q._get_capsule(),
    "context capsule": lambda q: q.context._get_capsule(),
    "holder": lambda q: Answers(q._get_capsule()),
}


@pytest.mark.parametrize("form", OTHER_CONTEXTS)
def test_a_pointer_of_another_context_is_refused(
    memory: Any, queue_of_other_context: usmq.Queue, form: str
) -> None:
    interface = good(memory) | {"syclobj": OTHER_CONTEXTS[form](queue_of_other_context)}
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
    changes = [{"version": 2}, {"data": malloced}, {"shape": (-1,)}, {"typestr": "|O"}]
    before = sys.getrefcount(queue), sys.getrefcount(memory)
    for _ in range(100):
        for change in changes:
            interface = malformed(good(memory), change) | {"syclobj": queue}
            with pytest.raises(REFUSED):
                usmq.asarray(Foreign(interface), copy=False)
    del interface
    usmq.trim_memory()  # while the release thread still has owners to release
    after = sys.getrefcount(queue), sys.getrefcount(memory)
    assert after[0] - before[0] < 10
    assert after[1] - before[1] < 10
    KEPT.clear()
