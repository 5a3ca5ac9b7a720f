"""The OpenCL layer takes tables of any length, as loaders of other releases pass them."""

import pytest

# The table ends at a page that cannot be read, and each entry has a value of its own.
PRELUDE = """
import ctypes, ctypes.util, mmap, os, pathlib, sys, usmq
layer = ctypes.CDLL(str(next(pathlib.Path(usmq.__file__).parent.rglob("libusmq_layers.so"))))
libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
pages = mmap.mmap(-1, 4 * PAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert libc.mprotect(ctypes.c_void_p(start + 2 * PAGE), ctypes.c_size_t(2 * PAGE), 0) == 0
ENTRY = 0x1000

def table(count, *missing):
    at = start + 2 * PAGE - 8 * count
    entries = (ctypes.c_size_t * count).from_address(at)
    entries[:] = [0 if i in missing else ENTRY + i for i in range(count)]
    return at

def init(count, *missing, name="clInitLayer"):
    "Return the status, the number of entries, and the entries."
    own_count, own = ctypes.c_uint(), ctypes.c_void_p()
    more = [None] if name.endswith("Properties") else []
    at = ctypes.c_void_p(table(count, *missing))
    status = getattr(layer, name)(count, at, ctypes.byref(own_count), ctypes.byref(own), *more)
    if status:
        return status, 0, []
    entries = (ctypes.c_size_t * own_count.value).from_address(own.value)
    return status, own_count.value, list(entries)

def parts():
    return layer.usmq_layer_parts()

QUEUES, EMULATOR = 1, 2
EMULATED = "USMQ_EMULATE_GPUS" in os.environ
INVALID_VALUE = -30
# The places of functions in the table of every OpenCL header.
GET_DEVICE_IDS, GET_DEVICE_INFO, CREATE_QUEUE, CREATE_QUEUE_WITH = 2, 3, 9, 123
"""


TABLES = """
# Without the functions of a part it is refused.
for count in 0, 1, 2, 20, 41:
    assert init(count) == (INVALID_VALUE, 0, []) and parts() == 0
for name in "clInitLayer", "clInitLayerWithProperties":
    for count in 148, 149, 150, 151, 200:
        status, own, entries = init(count, name=name)
        assert status == 0 and own >= 149, (status, own)
        replaced = [i for i, entry in enumerate(entries[:count]) if entry != ENTRY + i]
        assert CREATE_QUEUE_WITH in replaced and 2 <= len(replaced) < 60, replaced
        assert (GET_DEVICE_IDS in replaced) == EMULATED
        assert not any(entries[count:]), "entries past the end of the loader's table"
        assert parts() == (QUEUES | EMULATOR if EMULATED else QUEUES)
"""
PROGRAMS = {
    "tables of other releases are taken": TABLES,
    "tables of other releases are taken, with emulated GPUs": TABLES,
    # Each length is taken or refused, without a read past its end; longer ones have no fewer.
    "the shortest tables are decided by their functions": """
found = []
for count in range(201):
    status, _, entries = init(count)
    assert status in (0, INVALID_VALUE)
    found.append(status == 0)
assert found == sorted(found), "a longer table was refused"
assert not found[0] and found[149] and found.index(True) == CREATE_QUEUE_WITH + 1
""",
    # An entry of null in a whole table, as a loader leaves the functions that it does not have.
    "a missing function switches off only the parts that call it": """
taken = set()
for missing in range(149):
    status, _, entries = init(149, missing)
    if status == 0:
        assert entries[missing] == 0, f"a function was put in the place of the missing {missing}"
        taken.add(missing)
# Functions that no part calls, such as those of images, are not needed.
assert len(taken) > 100, sorted(set(range(149)) - taken)
assert GET_DEVICE_INFO not in taken
""",
    "a layer is refused if no part is requested": """
assert init(150) == (INVALID_VALUE, 0, []) and parts() == 0
""",
    "null arguments are refused": """
count, own = ctypes.c_uint(), ctypes.c_void_p()
arguments = [150, ctypes.c_void_p(table(150)), ctypes.byref(count), ctypes.byref(own)]
for place in 1, 2, 3:
    some = list(arguments)
    some[place] = None
    assert layer.clInitLayer(*some) == INVALID_VALUE
assert parts() == 0
""",
    "queues of a CPU are created in order": """
PROPERTIES, OUT_OF_ORDER, PROFILING, OTHER = 0x1093, 1, 2, 0x1094
CPU, GPU = 2, 4
P = ctypes.c_void_p
seen = []

@ctypes.CFUNCTYPE(ctypes.c_int, P, ctypes.c_uint, ctypes.c_size_t, P, P)
def device_info(device, what, room, value, size):
    assert what == 0x1000 and room == 8
    ctypes.c_uint64.from_address(value).value = device
    return 0

@ctypes.CFUNCTYPE(P, P, P, ctypes.c_uint64, P)
def create(context, device, properties, status):
    seen.append(properties)
    return 7

@ctypes.CFUNCTYPE(P, P, P, ctypes.POINTER(ctypes.c_uint64), P)
def create_with(context, device, properties, status):
    listed = None
    if properties:
        listed = []
        while properties[len(listed)]:
            listed += properties[len(listed)], properties[len(listed) + 1]
    seen.append(listed)
    return 7

at = table(150)
for place, function in (
    (GET_DEVICE_INFO, device_info), (CREATE_QUEUE, create), (CREATE_QUEUE_WITH, create_with)
):
    ctypes.c_void_p.from_address(at + 8 * place).value = ctypes.cast(function, P).value
count, own = ctypes.c_uint(), P()
assert layer.clInitLayer(150, P(at), ctypes.byref(count), ctypes.byref(own)) == 0
made = (ctypes.c_size_t * count.value).from_address(own.value)
old, new = type(create)(made[CREATE_QUEUE]), type(create_with)(made[CREATE_QUEUE_WITH])

def created(device, properties):
    if isinstance(properties, int):
        assert old(None, device, properties, None) == 7
    else:
        listed = None if properties is None else [*properties, 0]
        given = listed and (ctypes.c_uint64 * len(listed))(*listed)
        assert new(None, device, given, None) == 7
    return seen.pop()

for device, expected in (CPU, PROFILING), (GPU, OUT_OF_ORDER | PROFILING):
    assert created(device, OUT_OF_ORDER | PROFILING) == expected
    given = [OTHER, 3, PROPERTIES, OUT_OF_ORDER | PROFILING]
    assert created(device, given) == [OTHER, 3, PROPERTIES, expected]
    assert created(device, [OTHER, OUT_OF_ORDER]) == [OTHER, OUT_OF_ORDER]
    assert created(device, []) == [] and created(device, None) is None and created(device, 0) == 0
""",
}
SETTINGS = {
    "tables of other releases are taken, with emulated GPUs": {"USMQ_EMULATE_GPUS": "2"},
    "a missing function switches off only the parts that call it": {"USMQ_EMULATE_GPUS": "2"},
    "a layer is refused if no part is requested": {"USMQ_WAIT_LAYER": "0"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_layer_takes_the_table_of_a_loader(run_python, name):
    settings = {"USMQ_EMULATE_GPUS": None, "USMQ_EMULATE_FAULTS": None} | SETTINGS.get(name, {})
    run_python(PRELUDE + PROGRAMS[name], **settings)
