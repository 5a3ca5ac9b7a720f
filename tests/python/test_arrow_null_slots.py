"""Arrow data whose null slots hold anything: the format leaves values under nulls open."""

import pickle
import struct

import pyarrow as pa
import pytest
import usmq

BITS = pa.py_buffer(bytes([0b101]))


def short(text, length=None):
    return struct.pack("i12s", len(text) if length is None else length, text)


def views(junk, kind=None):
    buffers = [BITS, pa.py_buffer(short(b"a") + junk + short(b"c"))]
    return pa.Array.from_buffers(pa.string_view() if kind is None else kind, 3, buffers)


def text(offsets, values, kind=None, code="i"):
    buffers = [BITS, pa.py_buffer(struct.pack(f"4{code}", *offsets)), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.string() if kind is None else kind, 3, buffers)


def indices(keys, kind=None, values=("x", "y")):
    kind = pa.int8() if kind is None else kind
    codes = pa.Array.from_buffers(kind, 3, [BITS, pa.py_buffer(keys)])
    return pa.DictionaryArray.from_buffers(
        pa.dictionary(kind, pa.string()), 3, codes.buffers(), pa.array(values)
    )


def fixed(kind, width):
    values = bytes([1] * width + [0xFF] * width + [2] * width)
    return pa.Array.from_buffers(kind, 3, [BITS, pa.py_buffer(values)])


NOWHERE = struct.pack("i4sii", 100, b"xxxx", 7, 9)
ARRAYS = {
    "view nowhere": lambda: views(NOWHERE),
    "view of a negative buffer": lambda: views(struct.pack("i4sii", 100, b"xxxx", -1, -1)),
    "view with padding": lambda: views(struct.pack("i12s", 1, b"abcdefghijkl")),
    "view of negative length": lambda: views(short(b"abcdefghijkl", -3)),
    "view that is not UTF-8": lambda: views(short(b"\xff\xfe")),
    "binary view nowhere": lambda: views(NOWHERE, pa.binary_view()),
    "text that is not UTF-8": lambda: text((0, 1, 3, 4), b"a\xff\xfec"),
    "text that ends inside a letter": lambda: text((0, 1, 2, 3), b"a\xc3c"),
    "large text that is not UTF-8": lambda: text(
        (0, 1, 3, 4), b"a\xff\xfec", pa.large_string(), "q"
    ),
    "index": lambda: indices(bytes([0, 99, 1])),
    "negative index": lambda: indices(struct.pack("3h", 0, -5, 1), pa.int16()),
    "large index": lambda: indices(struct.pack("3Q", 0, 2**64 - 1, 1), pa.uint64()),
    "bool": lambda: pa.Array.from_buffers(pa.bool_(), 3, [BITS, pa.py_buffer(bytes([0xFF]))]),
    "double": lambda: fixed(pa.float64(), 8),
    "half": lambda: fixed(pa.float16(), 2),
    "uint64": lambda: fixed(pa.uint64(), 8),
    "decimal": lambda: fixed(pa.decimal128(38, 2), 16),
    "wide decimal": lambda: fixed(pa.decimal256(76, 2), 32),
    "fixed bytes": lambda: fixed(pa.binary(3), 3),
    "interval": lambda: fixed(pa.month_day_nano_interval(), 16),
    "struct of text": lambda: pa.StructArray.from_arrays(
        [ARRAYS["text that is not UTF-8"](), views(NOWHERE)], ["a", "b"]
    ),
    "list of text": lambda: pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), views(NOWHERE)
    ),
    "list view of text": lambda: pa.ListViewArray.from_arrays(
        pa.array([1, 0], pa.int32()), pa.array([2, 1], pa.int32()), views(NOWHERE)
    ),
    "fixed list of text": lambda: pa.FixedSizeListArray.from_arrays(views(NOWHERE), 3),
    "null list of three items": lambda: pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()), views(NOWHERE), mask=pa.array([False, True])
    ),
    "union of text": lambda: pa.UnionArray.from_sparse(
        pa.array([0, 0, 1], pa.int8()), [views(NOWHERE), views(NOWHERE)]
    ),
    "runs of text": lambda: pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 2, 4], pa.int32()), views(NOWHERE)
    ),
    "dictionary of text": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2], pa.int8()), views(NOWHERE)
    ),
    "map": lambda: pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["k", "l", "m"]), views(NOWHERE)
    ),
}


@pytest.fixture(params=ARRAYS)
def array(request):
    made = ARRAYS[request.param]()
    made.validate(full=True)
    return made


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_values_under_nulls_may_be_anything(array, kind):
    want = array.to_pylist()
    column = usmq.from_arrow(array, usm_type=kind)
    for _ in range(2):
        back = column.to_arrow()
        back.validate(full=True)
        assert back.to_pylist() == want
    restored = pickle.loads(pickle.dumps(column)).to_arrow()
    assert restored.to_pylist() == want
    if kind != "device":
        assert pa.array(column.host_view()).to_pylist() == want


def test_chunks_with_any_values_under_nulls_join(array):
    chunks = pa.chunked_array([array, array.slice(1), array.slice(0, 0), array])
    want = chunks.to_pylist()
    assert usmq.from_arrow(chunks).to_arrow().to_pylist() == want
    table = usmq.from_arrow(pa.table({"c": chunks}))
    assert table.to_arrow()["c"].to_pylist() == want


def test_slices_with_any_values_under_nulls_are_read(array):
    column = usmq.from_arrow(array)
    for start in range(len(array)):
        want = array.slice(start).to_pylist()
        assert usmq.from_arrow(array.slice(start)).to_arrow().to_pylist() == want
        assert column[start:].to_arrow().to_pylist() == want


@pytest.mark.parametrize(("large", "code"), [(False, "i"), (True, "q")])
@pytest.mark.parametrize(("offset", "size"), [(1000, 1), (-1, 1), (0, -50), (0, 100)])
def test_list_views_under_nulls_may_point_anywhere(large, code, offset, size):
    """pyarrow refuses them in `validate`; the values of a null are undefined nevertheless."""
    kind = (pa.large_list_view if large else pa.list_view)(pa.int8())
    pair = [struct.pack(f"3{code}", *row) for row in ((0, offset, 1), (1, size, 1))]
    buffers = [BITS, *map(pa.py_buffer, pair)]
    array = pa.Array.from_buffers(kind, 3, buffers, children=[pa.array([1, 2], pa.int8())])
    want = [[1], None, [2]]
    for usm_type in ("device", "shared"):
        column = usmq.from_arrow(array, usm_type=usm_type)
        back = column.to_arrow()
        back.validate(full=True)
        assert back.to_pylist() == want
        assert pickle.loads(pickle.dumps(column)).to_arrow().to_pylist() == want
    assert usmq.from_arrow(pa.chunked_array([array, array])).to_arrow().to_pylist() == want * 2


def test_the_memory_of_the_producer_is_not_changed():
    values = bytearray(b"a\xff\xfec")
    offsets = pa.py_buffer(struct.pack("4i", 0, 1, 3, 4))
    array = pa.Array.from_buffers(pa.string(), 3, [BITS, offsets, pa.py_buffer(values)])
    column = usmq.from_arrow(array, usm_type="shared")
    bytes_before = column.values().to_numpy().tolist()
    assert column.to_arrow().to_pylist() == ["a", None, "c"]
    assert values == b"a\xff\xfec"
    assert column.values().to_numpy().tolist() == bytes_before


@pytest.mark.parametrize(
    "made",
    [
        lambda: text((0, 2, 3, 4), b"\xff\xfebc"),
        lambda: pa.Array.from_buffers(
            pa.string_view(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(short(b"\xff") + NOWHERE)]
        ),
    ],
)
def test_values_that_are_not_null_are_still_checked(made):
    column = usmq.from_arrow(made())
    with pytest.raises(usmq.InteropError, match="value 0 is not UTF-8"):
        column.to_arrow()
