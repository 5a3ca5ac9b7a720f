"""Exports as ArrowDeviceArray, rule by rule (D of the specification)."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof
from typing import Any

import arrow_structs
import dpctl
import dpctl.memory
import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_structs import (
    KINDS,
    ONEAPI,
    STEPS,
    Exported,
    buffers,
    capsule,
    children,
    dictionary,
    eventually,
    kernel,
    live,
    move,
    read,
    release,
    text,
    wait_for,
)
from test_arrow_types import TYPES, as_column, made

no_leaks = arrow_structs.no_leaks
queue_without_ordinal = arrow_structs.queue_without_ordinal

Oracle = Callable[[Any, int], Any]
TABLE = pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": ["x", None, "long enough"]})
# The objects that export, all with three rows.
SOURCES: dict[str, Callable[..., Any]] = {
    "column": lambda **o: usmq.from_arrow(TABLE["a"].chunk(0), **o),
    "table": lambda **o: usmq.from_arrow(TABLE, **o),
    "array": lambda **o: usmq.zeros(3, "i4", **o),
    "grid": lambda **o: usmq.zeros((3, 2), "i4", **o),
}


def tree(struct: Any) -> list[Any]:
    parts = [*children(struct), dictionary(struct)]
    return [struct, *itertools.chain.from_iterable(tree(part) for part in parts if part)]


def is_usm(at: int) -> bool:
    try:
        dpctl.memory.as_usm_memory(arrow_structs.At(at, 1))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_d1_d2_d3_only_buffers_are_in_usm_and_the_device_is_oneapi(source: str, kind: str) -> None:
    kept = SOURCES[source](usm_type=kind)
    for _ in range(20):  # fresh memory is often zero by chance
        exported = Exported(kept)
        assert list(exported.device.reserved) == [0, 0, 0]
    assert exported.device.device_type == ONEAPI
    assert exported.device.device_id == usmq.current_queue().device.ordinal
    found = [at for array in tree(exported.array) for at in buffers(array) if at]
    assert found
    assert all(is_usm(at) for at in found)
    for array in tree(exported.array):
        for at in (addressof(array), array.buffers, array.children, array.private_data):
            assert not at or not is_usm(at)
    assert not exported.device.sync_event or not is_usm(exported.device.sync_event)


def test_d3_the_device_is_that_of_the_data(two_devices: tuple[usmq.Device, usmq.Device]) -> None:
    for device in two_devices:
        for source in SOURCES.values():
            exported = Exported(source(queue=usmq.Queue(device)))
            assert exported.device.device_id == device.ordinal


@pytest.mark.parametrize("source", SOURCES)
def test_d4_memory_without_a_device_ordinal_is_not_exported(
    queue_without_ordinal: usmq.Queue, source: str
) -> None:
    obj = SOURCES[source](queue=queue_without_ordinal)
    with pytest.raises(usmq.InteropError, match=r"context|sub-device"):
        obj.__arrow_c_device_array__()
    if source in ("column", "table"):
        with pytest.raises(usmq.InteropError, match=r"context|sub-device"):
            obj.__arrow_c_device_stream__()
        assert len(obj.to_arrow()) == 3


@pytest.mark.parametrize("own", [True, False], ids=["own queue", "another of the context"])
@pytest.mark.parametrize("wait", [None, False, True])
def test_d5_the_event_completes_after_the_work_on_the_data(
    advanced: Oracle, wait: bool | None, own: bool
) -> None:
    x = usmq.arange(0, 4, 1, dtype="u4")
    queue = x.queue if own else usmq.Queue(x.device, in_order=False)
    running = kernel("advance")(4, x, STEPS, queue=queue)
    exported = Exported(usmq.from_arrow(x), wait=wait)
    if wait:
        assert running.done()
        assert exported.device.sync_event is None
    else:
        assert not running.done(), "an export waited"
        event = dpctl.SyclEvent(capsule(exported.device.sync_event, b"SyclEventRef"))
        assert event.execution_status != dpctl.event_status_type.complete
        event.wait()
        assert running.done()
    found = read(buffers(exported.array)[1], "u4", 4)
    np.testing.assert_array_equal(found, advanced(np.arange(4), STEPS))


@pytest.mark.parametrize("late", range(3))
def test_d5_one_event_covers_the_work_on_all_children(late: int, advanced: Oracle) -> None:
    queue = usmq.Queue(usmq.current_queue().device, in_order=False)
    columns = [usmq.full(4, n, "u4", queue=queue) for n in range(3)]
    steps = [STEPS if n == late else 10 for n in range(3)]
    for x, count in zip(columns, steps, strict=True):
        kernel("advance")(4, x, count)
    exported = Exported(usmq.Table({str(n): x for n, x in enumerate(columns)}))
    wait_for(exported.device)
    for n, child in enumerate(children(exported.array)):
        found = read(buffers(child)[1], "u4", 4)
        np.testing.assert_array_equal(found, advanced(np.full(4, n), steps[n]))


def test_d5_no_event_is_set_once_the_work_is_complete_unless_another_library_may_work() -> None:
    queue = usmq.Queue(usmq.current_queue().device, profiling=True, priority="low")
    x = usmq.zeros(4, "u4", queue=queue)
    running = kernel("advance")(4, x, STEPS)
    assert Exported(x).device.sync_event is not None
    running.wait()
    assert Exported(x).device.sync_event is None
    dpctl.SyclQueue(queue._get_capsule())
    assert Exported(x).device.sync_event is not None


def test_d6_each_export_owns_its_event_until_its_release() -> None:
    x = usmq.zeros(4, "u4")
    kernel("advance")(4, x, STEPS // 4)
    first, second = Exported(x), Exported(x)
    assert first.device.sync_event != second.device.sync_event
    first_moved, second_moved = move(first.device), move(second.device)
    del x, first, second
    release(first_moved)
    wait_for(second_moved)
    wait_for(second_moved)
    release(second_moved)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("thread", ["this thread", "another thread"])
def test_d7_release_works_at_another_address_and_on_any_thread(source: str, thread: str) -> None:
    before = live()
    obj = SOURCES[source]()
    exported = Exported(obj)
    twice_moved = move(move(exported.device))
    schema = move(exported.schema)
    del obj, exported
    assert live() > before, "the struct keeps the memory"
    for struct in (twice_moved, schema):
        if thread == "this thread":
            release(struct)
        else:
            other = threading.Thread(target=release, args=[struct])
            other.start()
            other.join()
    assert twice_moved.array.release is None
    assert schema.release is None
    assert eventually(lambda: live() == before)


@pytest.mark.parametrize("kind", KINDS)
def test_d9_a_child_that_was_moved_out_outlives_its_parent(kind: str) -> None:
    before = live()
    array = pa.array([{"a": n, "b": str(n)} for n in range(100)])
    exported = Exported(usmq.from_arrow(array, usm_type=kind))
    wait_for(exported.device)
    parent = move(exported.device)
    first = children(parent.array)[0]
    child = move(first)
    del exported, first
    release(parent)
    others = [usmq.zeros(100, "i8", usm_type=kind) for _ in range(20)]
    usmq.current_queue().wait()
    found = read(buffers(child)[1], "i8", child.offset + child.length)[child.offset :]
    assert found.tolist() == list(range(100))
    del others
    release(child)
    assert eventually(lambda: live() == before)


def test_d9_a_child_of_a_schema_may_be_moved_out() -> None:
    exported = Exported(usmq.from_arrow(pa.array([{"a": 1, "b": "x"}])))
    schema = move(exported.schema)
    child = move(children(schema)[1])
    release(schema)
    assert (text(child.format), text(child.name)) == (b"u", b"b")
    release(child)


def test_d10_release_keeps_memory_for_work_in_flight(advanced: Oracle) -> None:
    queue = usmq.Queue(usmq.current_queue().device, in_order=False)
    y = usmq.zeros(16, "u4", queue=queue)
    x = usmq.arange(0, 16, 1, dtype="u4", queue=queue)
    running = kernel("advance_into")(16, x, y, STEPS)
    exported = Exported(x)
    struct = move(exported.device)
    del x, exported
    release(struct)
    assert not running.done(), "a release waited for the device"
    others = [usmq.full(16, 7, "u4", queue=queue) for _ in range(20)]
    np.testing.assert_array_equal(y.to_numpy(), advanced(np.arange(16), STEPS))
    del others


# How many buffers, by the first letters of the format; of views, those before the texts.
BUFFERS = {"n": 0, "u": 3, "U": 3, "z": 3, "Z": 3, "+l": 2, "+L": 2, "+vl": 3, "+vL": 3}
BUFFERS |= {"+w": 1, "+s": 1, "+m": 2, "+ud": 2, "+us": 1, "+r": 0}


def check(schema: Any, array: Any) -> None:
    form = (text(schema.format) or b"").decode()
    given, count = buffers(array), array.n_buffers
    assert array.length >= 0
    assert array.offset >= 0
    assert array.null_count >= -1
    assert all(is_usm(at) for at in given if at), "D1"
    if form in ("vu", "vz"):
        assert count >= 3
        assert given[-1] or count == 3, "the sizes of the texts"
    else:
        assert count == BUFFERS.get(form.split(":")[0], 2), form
    assert array.n_children == schema.n_children
    assert bool(array.children) == bool(array.n_children)
    assert bool(array.dictionary) == bool(schema.dictionary)
    has_validity = count and form[:2] not in ("+u",)
    if has_validity and not given[0]:
        assert array.null_count == 0, form
    sized = [] if form in ("w:0", "n") else given[1 if has_validity else 0 : 2]
    if array.length:
        assert all(sized), f"{form} has a buffer of something at NULL"
    for part in zip(children(schema), children(array), strict=True):
        check(*part)
    if schema.dictionary:
        check(dictionary(schema), dictionary(array))


@pytest.mark.parametrize("name", TYPES)
def test_d8_d11_d12_d13_all_structs_match_the_type_and_may_be_moved(name: str) -> None:
    for nulls, cut in itertools.product((True, False), [(0, 30), (7, 23), (9, 9), (29, 30)]):
        for array in (made(name, nulls), made(name, nulls)[slice(*cut)]):
            column = as_column(array)
            for obj in (column, column[1:]):
                exported = Exported(obj)
                check(exported.schema, exported.array)
                assert exported.array.length == len(obj)
                wait_for(exported.device)
                for root in (move(exported.device).array, move(exported.schema)):
                    assert all(part.release and part.private_data for part in tree(root))
                    release(root)
                    assert root.release is None


@pytest.mark.parametrize("part", [TABLE, TABLE[1:], TABLE[:0], pa.table({})])
def test_d14_a_record_batch_is_a_struct_without_offset_or_nulls(part: pa.Table) -> None:
    exported = Exported(usmq.from_arrow(part))
    array = exported.array
    assert text(exported.schema.format) == b"+s"
    assert exported.schema.flags & arrow_structs.NULLABLE == 0
    assert (array.length, array.offset, array.null_count) == (len(part), 0, 0)
    assert buffers(array) == [0]
    assert [text(child.name) for child in children(exported.schema)] == [
        name.encode() for name in part.column_names
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_d16_y7_an_export_copies_nothing(source: str) -> None:
    obj = SOURCES[source]()
    before, used = live(), usmq.memory_stats()["device"]["used"]
    exports = [Exported(obj) for _ in range(10)]
    assert live() == before
    assert usmq.memory_stats()["device"]["used"] == used
    addresses = [[buffers(array) for array in tree(e.array)] for e in exports]
    assert all(found == addresses[0] for found in addresses)
    usm = obj["a"].values() if source == "table" else obj
    usm = obj.values() if source == "column" else usm
    assert any(usm.ptr in found for found in addresses[0])


@pytest.mark.parametrize("source", SOURCES)
def test_d17_two_exports_of_one_object_are_independent(source: str) -> None:
    before = live()
    obj = SOURCES[source]()
    first, second = Exported(obj), Exported(obj)
    kept = live()
    del obj
    one, two = move(first.device), move(second.device)
    release(one)
    assert live() == kept, "the second still needs it"
    check(second.schema, two.array)
    del first, second
    release(two)
    assert eventually(lambda: live() == before)


@pytest.mark.parametrize("source", SOURCES)
def test_nanoarrow_reads_the_device_and_the_addresses(source: str) -> None:
    obj = SOURCES[source]()
    exported = Exported(obj)
    theirs = nanoarrow.device.c_device_array(obj)
    assert theirs.device_type_id == ONEAPI
    assert theirs.device_id == exported.device.device_id
    assert theirs.array.length == 3
    assert [at or 0 for at in theirs.array.buffers] == buffers(exported.array)
    found = [list(child.buffers) for child in theirs.array.children]
    assert [[at or 0 for at in child] for child in found] == [
        buffers(child) for child in children(exported.array)
    ]
    again = nanoarrow.device.c_device_array(usmq.from_arrow(theirs))
    assert list(again.array.buffers) == list(theirs.array.buffers)


def test_exports_on_many_threads_are_each_released() -> None:
    column = usmq.from_arrow(pa.array([{"a": 1, "b": ["x"]}] * 100))
    start = threading.Barrier(4)

    def work(_: int) -> None:
        start.wait()
        for _ in range(50):
            release(move(Exported(column).device))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert column.to_arrow().to_pylist() == [{"a": 1, "b": ["x"]}] * 100


def test_a_process_may_exit_with_exports_of_pending_work(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = f"""
import usmq
advance = usmq.Kernel.from_opencl({arrow_structs._ADVANCE!r}, "advance")
x = usmq.zeros(4, "u4")
advance(4, x, {STEPS})
kept = usmq.from_arrow(x).__arrow_c_device_array__()
stream = usmq.Table({{"x": x}}).__arrow_c_device_stream__()
print("ready")
"""
    assert run_python(code, timeout=60).stdout.split() == ["ready"]
