"""The OpenCL layer of the emulated GPUs, through plain OpenCL: strict rule, limits and faults."""

from pathlib import Path

import pytest
from emulated import complaints, result, run

HERE = str(Path(__file__).parent)
PRELUDE = f"""
import sys
sys.path.insert(0, {HERE!r})
from opencl_calls import *
gpus = Gpus()
"""


def lines(code, gpus="2", **variables):
    return result(PRELUDE + code, gpus, **variables)


def outcome(code, **variables):
    done = run(PRELUDE + code, **variables)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done


# Plain OpenCL by name; an assertion that fails ends the process.
PROGRAMS = {
    "devices are listed by their type": """
assert len(devices()) == 6 and len(devices(GPU)) == 5 and len(devices(2)) == 1
assert devices(1) == devices(GPU)[:1], "the default device"
assert len(set(devices())) == 6
for device in devices(GPU):
    assert info(device, 0x1000) == GPU and info(device, 0x1042) == 0, "type, parent"
""",
    "each device has its own uuid": """
ids = set()
for device in devices():
    id = (ctypes.c_ubyte * 16)()
    assert device_info(device, 0x106A, 16, id, None) == 0
    ids.add(bytes(id))
assert len(ids) == 5, ids
""",
    "an allocation reports its device": """
for number in range(3):
    for kind in "device", "shared":
        pointer, status = gpus.allocate(kind, number)
        assert status == 0 and gpus.owner(pointer) == gpus.owner(pointer + 63) == number
        assert gpus.free(pointer) == 0
pointer, _ = gpus.allocate("host", 0)
assert gpus.owner(pointer) is None
""",
    "a command buffer runs on its device": """
one, _ = gpus.allocate("device", 1)
host, _ = gpus.allocate("host", 1)
kernel = gpus.kernel(
    "kernel void f(global uchar *x) { x[get_global_id(0)] += get_global_id(0); }", "f")
gpus.set_pointer(kernel, 0, one)
first, second, third = (CommandBuffer(gpus, 1) for _ in range(3))
assert first.fill(one, 3) == second.kernel(kernel, 64) == third.copy(host, one) == 0
for turn in range(3):
    for buffer in first, second, third:
        if not turn: assert buffer.finalize() == 0
        status, event = buffer.run()
        assert status == 0 and wait_for(event) == 0 and release_event(event) == 0
    assert ctypes.string_at(host, 64) == bytes(range(3, 67))
""",
    "host memory and unowned memory are accessible to all": """
host, _ = gpus.allocate("host", 0)
plain = (ctypes.c_ubyte * 64)(*range(64))
for number in range(3):
    own, _ = gpus.allocate("device", number)
    assert gpus.fill(number, host)[0] == 0
    assert gpus.copy(number, own, ctypes.addressof(plain), blocking=True)[0] == 0
    assert gpus.copy(number, host, own, blocking=True)[0] == 0
    assert ctypes.string_at(host, 64) == bytes(range(64))
""",
    "an address may be reused by another device": """
for turn in range(200):
    number = turn % 2
    pointer, status = gpus.allocate("device", number, 1 << 20)
    assert status == 0 and gpus.fill(number, pointer)[0] == 0
    assert gpus.finish(number) == 0 and gpus.free(pointer) == 0
""",
    "limits apply to all threads together": """
import threading
MiB = 1 << 20
held, refused = [], []
def work():
    for _ in range(40):
        pointer, status = gpus.allocate("device", 0, MiB)
        (held if pointer else refused).append(pointer or status)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(held) == 64 and set(refused) == {OUT_OF_RESOURCES}, (len(held), set(refused))
for pointer in held: gpus.free(pointer)
assert gpus.allocate("shared", 0, 64 * MiB)[1] == 0
assert gpus.allocate("device", 0, 1)[1] == OUT_OF_RESOURCES
assert gpus.allocate("device", 1, 65 * MiB)[1] == -61, "larger than the GPU"
assert gpus.allocate("device", 2, 65 * MiB)[1] == 0, "the CPU has its own"
""",
    "a failed command fails the commands that wait for it": """
one, _ = gpus.allocate("shared", 0)
two, _ = gpus.allocate("shared", 1)
assert gpus.fill(0, one, 7)[0] == 0 and gpus.finish(0) == 0
status, failed = gpus.fill(0, one, 8)
assert status == 0 and wait_for(failed) == FAILED_WAIT and status_of(failed) == OUT_OF_RESOURCES
status, behind = gpus._enqueue(gpus._fill, gpus.queues[1], two,
                               byref(ctypes.c_ubyte(9)), 1, 64, after=[failed])
assert status == 0 and wait_for(behind) == FAILED_WAIT and status_of(behind) == FAILED_WAIT
assert ctypes.string_at(one, 64) == bytes([7] * 64), "the command did nothing"
assert release_event(behind) == release_event(failed) == 0
# The queue continues after the failure was reported.
status, event = gpus.fill(0, one, 10)
assert status == 0 and wait_for(event) == 0 and ctypes.string_at(one, 1) == bytes([10])
assert gpus.finish(0) == gpus.finish(1) == 0
""",
    "a failure fails later in order commands until reported": """
one, _ = gpus.allocate("shared", 0)
assert gpus.fill(0, one, 7)[0] == 0
status, later = gpus.fill(0, one, 8)
assert status == 0 and gpus.finish(0) == OUT_OF_RESOURCES, "clFinish tells of it"
assert status_of(later) == FAILED_WAIT and gpus.finish(0) == 0
status, event = gpus.fill(0, one, 9)
assert wait_for(event) == 0 and ctypes.string_at(one, 1) == bytes([9])
""",
    "a callback gets the failure": """
import time
one, _ = gpus.allocate("device", 0)
_, event = gpus.fill(0, one)
seen = []
notify = CALLBACK(lambda event, status, data: seen.append(status))
assert set_callback(event, COMPLETE, notify, None) == 0
gpus.finish(0)
end = time.monotonic() + 20
while not seen and time.monotonic() < end: time.sleep(0.01)
assert seen == [OUT_OF_RESOURCES], seen
""",
    "a lost device stays lost and the others work": """
one, _ = gpus.allocate("device", 0)
two, _ = gpus.allocate("device", 1)
assert gpus.fill(1, two)[0] == 0 and gpus.finish(1) == 0
assert [gpus.fill(1, two)[0] for _ in range(3)] == [NOT_AVAILABLE] * 3
assert gpus.finish(1) == NOT_AVAILABLE and gpus.allocate("device", 1)[1] == NOT_AVAILABLE
assert marker(gpus.queues[1], 0, None, None) == NOT_AVAILABLE
assert gpus.free(two) == 0
assert gpus.fill(0, one)[0] == 0 and gpus.finish(0) == 0
""",
    "allocations fail as configured": """
def statuses(number): return [gpus.allocate("device", number)[1] for _ in range(4)]
assert statuses(0) == [0, OUT_OF_RESOURCES, 0, 0]
assert statuses(1) == [0, 0, OUT_OF_RESOURCES, OUT_OF_RESOURCES]
assert gpus.allocate("host", 1)[1] == 0 and gpus.allocate("device", 2)[1] == 0
""",
    "commands of a slow device take longer but calls do not wait": """
import time
one, _ = gpus.allocate("device", 0)
two, _ = gpus.allocate("device", 1)
def seconds(number, pointer):
    start = time.monotonic()
    for _ in range(5): assert gpus.fill(number, pointer)[0] == 0
    put = time.monotonic() - start
    assert gpus.finish(number) == 0
    return put, time.monotonic() - start
seconds(0, one), seconds(1, two)
put, slow = seconds(0, one)
assert slow >= 0.5 and put < 0.3, (put, slow)
assert seconds(1, two)[1] < 0.3
""",
}
SETTINGS = {
    "devices are listed by their type": {"USMQ_EMULATE_GPUS": "5"},
    "each device has its own uuid": {"USMQ_EMULATE_GPUS": "4"},
    "limits apply to all threads together": {"USMQ_EMULATE_GPU_MEMORY": "64MiB"},
    "a failed command fails the commands that wait for it": {
        "USMQ_EMULATE_FAULTS": "gpu:0=command-error@2"
    },
    "a failure fails later in order commands until reported": {
        "USMQ_EMULATE_FAULTS": "gpu:0=command-error"
    },
    "a callback gets the failure": {"USMQ_EMULATE_FAULTS": "gpu:0=command-error"},
    "a lost device stays lost and the others work": {"USMQ_EMULATE_FAULTS": "gpu:1=lost@2"},
    "allocations fail as configured": {"USMQ_EMULATE_FAULTS": "gpu:0=alloc@2,gpu:1=alloc@3+"},
    "commands of a slow device take longer but calls do not wait": {
        "USMQ_EMULATE_FAULTS": "gpu:0=slow:100ms"
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_plain_opencl(name):
    assert result(PRELUDE + PROGRAMS[name], **SETTINGS.get(name, {})) == []


@pytest.mark.parametrize("kind", ["device", "shared"])
@pytest.mark.parametrize("use", ["fill", "copy from", "copy to", "kernel"])
@pytest.mark.parametrize(("user", "owner"), [(0, 1), (1, 0), (2, 0), (0, 2)])
def test_memory_of_another_device_is_refused_with_one_line(kind, use, user, owner):
    calls = {
        "fill": "status, _ = gpus.fill(user, foreign)",
        "copy from": "status, _ = gpus.copy(user, own, foreign + 0)",
        "copy to": "status, _ = gpus.copy(user, foreign, own)",
        "kernel": """
kernel = gpus.kernel("kernel void f(global int *x, global int *y) { x[0] = y[0]; }", "f")
assert gpus.set_pointer(kernel, 0, own) == gpus.set_pointer(kernel, 1, foreign + 8) == 0
assert gpus.launch(owner, kernel) == FOREIGN_MEMORY and gpus.launch(user, kernel) == FOREIGN_MEMORY
assert gpus.set_pointer(kernel, 1, own) == 0
status = gpus.launch(user, kernel)
assert status == 0 and gpus.finish(user) == 0
status = FOREIGN_MEMORY
""",
    }
    done = outcome(f"""
user, owner = {user}, {owner}
foreign, _ = gpus.allocate({kind!r}, owner)
own, _ = gpus.allocate("device", user)
{calls[use]}
assert status == FOREIGN_MEMORY, status
assert gpus.fill(user, own)[0] == 0 and gpus.fill(owner, foreign)[0] == 0
""")
    names = ["gpu:0", "gpu:1", "cpu:0"]
    said = complaints(done)
    if use == "kernel":
        assert "argument 0 of kernel f" in said.pop(0)
        assert "argument 1 of kernel f" in said[0]
    [line] = said
    assert f"{names[user]} used {kind} memory of {names[owner]} (" in line


def test_a_cloned_kernel_keeps_its_pointer_arguments():
    done = outcome("""
foreign, _ = gpus.allocate("device", 0)
kernel = gpus.kernel("kernel void f(global int *x) { x[0] = 1; }", "f")
gpus.set_pointer(kernel, 0, foreign)
copy = clone_kernel(kernel, None)
assert gpus.launch(1, copy) == FOREIGN_MEMORY
assert release_kernel(copy) == release_kernel(kernel) == 0
""")
    assert len(complaints(done)) == 1


@pytest.mark.parametrize("kind", ["device", "shared"])
def test_a_command_buffer_refuses_memory_of_another_device(kind):
    done = outcome(f"""
foreign, _ = gpus.allocate({kind!r}, 0)
own, _ = gpus.allocate("device", 1)
buffer = CommandBuffer(gpus, 1)
assert buffer.copy(own, foreign) == buffer.copy(foreign, own) == FOREIGN_MEMORY
assert buffer.fill(foreign) == FOREIGN_MEMORY
kernel = gpus.kernel("kernel void f(global int *x) {{ x[0] = 1; }}", "f")
gpus.set_pointer(kernel, 0, foreign)
assert buffer.kernel(kernel) == FOREIGN_MEMORY
""")
    uses = ["source of a copy", "destination of a copy", "fill", "argument 0 of kernel f"]
    for line, use in zip(complaints(done), uses, strict=True):
        assert f"gpu:1 used {kind} memory of gpu:0 ({use})" in line


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("command-error@1", "status == 0 and wait_for(event) == FAILED_WAIT"),
        ("lost@1", "status == NOT_AVAILABLE"),
    ],
)
def test_a_command_buffer_fails_as_configured(fault, expected):
    lines(
        f"""
own, _ = gpus.allocate("shared", 1)
ctypes.memset(own, 9, 64)
buffer = CommandBuffer(gpus, 1)
assert buffer.fill(own, 3) == buffer.finalize() == 0
status, event = buffer.run()
assert {expected}, status
assert ctypes.string_at(own, 64) == bytes([9] * 64)
""",
        USMQ_EMULATE_FAULTS=f"gpu:1={fault}",
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("USMQ_EMULATE_GPUS", "65", "a number of GPUs from 1 to 64"),
        ("USMQ_EMULATE_GPU_MEMORY", "much", "bytes, at least 1MiB"),
    ],
)
def test_a_wrong_setting_prints_one_line_and_gives_no_gpu(name, value, expected):
    """Where usmq is not asked: it would be an error."""
    done = outcome("print(len(devices()))", **{"USMQ_EMULATE_GPUS": "2", name: value})
    [line] = complaints(done)
    assert f'{name}="{value}": expected {expected}' in line
    assert done.stdout == "1\n"
