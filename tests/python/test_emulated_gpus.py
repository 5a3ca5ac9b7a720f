"""USMQ_EMULATE_GPUS: GPU devices on the CPU driver, visible to usmq, dpctl, dpnp and dask."""

from __future__ import annotations

import json

import pytest
from emulated import AXPY, complaints, result, run


@pytest.mark.parametrize("gpus", ["1", "2", "4", "5"])
def test_each_gpu_is_a_root_device_of_one_platform_beside_the_cpu(gpus: str) -> None:
    [text] = result(
        """
import json, usmq
print(json.dumps([(d.filter_string, d.name, d.parent is None) for d in usmq.devices()]))
contexts = {usmq.Queue(d).context for d in usmq.devices()}
assert len(contexts) == 1, contexts
""",
        gpus,
    )
    *emulated, cpu = json.loads(text)
    assert [name for name, _, _ in emulated] == [f"opencl:gpu:{i}" for i in range(int(gpus))]
    assert cpu[0] == "opencl:cpu:0"
    for number, (_, name, is_root) in enumerate(emulated):
        assert name == f"Emulated GPU {number} ({cpu[1]})"
        assert is_root


def test_dpctl_sees_the_same_devices_in_one_default_context() -> None:
    result("""
import usmq, dpctl
theirs = dpctl.get_devices()
assert [d.name for d in theirs] == [d.name for d in usmq.devices()]
assert len(dpctl.get_platforms()) == 1
one, two = dpctl.SyclQueue("gpu:0"), dpctl.SyclQueue("gpu:1")
assert one.sycl_context == two.sycl_context
assert one.sycl_device != two.sycl_device
assert [d.device_type.name for d in theirs] == ["gpu", "gpu", "cpu"]
""")


def test_dpctl_alone_sees_them_where_a_parent_with_usmq_started_it() -> None:
    [names] = result("""
import os, subprocess, sys, usmq
code = "import dpctl; print([d.filter_string for d in dpctl.get_devices()])"
print(subprocess.check_output([sys.executable, "-c", code], env=dict(os.environ), text=True))
""")[:1]
    assert names == "['opencl:gpu:0', 'opencl:gpu:1', 'opencl:cpu:0']"


def test_a_kernel_gives_the_same_result_on_each_device() -> None:
    lines = result(f"""{AXPY}
axpy = usmq.Kernel.from_sycl(AXPY, "axpy")
for target in "gpu:0", "gpu:1", "cpu":
    x = usmq.arange(4, dtype="f4", queue=target)
    for kind in "device", "shared", "host":
        y = usmq.full(4, 1, "f4", queue=target, usm_type=kind)
        axpy(4, 2.0, x, y)
        print(y.queue.device.filter_string, y.tolist())
""")
    for target in ("opencl:gpu:0", "opencl:gpu:1", "opencl:cpu:0"):
        assert lines.count(f"{target} [1.0, 3.0, 5.0, 7.0]") == 3


def test_kernels_run_concurrently_on_more_gpus_than_cores() -> None:
    result(
        f"""{AXPY}
import threading
axpy = usmq.Kernel.from_sycl(AXPY, "axpy", queue="gpu:0")
n, sums = 100_000, {{}}
def work(number):
    x = usmq.full(n, number, "f4", queue=f"gpu:{{number}}")
    y = usmq.zeros(n, "f4", queue=x.queue)
    for _ in range(20):
        axpy(n, 1.0, x, y)
    sums[number] = float(y.to_numpy().sum())
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sums == {{number: 20.0 * n * number for number in range(5)}}, sums
""",
        "5",
    )


def test_dpnp_computes_on_the_second_gpu_and_shares_its_memory() -> None:
    result("""
import usmq, dpnp
x = dpnp.arange(100, dtype="f4", device="gpu:1")  # sums that float32 holds exactly
assert float((x * x).sum()) == float((x.asnumpy() ** 2).sum())
mine = usmq.asarray(x, copy=False)
assert mine.device.filter_string == "opencl:gpu:1"
theirs = dpnp.asarray(usmq.arange(5, dtype="f4", queue="gpu:1"))
assert theirs.sycl_device.name.startswith("Emulated GPU 1")
assert float(theirs.sum()) == 10
""")


def test_the_default_device_is_the_first_gpu() -> None:
    assert result("import usmq; print(usmq.current_queue().device.filter_string)") == [
        "opencl:gpu:0"
    ]


def test_a_selector_shows_one_gpu() -> None:
    code = "import usmq; [d] = usmq.devices(); print(d.filter_string, d.name[:14])"
    assert result(code, ONEAPI_DEVICE_SELECTOR="opencl:1") == ["opencl:gpu:0 Emulated GPU 1"]


def test_the_variable_can_be_set_before_the_first_device_query() -> None:
    code = "import os, usmq; os.environ['USMQ_EMULATE_GPUS'] = '3'; print(len(usmq.devices()))"
    assert result(code, "") == ["4"]


@pytest.mark.parametrize(
    ("gpus", "name", "value"),
    [
        ("", "USMQ_EMULATE_GPUS", "2"),
        ("1", "USMQ_EMULATE_GPUS", "2"),
        ("1", "USMQ_EMULATE_GPU_MEMORY", "64MiB"),
    ],
)
def test_a_change_after_the_first_query_has_no_effect_and_is_named(
    gpus: str, name: str, value: str
) -> None:
    """It is not an error: a program may set the variables for its child processes."""
    result(
        f"""
import os, warnings, usmq
before = usmq.devices()
os.environ[{name!r}] = {value!r}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert usmq.devices() == before
    x = usmq.zeros(3)
[warning] = seen
assert warning.category is RuntimeWarning and warning.filename == "<string>", warning
try:
    usmq.zeros(3, queue="gpu:1")
except usmq.DeviceNotFoundError as error:
    text = str(error)
else:
    raise AssertionError("gpu:1 exists")
expected = {name!r} + " has changed since the first device query, which read it"
for said in (str(warning.message), text):
    assert expected in said, said
""",
        gpus,
    )


def test_a_value_that_does_not_change_gives_no_warning() -> None:
    result("""
import os, warnings, usmq
warnings.simplefilter("error")
usmq.devices()
os.environ["USMQ_EMULATE_GPUS"] = "2"
usmq.devices()
del os.environ["USMQ_EMULATE_GPUS"]
usmq.devices()
""")


def test_other_layers_are_kept_and_its_own_is_named_once() -> None:
    [layers, again] = result(
        """
import os, subprocess, sys, usmq
print(os.environ["OPENCL_LAYERS"])
print(subprocess.check_output([sys.executable, "-c",
    "import os, usmq; print(os.environ['OPENCL_LAYERS'])"], text=True), end="")
""",
        OPENCL_LAYERS="/nonexistent/other.so",
    )
    assert layers == again
    assert layers.endswith("/libusmq_layers.so:/nonexistent/other.so")
    assert layers.count("usmq") == 2, "the folder of the package and the file"


def test_without_the_variable_no_gpu_is_emulated() -> None:
    code = "import usmq; print(usmq.layers()); print([d.filter_string for d in usmq.devices()])"
    states = "{'waits': True, 'emulator': False}"
    assert result(code, "") == [states, "['opencl:cpu:0']"]


@pytest.mark.parametrize("first", ["import dpctl; dpctl.get_devices()", "usmq.devices()"])
@pytest.mark.parametrize("others", ["", "/nonexistent/other.so"])
def test_children_of_a_process_that_has_used_devices_have_both_parts(
    first: str, others: str
) -> None:
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


def test_children_have_both_parts_when_only_the_parent_of_a_peer_imports_usmq() -> None:
    peer = "import dpctl; print(len(dpctl.get_devices()))"
    code = "import os, subprocess, sys, usmq, dpctl\ndpctl.get_devices()\n"
    code += f"print(subprocess.check_output([sys.executable, '-c', {peer!r}], text=True), end='')"
    assert result(code) == ["3"]


def test_an_earlier_query_of_another_library_is_named_as_the_cause() -> None:
    done = run(
        """
import dpctl
dpctl.get_devices()
import usmq
try:
    usmq.devices()
except usmq.RuntimeNotFoundError as error:
    print(error)
"""
    )
    assert "USMQ_EMULATE_GPUS was set after the SYCL runtime had been asked" in done.stdout


# --- memory


def test_memory_of_a_cpu_in_another_context_is_copied_to_a_gpu_at_once() -> None:
    lines = result(
        """
import numpy as np, usmq
gpu, cpu = usmq.Queue("gpu:0"), usmq.Device("cpu")
part, own = cpu.sub_devices(1)[0], usmq.Context([cpu])
for queue in usmq.Queue(part), usmq.Queue(cpu, context=own):
    x = usmq.asarray(np.arange(1000), queue=queue)
    print(usmq.explain(x, queue=gpu).steps[0].action)
    there = usmq.collocate(x, queue=gpu)
    assert (there.to_numpy() == np.arange(1000)).all()
    there.fill(7)
    assert (usmq.collocate(there, queue=queue).to_numpy() == 7).all()
"""
    )
    assert lines == ["copy_direct", "copy_direct"]


@pytest.mark.parametrize(("given", "bytes_"), [("64MiB", 64 << 20), ("100000000", 100_000_000)])
def test_each_gpu_has_the_requested_memory(given: str, bytes_: int) -> None:
    code = f"import usmq; print({{d.global_mem_size for d in usmq.devices()[:2]}} == {{{bytes_}}})"
    assert result(code, USMQ_EMULATE_GPU_MEMORY=given) == ["True"]


@pytest.mark.parametrize("kind", ["device", "shared"])
def test_memory_is_limited_per_gpu_and_freed_memory_is_reused(kind: str) -> None:
    result(
        f"""
import usmq
MiB = 1 << 20
for target in "gpu:0", "gpu:1":
    for _ in range(3):
        held = usmq.empty(40 * MiB, "u1", queue=target, usm_type={kind!r})
        try:
            usmq.empty(40 * MiB, "u1", queue=target, usm_type={kind!r})
        except usmq.AllocationError as error:
            assert "64.0 MiB" in str(error), error
        else:
            raise AssertionError("more than the GPU has")
        del held
        usmq.trim_memory()
host = usmq.empty(200 * MiB, "u1", queue="gpu:0", usm_type="host")
""",
        USMQ_EMULATE_GPU_MEMORY="64MiB",
    )


def test_dpctl_refuses_an_allocation_larger_than_the_gpu() -> None:
    result(
        """
import usmq, dpctl.memory
try:
    dpctl.memory.MemoryUSMDevice(65 << 20, queue=dpctl.SyclQueue("gpu:1"))
except Exception as error:
    assert "alloc" in str(error).lower(), error
else:
    raise AssertionError("more than the GPU has")
dpctl.memory.MemoryUSMDevice(63 << 20, queue=dpctl.SyclQueue("gpu:1"))
""",
        USMQ_EMULATE_GPU_MEMORY="64MiB",
    )


@pytest.mark.parametrize(("given", "has"), [("", False), ("0", False), ("1", True)])
def test_system_usm_is_available_if_requested(given: str, has: bool) -> None:
    code = """
import usmq
for device in usmq.devices()[:2]:
    print("usm_system_allocations" in device.aspects)
assert all(device.has_usm(kind) for kind in ("device", "shared", "host"))
"""
    assert result(code, USMQ_EMULATE_SYSTEM_USM=given) == [str(has)] * 2


# --- the strict rule

STRICT = """
import usmq, dpctl, dpctl.memory as memory
one, two = dpctl.SyclQueue("gpu:0"), dpctl.SyclQueue("gpu:1")
device, shared, host = (
    kind(64, queue=one) for kind in (memory.MemoryUSMDevice, memory.MemoryUSMShared,
                                     memory.MemoryUSMHost))
own = memory.MemoryUSMDevice(64, queue=two)
def refused(work):
    try:
        work()
    except Exception as error:
        return print(type(error).__name__)
    raise AssertionError("not refused")
"""


@pytest.mark.parametrize(
    ("use", "line"),
    [
        ("two.memcpy(own, device, 64)", "gpu:1 used device memory of gpu:0 (source of a copy)"),
        (
            "two.memcpy(device, own, 64)",
            "gpu:1 used device memory of gpu:0 (destination of a copy)",
        ),
        ("two.memcpy(own, shared, 64)", "gpu:1 used shared memory of gpu:0 (source of a copy)"),
        ("two.memcpy(host, device, 64)", "gpu:1 used device memory of gpu:0 (source of a copy)"),
        (
            "one.memcpy(own, device, 64)",
            "gpu:0 used device memory of gpu:1 (destination of a copy)",
        ),
    ],
)
def test_a_copy_from_or_to_memory_of_another_gpu_is_refused(use: str, line: str) -> None:
    done = run(f"{STRICT}\nrefused(lambda: {use})")
    assert done.returncode == 0, done.stderr
    [said] = complaints(done)
    assert said.startswith(f"usmq emulator: {line}; only gpu:")


def test_host_memory_of_the_context_is_accessible_to_all_gpus() -> None:
    result(
        f"{STRICT}\ntwo.memcpy(own, host, 64); one.memcpy(device, host, 64)\n"
        "two.memcpy(host, own, 64)"
    )


def test_an_array_that_names_a_queue_of_another_gpu_is_refused() -> None:
    result("""
import usmq
x = usmq.arange(4, dtype="f4", queue="gpu:0")
class ForeignArray:
    __sycl_usm_array_interface__ = dict(
        x.__sycl_usm_array_interface__, syclobj=usmq.Queue("gpu:1")._get_capsule())
try:
    usmq.asarray(ForeignArray(), copy=False)
except usmq.InteropError as error:
    assert "gpu:0" in str(error) and "gpu:1" in str(error), error
else:
    raise AssertionError("memory of gpu:0 was taken as that of gpu:1")
""")


def test_a_strict_memory_violation_becomes_a_placement_error() -> None:
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


def test_a_forked_child_gets_an_error_and_a_spawned_one_has_gpus() -> None:
    lines = result("""
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
""")
    assert lines == ["3"]


def test_a_fork_before_the_first_query_gives_gpus_to_both() -> None:
    lines = result("""
import os, usmq
child = os.fork()
print(usmq.full(3, 2, "i4", queue="gpu:1").tolist(), flush=True)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
    assert lines == ["[2, 2, 2]"] * 2


# --- dask


def test_each_dask_worker_gets_one_gpu() -> None:
    pytest.importorskip("distributed")
    names = result("""
import usmq

def about():
    import os
    import usmq
    x = usmq.arange(1000, dtype="i8")
    return x.queue.device.name[:14], int(x.to_numpy().sum()), os.environ["ONEAPI_DEVICE_SELECTOR"]

if __name__ == "__main__":
    from usmq.dask import LocalUsmCluster
    with LocalUsmCluster(dashboard_address=None, silence_logs=50) as cluster:
        with cluster.get_client() as client:
            for line in sorted(client.run(about).values()):
                print(*line)
""")
    assert names == ["Emulated GPU 0 499500 opencl:0", "Emulated GPU 1 499500 opencl:1"]


def test_a_killed_worker_restarts_on_its_gpu_without_loss() -> None:
    pytest.importorskip("distributed")
    names = result("""
import os, signal, time
import usmq

def part(number):
    time.sleep(0.05)
    return usmq.arange(number * 1000, (number + 1) * 1000, dtype="i8")

def total(x):
    return int(x.to_numpy().sum()), x.queue.device.name[:14]

def name():
    return usmq.current_queue().device.name[:14]

if __name__ == "__main__":
    from distributed import wait
    from usmq.dask import LocalUsmCluster
    with LocalUsmCluster(dashboard_address=None, silence_logs=50) as cluster:
        with cluster.get_client() as client:
            before = client.run(name)
            pids = client.run(os.getpid)
            [victim] = [worker for worker in before if before[worker] == "Emulated GPU 1"]
            parts = client.map(part, range(20))
            wait(parts[:10], timeout=60)
            os.kill(pids[victim], signal.SIGKILL)
            totals = client.gather(client.map(total, parts))
            assert sum(value for value, _ in totals) == sum(range(20_000)), totals
            client.wait_for_workers(2, timeout=60)
            after = client.run(name)
            assert set(client.run(os.getpid).values()) != set(pids.values())
            print(*sorted(after.values()), sep="\\n")
""")
    assert names == ["Emulated GPU 0", "Emulated GPU 1"]
