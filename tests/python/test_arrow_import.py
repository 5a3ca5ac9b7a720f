"""Imports of foreign Arrow data: in place, ordered, and released once after the last use."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import arrow_structs
import dpctl
import numpy as np
import pyarrow as pa
import pytest
import test_arrow_types
import usmq
from arrow_producers import Node, Producer, StreamProducer, address, gives, ints, lists, strings
from arrow_producers import record as batch
from arrow_structs import (
    CPU,
    KINDS,
    ONEAPI,
    STEPS,
    At,
    Exported,
    bitmap,
    buffers,
    children,
    eventually,
    foreign,
    kernel,
    live,
    usm,
)
from test_arrow_export import tree
from test_arrow_types import TYPES, as_column, made, same

no_leaks = arrow_structs.no_leaks
rational = test_arrow_types.rational

Oracle = Callable[[Any, int], Any]
WORDS = Node(
    b"c", 4, [None, np.array([1, 0, 1, 1], "i1")], dictionary=strings([b"x", b"why"]), name=b"w"
)
VIEWS = Node(
    b"vu",
    2,
    [
        None,
        np.frombuffer(struct.pack("i12si4sii", 3, b"abc", 14, b"four", 0, 0), "u1"),
        np.frombuffer(b"fourteen chars", "u1"),
        np.array([14], "i8"),
    ],
)
# Arrays of another library, and their Python values.
NODES: dict[str, tuple[Node, list[Any]]] = {
    "ints": (ints([1, 2, 3]), [1, 2, 3]),
    "ints with nulls": (ints([1, None, 3]), [1, None, 3]),
    "nulls that were not counted": (replace(ints([1, None, 3]), null_count=-1), [1, None, 3]),
    "ints at an offset": (
        replace(ints([9, None, 3, 4, None, 6], offset=2), length=3, null_count=1),
        [3, 4, None],
    ),
    "uncounted at an offset": (
        replace(ints([9, None, 3, 4, None, 6], offset=2), length=3, null_count=-1),
        [3, 4, None],
    ),
    "a bitmap without nulls": (Node(b"i", 2, [bitmap([True] * 2), np.array([5, 6], "i4")]), [5, 6]),
    "bools": (Node(b"b", 3, [None, bitmap([0, 1, 1, 0, 1])], offset=2), [True, False, True]),
    "texts": (strings([b"a", b"", b"long"]), ["a", "", "long"]),
    "texts at an offset": (
        replace(strings([b"a", b"", b"long"], offset=1), length=2),
        ["", "long"],
    ),
    "lists": (lists(ints([1, 2, None]), [2, 0, 1]), [[1, 2], [], [None]]),
    "lists of texts": (lists(strings([b"a", b"bc"]), [0, 2]), [[], ["a", "bc"]]),
    "dictionary": (WORDS, ["why", "x", "why", "why"]),
    "views": (VIEWS, ["abc", "fourteen chars"]),
    "struct": (
        Node(b"+s", 2, [bitmap([1, 0])], [replace(ints([1, 2]), name=b"a")], null_count=1),
        [{"a": 1}, None],
    ),
    "struct at an offset": (
        Node(
            b"+s",
            2,
            [bitmap([1, 1, 0])],
            [replace(ints([1, 2, 3]), name=b"a")],
            offset=1,
            null_count=1,
        ),
        [{"a": 2}, None],
    ),
    "nothing": (Node(b"n", 3, [], null_count=3), [None] * 3),
    "nothing, in a buffer as of polars": (Node(b"n", 3, [None], null_count=3), [None] * 3),
    "empty without buffers": (Node(b"i", 0, [None, None]), []),
}


def addresses(node: Node) -> list[int]:
    found = [address(b) or 0 for b in node.buffers]
    parts = [*node.children, *([node.dictionary] if node.dictionary else [])]
    return found + [at for part in parts for at in addresses(part)]


def exported(obj: Any) -> list[int]:
    array = Exported(obj)
    return [at for part in tree(array.array) for at in buffers(part)]


def given(node: Node, way: str) -> Any:
    """Return an array in host memory, or in a kind of USM, or twice in a stream of the host."""
    if way == "host stream":
        stream = StreamProducer(node, [Producer(node), Producer(node)])
        return gives(stream=stream.__arrow_c_device_stream__)
    return Producer(node) if way == "host" else Producer(node.on_device(way), ONEAPI)


@pytest.mark.parametrize("null_count", [0, -1])
@pytest.mark.parametrize("way", ["host", "host stream", *KINDS])
def test_nullable_structs_without_nulls_are_a_table(way: str, null_count: int) -> None:
    rows = Node(
        b"+s", 3, [bitmap([1, 1, 1])], [replace(ints([1, 2, 3]), name=b"a")], null_count=null_count
    )
    table = usmq.from_arrow(given(rows, way))
    assert isinstance(table, usmq.Table)
    assert not table.schema.nullable
    assert table.to_arrow()["a"].to_pylist() == [1, 2, 3] * (2 if "stream" in way else 1)
    # One null, and the rows are values of a column.
    some = replace(rows, buffers=[bitmap([1, 0, 1])], null_count=-1 if null_count else 1)
    column = usmq.from_arrow(given(some, way.removesuffix(" stream")))
    assert isinstance(column, usmq.Column)
    assert column.to_arrow().to_pylist() == [{"a": 1}, None, {"a": 3}]


@pytest.mark.parametrize("name", NODES)
def test_host_data_of_another_library_is_copied(name: str) -> None:
    node, values = NODES[name]
    producer = Producer(node)
    column = usmq.from_arrow(producer)
    assert column.to_arrow().to_pylist() == values
    assert column.null_count == values.count(None)
    assert eventually(lambda: sorted(producer.log) == ["array", "schema"]), producer.log
    assert column.to_arrow().to_pylist() == values, "the source is no longer needed"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NODES)
def test_d23_device_data_is_used_in_place(name: str, kind: str) -> None:
    node, values = NODES[name]
    producer = Producer(node.on_device(kind), ONEAPI)
    before = live()
    column = usmq.from_arrow(producer)
    assert live() == before, "something was copied"
    assert column.queue.device == usmq.current_queue().device
    assert column.to_arrow().to_pylist() == values
    assert column.null_count == values.count(None)
    given = [at for at in addresses(producer.root) if at]
    assert ("array" in producer.log) is not bool(given), "the source is kept if it has buffers"
    again = usmq.from_arrow(column)
    if values:
        assert column.usm_type == (kind if given else None)
        assert [at for at in exported(column) if at] == given
        assert [at for at in exported(again) if at] == given
    del column
    usmq.current_queue().wait()
    assert ("array" in producer.log) is not bool(given)
    assert again.to_arrow().to_pylist() == values


@pytest.mark.parametrize("device_type", [CPU, ONEAPI])
def test_d25_d26_an_imported_struct_is_moved_and_its_root_released_once(device_type: int) -> None:
    node = batch(a=lists(ints([1, 2]), [1, 1]), w=replace(WORDS, length=2))
    producer = Producer(node.on_device() if device_type == ONEAPI else node, device_type)
    table = usmq.from_arrow(producer)
    assert producer.array.release is None, "the source is marked as moved"
    assert producer.schema.release is None
    assert table.to_arrow().to_pydict() == {"a": [[1], [2]], "w": ["why", "x"]}
    parts = [*table.columns, table["a"].children[0], table["w"].dictionary]
    del table
    assert [part.to_arrow().to_pylist() for part in parts] == [
        [[1], [2]],
        ["why", "x"],
        [1, 2],
        ["x", "why"],
    ]
    del parts
    assert eventually(lambda: sorted(producer.log) == ["array", "schema"]), producer.log


@pytest.mark.parametrize("device_type", [CPU, ONEAPI])
def test_a_record_batch_with_an_offset_gives_its_rows(device_type: int) -> None:
    node = replace(batch(a=ints([1, 2, None, 4]), b=strings([b"", b"x", b"yz", b""])), offset=1)
    node.length = 2
    producer = Producer(node.on_device() if device_type == ONEAPI else node, device_type)
    table = usmq.from_arrow(producer)
    assert table.to_arrow().to_pydict() == {"a": [2, None], "b": ["x", "yz"]}
    array = Exported(table).array
    assert (array.length, array.offset) == (2, 0)
    assert [child.offset + child.length <= 4 for child in children(array)] == [True, True]


def test_d28_a_device_table_gives_the_requested_columns() -> None:
    producer = Producer(batch(a=ints([1, 2]), b=strings([b"x", b"y"])).on_device(), ONEAPI)
    table = usmq.from_arrow(producer, columns=["b"])
    assert table.to_arrow().to_pydict() == {"b": ["x", "y"]}


@pytest.mark.parametrize("name", TYPES)
def test_our_own_export_round_trips_at_the_same_addresses(name: str) -> None:
    array = made(name, True)[5:28]
    column = as_column(array)
    before = live()
    again = usmq.from_arrow(column)
    assert live() == before
    assert exported(again) == exported(column)
    same(again.to_arrow(), array, name)
    same(usmq.from_arrow(column[1:9]).to_arrow(), array[1:9], name)


def producer_of(memory: Any, event: Any = None, **options: Any) -> Producer:
    node = Node(b"I", memory.nbytes // 4, [None, memory])
    sync = event.addressof_ref() if event is not None else 0
    return Producer(node, ONEAPI, sync_event=sync, **options)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("use", ["values", "to_arrow", "kernel", "export"])
def test_d22_later_work_waits_for_the_producers_event(
    use: str, in_order: bool, advanced: Oracle
) -> None:
    _, advance = foreign()
    memory = usm(np.arange(2, dtype="u4"))
    event = advance(memory, STEPS)
    queue = usmq.Queue(usmq.current_queue().device, in_order=in_order)
    producer = producer_of(memory, event)
    column = usmq.from_arrow(producer, queue=queue)
    pending = event.execution_status != dpctl.event_status_type.complete
    assert pending, "the import waited on the host"
    del event  # the import has its own copy
    if use == "values":
        found = column.values().to_numpy()
    elif use == "to_arrow":
        found = column.to_arrow().to_numpy()
    elif use == "kernel":
        y = usmq.empty(2, "u4", queue=queue)
        kernel("advance_into")(2, column.values(), y, 0, queue=queue)
        found = y.to_numpy()
    else:
        struct = Exported(column)
        arrow_structs.wait_for(struct.device)
        found = arrow_structs.read(buffers(struct.array)[1], "u4", 2)
    np.testing.assert_array_equal(found, advanced(np.arange(2), STEPS))


def test_d26_release_follows_the_work_on_the_data(advanced: Oracle) -> None:
    x, y = usm(np.arange(4, dtype="u4")), usm(np.zeros(4, "u4"), "shared")
    producer = producer_of(x)
    seen: list[Any] = []
    result = np.asarray(y).view("u4")
    producer.probes.append(lambda what: seen.append(result.copy()) if what == "array" else None)
    column = usmq.from_arrow(producer)
    target = usmq.asarray(At(y._pointer, 4, "<u4", readonly=False), copy=False)
    values = column.values()
    running = kernel("advance_into")(4, values, target, STEPS, queue=column.queue)
    del column, values
    assert not running.done(), "dropping a column waited for the device"
    assert "array" not in producer.log
    running.wait()
    assert eventually(lambda: "array" in producer.log)
    np.testing.assert_array_equal(seen, [advanced(np.arange(4), STEPS)])


PARTS: dict[str, Callable[[Any], Any]] = {
    "values": lambda c: c.children[0].values()[1:],
    "slice": lambda c: c[0:1],
    "child": lambda c: c.children[0],
    "dictionary": lambda c: c.dictionary,
    "export": Exported,
}


@pytest.mark.parametrize("part", PARTS)
def test_d26_any_part_keeps_the_source_alive(part: str) -> None:
    node = WORDS.on_device() if part == "dictionary" else lists(ints([1, 2, 3]), [3]).on_device()
    producer = Producer(node, ONEAPI)
    column = usmq.from_arrow(producer)
    kept = PARTS[part](column)
    del column
    usmq.current_queue().wait()
    assert "array" not in producer.log
    del kept
    assert eventually(lambda: "array" in producer.log)


@pytest.mark.parametrize("dropped", [False, True])
def test_host_data_is_copied_without_a_wait_and_kept_until_copied(dropped: bool) -> None:
    x = usmq.zeros(1, "u4")
    producer = Producer(batch(a=ints(list(range(10_000))), b=strings([b"word"] * 10_000)))
    running = kernel("advance")(1, x, STEPS)
    table = usmq.from_arrow(producer)
    if dropped:
        del table
    assert not running.done(), "the import waited for the queue"
    assert "array" not in producer.log, "the copies cannot be complete yet"
    if dropped:
        running.wait()
    else:
        table.wait()
    assert running.done()
    assert eventually(lambda: "array" in producer.log)
    if not dropped:
        assert table["a"].values().to_numpy().tolist() == list(range(10_000))


def test_many_threads_import_and_release_concurrently() -> None:
    table = pa.table({"a": pa.array([1, None, 3] * 50), "b": [["x"], None, []] * 50})
    start = threading.Barrier(4)

    def work(_: int) -> None:
        start.wait()
        for _ in range(20):
            taken = usmq.from_arrow(usmq.from_arrow(table))
            assert taken.to_arrow().equals(table)
            producer = Producer(lists(ints([1, 2]), [2]).on_device(), ONEAPI)
            assert usmq.from_arrow(producer).to_arrow().to_pylist() == [[1, 2]]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_data_of_the_second_device_stays_there(
    two_devices: tuple[usmq.Device, usmq.Device],
) -> None:
    there = usmq.Queue(two_devices[1])
    x = usmq.asarray(np.arange(4, dtype="i4"), queue=there)
    column = usmq.from_arrow(usmq.from_arrow(x))
    assert column.device == two_devices[1]
    assert column.values().ptr == x.ptr
    theirs = dpctl.memory.MemoryUSMDevice(16, queue=dpctl.SyclQueue(two_devices[1].filter_string))
    theirs.copy_from_host(np.arange(4, dtype="u4").view("u1"))
    producer = producer_of(theirs, device_id=two_devices[1].ordinal)
    imported = usmq.from_arrow(producer)
    assert imported.device == two_devices[1]
    assert imported.values().ptr == theirs._pointer
    assert imported.values().to_numpy().tolist() == [0, 1, 2, 3]


def test_d23_the_sizes_of_views_are_in_usm_like_every_buffer() -> None:
    """Arrow C++ leaves them on the host; no library of oneAPI is known to."""
    node = VIEWS.on_device()
    column = usmq.from_arrow(Producer(node, ONEAPI))
    assert [at for at in exported(column) if at] == addresses(node)[1:]
    node.buffers = [*node.buffers[:-1], VIEWS.buffers[-1]]
    with pytest.raises(usmq.InteropError):
        usmq.from_arrow(Producer(node, ONEAPI))


@pytest.mark.parametrize("device_type", [CPU, ONEAPI])
@pytest.mark.parametrize("form", [b"u", b"Z", b"+l"])
def test_empty_strings_and_lists_need_no_offsets(form: bytes, device_type: int) -> None:
    """Older writers leave out the one offset that there should be."""
    node = Node(form, 0, [None, None] if form == b"+l" else [None] * 3)
    if form == b"+l":
        node.children = [replace(ints([]), name=b"item")]
        if device_type == ONEAPI:
            node.children = [Node(b"i", 0, [None, None])]
    column = usmq.from_arrow(Producer(node, device_type))
    assert column.to_arrow().to_pylist() == []
    assert column.offsets().to_numpy().tolist() == [0]
    assert buffers(Exported(column).array)[1]
