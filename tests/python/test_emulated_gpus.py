"""USMQ_EMULATE_GPUS: GPU devices on the CPU driver, visible to usmq, dpctl, dpnp and dask."""

import json

import pytest
from emulated import AXPY, complaints, result, run


@pytest.mark.parametrize("gpus", ["1", "2", "4", "5"])
def test_each_gpu_is_a_root_device_of_one_platform_beside_the_cpu(gpus):
    [text] = result(
        """
import json, usmq
print(json.dumps([(d.filter_string, d.name, d.parent is None) for d in usmq.devices()]))
contexts = {usmq.Queue(d).context for d in usmq.devices()}
assert len(contexts) == 1, contexts
assert usmq.current_queue().device.filter_string == "opencl:gpu:0"
""",
        gpus,
    )
    *emulated, cpu = json.loads(text)
    assert [name for name, _, _ in emulated] == [f"opencl:gpu:{i}" for i in range(int(gpus))]
    assert cpu[0] == "opencl:cpu:0"
    for number, (_, name, is_root) in enumerate(emulated):
        assert name == f"Emulated GPU {number} ({cpu[1]})"
        assert is_root


REFUSED = """
import usmq
def refused(error, call, *words):
    try:
        call()
    except error as seen:
        assert all(word in str(seen) for word in words), seen
    else:
        raise AssertionError("not refused")
"""
# By name; an assertion that fails ends the process, and the emulator prints nothing.
PROGRAMS = {
    "dpctl sees the same devices in one default context": """
import usmq, dpctl
theirs = dpctl.get_devices()
assert [d.name for d in theirs] == [d.name for d in usmq.devices()]
assert len(dpctl.get_platforms()) == 1
one, two = dpctl.SyclQueue("gpu:0"), dpctl.SyclQueue("gpu:1")
assert one.sycl_context == two.sycl_context
assert one.sycl_device != two.sycl_device
assert [d.device_type.name for d in theirs] == ["gpu", "gpu", "cpu"]
""",
    "dpctl alone sees them where a parent with usmq started it": """
import os, subprocess, sys, usmq
code = "import dpctl; print([d.filter_string for d in dpctl.get_devices()])"
print(subprocess.check_output([sys.executable, "-c", code], env=os.environ, text=True), end="")
""",
    "a kernel gives the same result on each device": AXPY
    + """
axpy = usmq.Kernel.from_sycl(AXPY, "axpy")
for target in "opencl:gpu:0", "opencl:gpu:1", "opencl:cpu:0":
    x = usmq.arange(4, dtype="f4", queue=target)
    for kind in "device", "shared", "host":
        y = usmq.full(4, 1, "f4", queue=target, usm_type=kind)
        axpy(4, 2.0, x, y)
        assert y.queue.device.filter_string == target and y.tolist() == [1, 3, 5, 7]
""",
    "kernels run concurrently on more GPUs than cores": AXPY
    + """
import threading
axpy = usmq.Kernel.from_sycl(AXPY, "axpy", queue="gpu:0")
n, sums = 100_000, {}
def work(number):
    x = usmq.full(n, number, "f4", queue=f"gpu:{number}")
    y = usmq.zeros(n, "f4", queue=x.queue)
    for _ in range(20):
        axpy(n, 1.0, x, y)
    sums[number] = float(y.to_numpy().sum())
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sums == {number: 20.0 * n * number for number in range(5)}, sums
""",
    "dpnp computes on the second GPU and shares its memory": """
import usmq, dpnp
x = dpnp.arange(100, dtype="f4", device="gpu:1")  # sums that float32 holds exactly
assert float((x * x).sum()) == float((x.asnumpy() ** 2).sum())
mine = usmq.asarray(x, copy=False)
assert mine.device.filter_string == "opencl:gpu:1"
theirs = dpnp.asarray(usmq.arange(5, dtype="f4", queue="gpu:1"))
assert theirs.sycl_device.name.startswith("Emulated GPU 1")
assert float(theirs.sum()) == 10
""",
    "a selector shows one GPU": """
import usmq
[device] = usmq.devices()
assert (device.filter_string, device.name[:14]) == ("opencl:gpu:0", "Emulated GPU 1")
""",
    "the variable can be set before the first device query": """
import os, usmq
os.environ["USMQ_EMULATE_GPUS"] = "3"
assert len(usmq.devices()) == 4
""",
    "a value that does not change gives no warning": """
import os, warnings, usmq
warnings.simplefilter("error")
usmq.devices()
os.environ["USMQ_EMULATE_GPUS"] = "2"
usmq.devices()
del os.environ["USMQ_EMULATE_GPUS"]
usmq.devices()
""",
    "other layers are kept and its own is named once": """
import os, subprocess, sys, usmq
layers = os.environ["OPENCL_LAYERS"]
code = "import os, usmq; print(os.environ['OPENCL_LAYERS'])"
assert subprocess.check_output([sys.executable, "-c", code], text=True) == layers + "\\n"
assert layers.endswith("/libusmq_layers.so:/nonexistent/other.so")
assert layers.count("usmq") == 2, "the folder of the package and the file"
""",
    "without the variable no GPU is emulated": """
import usmq
assert usmq.layers() == {"waits": True, "emulator": False}
assert [device.filter_string for device in usmq.devices()] == ["opencl:cpu:0"]
""",
    "children have both parts when only the parent of a peer imports usmq": """
import os, subprocess, sys, usmq, dpctl
dpctl.get_devices()
peer = "import dpctl; print(len(dpctl.get_devices()))"
print(subprocess.check_output([sys.executable, "-c", peer], text=True), end="")
""",
    "an earlier query of another library is named as the cause": """
import dpctl
dpctl.get_devices()
import usmq
try:
    usmq.devices()
except usmq.RuntimeNotFoundError as error:
    cause = "USMQ_EMULATE_GPUS was set after the SYCL runtime had been asked"
    assert cause in str(error), error
else:
    raise AssertionError("no error")
""",
    "memory of a CPU in another context is copied to a GPU at once": """
import numpy as np, usmq
gpu, cpu = usmq.Queue("gpu:0"), usmq.Device("cpu")
part, own = cpu.sub_devices(1)[0], usmq.Context([cpu])
for queue in usmq.Queue(part), usmq.Queue(cpu, context=own):
    x = usmq.asarray(np.arange(1000), queue=queue)
    assert usmq.explain(x, queue=gpu).steps[0].action == "copy_direct"
    there = usmq.collocate(x, queue=gpu)
    assert (there.to_numpy() == np.arange(1000)).all()
    there.fill(7)
    assert (usmq.collocate(there, queue=queue).to_numpy() == 7).all()
""",
    "the memory of a GPU may be given in bytes": """
import usmq
assert [device.global_mem_size for device in usmq.devices()[:2]] == [100_000_000] * 2
""",
    "memory is limited per GPU and freed memory is reused": REFUSED
    + """
import dpctl, dpctl.memory
MiB = 1 << 20
assert [d.global_mem_size for d in usmq.devices()[:2]] == [64 * MiB] * 2
for target, kind in [(t, k) for t in ("gpu:0", "gpu:1") for k in ("device", "shared")]:
    for _ in range(3):
        held = usmq.empty(40 * MiB, "u1", queue=target, usm_type=kind)
        more = lambda: usmq.empty(40 * MiB, "u1", queue=target, usm_type=kind)
        refused(usmq.AllocationError, more, "64.0 MiB")
        del held
        usmq.trim_memory()
host = usmq.empty(200 * MiB, "u1", queue="gpu:0", usm_type="host")
two = dpctl.SyclQueue("gpu:1")
refused(Exception, lambda: dpctl.memory.MemoryUSMDevice(65 * MiB, queue=two), "lloc")
dpctl.memory.MemoryUSMDevice(63 * MiB, queue=two)
""",
    "an array that names a queue of another GPU is refused": REFUSED
    + """
x = usmq.arange(4, dtype="f4", queue="gpu:0")
class ForeignArray:
    __sycl_usm_array_interface__ = dict(
        x.__sycl_usm_array_interface__, syclobj=usmq.Queue("gpu:1")._get_capsule())
refused(usmq.InteropError, lambda: usmq.asarray(ForeignArray(), copy=False), "gpu:0", "gpu:1")
""",
    "a forked child gets an error, and a spawned one has GPUs": """
import os, subprocess, sys, usmq
assert len(usmq.devices()) == 3
child = os.fork()
if not child:
    try:
        usmq.zeros(3, queue="gpu:1")
    except usmq.ForkError:
        os._exit(7)
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
subprocess.run([sys.executable, "-c", "import usmq; print(len(usmq.devices()))"], check=True)
""",
    "a fork before the first query gives GPUs to both": """
import os, usmq
child = os.fork()
print(usmq.full(3, 2, "i4", queue="gpu:1").tolist(), flush=True)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
}
SETTINGS = {
    "kernels run concurrently on more GPUs than cores": {"USMQ_EMULATE_GPUS": "5"},
    "a selector shows one GPU": {"ONEAPI_DEVICE_SELECTOR": "opencl:1"},
    "the variable can be set before the first device query": {"USMQ_EMULATE_GPUS": ""},
    "other layers are kept and its own is named once": {"OPENCL_LAYERS": "/nonexistent/other.so"},
    "without the variable no GPU is emulated": {"USMQ_EMULATE_GPUS": ""},
    "the memory of a GPU may be given in bytes": {"USMQ_EMULATE_GPU_MEMORY": "100000000"},
    "memory is limited per GPU and freed memory is reused": {"USMQ_EMULATE_GPU_MEMORY": "64MiB"},
}
PRINTED = {
    "dpctl alone sees them where a parent with usmq started it": [
        "['opencl:gpu:0', 'opencl:gpu:1', 'opencl:cpu:0']"
    ],
    "children have both parts when only the parent of a peer imports usmq": ["3"],
    "a forked child gets an error, and a spawned one has GPUs": ["3"],
    "a fork before the first query gives GPUs to both": ["[2, 2, 2]", "[2, 2, 2]"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works_on_emulated_gpus(name):
    assert result(PROGRAMS[name], **SETTINGS.get(name, {})) == PRINTED.get(name, [])


@pytest.mark.parametrize(("given", "has"), [("", False), ("0", False), ("1", True)])
def test_system_usm_is_available_if_requested(given, has):
    code = """
import usmq
for device in usmq.devices()[:2]:
    print("usm_system_allocations" in device.aspects)
assert all(device.has_usm(kind) for kind in ("device", "shared", "host"))
"""
    assert result(code, USMQ_EMULATE_SYSTEM_USM=given) == [str(has)] * 2


@pytest.mark.parametrize(
    ("gpus", "name", "value"),
    [
        ("", "USMQ_EMULATE_GPUS", "2"),
        ("1", "USMQ_EMULATE_GPUS", "2"),
        ("1", "USMQ_EMULATE_GPU_MEMORY", "64MiB"),
    ],
)
def test_a_change_after_the_first_query_has_no_effect_and_is_named(gpus, name, value):
    """It is not an error: a program may set the variables for its child processes."""
    code = f"""{REFUSED}
import os, warnings
before = usmq.devices()
os.environ[{name!r}] = {value!r}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert usmq.devices() == before
    x = usmq.zeros(3)
[warning] = seen
assert warning.category is RuntimeWarning and warning.filename == "<string>", warning
expected = {name!r} + " has changed since the first device query, which read it"
assert expected in str(warning.message), warning
refused(usmq.DeviceNotFoundError, lambda: usmq.zeros(3, queue="gpu:1"), expected)
"""
    assert result(code, gpus) == []


@pytest.mark.parametrize("first", ["import dpctl; dpctl.get_devices()", "usmq.devices()"])
@pytest.mark.parametrize("others", ["", "/nonexistent/other.so"])
def test_children_of_a_process_that_has_used_devices_have_both_parts(first, others):
    """By subprocess, by fork and exec, and by exec; they do not inherit Python's os.environ."""
    child = "import usmq; print(usmq.layers(), len(usmq.devices()))"
    variables = {"OPENCL_LAYERS": others} if others else {}
    lines = result(
        f"""
import os, subprocess, sys, usmq
{first}
command = [sys.executable, "-c", {child!r}]
print(subprocess.check_output(command, text=True), end="", flush=True)
if os.fork() == 0:
    os.execv(command[0], command)
os.wait()
os.execv(command[0], command)
""",
        **variables,
    )
    assert lines == ["{'waits': True, 'emulator': True} 3"] * 3


# --- the strict rule

STRICT = """
import usmq, dpctl, dpctl.memory as memory
one, two = dpctl.SyclQueue("gpu:0"), dpctl.SyclQueue("gpu:1")
device, shared, host = (
    kind(64, queue=one) for kind in (memory.MemoryUSMDevice, memory.MemoryUSMShared,
                                     memory.MemoryUSMHost))
own = memory.MemoryUSMDevice(64, queue=two)
"""


def test_a_copy_from_or_to_memory_of_another_gpu_is_refused():
    uses = {
        "two.memcpy(own, device, 64)": "gpu:1 used device memory of gpu:0 (source of",
        "two.memcpy(device, own, 64)": "gpu:1 used device memory of gpu:0 (destination of",
        "two.memcpy(own, shared, 64)": "gpu:1 used shared memory of gpu:0 (source of",
        "two.memcpy(host, device, 64)": "gpu:1 used device memory of gpu:0 (source of",
        "one.memcpy(own, device, 64)": "gpu:0 used device memory of gpu:1 (destination of",
    }
    refused = "".join(f"refused(Exception, lambda: {use})\n" for use in uses)
    # Host memory of the context is accessible to all GPUs.
    allowed = "two.memcpy(own, host, 64); one.memcpy(device, host, 64); two.memcpy(host, own, 64)"
    done = run(f"{STRICT}{allowed}\n{REFUSED}{refused}")
    assert done.returncode == 0, done.stderr
    for said, expected in zip(complaints(done), uses.values(), strict=True):
        assert said.startswith(f"usmq emulator: {expected} a copy); only gpu:")


def test_a_strict_memory_violation_becomes_a_placement_error():
    """An owner that frees its memory too early, so that the address comes to the other GPU."""
    done = run(f"""{AXPY}
import dpctl, dpctl.memory as memory
size = 256 << 20
one, two = dpctl.SyclQueue("gpu:0"), dpctl.SyclQueue("gpu:1")
axpy = usmq.Kernel.from_sycl(AXPY, "axpy")
class Dangling:
    def __init__(self, owner):
        self.__sycl_usm_array_interface__ = dict(
            owner.__sycl_usm_array_interface__, typestr="<f4", shape=(size // 4,), syclobj=one)
y = usmq.zeros(4, "f4", queue="gpu:0")
for _ in range(20):
    owner = memory.MemoryUSMDevice(size, queue=one)
    address = owner._pointer
    x = usmq.asarray(Dangling(owner), copy=False)
    del owner
    other = memory.MemoryUSMDevice(size, queue=two)
    if other._pointer == address:
        break  # Another thread of the process may have mapped memory there.
    del x, other
else:
    raise SystemExit("the driver did not use an address again")
try:
    axpy(4, 1.0, x, y, queue=y.queue).wait()
except usmq.PlacementError as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    [line] = complaints(done)
    assert "gpu:0 used device memory of gpu:1 (argument 1 of kernel " in line
    assert "a device used memory of another device" in done.stdout
    assert "collocate()" in done.stdout


# --- dask


def test_a_killed_worker_restarts_on_its_gpu_without_loss():
    pytest.importorskip("distributed")
    names = result("""
import os, signal, time
import usmq

def part(number):
    time.sleep(0.05)
    return usmq.arange(number * 1000, (number + 1) * 1000, dtype="i8")

def total(x):
    return int(x.to_numpy().sum())

def about():
    selector = os.environ["ONEAPI_DEVICE_SELECTOR"]
    return usmq.current_queue().device.name[:14] + " " + selector, os.getpid()

if __name__ == "__main__":
    from distributed import wait
    from usmq.dask import LocalUsmCluster
    with LocalUsmCluster(dashboard_address=None, silence_logs=50) as cluster:
        with cluster.get_client() as client:
            before = sorted(client.run(about).values())
            parts = client.map(part, range(20))
            wait(parts[:10], timeout=60)
            os.kill(before[1][1], signal.SIGKILL)
            assert sum(client.gather(client.map(total, parts))) == sum(range(20_000))
            client.wait_for_workers(2, timeout=60)
            after = sorted(client.run(about).values())
            assert after[1][1] != before[1][1]
            print(*[name for name, _ in before + after], sep="\\n")
""")
    assert names == ["Emulated GPU 0 opencl:0", "Emulated GPU 1 opencl:1"] * 2
