"""Arrays and tables go through memory that workers of one machine map; all else uses the socket."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_values import every_type, held

distributed = pytest.importorskip("distributed")

from distributed import Client  # noqa: E402
from distributed.protocol import deserialize, serialize  # noqa: E402
from usmq.dask import LocalUsmCluster, _shm_transport  # noqa: E402
from usmq.dask._shm_transport import (  # noqa: E402
    HERE,
    KEY,
    PAGE,
    READER,
    SMALLEST,
    Inbox,
    Outbox,
    dumps,
    ended,
    identity,
    loads,
    machine,
)

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUIET: dict[str, Any] = {"dashboard_address": ":0"}
COUNT = 1 << 18  # of 8 bytes: 2 MiB

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the context of a local worker that requests an array from this process."""
    name = machine()
    assert name is not None
    monkeypatch.setattr(HERE, "name", name)
    monkeypatch.setattr(HERE, "outbox", Outbox())
    monkeypatch.setattr(HERE, "inbox", Inbox())
    return {"recipient": {KEY: name}}


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.reshape(512, -1).T, lambda x: x[::-1], lambda x: x[7 : 7 + COUNT]],
    ids=["whole", "transposed", "reversed", "cut"],
)
def test_an_array_is_read_in_place_from_shared_memory(
    kind: str, view: Callable[[usmq.Array], usmq.Array], asker: dict[str, Any]
) -> None:
    array = view(usmq.arange(2 * COUNT, dtype="i8", usm_type=kind))
    header, frames = serialize(array, context=asker)
    assert header["serializer"] == "dask"
    assert sum(memoryview(frame).nbytes for frame in frames) == 0
    assert len(pickle.dumps(header)) < 2000
    back = deserialize(header, frames)
    # A device that uses host memory computes on the shared memory itself.
    reaches = "usm_system_allocations" in usmq.current_queue().device.aspects
    expected = "system" if reaches and kind == "device" else kind
    assert (back.shape, back.dtype, back.usm_type) == (array.shape, array.dtype, expected)
    assert (back.to_numpy() == array.to_numpy()).all()
    assert back.queue == usmq.current_queue()
    assert not back.readonly


def arrow_table() -> pa.Table:
    """Return two batches with nulls, text, nested values and a dictionary: 4 MiB and more."""
    numbers = np.arange(COUNT)
    words = pa.array([f"word {number % 7}" for number in range(COUNT)])
    columns = {
        "x": pa.array(numbers, mask=numbers % 5 == 0),
        "text": pa.array([None if number % 9 == 0 else "é" * (number % 4) for number in numbers]),
        "words": words.dictionary_encode(),
        "lists": pa.array([[number, number + 1] for number in range(COUNT)]),
        "flags": pa.array(numbers % 3 == 0),
        "empty": pa.nulls(COUNT),
    }
    table = pa.table(columns)
    return pa.concat_tables([table.slice(0, 1000), table.slice(1000)])


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize(
    "part",
    [
        lambda table: table,
        lambda table: table.batches[0].columns[0],
        lambda table: table.batches[0].columns[2],
        lambda table: usmq.Table({name: table[name][3 : COUNT - 7] for name in ("words", "lists")}),
        lambda table: table.batches[0].columns[1][11 : COUNT - 2000],
    ],
    ids=["table", "numbers", "dictionary", "cut table", "cut text"],
)
def test_columns_and_tables_are_read_in_place_from_shared_memory(
    kind: str, part: Callable[[usmq.Table], usmq.Column | usmq.Table], asker: dict[str, Any]
) -> None:
    columns = part(usmq.from_arrow(arrow_table(), usm_type=kind))
    HERE.ways.clear()
    header, frames = serialize(columns, context=asker)
    assert header["serializer"] == "dask"
    assert sum(memoryview(frame).nbytes for frame in frames) == 0
    assert len(pickle.dumps(header)) < 6000
    back = deserialize(header, frames)
    assert type(back) is type(columns)
    assert back.to_arrow().equals(columns.to_arrow())
    assert back.queue == usmq.current_queue()
    reaches = "usm_system_allocations" in usmq.current_queue().device.aspects
    way = "in-place" if reaches and kind == "device" else "copied-from-shared"
    assert set(HERE.ways) == {"same-host", way}
    assert HERE.ways["same-host"] > 1 << 20
    # The result can travel on, and be pickled.
    again = deserialize(*serialize(back, context=asker))
    assert again.to_arrow().equals(columns.to_arrow())
    assert pickle.loads(pickle.dumps(back)).to_arrow().equals(columns.to_arrow())


def test_a_table_used_in_place_keeps_its_memory(asker: dict[str, Any]) -> None:
    table = usmq.from_arrow(arrow_table())
    back = deserialize(*serialize(table, context=asker))
    (segment,) = HERE.outbox._segments
    if HERE.ways["in-place"] == 0:
        pytest.skip("the device does not use system memory")
    values = back.batches[0].columns[0].values()
    del back
    usmq.trim_memory()
    assert not segment.free()
    assert values.to_numpy()[1] == 1
    del values
    usmq.trim_memory()
    assert segment.free()


def test_a_profile_names_the_way_of_each_copy(asker: dict[str, Any]) -> None:
    array, table = usmq.arange(COUNT, dtype="i8"), usmq.from_arrow(arrow_table())
    with usmq.profile() as p:
        for sent in (array, table):
            deserialize(*serialize(sent, context=asker))
    assert {event.reason for event in p.events if event.kind == "copy"} == {"shared memory"}
    with usmq.profile() as p:
        for sent in (array, table):
            pickle.loads(pickle.dumps(sent, protocol=5))
    assert {event.reason for event in p.events if event.kind == "copy"} == {"pickle"}


def test_a_slice_is_copied_once_and_alone(asker: dict[str, Any]) -> None:
    """Only the slice leaves the device, with the text and the items before it."""
    table = usmq.from_arrow(arrow_table())
    table.wait()
    for name in ("x", "text", "words", "lists", "flags"):
        whole = table[name]
        part = whole[COUNT // 2 + 5 :][: COUNT // 3]
        if name == "flags":  # Its bits are less than what shared memory is for.
            packed = usmq._core.pack_in_place(part)[2]
            assert sum(buffer.nbytes for buffer in packed) <= COUNT // 3 // 8 + 2
            continue
        HERE.ways.clear()
        with usmq.profile() as p:
            header, frames = serialize(part, context=asker)
        copied = [event.bytes for event in p.events if event.kind == "copy"]
        sent = sum(nbytes for _, nbytes in header["sub-header"]["buffers"])
        assert sent <= sum(copied) <= sent + 16, name
        if name in ("x", "words"):
            assert sent < 0.4 * whole.nbytes
        assert deserialize(header, frames).to_arrow().equals(part.to_arrow()), name


@pytest.mark.parametrize(("start", "stop"), [(0, 300), (7, 8), (13, 900), (64, 64), (500, 999)])
def test_slices_of_every_type_are_packed_in_place(start: int, stop: int) -> None:
    for name, array in every_type(np.random.default_rng(start), 999).items():
        part = held(array)[start:stop]
        packed, _, buffers = usmq._core.pack_in_place(part)
        frames = []
        for buffer in buffers:
            frame = memoryview(np.empty(buffer.nbytes, "u1"))
            usmq._core.fill_frame(buffer, frame)
            frames.append(frame)
        back = usmq._core.restore_column(packed, *frames, shared=True)
        back.to_arrow().validate(full=True)
        assert back.to_arrow().to_pylist() == array[start:stop].to_pylist(), name


@pytest.mark.parametrize("damage", ["short", "long", "header"])
def test_damaged_columns_are_refused(damage: str, asker: dict[str, Any]) -> None:
    column = usmq.from_arrow(pa.array(range(COUNT)))
    packed, kind, buffers = usmq._core.pack_in_place(column)
    assert (kind, [buffer.nbytes for buffer in buffers]) == ("device", [8 * COUNT])
    frames = [memoryview(buffers[0].to_numpy()).cast("B")]
    if damage == "short":
        frames = [frames[0][:-8]]
    elif damage == "long":
        frames = [*frames, frames[0]]
    else:
        packed = packed[:-3]
    reaches = "usm_system_allocations" in usmq.current_queue().device.aspects
    for place in {False, reaches}:
        with pytest.raises(usmq.InteropError, match="packed data is broken"):
            usmq._core.restore_column(packed, *frames, shared=True, in_place=place)
    with pytest.raises(TypeError):
        usmq._core.pack_in_place(usmq.zeros(3))


def test_memory_for_a_reader_that_has_ended_is_released(asker: dict[str, Any]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        asker["recipient"][READER] = identity(process.pid)
        dumps(usmq.arange(COUNT, dtype="i8"), asker)
        HERE.outbox.sweep(idle=0)
        assert len(HERE.outbox._segments) == 1
        process.kill()
    assert ended(asker["recipient"][READER])
    assert not ended(identity(os.getpid()))
    HERE.outbox.sweep()
    assert not HERE.outbox._segments


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"recipient": {}}, "no-worker-here"),
        ({"recipient": {KEY: "another machine"}}, "other-machine"),
        (None, None),
    ],
)
def test_data_that_uses_the_socket_is_counted_with_the_reason(
    context: dict[str, Any] | None, why: str | None, asker: dict[str, Any]
) -> None:
    HERE.ways.clear()
    for sent in (usmq.arange(COUNT, dtype="i8"), usmq.from_arrow(pa.array(range(COUNT)))):
        assert serialize(sent, context=context)[0]["serializer"] == "pickle"
    each = 2 * 8 * COUNT
    assert HERE.ways == ({"socket": each, f"socket-{why}": each} if why else {})
    HERE.ways.clear()
    serialize(usmq.zeros(9, "u1"), context=asker)
    assert HERE.ways == {"socket": 9, "socket-small": 9}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (bytearray(11), "buffer of 12 bytes is needed, not one of 11"),
        (bytearray(13), "buffer of 12 bytes is needed, not one of 13"),
        (bytes(12), "writable"),
        (np.zeros(6, "f4")[::2], "contiguous"),
        (12, "bytes-like"),
    ],
)
def test_a_frame_of_the_wrong_size_is_refused(target: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, BufferError), match=message):
        usmq._core.fill_frame(usmq.zeros(3, "f4"), target)


def test_the_frame_includes_work_in_flight(
    asker: dict[str, Any], kernels: Any, advanced: Any
) -> None:
    states = usmq.arange(1 << 18, dtype="u4")
    before = states.to_numpy()
    kernels.advance(states.size, states, 5000)
    assert (loads(*dumps(states, asker)).to_numpy() == advanced(before, 5000)).all()


@pytest.mark.parametrize(
    "context", [None, {}, {"recipient": {}}, {"recipient": {KEY: "another machine"}}]
)
def test_a_peer_on_another_host_gets_a_pickle(context: Any, asker: dict[str, Any]) -> None:
    array = usmq.arange(COUNT, dtype="i8")
    header, frames = serialize(array, context=context)
    assert header["serializer"] == "pickle"
    assert sum(memoryview(frame).nbytes for frame in frames) >= array.nbytes
    small = usmq.zeros(SMALLEST // 8 - 1, "f8")
    assert serialize(small, context=asker)[0]["serializer"] == "pickle"


def read(sent: tuple[dict[str, Any], list[Any]]) -> Any:
    """Return a copy of a sent array, after the release of its memory."""
    values = loads(*sent).to_numpy()
    usmq.trim_memory()
    return values


def test_memory_in_use_in_place_is_not_reused(asker: dict[str, Any]) -> None:
    array = usmq.arange(COUNT, dtype="i8")
    sent = dumps(array, asker)
    back = loads(*sent)
    if back.usm_type != "system":
        pytest.skip("the device does not use system memory")
    (segment,) = HERE.outbox._segments
    back.fill(7)
    back.wait()
    assert segment.memory[PAGE] == 7, "in place"
    view = back[5:]
    del back
    usmq.trim_memory()
    assert not segment.free()
    del view
    usmq.trim_memory()
    assert segment.free()


def test_memory_is_reused_after_reading_and_freed_when_idle(
    asker: dict[str, Any],
) -> None:
    array = usmq.arange(COUNT, dtype="i8")
    first = dumps(array, asker)
    second = dumps(array, asker)
    assert first[0]["number"] != second[0]["number"]
    read(first)
    third = dumps(array[: COUNT - 100], asker)
    assert third[0]["number"] == first[0]["number"]
    assert third[0]["secret"] != first[0]["secret"]
    with pytest.raises(ConnectionError, match="is gone"):
        loads(*first)  # It is another array's by now.
    assert (read(second) == np.arange(COUNT)).all()
    HERE.outbox.sweep(idle=0)
    assert (read(third).size, len(HERE.outbox._segments)) == (COUNT - 100, 1)
    HERE.outbox.sweep()
    assert len(HERE.outbox._segments) == 1
    HERE.outbox.sweep(idle=0)
    assert not HERE.outbox._segments


def segments_mapped() -> int:
    """Return how many segments this process has mapped, as sender and as reader."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:usmq")


def test_a_reader_keeps_memory_mapped_until_the_sender_closes_it(asker: dict[str, Any]) -> None:
    before = segments_mapped()
    array = usmq.arange(COUNT, dtype="i8")
    for number in range(4):
        part = array[: COUNT - number]
        assert (read(dumps(part, asker)) == np.arange(COUNT - number)).all()
        assert segments_mapped() == before + 2
        (mapping,) = HERE.inbox._mappings.values()
        if number == 0:
            first = mapping
        assert mapping is first
        HERE.inbox.sweep()
    del mapping, first
    HERE.outbox.sweep(idle=0)
    HERE.inbox.sweep()
    assert segments_mapped() == before


def test_a_reader_unmaps_memory_that_was_idle(asker: dict[str, Any]) -> None:
    before = segments_mapped()
    back = loads(*dumps(usmq.arange(COUNT, dtype="i8"), asker))
    in_place = back.usm_type == "system"
    HERE.inbox.sweep(idle=0)
    assert segments_mapped() == before + (2 if in_place else 1)
    assert len(HERE.inbox._mappings) == int(in_place), "memory in use is not idle"
    del back
    usmq.trim_memory()
    HERE.inbox.sweep(idle=-1)
    assert segments_mapped() == before + 1


def test_memory_in_use_outlives_its_sender(asker: dict[str, Any]) -> None:
    before = segments_mapped()
    back = loads(*dumps(usmq.arange(COUNT, dtype="i8"), asker))
    (segment,) = HERE.outbox._segments
    HERE.outbox._segments.clear()
    segment.close()
    HERE.inbox.sweep()
    assert not HERE.inbox._mappings
    assert (back.to_numpy() == np.arange(COUNT)).all()
    del back
    usmq.trim_memory()
    assert segments_mapped() == before


def test_a_mapping_is_not_taken_for_later_memory_of_the_same_number(
    asker: dict[str, Any],
) -> None:
    first = dumps(usmq.arange(COUNT, dtype="i8"), asker)
    read(first)
    with pytest.raises(ConnectionError, match="is gone"):
        loads(*first)  # Its memory is free, so the sender may use it at any time.
    HERE.outbox.sweep(idle=0)
    second = dumps(usmq.arange(COUNT, 2 * COUNT, dtype="i8"), asker)
    assert second[0]["number"] == first[0]["number"]
    assert (read(second) == np.arange(COUNT, 2 * COUNT)).all()
    assert len(HERE.inbox._mappings) == 1


def test_memory_that_is_never_read_is_released(
    asker: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = dumps(usmq.arange(COUNT, dtype="i8"), asker)
    monkeypatch.setattr(_shm_transport, "FORGOTTEN", -1.0)
    HERE.outbox.sweep()
    with pytest.raises(ConnectionError, match=f"process {os.getpid()} is gone"):
        loads(*left)


def test_an_array_of_an_exited_process_raises_an_error_dask_handles(
    asker: dict[str, Any],
) -> None:
    header, frames = dumps(usmq.arange(COUNT, dtype="i8"), asker)
    with pytest.raises(ConnectionError, match="is gone"):
        loads(header | {"process": 2**22 + 1}, frames)
    # A number that means something else by now, and one that never ends.
    reading, writing = os.pipe()
    try:
        for number in (0, reading, writing):
            with pytest.raises(ConnectionError, match="is gone"):
                loads(header | {"number": number}, frames)
    finally:
        os.close(reading)
        os.close(writing)


def test_only_memory_that_may_not_be_opened_ends_sharing(
    asker: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    header, frames = dumps(usmq.arange(COUNT, dtype="i8"), asker)
    # The process is alive, as one that is being killed; a number of it means nothing any more.
    with pytest.raises(ConnectionError, match="is gone"):
        loads(header | {"number": 1 << 19}, frames)
    assert HERE.name is not None

    def refused(*_: Any) -> int:
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ConnectionError, match="not permitted"):
        loads(header, frames)
    assert HERE.name is None
    assert "uses sockets from now on" in caplog.text


def test_without_shared_memory_the_socket_is_used(
    asker: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError("no room")

    monkeypatch.setattr(os, "memfd_create", full)
    HERE.ways.clear()
    header, _ = serialize(usmq.arange(COUNT, dtype="i8"), context=asker)
    assert header["serializer"] == "pickle"
    assert HERE.ways == {"socket": 8 * COUNT, "socket-no-memory": 8 * COUNT}


def part(number: int) -> usmq.Array:
    return usmq.arange(number * COUNT, (number + 1) * COUNT, dtype="i8")


def sum_of_column(table: usmq.Table) -> int:
    assert table.queue == usmq.current_queue()
    return int(table.to_arrow()["x"].to_numpy().sum())


def total(value: Any) -> int:
    arrays = [value["a"][0], value["b"]] if isinstance(value, dict) else [value]
    assert all(array.queue == usmq.current_queue() for array in arrays)
    return sum(int(array.to_numpy().sum()) for array in arrays)


def shared(dask_worker: Any) -> float:
    keys = dask_worker.digests_total.items()
    return sum(value for key, value in keys if "usmq-same-host" in key)


@pytest.fixture(params=[True, False], ids=["shared", "by socket"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Client, bool]]:
    with (
        dask.config.set({"usmq.dask.same-host": request.param}),
        LocalUsmCluster(n_workers=2, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        yield client, request.param


def test_workers_use_shared_memory_and_clients_do_not(pair: tuple[Client, bool]) -> None:
    client, expected = pair
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    array = client.submit(part, 3, workers=[first])
    nested = client.submit(lambda: {"a": [part(4)], "b": part(5)}, workers=[first])
    table = client.submit(lambda: usmq.Table({"x": part(6)}), workers=[first])
    sums = [client.submit(total, value, workers=[second]) for value in (array, nested)]
    most = [sum(range(n * COUNT, (n + 1) * COUNT)) for n in (3, 4, 5)]
    assert client.gather(sums) == [most[0], most[1] + most[2]]
    column = client.submit(sum_of_column, table, workers=[second]).result(timeout=40)
    assert column == sum(range(6 * COUNT, 7 * COUNT))
    bytes_shared = client.run(shared, workers=[first])[first]
    assert bytes_shared == (4 * 8 * COUNT if expected else 0)
    # The connections of client and scheduler carry no host name.
    assert total(array.result(timeout=40)) == most[0]
    assert total(client.gather(nested, direct=True)) == most[1] + most[2]
    assert client.run(shared, workers=[first])[first] == bytes_shared


def test_a_client_without_usmq_dask_gets_its_arrays(run_python: Callable[..., Any]) -> None:
    with LocalUsmCluster(n_workers=1, **QUIET) as cluster:
        code = f"""
from distributed import Client
import sys, usmq
with Client({cluster.scheduler_address!r}) as client:
    future = client.submit(usmq.arange, {COUNT}, dtype="i8")
    back = future.result(timeout=40)
    there = client.scatter(back)
    print(int(back.to_numpy().sum()), client.submit(lambda x: x.size, there).result(timeout=40))
    print("usmq.dask" in sys.modules)
"""
        printed = run_python(code, timeout=60).stdout.split()
    assert printed == [str(sum(range(COUNT))), str(COUNT), "False"]
