"""Columns from arrays that a kernel has written, slices of tables, and the names of types."""

from __future__ import annotations

from typing import Any

import dlpack_structs as dl
import numpy as np
import pyarrow as pa
import pytest
import usmq
from usmq import Column, InteropError, PlacementError, full, ones, zeros


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_values_with_a_bool_validity_go_back_to_arrow(length: int, kind: Any) -> None:
    rng = np.random.default_rng(length)
    numbers, flags = rng.integers(-9, 9, length, dtype="i4"), rng.random(length) < 0.6
    column = usmq.Column(
        usmq.asarray(numbers, usm_type=kind), validity=usmq.asarray(flags, usm_type=kind)
    )
    expected = pa.array(numbers, mask=~flags)
    assert (len(column), column.null_count) == (length, expected.null_count)
    assert column.to_arrow().equals(expected)
    column.to_arrow().validate(full=True)


def test_a_bitmap_is_shared_and_read_from_its_least_significant_bit() -> None:
    bitmap = usmq.asarray([0b0000_0101, 0b1], "u1")
    column = usmq.Column(usmq.arange(9, dtype="f8"), validity=bitmap)
    assert column.to_arrow().to_pylist() == [0.0, None, 2.0, None, None, None, None, None, 8.0]
    validity = column.validity()
    assert validity is not None
    assert validity.ptr == bitmap.ptr
    assert column.null_count == 6
    assert column[2:9].null_count == 5
    assert column[2:9].to_arrow().to_pylist() == [2.0, None, None, None, None, None, 8.0]


def test_strided_flags_and_kernels_in_flight_are_read_in_order() -> None:
    flags = usmq.asarray([True, False, False, True, True, True])[::-2]
    assert usmq.Column(usmq.arange(3), validity=flags).to_arrow().to_pylist() == [0, 1, None]
    kernel = usmq.Kernel.from_opencl(
        "kernel void flag(global uchar *x) {"
        "  for (volatile int i = 0; i < 20000000; i++);"
        "  x[get_global_id(0)] = get_global_id(0) % 2; }",
        "flag",
    )
    bytes_of_flags = usmq.zeros(4, "u1")
    kernel(4, bytes_of_flags)
    flags = bytes_of_flags.astype("?")
    assert usmq.Column(usmq.arange(4), validity=flags).to_arrow().to_pylist() == [None, 1, None, 3]


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_texts_and_lists_have_offsets(dtype: str) -> None:
    starts = usmq.asarray([0, 2, 2, 5], dtype)
    large = "large_" if dtype == "i8" else ""
    words = usmq.Column(usmq.asarray(b"abcde"), offsets=starts, type=f"{large}string")
    assert words.to_arrow().equals(pa.array(["ab", "", "cde"], getattr(pa, f"{large}string")()))
    words = usmq.Column(
        usmq.asarray(b"abcde"),
        offsets=starts,
        type=f"{large}binary",
        validity=usmq.asarray([True, False, True]),
    )
    assert words.to_arrow().to_pylist() == [b"ab", None, b"cde"]
    assert words[1:].to_arrow().to_pylist() == [None, b"cde"]
    lists = usmq.Column(usmq.arange(5, dtype="f4"), offsets=starts)
    assert lists.type == f"{large}list<item: float>"
    assert lists.to_arrow().to_pylist() == [[0.0, 1.0], [], [2.0, 3.0, 4.0]]
    items = usmq.Column(usmq.arange(5), validity=usmq.asarray([0b10111], "u1"))
    lists = usmq.Column(items, offsets=starts, validity=usmq.asarray([True, True, False]))
    assert lists.to_arrow().to_pylist() == [[0, 1], [], None]
    flags = usmq.Column(usmq.asarray([True, False, True]), offsets=usmq.asarray([0, 1, 3], dtype))
    assert flags.to_arrow().to_pylist() == [[True], [False, True]]
    empty = usmq.Column(usmq.zeros(0), offsets=usmq.zeros(1, dtype))
    assert empty.to_arrow().to_pylist() == []


def test_booleans_become_bits_and_times_keep_their_type() -> None:
    column = usmq.Column(usmq.asarray([True, False] * 7), name="flags")
    assert (column.type, column.name, column.format) == ("bool", "flags", "b")
    assert column.to_arrow().to_pylist() == [True, False] * 7
    stamps = usmq.Column(usmq.asarray([0, 10**6]), type="timestamp[us, tz=UTC]")
    assert stamps.type == "timestamp[us, tz=UTC]"
    assert stamps.to_arrow().type == pa.timestamp("us", "UTC")
    days = usmq.Column(usmq.asarray([0, 1], "i4"), type="date32[day]", validity=usmq.ones(2, "?"))
    assert days.to_arrow().type == pa.date32()
    assert str(days.to_numpy()[1]) == "1970-01-02"
    money = usmq.Column(usmq.asarray([[1, 0], [2, 0]], "u8"), type="decimal128(10, 2)")
    assert [str(value) for value in money.to_arrow().to_pylist()] == ["0.01", "0.02"]
    rows = usmq.Column(usmq.arange(6).reshape(3, 2), validity=usmq.asarray([True, False, True]))
    assert rows.to_arrow().to_pylist() == [[0, 1], None, [4, 5]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: Column(x[::2]), InteropError, "strided.*copy"),
        (lambda x: Column(x, validity=ones(3, "?")), ValueError, "must have 4 elements"),
        (lambda x: Column(x, validity=ones(4, "u1")), ValueError, "1 bytes.*cast it to bool"),
        (lambda x: Column(x, validity=ones((4, 1), "?")), ValueError, "shape"),
        (lambda x: Column(x, validity=ones(4, "i4")), TypeError, "cast it to bool"),
        (lambda x: Column(x, offsets=zeros(2, "f4")), TypeError, "int32 or int64, not float32"),
        (lambda x: Column(x, offsets=zeros(0, "i4")), ValueError, "at least one"),
        (lambda x: Column(x, offsets=zeros((2, 2), "i4")), ValueError, "one axis"),
        (lambda x: Column(x, offsets=zeros(4, "i4")[::2]), InteropError, "strided"),
        (lambda x: Column(x, type="string"), ValueError, "string column needs offsets"),
        (
            lambda x: Column(x, offsets=zeros(2, "i4"), type="string"),
            TypeError,
            "bytes as uint8, not int64",
        ),
        (
            lambda x: Column(x.astype("u1"), offsets=zeros(2, "i8"), type="string"),
            TypeError,
            "needs offsets of int32, not int64",
        ),
        (
            lambda x: Column(x.astype("u1"), offsets=zeros(2, "i4"), type="int32"),
            TypeError,
            "int32 column has no offsets",
        ),
        (lambda x: Column(x, type="int32"), TypeError, "needs values of int32, not int64"),
        (lambda x: Column(x, type="int"), TypeError, 'Arrow type "int" is not known'),
        (
            lambda x: Column(x, validity=ones(4, "?", queue=dl.other_context())),
            PlacementError,
            "collocate",
        ),
        (lambda x: Column(zeros(2, "c8")), InteropError, "Arrow has no such type"),
        (lambda x: Column(full((), 1)), InteropError, "no axis"),
        (lambda x: Column(Column(x)[1:], validity=ones(3, "?")), ValueError, "slice"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(usmq.arange(4))


@pytest.mark.parametrize("starts", [[0, 9], [3, 1, 2], [-1, 2], [0, 2, 1]])
def test_wrong_offsets_are_found_before_the_host_reads_them(starts: list[int]) -> None:
    column = usmq.Column(usmq.arange(3), offsets=usmq.asarray(starts, "i4"))
    with pytest.raises(usmq.InteropError, match="not valid Arrow data"):
        column.to_arrow()


def test_a_column_is_a_part_of_a_table_and_travels_by_capsules() -> None:
    column = usmq.Column(usmq.arange(3), validity=usmq.asarray([True, False, True]))
    table = usmq.Table({"b": column, "c": usmq.ones(3)})
    assert table.to_arrow().to_pydict() == {"b": [0, None, 2], "c": [1.0, 1.0, 1.0]}
    again = usmq.from_arrow(table)
    assert again["b"].null_count == 1
    assert again["b"].values().ptr == column.values().ptr
    assert usmq.from_arrow(column).to_arrow().to_pylist() == [0, None, 2]


def sample() -> tuple[usmq.Table, Any]:
    theirs = pa.table({
        "a": list(range(20)),
        "b": [None if i % 3 else f"text {i}" for i in range(20)],
        "c": [[i] * (i % 4) for i in range(20)],
    })  # fmt: skip
    return usmq.from_arrow(theirs), theirs


@pytest.mark.parametrize("batches", [1, 4])
def test_rows_of_a_table_are_a_slice_without_a_copy(batches: int) -> None:
    ours, theirs = sample()
    if batches > 1:
        parts = theirs.to_batches(max_chunksize=6)
        assert len(parts) == batches
        ours = usmq.from_arrow(pa.RecordBatchReader.from_batches(theirs.schema, parts))
    for rows in [(3, 9), (None, None), (5, 5), (-4, None), (18, 99), (0, 1), (3, 15), (6, 12)]:
        start, stop, _ = slice(*rows).indices(20)
        part = ours[slice(*rows)]
        assert isinstance(part, usmq.Table)
        assert len(part) == part.num_rows == stop - start
        assert part.to_arrow().to_pydict() == theirs.slice(start, stop - start).to_pydict()
        if start < stop and batches == 1:
            assert part["a"].values().ptr == ours["a"].values()[start:].ptr


def test_columns_of_a_table_are_selected_by_a_list() -> None:
    ours, _ = sample()
    assert ours[["c", "a"]].column_names == ["c", "a"]
    assert ours[("a",)].column_names == ["a"]
    assert list(ours) == ["a", "b", "c"]
    with pytest.raises(KeyError, match="there is no column"):
        ours[["x"]]
    with pytest.raises(ValueError, match="step 1, not 2"):
        ours[::2]
    for wrong in (0, None, 2.5):
        with pytest.raises(TypeError, match="the index of a table must be"):
            ours[wrong]  # type: ignore[call-overload]


def test_to_numpy_is_exact_or_an_error() -> None:
    def of(values: Any) -> usmq.Column:
        column = usmq.from_arrow(pa.array(values) if isinstance(values, list) else values)
        assert isinstance(column, usmq.Column)
        return column

    assert of([1, 2, 3])[1:].to_numpy().tolist() == [2, 3]
    assert of([True, False] * 9)[3:15].to_numpy().tolist() == ([True, False] * 9)[3:15]
    stamps = pa.array(np.array(["2024-02-29T12:00", "1969-12-31"], "M8[us]"))
    np.testing.assert_array_equal(of(stamps).to_numpy(), stamps.to_numpy())
    for theirs in (
        pa.array(np.array([1, -5], "m8[ms]")),
        pa.array([0, 86_400_000], pa.date64()),
        pa.array([0, 19_000], pa.date32()),
    ):
        expected = theirs.to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(of(theirs).to_numpy(), expected)
    with pytest.raises(ValueError, match=r"1 values of .* are null.*zero_copy_only=False"):
        of([1, None]).to_numpy()
    for values in (
        ["text"],
        [[1]],
        pa.array(["x"]).dictionary_encode(),
        pa.array([1], pa.time32("s")),
    ):
        with pytest.raises(TypeError, match="does not convert to numpy"):
            of(values).to_numpy()


TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(7),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("ms"),
    pa.timestamp("us", "UTC"), pa.duration("ns"), pa.month_day_nano_interval(),
    pa.decimal128(10, 2), pa.decimal256(40, -3), pa.list_(pa.float32()), pa.large_list(pa.int8()),
    pa.list_(pa.int32(), 3), pa.list_(pa.field("x", pa.int8(), nullable=False)),
    pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), pa.map_(pa.string(), pa.int32()),
    pa.dictionary(pa.int8(), pa.string()), pa.list_view(pa.int64()), pa.large_list_view(pa.int8()),
    pa.run_end_encoded(pa.int32(), pa.float64()),
]  # fmt: skip


@pytest.mark.parametrize("theirs", TYPES, ids=str)
def test_types_have_the_names_of_pyarrow(theirs: Any) -> None:
    field = usmq.from_arrow(pa.record_batch([pa.array([], theirs)], names=["x"])).schema.children[0]
    assert field.type == str(theirs)
    assert repr(field) == f'<usmq.Field "x" {theirs}>'


def test_unions_and_the_texts_of_columns_and_tables_name_types() -> None:
    ids, children = pa.array([5, 0], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    places = pa.array([0, 1], pa.int32())
    for theirs in (
        pa.UnionArray.from_sparse(ids, children, ["a", "b"], [0, 5]),
        pa.UnionArray.from_dense(ids, places, children, ["a", "b"], [0, 5]),
    ):
        assert usmq.from_arrow(theirs).type == str(theirs.type)
    ours, _ = sample()
    assert repr(ours) == "<usmq.Table of 20 rows: a: int64, b: string, c: list<item: int64>>"
    assert repr(ours["b"]) == '<usmq.Column "b" string[20]>'
