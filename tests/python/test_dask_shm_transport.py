"""Arrays and tables go through memory that workers of one machine map; all else uses the socket."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_values import every_type, held
from dask_workers import (
    UNCLOSED_SOCKETS,
    addresses,
    clients,
    part,
    send_by_value,
    sum_of_part,
    total,
)
from distributed.protocol import deserialize, serialize
from usmq.dask import _shm_transport
from usmq.dask._shm_transport import (
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

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

COUNT = 1 << 18  # of 8 bytes: 2 MiB


def numbers():
    return usmq.arange(COUNT, dtype="i8")


@pytest.fixture
def asker(monkeypatch):
    """Return the context of a local worker that requests an array from this process."""
    name = machine()
    assert name is not None
    monkeypatch.setattr(HERE, "name", name)
    monkeypatch.setattr(HERE, "outbox", Outbox())
    monkeypatch.setattr(HERE, "inbox", Inbox())
    HERE.ways.clear()
    return {"recipient": {KEY: name}}


def reaches_host_memory():
    """Return whether the device computes on the shared memory itself."""
    return "usm_system_allocations" in usmq.current_queue().device.aspects


def sent_in_place(value, asker, most):
    """Return what a reader gets; the message has no frames and a header of limited size."""
    header, frames = serialize(value, context=asker)
    assert header["serializer"] == "dask"
    assert sum(memoryview(frame).nbytes for frame in frames) == 0
    assert len(pickle.dumps(header)) < most
    back = deserialize(header, frames)
    assert type(back) is type(value)
    assert back.queue == usmq.current_queue()
    return back


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.reshape(512, -1).T, lambda x: x[::-1], lambda x: x[7 : 7 + COUNT]],
    ids=["whole", "transposed", "reversed", "cut"],
)
def test_an_array_is_read_in_place_from_shared_memory(kind, view, asker):
    array = view(usmq.arange(2 * COUNT, dtype="i8", usm_type=kind))
    back = sent_in_place(array, asker, 2000)
    expected = "system" if reaches_host_memory() and kind == "device" else kind
    assert (back.shape, back.dtype, back.usm_type) == (array.shape, array.dtype, expected)
    assert (back.to_numpy() == array.to_numpy()).all()
    assert not back.readonly


def arrow_table():
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
def test_columns_and_tables_are_read_in_place_from_shared_memory(kind, part, asker):
    columns = part(usmq.from_arrow(arrow_table(), usm_type=kind))
    back = sent_in_place(columns, asker, 6000)
    assert back.to_arrow().equals(columns.to_arrow())
    way = "in-place" if reaches_host_memory() and kind == "device" else "copied-from-shared"
    assert set(HERE.ways) == {"same-host", way}
    assert HERE.ways["same-host"] > 1 << 20
    # The result can travel on, and be pickled.
    again = deserialize(*serialize(back, context=asker))
    assert again.to_arrow().equals(columns.to_arrow())
    assert pickle.loads(pickle.dumps(back)).to_arrow().equals(columns.to_arrow())


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (numbers, lambda back: back[5:]),
        (lambda: usmq.from_arrow(arrow_table()), lambda back: back.batches[0].columns[0].values()),
    ],
    ids=["array", "table"],
)
def test_memory_in_use_in_place_is_not_reused(make, use, asker):
    back = deserialize(*serialize(make(), context=asker))
    (segment,) = HERE.outbox._segments
    if HERE.ways["in-place"] == 0:
        pytest.skip("the device does not use system memory")
    if isinstance(back, usmq.Array):
        back.fill(7)
        back.wait()
        assert segment.memory[PAGE] == 7, "in place"
    used = use(back)
    expected = used.to_numpy().tolist()
    del back
    usmq.trim_memory()
    assert not segment.free()
    assert used.to_numpy().tolist() == expected
    del used
    usmq.trim_memory()
    assert segment.free()


def test_a_profile_names_the_way_of_each_copy(asker):
    for reason, send in (
        ("shared memory", lambda sent: deserialize(*serialize(sent, context=asker))),
        ("pickle", lambda sent: pickle.loads(pickle.dumps(sent, protocol=5))),
    ):
        array, table = numbers(), usmq.from_arrow(arrow_table())
        with usmq.profile() as p:
            for sent in (array, table):
                send(sent)
        assert {event.reason for event in p.events if event.kind == "copy"} == {reason}


def test_a_slice_is_copied_once_and_alone(asker):
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
        with usmq.profile() as p:
            header, frames = serialize(part, context=asker)
        copied = [event.bytes for event in p.events if event.kind == "copy"]
        sent = sum(nbytes for _, nbytes in header["sub-header"]["buffers"])
        assert sent <= sum(copied) <= sent + 16, name
        if name in ("x", "words"):
            assert sent < 0.4 * whole.nbytes
        assert deserialize(header, frames).to_arrow().equals(part.to_arrow()), name


@pytest.mark.parametrize(("start", "stop"), [(0, 300), (7, 8), (13, 900), (64, 64), (500, 999)])
def test_slices_of_every_type_are_packed_in_place(start, stop):
    for name, array in every_type(np.random.default_rng(start), 999).items():
        packed, _, buffers = usmq._core.pack_in_place(held(array)[start:stop])
        frames = [memoryview(np.empty(buffer.nbytes, "u1")) for buffer in buffers]
        for buffer, frame in zip(buffers, frames, strict=True):
            usmq._core.fill_frame(buffer, frame)
        back = usmq._core.restore_column(packed, *frames, shared=True)
        back.to_arrow().validate(full=True)
        assert back.to_arrow().to_pylist() == array[start:stop].to_pylist(), name


def test_damaged_columns_are_refused():
    column = usmq.from_arrow(pa.array(range(COUNT)))
    packed, kind, buffers = usmq._core.pack_in_place(column)
    assert (kind, [buffer.nbytes for buffer in buffers]) == ("device", [8 * COUNT])
    frame = memoryview(buffers[0].to_numpy()).cast("B")
    short, long, header = (packed, [frame[:-8]]), (packed, [frame, frame]), (packed[:-3], [frame])
    for damaged, frames in short, long, header:
        for place in {False, reaches_host_memory()}:
            with pytest.raises(usmq.InteropError, match="packed data is broken"):
                usmq._core.restore_column(damaged, *frames, shared=True, in_place=place)
    with pytest.raises(TypeError):
        usmq._core.pack_in_place(usmq.zeros(3))


def test_memory_for_a_reader_that_has_ended_is_released(asker):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        asker["recipient"][READER] = identity(process.pid)
        dumps(numbers(), asker)
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
        ({}, None),
        (None, None),
    ],
)
def test_data_that_uses_the_socket_is_counted_with_the_reason(context, why, asker):
    each = 8 * COUNT
    for sent in (numbers(), usmq.from_arrow(pa.array(range(COUNT)))):
        header, frames = serialize(sent, context=context)
        assert header["serializer"] == "pickle"
        assert sum(memoryview(frame).nbytes for frame in frames) >= each
    assert HERE.ways == ({"socket": 2 * each, f"socket-{why}": 2 * each} if why else {})
    HERE.ways.clear()
    for small in (usmq.zeros(9, "u1"), usmq.zeros(SMALLEST // 8 - 1, "f8")):
        assert serialize(small, context=asker)[0]["serializer"] == "pickle"
    assert HERE.ways == dict.fromkeys(("socket", "socket-small"), 9 + SMALLEST - 8)


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
def test_a_frame_of_the_wrong_size_is_refused(target, message):
    with pytest.raises((TypeError, ValueError, BufferError), match=message):
        usmq._core.fill_frame(usmq.zeros(3, "f4"), target)


def test_the_frame_includes_work_in_flight(asker, kernels, advanced):
    states = usmq.arange(1 << 18, dtype="u4")
    before = states.to_numpy()
    kernels.advance(states.size, states, 5000)
    assert (loads(*dumps(states, asker)).to_numpy() == advanced(before, 5000)).all()


def read(sent):
    """Return a copy of a sent array, after the release of its memory."""
    values = loads(*sent).to_numpy()
    usmq.trim_memory()
    return values


def is_gone(header, frames, text="is gone"):
    with pytest.raises(ConnectionError, match=text):
        loads(header, frames)


def test_memory_is_reused_after_reading_and_freed_when_idle(asker):
    array = numbers()
    first = dumps(array, asker)
    second = dumps(array, asker)
    assert first[0]["number"] != second[0]["number"]
    read(first)
    third = dumps(array[: COUNT - 100], asker)
    assert third[0]["number"] == first[0]["number"]
    assert third[0]["secret"] != first[0]["secret"]
    is_gone(*first)  # It is another array's by now.
    assert (read(second) == np.arange(COUNT)).all()
    HERE.outbox.sweep(idle=0)
    assert (read(third).size, len(HERE.outbox._segments)) == (COUNT - 100, 1)
    HERE.outbox.sweep()
    assert len(HERE.outbox._segments) == 1
    HERE.outbox.sweep(idle=0)
    assert not HERE.outbox._segments


def segments_mapped():
    """Return how many segments this process has mapped, as sender and as reader."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:usmq")


def test_a_reader_keeps_memory_mapped_until_the_sender_closes_it(asker):
    before = segments_mapped()
    array, mappings = numbers(), []
    for number in range(4):
        part = array[: COUNT - number]
        assert (read(dumps(part, asker)) == np.arange(COUNT - number)).all()
        assert segments_mapped() == before + 2
        mappings += HERE.inbox._mappings.values()
        HERE.inbox.sweep()
    assert len(mappings) == 4
    assert len(set(map(id, mappings))) == 1
    mappings.clear()
    HERE.outbox.sweep(idle=0)
    HERE.inbox.sweep()
    assert segments_mapped() == before


def test_a_reader_unmaps_memory_that_was_idle(asker):
    before = segments_mapped()
    back = loads(*dumps(numbers(), asker))
    in_place = back.usm_type == "system"
    HERE.inbox.sweep(idle=0)
    assert segments_mapped() == before + (2 if in_place else 1)
    assert len(HERE.inbox._mappings) == int(in_place), "memory in use is not idle"
    del back
    usmq.trim_memory()
    HERE.inbox.sweep(idle=-1)
    assert segments_mapped() == before + 1


def test_memory_in_use_outlives_its_sender(asker):
    before = segments_mapped()
    back = loads(*dumps(numbers(), asker))
    (segment,) = HERE.outbox._segments
    HERE.outbox._segments.clear()
    segment.close()
    HERE.inbox.sweep()
    assert not HERE.inbox._mappings
    assert (back.to_numpy() == np.arange(COUNT)).all()
    del back
    usmq.trim_memory()
    assert segments_mapped() == before


def test_a_mapping_is_not_taken_for_later_memory_of_the_same_number(asker):
    first = dumps(numbers(), asker)
    read(first)
    is_gone(*first)  # Its memory is free, so the sender may use it at any time.
    HERE.outbox.sweep(idle=0)
    second = dumps(usmq.arange(COUNT, 2 * COUNT, dtype="i8"), asker)
    assert second[0]["number"] == first[0]["number"]
    assert (read(second) == np.arange(COUNT, 2 * COUNT)).all()
    assert len(HERE.inbox._mappings) == 1


def test_memory_that_is_never_read_is_released(asker, monkeypatch):
    left = dumps(numbers(), asker)
    monkeypatch.setattr(_shm_transport, "FORGOTTEN", -1.0)
    HERE.outbox.sweep()
    is_gone(*left, f"process {os.getpid()} is gone")


def test_an_array_of_an_exited_process_raises_an_error_dask_handles(asker):
    header, frames = dumps(numbers(), asker)
    is_gone(header | {"process": 2**22 + 1}, frames)
    # A number that means something else by now, and one that never ends.
    ends = os.pipe()
    try:
        for number in (0, *ends):
            is_gone(header | {"number": number}, frames)
    finally:
        for end in ends:
            os.close(end)


def test_only_memory_that_may_not_be_opened_ends_sharing(asker, monkeypatch, caplog):
    header, frames = dumps(numbers(), asker)
    # The process is alive, as one that is being killed; a number of it means nothing any more.
    is_gone(header | {"number": 1 << 19}, frames)
    assert HERE.name is not None

    def refused(*_):
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "open", refused)
    is_gone(header, frames, "not permitted")
    assert HERE.name is None
    assert "uses sockets from now on" in caplog.text


def test_without_shared_memory_the_socket_is_used(asker, monkeypatch):
    def full(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "memfd_create", full)
    header, _ = serialize(numbers(), context=asker)
    assert header["serializer"] == "pickle"
    assert HERE.ways == {"socket": 8 * COUNT, "socket-no-memory": 8 * COUNT}


def total_of(value):
    """Return the sum of the numbers of an array, of nested arrays, or of a table."""
    if isinstance(value, usmq.Table):
        return total(value["x"].values())
    return total(value["a"][0], value["b"]) if isinstance(value, dict) else total(value)


def shared(dask_worker):
    keys = dask_worker.digests_total.items()
    return sum(value for key, value in keys if "usmq-same-host" in key)


@pytest.mark.parametrize("sharing", [True, False], ids=["shared", "by socket"])
def test_workers_use_shared_memory_and_clients_do_not(sharing):
    with dask.config.set({"usmq.dask.same-host": sharing}), clients(n_workers=2) as client:
        first, second = addresses(client)
        makers = (
            lambda: part(3, COUNT),
            lambda: {"a": [part(4, COUNT)], "b": part(5, COUNT)},
            lambda: usmq.Table({"x": part(6, COUNT)}),
        )
        sent = array, nested, _ = [client.submit(make, workers=[first]) for make in makers]
        sums = [client.submit(total_of, value, workers=[second]) for value in sent]
        most = [sum_of_part(number, COUNT) for number in (3, 4, 5, 6)]
        assert client.gather(sums) == [most[0], most[1] + most[2], most[3]]
        bytes_shared = client.run(shared, workers=[first])[first]
        assert bytes_shared == (4 * 8 * COUNT if sharing else 0)
        # The connections of client and scheduler carry no host name.
        assert total_of(array.result(timeout=40)) == most[0]
        assert total_of(client.gather(nested, direct=True)) == most[1] + most[2]
        assert client.run(shared, workers=[first])[first] == bytes_shared


def test_a_client_without_usmq_dask_gets_its_arrays(run_python):
    with clients(n_workers=1) as client:
        code = f"""
from distributed import Client
import sys, usmq
with Client({client.cluster.scheduler_address!r}) as client:
    future = client.submit(usmq.arange, {COUNT}, dtype="i8")
    back = future.result(timeout=40)
    there = client.scatter(back)
    print(int(back.to_numpy().sum()), client.submit(lambda x: x.size, there).result(timeout=40))
    print("usmq.dask" in sys.modules)
"""
        printed = run_python(code, timeout=60).stdout.split()
    assert printed == [str(sum(range(COUNT))), str(COUNT), "False"]
