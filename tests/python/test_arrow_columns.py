"""Columns: arrays as views of Arrow's buffers, slices, copies between queues, and errors."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import arrow_structs
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_structs import KINDS, Exported, buffers, live

no_leaks = arrow_structs.no_leaks

CUTS = [(0, 20), (0, 7), (1, 9), (7, 20), (8, 16), (9, 9)]
# The dtype of a column's values, and its source.
NUMBERS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "int8": ("i1", pa.int8(), [-128, 0, 127]),
    "uint16": ("u2", pa.uint16(), [0, 1, 65535]),
    "int32": ("i4", pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "uint64": ("u8", pa.uint64(), [0, 1, 2**64 - 1]),
    "float16": ("f2", pa.float16(), [1.5, -0.0]),
    "float32": ("f4", pa.float32(), [1.5, -0.0]),
    "float64": ("f8", pa.float64(), [1.5, 5e-324]),
    "date32": ("i4", pa.date32(), [dt.date(2024, 2, 29)]),
    "date64": ("i8", pa.date64(), [dt.date(2024, 2, 29)]),
    "time32": ("i4", pa.time32("ms"), [dt.time(23, 59, 59)]),
    "time64": ("i8", pa.time64("ns"), [dt.time(23, 59, 59)]),
    "timestamp": ("i8", pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29)]),
    "duration": ("i8", pa.duration("s"), [dt.timedelta(days=-1)]),
    "decimal32": ("i4", pa.decimal32(7, 2), [Decimal("-12345.67")]),
    "decimal64": ("i8", pa.decimal64(15, 3), [Decimal("123456789012.345")]),
    "decimal128": ("u8", pa.decimal128(38, 5), [Decimal("-1e32"), Decimal("0.00001")]),
    "dictionary": ("u1", pa.dictionary(pa.uint8(), pa.string()), ["b", "a"]),
}


def cycled(values: list[Any], data_type: pa.DataType, nulls: bool) -> pa.Array:
    cycle = [values[n % len(values)] for n in range(20)]
    return pa.array([None if nulls and n % 3 == 1 else v for n, v in enumerate(cycle)], data_type)


def bits(array: Any, column: Any) -> list[bool]:
    found = np.unpackbits(array.to_numpy(), bitorder="little")
    return found[column.bit_offset :][: len(column)].astype(bool).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_the_values_of_numeric_columns_are_the_arrow_buffer(name: str, nulls: bool) -> None:
    dtype, data_type, values = NUMBERS[name]
    array = cycled(values, data_type, nulls)
    raw = array.indices if name == "dictionary" else array
    whole = np.frombuffer(raw.buffers()[1], dtype)
    if name == "decimal128":
        whole = whole.reshape(-1, 2)
    column = usmq.from_arrow(array)
    for start, stop in CUTS:
        for part in (column[start:stop], usmq.from_arrow(array[start:stop])):
            found = part.values()
            assert found.dtype == dtype
            assert found.readonly or not found.size
            assert found.shape == whole[start:stop].shape
            valid = np.array(array[start:stop].is_valid())
            np.testing.assert_array_equal(found.to_numpy()[valid], whole[start:stop][valid])


@pytest.mark.parametrize("name", ["int32", "decimal128", "dictionary"])
def test_validity_is_a_bitmap_that_starts_at_the_bit_offset(name: str) -> None:
    _, data_type, values = NUMBERS[name]
    array = cycled(values, data_type, True)
    column = usmq.from_arrow(array)
    for start, stop in CUTS:
        for part in (column[start:stop], usmq.from_arrow(array[start:stop])):
            if start == stop:
                continue
            validity = part.validity()
            assert validity.dtype == "u1"
            assert validity.readonly
            assert bits(validity, part) == array[start:stop].is_valid().to_pylist()
            assert part.null_count == array[start:stop].null_count
    assert usmq.from_arrow(cycled(values, data_type, False)).validity() is None


def test_the_values_of_bools_are_bits_like_validity() -> None:
    array = cycled([True, False, False, True, True], pa.bool_(), False)
    column = usmq.from_arrow(array)
    for start, stop in CUTS[:-1]:
        for part in (column[start:stop], usmq.from_arrow(array[start:stop])):
            assert part.values().dtype == "u1"
            assert bits(part.values(), part) == array[start:stop].to_pylist()


@pytest.mark.parametrize(
    ("make", "offsets"),
    [(pa.string, "i4"), (pa.binary, "i4"), (pa.large_string, "i8"), (pa.large_binary, "i8")],
)
def test_strings_have_bytes_and_offsets_into_them(make: Any, offsets: str) -> None:
    texts = [["", "a", "ä漢🦀", "word"][n % 4] for n in range(20)]
    array = pa.array(texts).cast(make())
    column = usmq.from_arrow(array)
    for start, stop in CUTS:
        for part in (column[start:stop], usmq.from_arrow(array[start:stop])):
            assert part.offsets().dtype == offsets
            assert part.offsets().shape == (stop - start + 1,)
            at = part.offsets().to_numpy()
            assert part.values().dtype == "u1"
            data = part.values().to_numpy().tobytes()
            found = [data[a:b].decode() for a, b in itertools.pairwise(at)]
            assert found == texts[start:stop]


def test_fixed_size_binary_values_are_the_bytes() -> None:
    array = pa.array([b"abc", b"\0\0\0", b"def"] * 5, pa.binary(3))
    expected = b"".join(array[2:9].to_pylist())
    assert usmq.from_arrow(array)[2:9].values().to_numpy().tobytes() == expected


@pytest.mark.parametrize(
    ("make", "offsets"),
    [(pa.list_, "i4"), (pa.large_list, "i8"), (pa.list_view, "i4"), (pa.large_list_view, "i8")],
)
def test_lists_have_offsets_into_their_child_and_views_sizes(make: Any, offsets: str) -> None:
    lists = [list(range(n % 4)) for n in range(20)]
    column = usmq.from_arrow(pa.array(lists, make(pa.int32())))
    for start, stop in CUTS:
        part = column[start:stop]
        at = part.offsets().to_numpy()
        if "view" in part.type:
            sizes = part.sizes().to_numpy()
            assert (sizes.dtype, sizes.shape, at.shape) == (offsets, *[(stop - start,)] * 2)
            ends = at + sizes
        else:
            assert at.shape == (stop - start + 1,)
            at, ends = at[:-1], at[1:]
        assert at.dtype == offsets
        child = part.children[0].values().to_numpy()
        assert [child[a:b].tolist() for a, b in zip(at, ends, strict=True)] == lists[start:stop]


def test_a_union_has_type_ids_and_if_dense_offsets() -> None:
    tags, places = [5, 9, 5, 5], [0, 0, 1, 2]
    columns = [pa.array([1, 2, 3]), pa.array(["a"])]
    dense = usmq.from_arrow(
        pa.UnionArray.from_dense(
            pa.array(tags, pa.int8()), pa.array(places, pa.int32()), columns, None, [5, 9]
        )
    )
    assert dense.type_ids().dtype == "i1"
    assert dense[1:].type_ids().to_numpy().tolist() == tags[1:]
    assert dense[1:].offsets().to_numpy().tolist() == places[1:]
    assert dense.children[0].values().to_numpy().tolist() == [1, 2, 3]
    with pytest.raises((TypeError, usmq.Error)):
        dense.sizes()


NESTED = {
    "list": pa.array([[1], [2]]),
    "list view": pa.array([[1]], pa.list_view(pa.int8())),
    "fixed-size list": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1}, None]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "sparse union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "run-end encoded": pa.array([1, 1], pa.run_end_encoded(pa.int32(), pa.int8())),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_columns_have_no_values(name: str) -> None:
    with pytest.raises(TypeError):
        usmq.from_arrow(NESTED[name]).values()


def test_numbers_have_no_offsets_sizes_or_type_ids_and_nulls_no_values() -> None:
    column = usmq.from_arrow(pa.array([1, 2]))
    for method in (column.offsets, column.sizes, column.type_ids):
        with pytest.raises((TypeError, usmq.Error)):
            method()
    with pytest.raises(TypeError, match="has no values of its own; all are null"):
        usmq.from_arrow(pa.nulls(3)).values()


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_a_column_and_its_slices_share_its_buffers(kind: str) -> None:
    column = usmq.from_arrow(pa.array([1, None, 3, 4, 5] * 4, pa.int32()), usm_type=kind)
    counted = live()
    values, validity = column.values(), column.validity()
    part = column[10:]
    assert values.usm_type == validity.usm_type == part.usm_type == kind
    assert values.queue == part.queue == column.queue
    assert values.device == column.device
    assert part.values().ptr == values.ptr + 4 * 10
    assert part.validity().ptr - validity.ptr == (column.bit_offset + 10) // 8
    exported = Exported(column)
    assert buffers(exported.array)[0] == validity.ptr
    assert buffers(exported.array)[1] + 4 * exported.array.offset == values.ptr
    assert live() == counted, "a view was a copy"
    del column, part, exported
    others = [usmq.zeros(20, "i4", usm_type=kind) for _ in range(20)]
    assert values.to_numpy()[[0, 2, 3, 4]].tolist() == [1, 3, 4, 5]
    del others


def test_slices_have_step_one_and_bounds_as_in_python() -> None:
    values = [1, None, 3, 4, None]
    column = usmq.from_arrow(pa.array(values))
    for bounds in [(None, None), (-3, None), (1, -1), (3, 1), (-99, 99), (7, 9)]:
        key = slice(*bounds)
        assert len(column[key]) == len(values[key])
        assert column[key].to_arrow().to_pylist() == values[key]
        assert column[key].null_count == values[key].count(None)
    for wrong in (slice(None, None, 2), slice(None, None, -1), slice(4, 0, -1), 1.5, "a", None):
        with pytest.raises((TypeError, ValueError, IndexError, usmq.Error)):
            column[wrong]


def test_the_children_of_a_column_are_columns() -> None:
    array = pa.array([{"a": [1, 2], "b": "x"}, {"a": None, "b": None}])
    column = usmq.from_arrow(pa.table({"s": array}))["s"]
    assert [child.name for child in column.children] == ["a", "b"]
    assert column.children[0].to_arrow().to_pylist() == [[1, 2], None]
    assert column.children[0].children[0].values().to_numpy().tolist() == [1, 2]
    assert column.dictionary is None
    assert column[1:].children[1].to_arrow().to_pylist() == [None]
    words = usmq.from_arrow(pa.array(["x", "y", "x"]).dictionary_encode())
    assert words.dictionary.to_arrow().to_pylist() == ["x", "y"]
    assert words.values().to_numpy().tolist() == [0, 1, 0]
    assert words.children == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_copied_to_another_usm_kind(kind: str) -> None:
    array = pa.array([["a", None], None, ["bc"]])
    column = usmq.from_arrow(array)
    moved = column.to(usm_type=kind)
    assert moved.usm_type == kind
    assert moved.to_arrow().equals(array)
    assert moved.field.format == column.field.format
    if kind == "device":
        assert buffers(Exported(moved).array) == buffers(Exported(column).array), "nothing to do"


def test_a_column_is_copied_to_a_queue_of_another_context(other_queue: usmq.Queue) -> None:
    array = pa.array([{"a": "x", "b": 1.5}, None, {"a": None, "b": None}] * 9)[3:20]
    column = usmq.from_arrow(array)
    there = column.to(other_queue)
    assert there.queue == other_queue
    assert there.device == other_queue.device
    assert there.to_arrow().equals(array)
    assert there.to(column.queue)[2:].to_arrow().equals(array[2:])
    assert usmq.from_arrow(array, queue=other_queue).to_arrow().equals(array)
    assert column.to_arrow().equals(array)


def test_a_queue_of_the_same_context_uses_a_column_in_place(queue: usmq.Queue) -> None:
    column = usmq.from_arrow(pa.array([1, 2, 3]))
    other = usmq.Queue(queue.device, profiling=True)
    moved = column.to(queue=other)
    assert moved.queue == other
    assert moved.values().ptr == column.values().ptr
    assert moved.values().to_numpy().tolist() == [1, 2, 3]


def test_host_data_is_copied_to_the_current_or_the_given_queue(queue: usmq.Queue) -> None:
    array = pa.array([1, 2, 3])
    other = usmq.Queue(queue.device, profiling=True)
    assert usmq.from_arrow(array).queue == queue
    assert usmq.from_arrow(array).usm_type == "device"
    with usmq.use_queue(other):
        assert usmq.from_arrow(array).queue == other
        assert usmq.from_arrow(array, queue=queue).queue == queue
    assert usmq.from_arrow(array, queue=queue.device.filter_string).queue == queue


def test_device_memory_has_no_host_view() -> None:
    for obj in (usmq.from_arrow(pa.array([1, 2])), usmq.Table({"x": usmq.arange(3)})):
        with pytest.raises(usmq.InteropError, match="device"):
            obj.host_view()
