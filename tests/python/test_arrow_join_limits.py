"""Chunks that do not fit into one array: the error names the column and the way out."""

import numpy as np
import pyarrow as pa
import pytest
import usmq

MOST = 2**31 - 1
HALF = MOST // 2 + 1


def zeros(count):
    """Return memory of the operating system that takes no space until it is written."""
    return pa.py_buffer(np.zeros(count, "u1"))


def text(kind, count=HALF):
    return pa.Array.from_buffers(
        kind, 1, [None, pa.py_buffer(np.array([0, count], "i4")), zeros(count)]
    )


def items(count=HALF):
    return pa.Array.from_buffers(pa.int8(), count, [None, zeros(count)])


def lists():
    return pa.ListArray.from_arrays(pa.array([0, HALF], pa.int32()), items())


def runs(rows):
    return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int16()), pa.array([1]))


CHUNKS = {
    "string": (lambda: text(pa.string()), "col", "bytes", "large_string"),
    "binary": (lambda: text(pa.binary()), "col", "bytes", "large_binary"),
    "list": (lists, "col", "items", "large_list"),
    "list view": (
        lambda: pa.ListViewArray.from_arrays(
            pa.array([0], pa.int32()), pa.array([9], pa.int32()), items()
        ),
        "col",
        "items",
        "large_list_view",
    ),
    "map": (
        lambda: pa.MapArray.from_arrays(pa.array([0, HALF], pa.int32()), items(), items()),
        "col",
        "items",
        "one by one",
    ),
    "run ends": (lambda: runs(20_000), "col", "rows", "int64"),
    "struct": (
        lambda: pa.StructArray.from_arrays([pa.array([1]), text(pa.string())], ["a", "s"]),
        "col.s",
        "bytes",
        "large_string",
    ),
    "list of text": (
        lambda: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text(pa.string())),
        "col.item",
        "bytes",
        "large_string",
    ),
    "large list of text": (
        lambda: pa.LargeListArray.from_arrays(pa.array([0, 1], pa.int64()), text(pa.string())),
        "col.item",
        "bytes",
        "large_string",
    ),
    "fixed list of text": (
        lambda: pa.FixedSizeListArray.from_arrays(text(pa.binary()), 1),
        "col.item",
        "bytes",
        "large_binary",
    ),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_beyond_the_offsets_of_a_type_name_the_column_and_a_cast(name):
    make, path, what, fix = CHUNKS[name]
    chunk = make()
    chunks = pa.chunked_array([chunk, chunk])
    table = pa.table(
        {
            "first": pa.chunked_array([[1], [2]] if len(chunk) == 1 else [[1] * len(chunk)] * 2),
            "col": chunks,
        }
    )
    with pytest.raises(usmq.InteropError) as refused:
        usmq.from_arrow(table)
    for words in (f'column "{path}" is ', f" {what} together", fix, "import its chunks one by one"):
        assert words in str(refused.value)


def test_chunks_without_a_name_are_described_by_their_type():
    chunk = text(pa.string())
    with pytest.raises(usmq.InteropError, match=r'column "" is string, and .* large_string'):
        usmq.from_arrow(pa.chunked_array([chunk, chunk]))


def test_slices_count_only_the_values_that_they_show():
    three = pa.Array.from_buffers(
        pa.binary(),
        3,
        [None, pa.py_buffer(np.array([0, 4, HALF, HALF + 2], "i4")), zeros(HALF + 2)],
    )
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), three)
    for array in (three, nested):
        joined = usmq.from_arrow(
            pa.chunked_array([array.slice(0, 1), array.slice(2, 1), array.slice(0, 1)])
        )
        assert len(joined) == 3


def test_run_ends_of_two_chunks_that_fit_are_joined():
    joined = usmq.from_arrow(pa.chunked_array([runs(10_000), runs(10_000)]))
    assert len(joined) == 20_000
