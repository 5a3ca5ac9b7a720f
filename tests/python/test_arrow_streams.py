"""Foreign streams: read to their end or error, and released completely."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from ctypes import sizeof
from dataclasses import replace
from typing import Any

import arrow_structs
import dpctl
import numpy as np
import pyarrow as pa
import pytest
import test_arrow_types
import usmq
from arrow_producers import Node, Producer, StreamProducer, gives, ints, record, strings
from arrow_structs import (
    CPU,
    CUDA,
    GET,
    KINDS,
    ONEAPI,
    STEPS,
    ArrowArray,
    ArrowDeviceArray,
    ArrowSchema,
    eventually,
    foreign,
    live,
    usm,
)
from test_arrow_types import TYPES, made

no_leaks = arrow_structs.no_leaks
rational = test_arrow_types.rational

BATCHES: list[tuple[list[int | None], list[bytes]]] = [
    ([1, None], [b"x", b"yz"]),
    ([], []),
    ([3], [b""]),
    ([4, 5, 6], [b"a", b"b", b"c"]),
]
ROWS = pa.table({"a": [1, None, 3, 4, 5, 6], "b": ["x", "yz", "", "a", "b", "c"]})
SCHEMA = record(a=ints([]), b=strings([]))


def batch(a: list[int | None], b: list[bytes]) -> Node:
    return record(a=ints(a), b=strings(b))


def stream(device_type: int | None, kind: str = "device", **options: Any) -> StreamProducer:
    nodes = [batch(*columns) for columns in BATCHES]
    on_device = device_type == ONEAPI
    chunks = [
        Producer(node.on_device(kind), ONEAPI) if on_device else Producer(node) for node in nodes
    ]
    return StreamProducer(SCHEMA, chunks, device_type, **options)


def giver(producer: StreamProducer) -> Any:
    return gives(**{"device_stream" if producer.on_device else "stream": producer.capsule})


def rows(table: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = table.to_arrow().to_pydict()
    return found


# --- streams of the host


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["table", "reader", "sliced table"])
def test_host_chunks_become_one_table(source: str, kind: str) -> None:
    table = pa.concat_tables([ROWS, ROWS[:0], ROWS[1:4], ROWS])
    assert table["a"].num_chunks > 2
    expected = table[3:] if source == "sliced table" else table
    given = table.to_reader() if source == "reader" else expected
    ours = usmq.from_arrow(given, usm_type=kind)
    assert isinstance(ours, usmq.Table)
    assert ours.num_rows == len(expected)
    assert len(ours.batches) == 1
    assert ours.to_arrow().equals(expected)
    assert ours.to_arrow()["a"].num_chunks == 1


@pytest.mark.parametrize("name", TYPES)
def test_chunks_of_every_type_become_one_column(name: str) -> None:
    array, plain = made(name, True), made(name, False)
    chunks = [array[3:10], plain[:0], plain[1:9], array[11:30]]
    chunked = pa.chunked_array(chunks, array.type)
    column = usmq.from_arrow(chunked)
    if not chunked.null_count and pa.types.is_struct(array.type):
        assert isinstance(column, usmq.Table), "top-level structs, none of them null"
        assert column.to_arrow().to_pylist() == chunked.to_pylist()
        return
    assert isinstance(column, usmq.Column)
    found = column.to_arrow()
    found.validate(full=True)
    assert found.type == array.type
    assert found.to_pylist() == chunked.to_pylist()
    assert column.null_count == chunked.null_count


def test_chunks_may_have_separate_dictionaries() -> None:
    chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", None, "a"])]
    column = usmq.from_arrow(pa.chunked_array(chunks))
    assert column.to_arrow().to_pylist() == ["a", "b", "c", None, "a"]


@pytest.mark.parametrize("buffers", [0, 1])  # as of pyarrow, and as of polars
@pytest.mark.parametrize("device_type", [None, CPU])
def test_chunks_with_a_null_column_are_joined(buffers: int, device_type: int | None) -> None:
    def nested(count: int, buffers: int = buffers) -> Node:
        nulls = Node(b"n", count, [None] * buffers, null_count=count)
        return record(a=ints(list(range(count))), x=nulls)

    chunks = [Producer(nested(count)) for count in (2, 3)]
    table = usmq.from_arrow(giver(StreamProducer(nested(0), chunks, device_type)))
    assert rows(table) == {"a": [0, 1, 0, 1, 2], "x": [None] * 5}
    with pytest.raises(usmq.InteropError, match="it has 2 buffers, not 0"):
        usmq.from_arrow(Producer(nested(3, 2)))


def test_empty_streams_have_a_schema() -> None:
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, [])
    for given in (reader, ROWS.schema.empty_table(), giver(StreamProducer(SCHEMA, []))):
        table = usmq.from_arrow(given)
        assert (len(table), table.column_names) == (0, ["a", "b"])
        assert len(table.to_arrow()) == 0
    column = usmq.from_arrow(pa.chunked_array([], pa.list_(pa.int8())))
    assert column.to_arrow().equals(pa.array([], pa.list_(pa.int8())))


def test_only_the_requested_columns_of_a_stream_are_imported() -> None:
    for device_type in (None, ONEAPI):
        table = usmq.from_arrow(giver(stream(device_type)), columns=["b"])
        assert rows(table) == ROWS.select(["b"]).to_pydict()


# --- S10: how a stream is read


@pytest.mark.parametrize("device_type", [None, CPU, ONEAPI])
def test_s10_a_stream_is_read_to_its_end_and_released_once(device_type: int | None) -> None:
    producer = stream(device_type)
    table = usmq.from_arrow(giver(producer))
    assert rows(table) == ROWS.to_pydict()
    assert producer.calls == ["get_schema", *["get_next"] * 5, "release"]
    assert producer.struct.release is None, "the source is marked as moved"


TEXTS = {
    "text": (b"the disk is on fire", "the disk is on fire"),
    "no text": (None, ""),
    "empty text": (b"", ""),
    "no utf-8": (b"f\xffire", "ire"),
    "long text": (b"fire " * 1000, "fire fire"),
}


def failing(device_type: int | None, when: str, code: int, **options: Any) -> StreamProducer:
    """Return a stream that fails at its schema, or at its first or third chunk."""
    producer = stream(device_type, **options)
    if when == "schema":
        producer.schema_code = code
    else:
        producer.chunks.insert(0 if when == "first" else 2, code)
    return producer


WHEN = ["schema", "first", "third"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSYS, errno.ENOMEM, errno.EINVAL, -1])
@pytest.mark.parametrize("when", WHEN)
def test_s10_the_error_of_a_stream_is_reported(when: str, code: int) -> None:
    for device_type in (None, ONEAPI):
        for message, expected in TEXTS.values():
            producer = failing(device_type, when, code, message=message)
            with pytest.raises(usmq.InteropError) as error:
                usmq.from_arrow(giver(producer))
            assert expected in str(error.value)
            assert str(error.value)
            assert producer.calls[-2:] == ["get_last_error", "release"]
            assert "get_next" not in producer.calls or when != "schema"


@pytest.mark.parametrize("junk", [0x5A, 0x01, 0xFF])
@pytest.mark.parametrize("when", WHEN)
def test_what_a_failed_callback_leaves_in_its_result_is_not_released(when: str, junk: int) -> None:
    for device_type in (None, ONEAPI):
        result = ArrowArray if device_type is None else ArrowDeviceArray
        size = sizeof(ArrowSchema if when == "schema" else result)
        leave_junk = lambda _, out, size=size: ctypes.memset(out, junk, size)  # noqa: E731
        producer = failing(device_type, when, errno.EIO, message=b"lost", on_failure=leave_junk)
        with pytest.raises(usmq.InteropError, match="lost"):
            usmq.from_arrow(giver(producer))
        assert producer.calls[-2:] == ["get_last_error", "release"]


@pytest.mark.parametrize("when", WHEN)
def test_a_stream_that_its_callback_released_is_not_called_again(when: str) -> None:
    for device_type in (None, ONEAPI):
        producer = failing(device_type, when, errno.EIO, message=b"lost")
        producer.on_failure = lambda at, _, producer=producer: producer._release(at)
        with pytest.raises(usmq.InteropError, match="Input/output error"):
            usmq.from_arrow(giver(producer))
        assert producer.calls[-2:] == ["get_schema" if when == "schema" else "get_next", "release"]
        assert not producer.faults


# Chunks that are not of SCHEMA. Tests of Rust have more (tests/suite/arrow_streams.rs).
UNLIKE: dict[str, Callable[[], Node]] = {
    "one column less": lambda: record(a=ints([1])),
    "a column of other buffers": lambda: record(a=strings([b"x"]), b=strings([b"x"])),
    "no struct": lambda: ints([1]),
    "negative length": lambda: replace(batch([1], [b"x"]), length=-1),
}


@pytest.mark.parametrize("kind", UNLIKE)
@pytest.mark.parametrize("device_type", [None, CPU])
def test_an_invalid_chunk_ends_the_stream_and_all_chunks_are_released(
    kind: str, device_type: int | None
) -> None:
    good = batch([1], [b"x"])
    chunks = [Producer(good), Producer(UNLIKE[kind]()), Producer(good)]
    producer = StreamProducer(SCHEMA, list(chunks), device_type)
    with pytest.raises(usmq.InteropError):
        usmq.from_arrow(giver(producer))
    assert producer.calls[-1] == "release"
    assert eventually(lambda: chunks[0].log.count("array") == chunks[1].log.count("array") == 1)


@pytest.mark.parametrize(("of_stream", "of_chunk"), [(ONEAPI, CPU), (CPU, ONEAPI), (ONEAPI, CUDA)])
def test_s10_chunks_are_of_the_device_type_of_their_stream(of_stream: int, of_chunk: int) -> None:
    good = Producer(batch([1], [b"x"]).on_device() if of_stream == ONEAPI else batch([1], [b"x"]))
    good.device.device_type = of_stream
    good.device.device_id = 0
    bad = Producer(batch([2], [b"y"]).on_device("shared"), of_chunk, 0)
    producer = StreamProducer(SCHEMA, [good, bad], of_stream)
    with pytest.raises(usmq.InteropError):
        usmq.from_arrow(giver(producer))
    assert producer.calls[-1] == "release"


@pytest.mark.parametrize("chunks", [1, 0])
def test_d21_a_stream_of_an_unsupported_device_type_is_refused(chunks: int) -> None:
    for device_type in (0, 99):
        given = [Producer(batch([1], [b"x"]), device_type, 0) for _ in range(chunks)]
        producer = StreamProducer(SCHEMA, given, device_type)
        with pytest.raises(usmq.InteropError, match=str(device_type)):
            usmq.from_arrow(giver(producer))
        assert producer.calls[-1:] in ([], ["release"])


@pytest.mark.parametrize("field", ["get_schema", "get_next", "get_last_error", "release"])
def test_a_stream_without_a_callback_is_refused(field: str) -> None:
    for device_type in (None, ONEAPI):
        producer = stream(device_type)
        setattr(producer.struct, field, None)
        if field == "get_last_error":  # missing, it is missed only after a failure
            producer.chunks.insert(0, errno.EIO)
        with pytest.raises(usmq.InteropError):
            usmq.from_arrow(giver(producer))
        if field == "release":
            assert producer.calls == [], "a released stream"


def test_a_stream_whose_schema_is_released_is_refused() -> None:
    producer = stream(None)
    empty = GET(lambda _stream, out: ctypes.memset(out, 0, sizeof(ArrowSchema)) and 0)
    producer.struct.get_schema = ctypes.cast(empty, ctypes.c_void_p).value
    with pytest.raises(usmq.InteropError):
        usmq.from_arrow(giver(producer))
    assert producer.calls == ["release"]


# --- streams of a device


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_on_a_device_are_used_in_place(kind: str) -> None:
    before = live()
    producer = stream(ONEAPI, kind)
    addresses = [
        [child.buffers[1]._pointer for child in chunk.root.children]
        for chunk in producer.chunks
        if isinstance(chunk, Producer)
    ]
    table = usmq.from_arrow(giver(producer))
    assert live() == before
    assert table.num_rows == 6
    assert [len(part) for part in table.batches] == [2, 0, 1, 3]
    for part, expected in zip(table.batches, addresses, strict=True):
        assert isinstance(part, usmq.Table)
        if len(part):
            assert part["a"].values().ptr == expected[0]
            assert part["b"].offsets().ptr == expected[1]
    found = table.to_arrow()
    assert found["a"].num_chunks == 4
    assert found.to_pydict() == ROWS.to_pydict()
    assert rows(table.batches[3]) == ROWS[3:].to_pydict()
    assert table.column_names == ["a", "b"]


def test_later_work_waits_for_each_chunk_and_keeps_it_alive(
    advanced: Callable[[Any, int], Any],
) -> None:
    _, advance = foreign()
    memories = [usm(np.full(4, n, "u4")) for n in range(3)]
    events = [advance(memory, STEPS // 2) for memory in memories]
    chunks = []
    for memory, event in zip(memories, events, strict=True):
        node = record(x=Node(b"I", 4, [None, memory]))
        chunks.append(Producer(node, ONEAPI, sync_event=event.addressof_ref()))
    kept = list(chunks)
    table = usmq.from_arrow(giver(StreamProducer(record(x=Node(b"I")), chunks, ONEAPI)))
    complete = dpctl.event_status_type.complete
    assert events[2].execution_status != complete, "the import waited"
    for n, part in enumerate(table.batches):
        expected = advanced(np.full(4, n), STEPS // 2)
        np.testing.assert_array_equal(part["x"].values().to_numpy(), expected)
    last = table.batches[2]
    del table, part
    assert eventually(lambda: [p.log.count("array") for p in kept] == [1, 1, 0])
    assert len(last) == 4


def test_a_device_stream_of_a_plain_column_is_a_column() -> None:
    chunks = [Producer(ints([1, None]).on_device(), ONEAPI)]
    column = usmq.from_arrow(giver(StreamProducer(ints([]), chunks, ONEAPI)))
    assert isinstance(column, usmq.Column)
    assert column.to_arrow().to_pylist() == [1, None]
