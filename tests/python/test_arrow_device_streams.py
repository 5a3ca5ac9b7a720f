"""Streams of usmq, read through the C structs: batches, then the end; independent lifetimes."""

from __future__ import annotations

import ctypes
import threading
from ctypes import addressof, sizeof
from typing import Any

import arrow_structs
import pyarrow as pa
import pytest
import test_arrow_types
import usmq
from arrow_producers import gives
from arrow_structs import (
    DEVICE_STREAM,
    GET,
    KINDS,
    LAST_ERROR,
    ONEAPI,
    STREAM,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    Exported,
    buffers,
    children,
    eventually,
    live,
    move,
    name_of,
    pointer,
    release,
    text,
    wait_for,
)
from test_arrow_streams import ROWS, giver, rows, stream
from test_arrow_types import TYPES, as_column, made

no_leaks = arrow_structs.no_leaks
rational = test_arrow_types.rational


class Ours:
    """A stream of usmq, read by hand."""

    def __init__(self, obj: Any) -> None:
        self.capsule = obj.__arrow_c_device_stream__()
        assert name_of(self.capsule) == DEVICE_STREAM
        at = pointer(self.capsule, DEVICE_STREAM)
        # Moved, as consumers may.
        self.struct = move(ArrowDeviceArrayStream.from_address(at))

    def schema(self) -> ArrowSchema:
        out = ArrowSchema()
        ctypes.memset(addressof(out), 0xAB, sizeof(out))
        assert GET(self.struct.get_schema)(addressof(self.struct), addressof(out)) == 0
        return out

    def next(self) -> ArrowDeviceArray:
        out = ArrowDeviceArray()
        ctypes.memset(addressof(out), 0xAB, sizeof(out))
        assert GET(self.struct.get_next)(addressof(self.struct), addressof(out)) == 0
        return out

    def last_error(self) -> int | None:
        at: int | None = LAST_ERROR(self.struct.get_last_error)(addressof(self.struct))
        return at


def of_four() -> Any:
    return usmq.from_arrow(giver(stream(ONEAPI)))


def test_s1_s2_s3_our_stream_yields_its_batches_then_stays_at_the_end() -> None:
    ours = Ours(of_four())
    assert ours.struct.device_type == ONEAPI
    schemas = [ours.schema(), ours.schema()]
    parts = [ours.next() for _ in range(4)]
    for part in parts:
        assert part.device_type == ONEAPI
        assert part.device_id == usmq.current_queue().device.ordinal
        assert list(part.reserved) == [0, 0, 0], "D2"
        assert part.array.release
    assert [part.array.length for part in parts] == [2, 0, 1, 3]
    for _ in range(3):
        assert ours.next().array.release is None, "S3: a finished stream stays finished"
    schemas.append(ours.schema())
    assert ours.last_error() is None, "S4"
    release(ours.struct)
    assert ours.struct.release is None, "S5"
    del ours
    assert eventually(lambda: True)
    wait_for(parts[0])
    at = buffers(children(parts[0].array)[0])[1]
    assert arrow_structs.read(at, "i4", 1).tolist() == [1], "S2"
    for schema in schemas:
        assert [text(child.format) for child in children(schema)] == [b"i", b"u"], "S2"
        assert [text(child.name) for child in children(schema)] == [b"a", b"b"]
    for struct in (*schemas, *parts):
        release(struct)


@pytest.mark.parametrize("taken", [0, 1])
def test_s5_a_stream_may_end_early_on_another_thread(taken: int) -> None:
    before = live()
    ours = Ours(usmq.from_arrow(ROWS))
    for _ in range(taken):
        release(ours.next())
    thread = threading.Thread(target=release, args=[ours.struct])
    thread.start()
    thread.join()
    assert ours.struct.release is None
    del ours
    assert eventually(lambda: live() == before)


def test_our_stream_round_trips_at_the_same_addresses() -> None:
    table = of_four()
    again = usmq.from_arrow(gives(device_stream=table.__arrow_c_device_stream__))
    assert [len(part) for part in again.batches] == [2, 0, 1, 3]
    for part, same in zip(table.batches, again.batches, strict=True):
        pairs = zip(children(Exported(part).array), children(Exported(same).array), strict=True)
        assert all(buffers(a) == buffers(b) for a, b in pairs)
    del table
    assert rows(again) == ROWS.to_pydict()


def test_a_column_streams_itself_as_one_batch() -> None:
    column = usmq.from_arrow(pa.array([1, None, 3]))
    ours = Ours(column)
    part = ours.next()
    assert part.array.length == 3
    assert ours.next().array.release is None
    release(part)
    release(ours.struct)
    again = usmq.from_arrow(gives(device_stream=column.__arrow_c_device_stream__))
    assert again.values().ptr == column.values().ptr


def test_a_table_of_several_batches_is_imported_batch_by_batch() -> None:
    table = of_four()
    for whole in (lambda: table["a"], lambda: table.columns):
        with pytest.raises((usmq.Error, ValueError), match="batch"):
            whole()
    again = usmq.from_arrow(table)
    assert [len(part) for part in again.batches] == [2, 0, 1, 3]
    assert rows(again) == ROWS.to_pydict()


def test_d7_a_release_during_an_error_keeps_the_error() -> None:
    """The table is dropped during the error, and the source's release runs Python code."""
    with pytest.raises(usmq.InteropError, match="batch"):
        of_four().__arrow_c_device_array__()


def test_a_host_view_is_streamed_batch_by_batch() -> None:
    table = usmq.from_arrow(giver(stream(ONEAPI, "shared")))
    view = table.host_view()
    assert name_of(view.__arrow_c_stream__()) == STREAM
    found = pa.table(gives(stream=view.__arrow_c_stream__))
    assert found["a"].num_chunks == 4
    assert found.to_pydict() == ROWS.to_pydict()
    first = found["a"].chunk(0).buffers()[1].address
    assert first == table.batches[0]["a"].values().ptr


@pytest.mark.parametrize("kind", KINDS)
def test_all_batches_of_a_table_are_moved(other_queue: usmq.Queue, kind: str) -> None:
    table = usmq.from_arrow(giver(stream(ONEAPI, kind)))
    there = table.to(other_queue)
    assert there.queue == other_queue
    assert rows(there) == ROWS.to_pydict()
    assert rows(table) == ROWS.to_pydict()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TYPES)
def test_several_arrays_of_a_device_stream_become_one_column(name: str, kind: str) -> None:
    first = made(name, True)
    chunks = [first, first[1:], first[:0], first[:5]]
    columns = [as_column(chunk, usm_type=kind) for chunk in chunks]
    joined = usmq.from_arrow(usmq.DeviceStream(columns))
    assert joined.to_arrow().to_pylist() == [row for chunk in chunks for row in chunk.to_pylist()]
    if isinstance(joined, usmq.Column):  # structs without a null of their own are rows
        assert joined.usm_type == columns[0].usm_type


def test_arrays_of_a_device_stream_go_to_the_asked_queue(other_queue: usmq.Queue) -> None:
    parts = [usmq.arange(3), usmq.arange(2)]
    joined = usmq.from_arrow(usmq.DeviceStream(parts), queue=other_queue, usm_type="shared")
    assert (joined.queue, joined.usm_type) == (other_queue, "shared")
    assert joined.to_arrow().to_pylist() == [0, 1, 2, 0, 1]


def test_one_array_of_a_device_stream_stays_in_place() -> None:
    x = usmq.arange(3)
    assert usmq.from_arrow(usmq.DeviceStream([x])).values().ptr == x.ptr
