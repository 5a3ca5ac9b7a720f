"""C libraries release exports at the end of the process, some after usmq's exit handler."""

import os
import shlex
import subprocess

import pytest
from c_peer import LIBRARY, needs_library, program
from emulated import needs_system_usm

LATE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void (*function)(void *);
static struct { function call; void *argument; } kept[1024];
static int count;
void keep(function call, void *argument) {
  kept[count].call = call;
  kept[count++].argument = argument;
}
static void release(void) {
  if (!count) return;
  for (int i = 0; i < count; ++i) kept[i].call(kept[i].argument);
  fprintf(stderr, "released %d\n", count);
  count = 0;
}
void release_at_exit(void) { atexit(release); }
__attribute__((destructor)) static void at_the_very_end(void) { release(); }

/* A DLPack tensor of the host whose deleter needs nothing but C. */
static int64_t shape[1] = {64};
static uint32_t memory[64] __attribute__((aligned(64)));
struct tensor {
  uint32_t major, minor; void *context; void (*deleter)(struct tensor *); uint64_t flags;
  void *data; int32_t device[2], ndim; uint8_t code, bits; uint16_t lanes;
  int64_t *shape, *strides; uint64_t offset;
};
static void delete(struct tensor *tensor) { free(tensor); fprintf(stderr, "deleted\n"); }
void *host_tensor(void) {
  struct tensor *t = calloc(1, sizeof *t);
  t->major = 1; t->deleter = delete; t->data = memory;
  t->device[0] = 1; t->ndim = 1; t->code = 1; t->bits = 32;
  t->lanes = 1; t->shape = shape;
  return t;
}
"""

# Keeps a copy of a struct and its release function in the library, as a C consumer does.
PRELUDE = """
import ctypes as C, sys
import faulthandler
faulthandler.dump_traceback_later(50, exit=True)
import numpy as np
import usmq

late = C.CDLL(sys.argv[1])
late.keep.argtypes = [C.c_void_p, C.c_void_p]
late.host_tensor.restype = C.c_void_p
get, rename, create = (
    getattr(C.pythonapi, "PyCapsule_" + name) for name in ("GetPointer", "SetName", "New")
)
get.restype, get.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
rename.argtypes = [C.py_object, C.c_char_p]
create.restype, create.argtypes = C.py_object, [C.c_void_p, C.c_char_p, C.c_void_p]
copies = []

def keep_struct(capsule, name, size, release):
    "The consumer moves the struct, and releases its copy."
    source = get(capsule, name)
    copy = C.create_string_buffer(C.string_at(source, size), size)
    C.c_void_p.from_address(source + release).value = None
    C.pythonapi.Py_IncRef(C.py_object(copy))
    address = C.addressof(copy)
    late.keep(C.c_void_p.from_address(address + release), address)

def keep_schema(capsule):
    keep_struct(capsule, b"arrow_schema", 72, 56)

def keep_device_array(pair):
    keep_schema(pair[0])
    keep_struct(pair[1], b"arrow_device_array", 128, 64)

def keep_host_array(pair):
    keep_schema(pair[0])
    keep_struct(pair[1], b"arrow_array", 80, 64)

def keep_tensor(capsule, name, deleter, used):
    pointer = get(capsule, name)
    rename(capsule, used)
    late.keep(C.c_void_p.from_address(pointer + deleter), pointer)

USED, USED_VERSIONED = C.c_char_p(b"used_dltensor"), C.c_char_p(b"used_dltensor_versioned")

def keep_versioned(array):
    keep_tensor(array.__dlpack__(max_version=(1, 0)), b"dltensor_versioned", 16, USED_VERSIONED)

def keep_legacy(array):
    keep_tensor(array.__dlpack__(), b"dltensor", 56, USED)
"""

ARRAYS = """
kinds = ("device", "shared", "host")
xs = [usmq.arange(1000, usm_type=kind) for kind in kinds for _ in range(4)]
"""

TABLE = """
import pyarrow
table = usmq.from_arrow(pyarrow.table({"a": [1, 2, 3], "s": ["x", None, "z"]}))
"""

EXPORTS = {
    "Arrow device arrays": ARRAYS
    + """
for x in xs:
    keep_device_array(x.__arrow_c_device_array__(wait=True))
    x.fill(3)
    keep_device_array(x.__arrow_c_device_array__())  # with an event
""",
    "Arrow schemas": ARRAYS + "for x in xs: keep_schema(x.__arrow_c_schema__())",
    "Arrow host arrays": """
for kind in ("shared", "host"):
    for _ in range(5):
        column = usmq.from_arrow(usmq.arange(1000, usm_type=kind))
        keep_host_array(column.host_view().__arrow_c_array__())
""",
    "Arrow streams": TABLE
    + """
on_host = table.to(usm_type="host")
for _ in range(5):
    keep_struct(on_host.host_view().__arrow_c_stream__(), b"arrow_array_stream", 40, 24)
    keep_struct(table.__arrow_c_device_stream__(), b"arrow_device_array_stream", 48, 32)
""",
    "tensors": ARRAYS + "for x in xs: keep_versioned(x), keep_legacy(x)",
    "tensors of other queues and contexts": """
device = usmq.devices()[0]
for context in (usmq.Context([device]), usmq.Queue(device).context):
    queue = usmq.Queue(device, context=context, in_order=False)
    for kind in ("device", "shared"):
        x = usmq.full(1000, 7, "u4", usm_type=kind, queue=queue)
        keep_versioned(usmq.collocate(x, queue=usmq.Queue(device, in_order=False)))
""",
    "handles of the C API": """
core = C.CDLL(usmq._core.__file__)
core.usmq_allocate.argtypes = [C.c_size_t, C.c_int, C.c_void_p, C.c_void_p]
for kind in (0, 1, 2, 0, 1, 2):
    memory, queue = C.c_void_p(), C.c_void_p()
    assert core.usmq_current_queue(C.byref(queue)) == 0
    assert core.usmq_allocate(100_000, kind, queue, C.byref(memory)) == 0
    late.keep(core.usmq_free, memory)
    late.keep(core.usmq_queue_release, queue)
""",
    "arrays of Python objects and imported tensors": """
memory = usmq.zeros(1000, usm_type="shared")
for _ in range(5):
    keep_versioned(usmq.asarray(np.arange(1 << 16, dtype="i8"), copy=False))
    keep_versioned(usmq.from_dlpack(memory))
""",
    "memory and queues of dpctl": """
import dpctl, dpctl.memory
for queue in dpctl.SyclQueue(), dpctl.SyclQueue(property="in_order"):
    for kind in ("Device", "Shared", "Host"):
        memory = getattr(dpctl.memory, "MemoryUSM" + kind)(4000, queue=queue)
        x = usmq.asarray(memory)
        x.fill(3)
        keep_versioned(x)
        keep_device_array(x.__arrow_c_device_array__())
        keep_versioned(usmq.zeros(1000, queue=queue))
""",
    "host memory of a C library": """
class Tensor:
    def __dlpack__(self, **_):
        return create(late.host_tensor(), HOST, None)
    def __dlpack_device__(self):
        return (1, 0)
HOST = C.c_char_p(b"dltensor_versioned")
for _ in range(5): keep_versioned(usmq.from_dlpack(Tensor(), copy=False))
""",
}

WHEN = {
    "an ELF destructor": ("", ""),
    "atexit before the first query": ("late.release_at_exit()\n", ""),
    "atexit after the exports": ("", "\nlate.release_at_exit()\n"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    (folder / "late.c").write_text(LATE)
    command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-o"]
    subprocess.run([*command, folder / "late.so", folder / "late.c"], check=True, timeout=60)
    return folder / "late.so"


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("what", EXPORTS)
def test_a_release_at_the_end_of_the_process_is_safe(run_python, library, what, when):
    needs_system_usm(EXPORTS[what])
    before, after = WHEN[when]
    code = f"{PRELUDE}{before}usmq.devices()\n{EXPORTS[what]}\n{after}"
    done = run_python(code, str(library), check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("released "), done.stderr
    deleted = lines.count("deleted")
    if what == "host memory of a C library" and not when.startswith("atexit after"):
        assert deleted == 5, done.stderr


# Handles and exports of every kind, and calls after the exit handler, without Python.
PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usmq.h>
struct ArrowSchema { void *other[7]; void (*release)(void *); void *data; };
struct ArrowDeviceArray { void *other[8]; void (*release)(void *); void *data; int64_t device[6]; };
void keep(void (*call)(void *), void *argument);
void release_at_exit(void);

static void said(const char *call, usmq_status status) {
  if (status) fprintf(stderr, "%s: %d\n", call, (int)status);
}
static void late_free(void *memory) { said("free", usmq_free(memory)); }
static void late_queue(void *queue) { said("queue", usmq_queue_release(queue)); }
static void late_scope(void *scope) { said("scope", usmq_queue_scope_leave(*(usmq_scope *)scope)); }
static void late_calls(void *queue) {
  void *found;
  said("current", usmq_current_queue(&found));
  said("allocate", usmq_allocate(64, USMQ_DEVICE, queue, &found));
}
static void need(usmq_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", usmq_last_error());
  exit(3);
}

int main(int argc, char **argv) {
  static struct ArrowSchema schemas[9];
  static struct ArrowDeviceArray arrays[9];
  static usmq_scope scope;
  void *queue, *memory;
  if (argc > 1 && !strcmp(argv[1], "before")) release_at_exit();
  need(usmq_queue_scope_enter(NULL, &scope));
  for (int i = 0; i < 9; ++i) {
    need(usmq_current_queue(&queue));
    need(usmq_allocate(100000, (usmq_kind)(i % 3), queue, &memory));
    need(usmq_arrow_export(memory, "i", 25000, &schemas[i], &arrays[i]));
    keep(arrays[i].release, &arrays[i]);
    if (i == 4) keep(late_calls, queue);
    keep(late_free, memory);
    keep(schemas[i].release, &schemas[i]);
    keep(late_queue, queue);
  }
  keep(late_scope, &scope);
  if (argc > 1 && !strcmp(argv[1], "after")) release_at_exit();
  return 7;
}
"""


@needs_library
@pytest.mark.parametrize("when", ["destructor", "before", "after"])
@pytest.mark.parametrize("order", ["usmq first", "usmq last", "usmq found"])
def test_a_c_program_releases_at_its_end(tmp_path, library, order, when):
    libraries = [library]
    if order != "usmq found":
        libraries.insert(0 if order == "usmq first" else 1, LIBRARY)
    paths = [f"-Wl,-rpath,{folder}" for folder in (LIBRARY.parent, library.parent)]
    command = [program(tmp_path, PROGRAM, *libraries, *paths), when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    # The scopes of the main thread end before any exit handler: status 8. Only handlers that were
    # registered after the first query run before usmq's own, after which the status is 18.
    refused = ["current: 8", "released 38", "scope: 8"]
    if when != "after":
        refused = ["allocate: 18", "current: 18", *["free: 18"] * 9, "released 38", "scope: 18"]
    assert sorted(done.stderr.splitlines()) == refused
