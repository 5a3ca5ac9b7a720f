"""Data of other libraries with types that arrays lack: it works, or the error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpnp
import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import usmq

BF16 = np.array([[1, 2.5], [-3, 0]], ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "values",
    [
        [np.arange(3), np.arange(3, 6)],
        (np.ones(2, "f4"), np.zeros(2, "f4")),
        [[np.ones(2, "u8"), np.full(2, 2**64 - 1, "u8")]],
        [np.ones((2, 2), "c8"), np.zeros((2, 2), "c8")],
        [np.array([True, False])],
        [np.ones(2, "f4"), np.ones(2)],
        [np.ones(2, "i4"), [3, 4]],
        [np.zeros((0, 2)), np.zeros((0, 2))],
        [np.arange(6).reshape(2, 3)[:, ::-1], np.zeros((2, 3), int)],
    ],
)
def test_a_list_of_arrays_of_the_host_is_stacked_as_by_numpy(values: Any) -> None:
    want = np.asarray(values)
    got = usmq.asarray(values)
    assert (got.shape, got.tolist()) == (want.shape, want.tolist())
    if len({row.dtype for row in values if isinstance(row, np.ndarray)}) == 1:
        assert got.dtype == want.dtype or not all(isinstance(row, np.ndarray) for row in values)


def test_lists_of_arrays_are_assigned_and_copied() -> None:
    x = usmq.zeros((2, 3), "i4")
    x[...] = [np.arange(3), np.arange(3, 6)]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_list_of_arrays_of_different_lengths_is_ragged() -> None:
    with pytest.raises(ValueError, match="different lengths or depths"):
        usmq.asarray([np.arange(3), np.arange(2)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: usmq.arange(3),
        lambda: usmq.zeros(2, usm_type="shared"),
        lambda: dpnp.arange(3),
        lambda: usmq.ones(3)[0],
    ],
)
@pytest.mark.parametrize("nest", [lambda a: [a, a], lambda a: ([a],), lambda a: [1, a]])
def test_a_list_of_arrays_in_usm_says_how_to_join_them(
    make: Callable[[], Any], nest: Callable[[Any], Any]
) -> None:
    values = nest(make())
    target = usmq.zeros((2, 3))
    for call in (lambda: usmq.asarray(values), lambda: target.__setitem__(..., values)):
        with pytest.raises(
            TypeError, match=r"a list with .*in USM: set each row .* x\[0\] = a, .*a\.item\(\)"
        ):
            call()


def test_bfloat16_of_ml_dtypes_is_copied_and_used_in_place() -> None:
    x = usmq.asarray(BF16)
    assert (x.dtype, x.shape, x.tolist()) == ("bfloat16", (2, 2), BF16.tolist())
    assert usmq.asarray(BF16.T).tolist() == BF16.T.tolist()
    assert usmq.asarray(BF16[0, 1:]).tolist() == [2.5]
    assert usmq.asarray(BF16[0, 1]).item() == 2.5
    assert usmq.asarray(BF16, "f4").tolist() == BF16.tolist()
    assert usmq.asarray([BF16[0], BF16[1]]).tolist() == BF16.tolist()
    y = usmq.zeros((2, 2), "bfloat16")
    y[...] = BF16
    assert y.tolist() == BF16.tolist()


TIMES = np.array(["2024-01-01"], "M8[D]")
TEXT = r"elements are text: .* Arrow columns"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (TIMES, r"x\.view\('i8'\)"),
        (TIMES[0], r"x\.view\('i8'\)"),
        (np.array([1], "m8[s]"), r"x\.view\('i8'\)"),
        (np.array(["2024-01-01"], ">M8[s]"), r"x\.view\('i8'\)"),
        (np.array([1, "a"], object), r"Python objects: .*x\.astype\('float64'\)"),
        (np.array([None]), "Python objects"),
        (np.array(["a"]), TEXT),
        (np.array([b"a"]), TEXT),
        (np.array(["a"], np.dtypes.StringDType()), TEXT),
        (np.zeros(2, "g"), r"x\.astype\('float64'\)"),
        (np.zeros(2, "G"), r"x\.astype\('float64'\)"),
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), r"one type: pass each field, as x\['name'\]"),
        (np.zeros(2, ml_dtypes.float8_e4m3fn), "float8_e4m3fn.* supported: bool"),
        (np.zeros(2, ">f8"), "big-endian"),
        (pd.Series([True, False]), r"bits: pass x\.to_numpy\(\)"),
        (pd.Series([True, False], dtype="boolean"), r"bits: pass x\.to_numpy\(\)"),
        (pa.array([True]), r"bits: pass x\.to_numpy\(\)"),
        (pa.chunked_array([[True]]), r"bits: pass x\.to_numpy\(\)"),
        (usmq.from_arrow(pa.array([True])), r"bits: pass x\.to_numpy\(\)"),
        (pd.Index([1, 2]), r"pass numpy\.asarray\(x\)"),
    ],
)
def test_a_type_that_no_array_has_is_refused_with_a_way_out(values: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        usmq.asarray(values)
    target = usmq.zeros(2)
    if isinstance(values, np.ndarray | np.generic):
        for call in (lambda: usmq.asarray([values]), lambda: target.__setitem__(..., values)):
            with pytest.raises(TypeError, match=text):
                call()


@pytest.mark.parametrize(
    "dtype", ["M8[ns]", "datetime64", np.dtype("m8[s]"), np.datetime64, "object", "U3", "g"]
)
def test_a_dtype_argument_that_no_array_has_is_refused_with_a_way_out(dtype: Any) -> None:
    for call in (
        lambda: usmq.zeros(3, dtype),
        lambda: usmq.arange(3).astype(dtype),
        lambda: usmq.DType(dtype),
    ):
        with pytest.raises(TypeError, match=r"is not supported \("):
            call()


def test_the_ways_out_work() -> None:
    assert usmq.asarray(TIMES.view("i8")).tolist() == [19723]
    assert usmq.asarray(pd.Series([True, False]).to_numpy()).tolist() == [True, False]
    assert usmq.asarray(pa.chunked_array([[True]]).to_numpy()).tolist() == [True]
    rows, out = [usmq.arange(3), usmq.arange(3)], usmq.empty((2, 3), "i8")
    for at, row in enumerate(rows):
        out[at] = row
    assert out.tolist() == [[0, 1, 2]] * 2
