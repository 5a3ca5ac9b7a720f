"""Bad input: a wrong shape, dtype, kind or object is a clear exception of the right class."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import usmq

CREATE: dict[str, Callable[..., usmq.Array]] = {
    "empty": usmq.empty,
    "zeros": usmq.zeros,
    "full": lambda shape, **others: usmq.full(shape, 1, **({"dtype": "f4"} | others)),
}


@pytest.fixture(params=CREATE)
def create(request: pytest.FixtureRequest) -> Callable[..., usmq.Array]:
    return CREATE[request.param]


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("shape", [(2**50,), (2**25, 2**25), (1, 2**50, 1)], ids=str)
def test_a_shape_too_large_for_the_device_is_an_allocation_error(
    create: Callable[..., usmq.Array], shape: tuple[int, ...], kind: str
) -> None:
    with pytest.raises(usmq.AllocationError) as caught:
        create(shape, dtype="u1", usm_type=kind)
    assert isinstance(caught.value, MemoryError)
    assert any(character.isdigit() for character in str(caught.value))


# src/array/layout_tests.rs and test_argument_errors.py have other extents.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *[((2**40, 2**40), "u1"), ((2**32, 2**32), "u1"), ((0, 2**40, 2**40), "u1")],
        *[((2**61,), "f8"), ((2**21,) * 3, "u2")],
    ],
    ids=str,
)
def test_a_shape_that_overflows_is_a_value_error(
    create: Callable[..., usmq.Array], shape: tuple[int, ...], dtype: str
) -> None:
    with pytest.raises((ValueError, OverflowError)):
        create(shape, dtype=dtype)


@pytest.mark.parametrize("shape", [-1, (-1,), (3, -2), (-2, -2), (0, -1), (-(2**63),)], ids=str)
def test_a_negative_dimension_is_a_value_error(
    create: Callable[..., usmq.Array], shape: Any
) -> None:
    with pytest.raises(ValueError, match=r"negative|-\d"):
        create(shape)


# test_argument_errors.py has the others.
@pytest.mark.parametrize("shape", [(1.5,), (None,), {"a": 1}], ids=repr)
def test_a_shape_of_another_type_is_a_type_error(
    create: Callable[..., usmq.Array], shape: Any
) -> None:
    with pytest.raises(TypeError):
        create(shape)


@pytest.mark.parametrize(
    "dtype",
    [
        *["nosuch", "O", "S4", "U4", "V8", "M8[s]", "f3", "f16", "", ">f4"],
        *[object, str, 4, b"f4", []],
        np.dtype(">f4"),
        np.dtype(ml_dtypes.bfloat16).newbyteorder(">"),
        np.dtype([("float32", "f4")]),
        pd.Series([1.0], name="float32"),
        usmq.QueueManager("float32"),
        SimpleNamespace(name="float32", itemsize=8),
    ],
    ids=repr,
)
def test_an_invalid_dtype_is_a_type_error(create: Callable[..., usmq.Array], dtype: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        create(3, dtype=dtype)
    with pytest.raises((TypeError, ValueError)):
        usmq.DType(dtype)
    assert all(usmq.DType(name) != dtype for name in ("float32", "bfloat16"))


@pytest.mark.parametrize("kind", ["", "Device", "unified", "gpu"])
def test_an_unknown_usm_kind_is_a_value_error_that_lists_them(
    create: Callable[..., usmq.Array], kind: str
) -> None:
    with pytest.raises(ValueError, match="shared"):
        create(3, usm_type=kind)
    with pytest.raises(ValueError, match="shared"):
        usmq.asarray([1], usm_type=kind)


@pytest.mark.parametrize(
    "source",
    [
        *[None, object(), "text", {}, {1, 2}, len, [[1, 2], [3]], [[1, 2], 3], [1, [2]]],
        *[[None], ["a"], [object()], np.array([1, "a"], dtype=object), np.array(["a", "b"])],
        *[np.array(["2020-01-01"], dtype="M8[D]"), np.zeros(2, [("a", "i4"), ("b", "f4")])],
    ],
)
def test_objects_that_do_not_convert_to_an_array_are_refused(source: Any) -> None:
    for copy in (None, True, False):
        with pytest.raises((TypeError, ValueError, BufferError)):
            usmq.asarray(source, copy=copy)


@pytest.mark.parametrize("source", [[2**64], [2**70], [-(2**63) - 1], [10**400]], ids=str)
def test_a_number_beyond_every_dtype_is_refused(source: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        usmq.asarray(source)


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises((TypeError, ValueError, RecursionError)):
        usmq.asarray(endless)


@pytest.mark.parametrize(
    "name", ["shape", "strides", "dtype", "ptr", "queue", "usm_type", "readonly", "size", "nosuch"]
)
def test_attributes_of_an_array_cannot_be_set(name: str) -> None:
    x = usmq.zeros(3)
    with pytest.raises((AttributeError, TypeError)):
        setattr(x, name, None)


@pytest.mark.parametrize("cls", [usmq.Array, usmq.Event, usmq.Plan])
def test_types_without_a_constructor_cannot_be_constructed(cls: Any) -> None:
    with pytest.raises(TypeError):
        cls()


def test_unknown_keywords_are_type_errors(create: Callable[..., usmq.Array]) -> None:
    with pytest.raises(TypeError):
        create(3, order="F")
    with pytest.raises(TypeError):
        usmq.Queue(in_orders=True)  # type: ignore[call-arg]


def test_errors_leak_no_memory() -> None:
    def fail() -> None:
        for call in (
            lambda: usmq.empty((2**50,), "u1"),
            lambda: usmq.empty(3, "nosuch"),
            lambda: usmq.asarray([[1, 2], [3]]),
            lambda: usmq.asarray(["a"]),
            lambda: usmq.zeros(3).copy_from(np.zeros(4)),
            lambda: usmq.zeros(3).reshape(2, 2),
            lambda: usmq.zeros(3)[5],
            lambda: usmq.full(3, "x", "f4"),
            lambda: usmq.collocate(usmq.zeros(3), like=3),
        ):
            with pytest.raises((TypeError, ValueError, MemoryError, IndexError)):
                call()

    def kept() -> tuple[int, int]:
        usmq.current_queue().wait()
        gc.collect()
        usmq.trim_memory()
        found = usmq.memory_stats()["device"]
        return found["used"], found["live"]

    fail()
    before = kept()
    for _ in range(50):
        fail()
    assert kept() == before


SIZES = "must be a whole number from 0 to 2**63 - 1, or a sequence of them, not "


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: usmq.empty({2}), TypeError, SIZES + "{2}"),
        (lambda x: usmq.empty(np.ones((1, 2), "i4")), TypeError, SIZES + "array("),
        (lambda x: usmq.empty(np.array([2.5])), TypeError, "shape " + SIZES + "array([2.5])"),
        (lambda x: usmq.empty(np.array([2, -3])), ValueError, "shape " + SIZES + "array([ 2, -3])"),
        (lambda x: x.device.sub_devices(-1), ValueError, "partition " + SIZES + "-1"),
        (lambda x: x.device.sub_devices(b"numa"), TypeError, "or \"numa\", not b'numa'"),
        (lambda x: usmq.Context(x.device), TypeError, "not <usmq.Device"),
        (
            lambda x: usmq.asarray(x, "f8", copy=False),
            ValueError,
            "for dtype float64 instead of float32, but",
        ),
        (
            lambda x: usmq.asarray(x, usm_type="host", copy=False),
            ValueError,
            "for host USM instead of device USM, but",
        ),
    ],
)
def test_the_error_names_the_value_it_got(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call(usmq.zeros(2, "f4"))


def test_a_partition_that_does_not_fit_is_refused() -> None:
    device = usmq.current_queue().device
    try:
        device.sub_devices([1])
    except usmq.SyclError as error:
        pytest.skip(f"{device} is not divided by compute units: {error}")
    with pytest.raises(usmq.SyclError, match="are not smaller than it"):
        device.sub_devices(device.max_compute_units)
    with pytest.raises(usmq.SyclError, match="compute units"):
        device.sub_devices([2**62, 1])


def test_copy_false_refuses_an_array_of_another_context(other_queue: usmq.Queue) -> None:
    x = usmq.zeros(2)
    text = f"{repr(other_queue).removeprefix('<usmq.Queue')[:-1]}, which cannot use the memory of "
    with pytest.raises(ValueError, match=re.escape(text)):
        usmq.asarray(x, queue=other_queue, copy=False)
