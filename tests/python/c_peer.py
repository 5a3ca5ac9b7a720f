"""A C library over usmq.h, compiled for the tests, and its functions for Python."""

import contextlib
import ctypes
import os
import re
import shlex
import subprocess
from ctypes import (
    addressof,
    byref,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    py_object,
)
from pathlib import Path

import pytest
import usmq
from arrow_structs import DEVICE_ARRAY, SCHEMA, ArrowDeviceArray, ArrowSchema, capsule

ROOT = Path(__file__).parents[2]
PACKAGE = Path(usmq.__file__).parent
SOURCE = ROOT / "tests" / "cpp" / "c_api_peer.c"
LIBRARY = PACKAGE / "lib" / "libusmq.so.0"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]

ARGUMENTS = {
    "header_version": [],
    "version": [],
    "last_error": [],
    "current_queue": [c_void_p],
    "queue_of": [c_char_p, c_void_p],
    "queue_release": [c_void_p],
    "scope_enter": [c_char_p, c_void_p],
    "scope_enter_on": [c_void_p, c_void_p],
    "scope_leave": [c_uint64],
    "set_default_queue": [c_char_p],
    "set_default_queue_to": [c_void_p],
    "allocate": [c_size_t, c_int, c_void_p, c_void_p],
    "use_on": [c_void_p, c_void_p],
    "free": [c_void_p],
    "copy": [c_void_p, c_void_p, c_size_t],
    "event_wait": [c_void_p, c_void_p],
    "arrow_export": [c_void_p, c_char_p, c_int64, c_void_p, c_void_p],
    "visit": [c_char_p, c_void_p, c_void_p, c_void_p, c_void_p],
}


# usmq_status of usmq.h.
STATUS = {
    name: int(number)
    for name, number in re.findall(
        r"USMQ_ERROR_(\w+) = (\d+)", (PACKAGE / "include" / "usmq.h").read_text(encoding="utf-8")
    )
}

needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason=f"this usmq has no {LIBRARY}")


def compiled(folder, standard="c99"):
    """Return a library of the peer, built without compiler warnings."""
    library = folder / f"libpeer-{standard}.so"
    if "++" in standard:
        compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-x", "c++"]
    else:
        compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, f"-std={standard}", "-O1", *STRICT, f"-I{PACKAGE / 'include'}"]
    built = subprocess.run(
        [*command, "-shared", "-fPIC", "-pthread", "-o", library, SOURCE, "-ldl"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert not built.stderr
    return library


def program(folder, source, *options):
    """Return a program in C that includes usmq.h."""
    (folder / "program.c").write_text(source)
    command = [*shlex.split(os.environ.get("CC", "cc")), "-D_GNU_SOURCE", "-Wl,--no-as-needed"]
    command += [f"-I{PACKAGE / 'include'}", folder / "program.c", "-o", folder / "program"]
    subprocess.run([*command, *options, "-ldl"], check=True, timeout=60)
    return folder / "program"


def declared(library):
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, f"peer_{name}")
        function.argtypes = arguments
        function.restype = c_int
    for name in ("header_version", "version", "last_error"):
        getattr(library, f"peer_{name}").restype = c_char_p
    return library


class Peer:
    """The functions, with Python's queues for addresses and exceptions for statuses."""

    def __init__(self, library):
        self.library = library

    def call(self, name, *arguments):
        status = getattr(self.library, f"peer_{name}")(*arguments)
        if status:
            raise PeerError(status, self.last_error())

    def last_error(self):
        text = self.library.peer_last_error()
        return text.decode()

    def taken(self, address):
        """Return the queue at an address that the caller owns, and release the address."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
        assert address.value
        # usmq copies the queue and renames the capsule, which has no destructor.
        try:
            return usmq.Queue(new(address, b"SyclQueueRef", None))
        finally:
            self.call("queue_release", address)

    def current_queue(self):
        address = c_void_p()
        self.call("current_queue", byref(address))
        return self.taken(address)

    def address_of(self, target):
        address = c_void_p()
        self.call("queue_of", target.encode(), byref(address))
        return address

    def enter(self, target):
        scope = c_uint64()
        self.call("scope_enter", None if target is None else target.encode(), byref(scope))
        return scope.value

    def leave(self, scope):
        self.call("scope_leave", scope)

    def allocate(self, nbytes, kind=0, queue=None):
        memory = c_void_p()
        self.call("allocate", nbytes, kind, queue, byref(memory))
        assert memory.value
        return memory.value


class PeerError(Exception):
    """A status and its text."""

    def __init__(self, status, text):
        super().__init__(status, text)
        self.status, self.text = status, text


@contextlib.contextmanager
def refused(status, text):
    """Check that the block gets the error of this name and text."""
    with pytest.raises(PeerError, match=text) as wrong:
        yield
    assert wrong.value.status == STATUS[status]


class Exported:
    """The result of usmq_arrow_export, as an object that implements the protocol."""

    def __init__(self, peer, memory, format, length):
        self.schema, self.device = ArrowSchema(), ArrowDeviceArray()
        ctypes.memset(byref(self.device), 0xAB, ctypes.sizeof(self.device))
        at = addressof(self.schema), addressof(self.device)
        peer.call("arrow_export", memory, format, length, *at)

    def __arrow_c_device_array__(self, requested=None, **kwargs):
        return (
            capsule(addressof(self.schema), SCHEMA),
            capsule(addressof(self.device), DEVICE_ARRAY),
        )
