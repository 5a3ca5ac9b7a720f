"""usmq_copy and usmq_event_wait from a C library that Python loads."""

import ctypes
from ctypes import addressof

import pytest
import usmq
from c_peer import STATUS, Exported, Peer, compiled, declared, refused


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    return Peer(declared(ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("peer"))))))


def test_copies_between_all_kinds_of_memory(peer):
    """Host to USM, USM to USM of each pair of kinds, USM to host, and between two host buffers."""
    source, target = (ctypes.create_string_buffer(bytes(n), 1000) for n in (1000, 1000))
    source.raw = bytes(number % 251 for number in range(1000))
    blocks = [peer.allocate(1000, kind) for kind in range(3)]
    for first in blocks:
        for second in blocks:
            peer.call("copy", first, addressof(source), 1000)
            peer.call("copy", second, addressof(source) + 500, 500)
            if first != second:
                peer.call("copy", second, first, 1000)
            target.raw = bytes(1000)
            peer.call("copy", addressof(target), second + 3, 997)
            expected = source.raw if first != second else source.raw[500:] + source.raw[500:]
            assert target.raw[:997] == expected[3:]
    peer.call("copy", addressof(target), addressof(source), 1000)
    assert target.raw == source.raw
    peer.call("copy", None, None, 0)
    for block in blocks:
        peer.call("free", block)


def test_a_copy_waits_for_the_work_of_usmq_on_the_memory(peer, queue, busy):
    x = usmq.zeros(8, "i4", queue=queue)
    event = busy(queue)
    x.fill(7)
    values = (ctypes.c_int32 * 8)()
    assert not event.done(), "the queue was not busy for long enough"
    peer.call("copy", addressof(values), x.ptr, 32)
    assert list(values) == [7] * 8


def test_calls_that_are_not_possible_inside_a_capture_have_their_own_status(peer):
    assert STATUS["CAPTURE"] == 17
    x, values = usmq.full(8, 3, "i4"), (ctypes.c_int32 * 8)()
    with usmq.capture() as graph:
        x.fill(7)
        with refused("CAPTURE", "inside a capture, whose commands run at re"):
            peer.call("copy", addressof(values), x.ptr, 32)
    assert list(values) == [0] * 8
    peer.call("copy", addressof(values), x.ptr, 32)
    assert list(values) == [3] * 8
    graph.replay()
    peer.call("copy", addressof(values), x.ptr, 32)
    assert list(values) == [7] * 8


def test_copies_between_two_devices(peer, two_devices):
    first, second = (usmq.zeros(8, "i4", queue=device) for device in two_devices)
    first.fill(7)
    peer.call("copy", second.ptr, first.ptr, 32)
    assert second.tolist() == [7] * 8


def test_copies_without_an_address_or_too_large_are_refused(peer):
    for arguments in [(None, 8, 8), (8, None, 8), (8, 8, 2**63)]:
        with refused("VALUE", "pass two valid addresses"):
            peer.call("copy", *arguments)
    block, target = peer.allocate(1000), ctypes.create_string_buffer(1 << 20)
    with refused("INTEROP", "beyond its allocation"):
        peer.call("copy", addressof(target), block, 1 << 20)
    peer.call("free", block)


def test_a_wait_for_an_event_of_an_export(peer, queue, busy):
    memory = peer.allocate(64)
    event = busy(queue)
    exported = Exported(peer, memory, b"l", 8)
    assert not event.done(), "the queue was not busy for long enough"
    peer.call("event_wait", exported.device.sync_event, None)
    assert event.done()
    peer.call("event_wait", None, None)
    usmq.from_arrow(exported)
    peer.call("free", memory)
