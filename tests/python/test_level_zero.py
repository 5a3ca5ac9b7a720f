"""The rows of the table of backends on Level Zero; peer access and tiles have files."""

import os

import numpy as np
import pytest
import usmq


@pytest.fixture(autouse=True)
def on_level_zero():
    if usmq.current_queue().device.backend != "level_zero":
        pytest.skip("needs a device of Level Zero: tests/run level-zero")


BUILD = """
import usmq
usmq.Kernel.from_opencl("kernel void f(global int *x) { x[get_global_id(0)] = 3; }", "f")
"""


@pytest.fixture
def without_compiler(tmp_path):
    """A folder before the others with an empty file in the compiler's place."""
    (tmp_path / "libocloc.so").touch()
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def test_the_error_names_the_package(run_python, without_compiler):
    done = run_python(BUILD, check=False, **without_compiler)
    assert done.returncode == 1
    assert "needs the library libocloc.so" in done.stderr
    assert "install the package intel-ocloc, or use SYCL source" in done.stderr
    assert run_python(BUILD).stderr == ""


def test_the_doctor_names_the_package(run_python, without_compiler):
    done = run_python(None, "-m", "usmq", "doctor", **without_compiler)
    assert "libocloc.so was not found, so kernels in OpenCL C do not compile" in done.stdout
    assert "sudo apt install intel-ocloc" in done.stdout
    assert "libocloc" not in run_python(None, "-m", "usmq", "doctor").stdout


def test_the_doctor_names_the_adapter(run_python):
    for value, name in (("0", "level_zero"), ("1", "level_zero_v2")):
        done = run_python(None, "-m", "usmq", "doctor", SYCL_UR_USE_LEVEL_ZERO_V2=value)
        assert f"the adapter is {name}, by SYCL_UR_USE_LEVEL_ZERO_V2={value}" in done.stdout


def queues():
    return [usmq.Queue(device) for device in usmq.devices(backend="level_zero", device_type="gpu")]


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_pointers_have_their_kind_and_device(kind):
    for queue in queues():
        x = usmq.zeros(100, "i4", queue=queue, usm_type=kind)
        found = usmq.pointer_info(x.ptr + 8, queue.context)
        assert found is not None
        assert found.kind == kind
        assert found.device == queue.device or kind == "host"


def test_other_addresses_are_not_memory_of_the_context():
    context = usmq.current_queue().context
    of_cpu = usmq.zeros(100, "i4", queue="opencl:cpu")
    for address in (id(context), np.zeros(8).ctypes.data, of_cpu.ptr, 0, 2**64 - 8):
        assert usmq.pointer_info(address, context) is None


def test_memory_of_the_cpu_is_copied_by_one_command():
    x = usmq.asarray(np.arange(1000), queue="opencl:cpu")
    for queue in queues():
        assert usmq.explain(x, queue=queue).steps[0].action == "copy_direct"
        assert usmq.collocate(x, queue=queue).tolist() == list(range(1000))


def test_timestamps_are_in_order():
    x = usmq.zeros(1000, queue=usmq.Queue(profiling=True))
    add = usmq.elementwise("float *x", "x[i] += 1")
    events = [add(x) for _ in range(3)]
    x.queue.wait()
    times = [time for event in events for time in event.timestamps[1:]]
    assert times == sorted(times)
    assert all(event.timestamps.submit <= event.timestamps.start for event in events)


@pytest.mark.parametrize("priority", ["low", "normal", "high"])
def test_queues_have_priorities(priority):
    queue = usmq.Queue(priority=priority)
    assert queue.priority == priority
    assert usmq.full(3, 7, "i4", queue=queue).tolist() == [7, 7, 7]


def test_limits_are_errors_that_name_them():
    device = usmq.current_queue().device
    fill = usmq.Kernel.from_sycl(
        "#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void fill(int *x) { x[global_id(0)] = 1; }",
        "fill",
    )
    x = usmq.zeros(8192, "i4")
    with pytest.raises(usmq.LaunchError, match=f"more than the {device.max_work_group_size} work-"):
        fill(8192, x, local_size=2 * device.max_work_group_size)
    with pytest.raises(usmq.AllocationError, match="its largest single allocation is"):
        usmq.empty(2 * device.global_mem_size, "u1")
    fill(8192, x)
    assert x.to_numpy().all()


ALLOCATES = """
import usmq
kept, failed = [], []
for _ in range(9):
    try:
        kept.append(usmq.full(1 << 24, 3, "u1"))
    except (usmq.AllocationError, usmq.SyclError) as error:
        failed.append(error)
assert all(x[-1].item() == 3 for x in kept)
print(len(kept), len(failed))
"""


def test_one_failed_allocation_of_the_driver_costs_at_most_one_call(run_python):
    if "USMQ_LEVEL_ZERO_OPENCL" not in os.environ:
        pytest.skip("needs the driver in front of Level Zero: tests/run level-zero")
    for at in range(1, 16):
        fail = f"zeMemAllocDevice:{at}:0x70000003"
        printed = run_python(ALLOCATES, USMQ_LEVEL_ZERO_FAIL=fail).stdout
        # usmq frees its pool and tries again; a failure inside of the runtime is an error.
        assert printed in ("9 0\n", "8 1\n"), at


LOST = """
import usmq
x = usmq.zeros(1000)
add = usmq.elementwise("float *x", "x[i] += 1")
try:
    for _ in range(100):
        add(x).wait()
    print("not lost")
except usmq.SyclError as error:
    assert "UR_RESULT_ERROR_DEVICE_LOST" in str(error), error
for call in (x.to_numpy, lambda: usmq.zeros(10).tolist(), lambda: usmq.collocate(x, queue="cpu")):
    try:
        call()
        print("no error")
    except usmq.Error:
        pass
print(usmq.full(4, 2, "i4", queue="opencl:cpu").tolist())
"""


def test_a_lost_device_is_an_error_and_other_devices_work(run_python):
    if "USMQ_LEVEL_ZERO_OPENCL" not in os.environ:
        pytest.skip("needs the driver in front of Level Zero: tests/run level-zero")
    assert run_python(LOST, USMQ_LEVEL_ZERO_LOST_AFTER="10").stdout == "[2, 2, 2, 2]\n"


BATCHED = """
import numpy as np
import usmq
first, second = (usmq.Queue(f"level_zero:gpu:{number}") for number in (0, 1))
own = usmq.Queue(second.device, context=usmq.Context([second.device]))
add = usmq.elementwise("const int *x, int *y", "y[i] += x[i]")
x = usmq.asarray(np.arange(1000, dtype="i4"), queue=first)
expected = np.arange(1000)
for _ in range(20):
    for queue in (second, own, first):
        y = usmq.zeros(1000, "i4", queue=queue)
        add(usmq.collocate(x, like=y), y)
        add(y, y)
        x = usmq.collocate(y, queue=first)
    expected = expected * 8 % 1000003
    x = usmq.asarray(x.to_numpy() % 1000003, "i4", queue=first)
assert (x.to_numpy() == expected).all()
event = add(x, x)
while not event.done():
    pass
"""


@pytest.mark.parametrize(
    "batches",
    [{"UR_L0_USE_IMMEDIATE_COMMANDLISTS": "0"}, {"UR_L0_V2_FORCE_BATCHED": "1"}],
    ids=["v1", "v2"],
)
def test_batches_of_the_adapters_are_submitted(batches, run_python):
    run_python(BATCHED, **batches)


CHAIN = """
import os
import numpy as np
import usmq
queue = usmq.Queue("level_zero:gpu")
others = [usmq.Queue(queue.device, context=usmq.Context([queue.device])), usmq.Queue("opencl:cpu")]
add = usmq.elementwise("int *x", "x[i] += 1")
x = usmq.zeros(1000, "i4", queue=queue)
for _ in range(50):
    for other in others:
        y = usmq.collocate(x, queue=other)
        add(y)
        x.copy_from(usmq.collocate(y, like=x))
        add(x)
assert (x.to_numpy() == 200).all()
print(len(os.listdir("/proc/self/task")))
"""


def test_libsycl_orders_no_contexts_by_host_tasks(run_python):
    # Its first host task starts this number of threads.
    printed = run_python(CHAIN, SYCL_QUEUE_THREAD_POOL_SIZE="300").stdout
    assert int(printed) < 300
