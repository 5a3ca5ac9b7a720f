"""usmq.h from a C library that Python loads: one current queue, memory, Arrow, errors."""

import asyncio
import contextvars
import ctypes
import importlib.metadata
import os
import re
import shlex
import subprocess
from ctypes import addressof, byref, c_int, c_uint64, c_void_p
from pathlib import Path

import c_peer
import numpy as np
import pytest
import usmq
from arrow_structs import ONEAPI, ArrowDeviceArray
from c_peer import LIBRARY, PACKAGE, STATUS, Exported, Peer, declared, needs_library, refused
from conftest import in_threads


@pytest.fixture(scope="session")
def peer_path(tmp_path_factory):
    return c_peer.compiled(tmp_path_factory.mktemp("peer"))


@pytest.fixture
def peer(peer_path):
    return Peer(declared(ctypes.CDLL(str(peer_path))))


@pytest.fixture
def other(two_devices):
    first, second = two_devices
    return usmq.Queue(second if usmq.current_queue().device == first else first)


@pytest.mark.parametrize("standard", ["c11", "gnu17", "c++11", "c++17", "c++20"])
def test_the_header_compiles_as_c_and_cpp(tmp_path, standard):
    peer = Peer(declared(ctypes.CDLL(str(c_peer.compiled(tmp_path, standard)))))
    assert peer.current_queue() == usmq.current_queue()


def checked_cpp(tmp_path, body):
    """Check a program in C++ without making one."""
    source = tmp_path / "all.cpp"
    source.write_text(f"#include <usmq.hpp>\nint main() {{ {body} }}\n")
    files = importlib.metadata.files("intel-sycl-rt") or []
    header = next(file for file in files if str(file).endswith("include/sycl/sycl.hpp"))
    from_sycl = str(Path(str(header.locate())).resolve().parents[1])
    command = [
        *shlex.split(os.environ.get("CXX", "c++")),
        "-std=c++17",
        *c_peer.STRICT,
        "-fsyntax-only",
    ]
    command += [f"-I{PACKAGE / 'include'}", "-isystem", from_sycl, "-isystem", f"{from_sycl}/sycl"]
    command += ["-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", str(source)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_header_for_cpp_compiles_without_warnings_and_refuses_scopes_that_end_at_once(tmp_path):
    built = checked_cpp(
        tmp_path,
        "usmq::scope scope(usmq::queue(nullptr)); const usmq::scope here;\n"
        "  sycl::queue &own = scope.queue(); const sycl::queue &current = here.queue();\n"
        "  usmq::set_default_queue(nullptr); usmq::set_default_queue(current);\n"
        "  return usmq::allocate<int>(1, own, USMQ_HOST) ? 0 : 1;",
    )
    assert built.returncode == 0, built.stderr
    built = checked_cpp(tmp_path, 'sycl::queue &queue = usmq::scope("cpu").queue(); queue.wait();')
    assert built.returncode != 0
    assert "deleted" in built.stderr


def test_header_library_and_package_have_the_same_version(peer):
    cargo = (c_peer.ROOT / "Cargo.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.*)"$', cargo, re.MULTILINE)
    assert version
    assert version[1] == usmq.__version__
    assert peer.library.peer_version() == peer.library.peer_header_version() == version[1].encode()


def test_asyncio_tasks_have_separate_c_scopes(peer, other):
    default = usmq.current_queue()
    filters = {queue: queue.device.filter_string for queue in (default, other)}

    async def work(queue):
        scope = peer.enter(filters[queue])
        seen = []
        for _ in range(5):
            await asyncio.sleep(0)
            seen += [peer.current_queue() == queue, usmq.current_queue() == queue]
        peer.leave(scope)
        return seen

    async def both():
        return await asyncio.gather(work(other), work(default), work(other))

    assert all(all(seen) for seen in asyncio.run(both()))
    assert peer.current_queue() == default


def test_c_gets_the_default_queue_or_the_scope_of_its_python_caller(peer, other):
    default = usmq.current_queue()
    assert peer.current_queue() == default != other
    with usmq.use_queue(other):
        assert peer.current_queue() == other
        with usmq.use_queue(None):
            assert peer.current_queue() == other
        copy = contextvars.copy_context()
        seen = in_threads(peer.current_queue, lambda: copy.run(peer.current_queue))
    assert seen == [default, other]
    assert peer.current_queue() == default


def test_a_scope_entered_in_c_applies_to_its_python_caller(peer, other):
    default, on = usmq.current_queue(), c_uint64()
    address = peer.address_of(other.device.filter_string)
    peer.call("scope_enter_on", address, byref(on))
    scopes = [on.value, peer.enter(None), peer.enter(other.device.filter_string)]
    while scopes:
        assert usmq.current_queue() == peer.current_queue() == usmq.zeros(3).queue == other
        with usmq.use_queue(default):
            assert peer.current_queue() == default
        assert peer.current_queue() == other
        peer.leave(scopes.pop())
    assert usmq.current_queue() == default
    assert peer.taken(address) == other


def test_scopes_are_exited_once_innermost_first_and_in_their_context(peer, other):
    outer, inner = peer.enter(other.device.filter_string), peer.enter(None)
    with refused("VALUE", "not the innermost"):
        peer.leave(outer)
    with usmq.use_queue("cpu"), refused("VALUE", "not the innermost"):
        peer.leave(inner)

    def leave():
        with refused("VALUE", "not the innermost"):
            peer.leave(inner)

    in_threads(leave)
    peer.leave(inner)
    assert usmq.current_queue() == other
    peer.leave(outer)
    for scope in (outer, inner, 0, 2**64 - 1):
        with refused("VALUE", "not open on this thread"):
            peer.leave(scope)


@pytest.mark.parametrize("loader", [ctypes.CDLL, ctypes.PyDLL], ids=["without GIL", "with GIL"])
def test_a_thread_unknown_to_python_never_takes_the_gil(peer_path, other, loader):
    # With PyDLL the caller holds the GIL and waits for the thread: taking it there would hang.
    peer = Peer(declared(loader(str(peer_path))))
    before, inside, after, order = c_void_p(), c_void_p(), c_void_p(), c_int()
    places = [byref(before), byref(inside), byref(after), byref(order)]
    default = usmq.current_queue()
    with usmq.use_queue(other):
        peer.call("visit", other.device.filter_string.encode(), *places)
        assert usmq.current_queue() == other
    assert order.value == STATUS["VALUE"]
    assert [peer.taken(at) for at in (before, inside, after)] == [default, other, default]


def test_the_process_has_one_default_queue(peer, other):
    default = usmq.current_queue()
    peer.call("set_default_queue", other.device.filter_string.encode())
    assert usmq.current_queue() == peer.current_queue() == other
    usmq.set_default_queue(None)
    assert peer.current_queue() == default
    address = peer.address_of(other.device.filter_string)
    peer.call("set_default_queue_to", address)
    assert usmq.current_queue() == peer.taken(address) == other
    peer.call("set_default_queue", None)
    assert usmq.current_queue() == default
    # A target names the same queue in C and in Python.
    assert peer.taken(peer.address_of(default.device.filter_string)) == default
    peer.call("queue_of", None, byref(address))
    assert peer.taken(address) == usmq.Queue()
    peer.call("queue_release", None)


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        (b"nonsense", "SELECTOR", "nonsense"),
        (b"gpu:99", "DEVICE_NOT_FOUND", "visible devices"),
        (b"\xff", "VALUE", "UTF-8"),
    ],
)
def test_an_invalid_target_gives_a_status_and_a_message_to_its_thread(peer, target, status, text):
    place = c_uint64(77)
    for call in [
        ("queue_of", target, byref(place)),
        ("scope_enter", target, byref(place)),
        ("set_default_queue", target),
    ]:
        with refused(status, text):
            peer.call(*call)
    assert place.value == 77
    assert usmq.current_queue() == usmq.Queue()
    assert text in peer.last_error()
    assert in_threads(peer.last_error) == [""]


def test_a_null_result_pointer_is_refused(peer):
    memory = peer.allocate(8)
    for call in [
        ("current_queue", None),
        ("queue_of", b"cpu", None),
        ("scope_enter", b"cpu", None),
        ("allocate", 8, 0, None, None),
        ("arrow_export", memory, b"g", 1, None, None),
        ("use_on", memory, None),
    ]:
        with refused("VALUE", "queue is null" if call[0] == "use_on" else "is null"):
            peer.call(*call)
    peer.call("free", memory)


@pytest.mark.parametrize(("kind", "name"), [(0, "device"), (1, "shared"), (2, "host")])
def test_memory_comes_from_the_pools_and_returns_to_them(peer, kind, name):
    before = usmq.memory_stats()[name]
    memory = peer.allocate(1000, kind)
    now = usmq.memory_stats()[name]
    assert now["live"] == before["live"] + 1
    assert now["used"] - before["used"] >= 1000
    peer.call("free", memory)
    assert usmq.memory_stats()[name]["live"] == before["live"]


def test_zero_bytes_have_an_address_and_null_can_be_freed(peer):
    first, second = peer.allocate(0), peer.allocate(0)
    assert first != second
    for memory in (first, second, None):
        peer.call("free", memory)


def test_wrong_addresses_kinds_sizes_and_queues_are_refused(peer, other):
    memory = peer.allocate(64)
    address = peer.address_of(other.device.filter_string)
    with refused("PLACEMENT", "cannot be used from"):
        peer.call("use_on", memory, address)
    peer.taken(address)
    peer.call("free", memory)
    for wrong in (memory, memory + 1, 4096):
        for call in [("free", wrong), ("use_on", wrong, None)]:
            with refused("VALUE", "not the address of a block"):
                peer.call(*call)
    with refused("VALUE", "USMQ_HOST"):
        peer.allocate(8, 3)
    with refused("ALLOCATION", r"failed: .* in use"):
        peer.allocate(1 << 50)


def test_freed_memory_is_reused_after_the_work_of_its_queues(peer, queue, busy):
    """The rule is in tests/pool.rs; here the C functions name the queues."""
    elsewhere = usmq.Queue(queue, profiling=True)
    assert elsewhere != queue
    memory = peer.allocate(5 << 20)
    address = c_void_p()
    with usmq.use_queue(elsewhere):
        peer.call("current_queue", byref(address))
    peer.call("use_on", memory, address)
    assert peer.taken(address) == elsewhere
    event = busy(elsewhere)
    peer.call("free", memory)
    blocks = [peer.allocate(5 << 20) for _ in range(3)]
    assert not event.done(), "the queue was not busy for long enough"
    assert memory not in blocks
    for block in blocks:
        peer.call("free", block)


def test_a_block_becomes_an_arrow_column_without_a_copy(peer):
    memory = peer.allocate(80)
    for format in (b"c", b"C", b"s", b"S", b"i", b"I", b"l", b"L", b"f", b"g"):
        exported = Exported(peer, memory, format, 10)
        assert exported.device.device_type == ONEAPI
        assert list(exported.device.reserved) == [0, 0, 0]
        column = usmq.from_arrow(exported)
        values = column.values()
        assert (values.ptr, values.size, column.null_count) == (memory, 10, 0)
        assert np.dtype(str(values.dtype)).itemsize == values.nbytes // 10
    peer.call("free", memory)


def test_the_event_of_an_export_follows_the_work_of_the_queue(peer, queue, busy):
    memory = peer.allocate(64)
    event = busy(queue)
    exported = Exported(peer, memory, b"l", 8)
    assert not event.done(), "the queue was not busy for long enough"
    assert exported.device.sync_event
    usmq.from_arrow(exported).values().to_numpy()
    assert event.done()
    peer.call("free", memory)


def test_an_export_keeps_the_memory_after_the_block_is_freed(peer):
    live = usmq.memory_stats()["device"]["live"]
    memory = peer.allocate(64)
    column = usmq.from_arrow(Exported(peer, memory, b"l", 8))
    peer.call("free", memory)
    assert usmq.memory_stats()["device"]["live"] == live + 1
    assert column.values().ptr == memory
    del column
    # The source of the column is released soon.
    usmq.trim_memory()
    assert usmq.memory_stats()["device"]["live"] == live


def test_invalid_columns_are_refused(peer):
    memory, device = peer.allocate(64), ArrowDeviceArray()
    for format, length, status, text in [
        (b"u", 1, "TYPE", "is not one of"),
        (None, 1, "TYPE", "is not one of"),
        (b"g", 9, "VALUE", "do not fit"),
        (b"g", -1, "VALUE", "do not fit"),
        (b"c", 2**62, "VALUE", "do not fit"),
    ]:
        with refused(status, text):
            peer.call("arrow_export", memory, format, length, None, addressof(device))
        assert not device.array.release
    peer.call("free", memory)


# The start of programs that load the peer, their first argument.
LOADING = """
import ctypes, sys
peer = ctypes.CDLL(sys.argv[1])
peer.peer_last_error.restype = ctypes.c_char_p
place = ctypes.c_void_p()
"""


def test_python_without_usmq_gets_the_advice_to_import_it(peer_path, run_python):
    code = """
print(peer.peer_version(), peer.peer_current_queue(ctypes.byref(place)))
print(peer.peer_last_error().decode())
import usmq
print(peer.peer_current_queue(ctypes.byref(place)), bool(place.value))
"""
    done = run_python(LOADING + code, str(peer_path)).stdout.splitlines()
    assert done[0] == f"0 {STATUS['RUNTIME_NOT_FOUND']}"
    assert "import usmq" in done[1]
    assert done[2] == "0 True"


PROGRAM = """
#include <stdio.h>
#include <usmq.h>

int main(void) {
  void *queue = NULL, *memory = NULL;
  usmq_status status = usmq_current_queue(&queue);
  if (!status) status = usmq_allocate(64, USMQ_SHARED, queue, &memory);
  printf("%d %s", (int)status, status ? usmq_last_error() : "complete");
  if (!status) usmq_free(memory);
  if (!status) usmq_queue_release(queue);
  return (int)status;
}
"""


def test_a_program_without_usmq_gets_both_ways_to_it(tmp_path):
    clean = {"PATH": os.environ["PATH"]}
    command = [c_peer.program(tmp_path, PROGRAM, "-std=c99")]
    done = subprocess.run(command, capture_output=True, text=True, env=clean)
    status, _, text = done.stdout.partition(" ")
    assert int(status) == done.returncode == STATUS["RUNTIME_NOT_FOUND"]
    assert "the program exports no usmq_current_queue, and libusmq.so.0 cannot be loaded" in text
    # The text is cut at no word.
    assert "cargo:rustc-link-arg-bins=-rdynamic" in text
    assert text.endswith("on the run path or on LD_LIBRARY_PATH")


@needs_library
@pytest.mark.parametrize("linked", [False, True], ids=["found", "linked"])
def test_a_plain_c_program_runs_without_the_mathematical_library(tmp_path, linked):
    options = ["-std=c99", f"-Wl,-rpath,{LIBRARY.parent}", *[str(LIBRARY)] * linked]
    done = subprocess.run(
        [c_peer.program(tmp_path, PROGRAM, *options)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 complete", "")


@needs_library
def test_a_c_library_in_use_and_the_package_refuse_each_other(run_python):
    code = f"""
import ctypes, sys
library = ctypes.CDLL({str(LIBRARY)!r})
if len(sys.argv) > 1:
    place = ctypes.c_void_p()
    assert library.usmq_current_queue(ctypes.byref(place)) == 0
import usmq
print("imported")
"""
    assert run_python(code).stdout == "imported\n"
    done = run_python(code, "call", check=False)
    assert done.returncode == 1
    assert "RuntimeConflictError: this process already uses libusmq.so" in done.stderr


def test_a_forked_child_gets_a_status(peer_path, run_python):
    code = """
import os, usmq
usmq.devices()
assert peer.peer_current_queue(ctypes.byref(place)) == 0
if os.fork() == 0:
    status = peer.peer_current_queue(ctypes.byref(place))
    print(status, b"fork" in peer.peer_last_error(), flush=True)
    os._exit(0)
os.wait()
"""
    assert run_python(LOADING + code, str(peer_path)).stdout == "13 True\n"
