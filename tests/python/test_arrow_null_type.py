"""Columns of the type null, alone and nested, from each producer."""

from __future__ import annotations

import pickle

import arrow_structs
import pyarrow as pa
import pytest
import usmq
from arrow_producers import Node, Producer, StreamProducer, gives, ints, record
from arrow_structs import CPU

no_leaks = arrow_structs.no_leaks


def nulls(count: int, buffers: int) -> Node:
    """Return an array as of pyarrow (no buffer), or as of polars (one that is NULL)."""
    return Node(b"n", count, [None] * buffers, null_count=count)


def nested(count: int, buffers: int) -> Node:
    return record(a=ints(list(range(count))), x=nulls(count, buffers))


@pytest.mark.parametrize("buffers", [0, 1])
def test_a_null_column_is_read_with_and_without_a_buffer(buffers: int) -> None:
    column = usmq.from_arrow(Producer(nulls(3, buffers)))
    assert (column.null_count, column.to_arrow().to_pylist()) == (3, [None] * 3)
    table = usmq.from_arrow(Producer(nested(2, buffers)))
    assert table.to_arrow().to_pydict() == {"a": [0, 1], "x": [None] * 2}


@pytest.mark.parametrize("buffers", [0, 1])
@pytest.mark.parametrize("device_type", [None, CPU])
def test_batches_with_a_null_column_are_joined(buffers: int, device_type: int | None) -> None:
    chunks = [Producer(nested(count, buffers)) for count in (2, 3)]
    stream = StreamProducer(nested(0, buffers), chunks, device_type)
    name = "stream" if device_type is None else "device_stream"
    table = usmq.from_arrow(gives(**{name: stream.capsule}))
    assert table.to_arrow().to_pydict() == {"a": [0, 1, 0, 1, 2], "x": [None] * 5}


def test_two_buffers_of_a_null_column_are_refused() -> None:
    with pytest.raises(usmq.InteropError, match="it has 2 buffers, not 0"):
        usmq.from_arrow(Producer(nulls(3, 2)))


MADE = {
    "plain": lambda: pa.nulls(3),
    "list": lambda: pa.array([[None], None, []], pa.list_(pa.null())),
    "fixed list": lambda: pa.array([[None, None], None], pa.list_(pa.null(), 2)),
    "struct": lambda: pa.array([{"a": None}, None], pa.struct([("a", pa.null())])),
    "map": lambda: pa.array([[("a", None)], None], pa.map_(pa.string(), pa.null())),
    "dictionary": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, None], pa.int8()), pa.nulls(1)
    ),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays([2, 3], pa.nulls(2)),
    "union": lambda: pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.nulls(2), pa.array([1, 2])]
    ),
}


@pytest.mark.parametrize("kind", ["device", "shared"])
@pytest.mark.parametrize("name", MADE)
def test_each_way_through_usmq_keeps_nulls(name: str, kind: str) -> None:
    array = MADE[name]()
    want = array.to_pylist()
    column = usmq.from_arrow(array, usm_type=kind)
    assert column.to_arrow().to_pylist() == want
    assert pickle.loads(pickle.dumps(column)).to_arrow().to_pylist() == want
    assert usmq.Table({"c": column}).to_arrow()["c"].to_pylist() == want
    assert column[1:].to_arrow().to_pylist() == want[1:]
    assert usmq.from_arrow(usmq.DeviceStream([column, column])).to_arrow().to_pylist() == want * 2
    assert usmq.from_arrow(pa.chunked_array([array, array])).to_arrow().to_pylist() == want * 2


def test_a_null_column_says_that_it_has_no_values() -> None:
    column = usmq.from_arrow(pa.nulls(3))
    with pytest.raises(TypeError, match="has no values of its own; all are null"):
        column.values()
