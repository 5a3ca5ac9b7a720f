"""Threads that wait for queues of any order at once do not lock up the CPU driver."""

from pathlib import Path

import pytest

PRELUDE = '''
import ctypes, faulthandler, os, sys, threading, time
faulthandler.dump_traceback_later(40, exit=True)
import usmq

SOURCE = """kernel void add(global uint *x, uint steps) {
    uint value = x[get_global_id(0)];
    for (uint k = 0; k < steps; ++k) value += 3;
    x[get_global_id(0)] = value;
}"""
SIZE, END, FAILED, ROUNDS = 20_000, time.monotonic() + 6, [], {}

def ours(name, in_order, whole_queue):
    "Launch on four arrays, and wait for each launch or for the queue."
    queue = usmq.Queue("cpu", in_order=in_order)
    add = usmq.Kernel.from_opencl(SOURCE, "add", queue=queue)
    arrays = [usmq.full(SIZE, i, "u4", queue=queue) for i in range(4)]
    rounds = 0
    while time.monotonic() < END:
        events = [add(SIZE, x, (1, 30, 300)[(rounds + i) % 3]) for i, x in enumerate(arrays)]
        if whole_queue:
            queue.wait()
        else:
            for event in events:
                event.wait()
        rounds += 1
    steps = sum((1, 30, 300)[i % 3] for i in range(rounds))
    assert (arrays[0].to_numpy() == 3 * steps).all()
    ROUNDS[name] = rounds

def run(*threads):
    def work(call, *arguments):
        try:
            call(*arguments)
        except BaseException as error:
            FAILED.append(error)
    threads = [threading.Thread(target=work, args=thread) for thread in threads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(ROUNDS)
    if FAILED:
        raise FAILED[0]
    assert min(ROUNDS.values()) > 10, ROUNDS
'''

BESIDE = """
import dpctl, dpctl.memory, dpctl.program

class Foreign:
    "Memory of dpctl as an array of u4."
    def __init__(self, memory):
        self.memory = memory
        interface = dict(memory.__sycl_usm_array_interface__, shape=(SIZE,), typestr="<u4")
        self.__sycl_usm_array_interface__ = interface

QUEUE = dpctl.SyclQueue("cpu")
PROGRAM = dpctl.program.create_program_from_source(QUEUE, SOURCE)
MEMORY = dpctl.memory.MemoryUSMDevice(4 * SIZE, queue=QUEUE)

def theirs():
    "Submit on an out-of-order queue of dpctl, and query its host task, which waits in the driver."
    usmq.asarray(Foreign(MEMORY), copy=False)
    rounds, kernel = 0, PROGRAM.get_sycl_kernel("add")
    while time.monotonic() < END:
        arguments = [MEMORY, ctypes.c_uint32(30)]
        events = [QUEUE.submit_async(kernel, arguments, [SIZE]) for _ in range(4)]
        task = QUEUE._submit_keep_args_alive(arguments, events)
        while task.execution_status != dpctl.event_status_type.complete:
            time.sleep(5e-5)
        rounds += 1
    ROUNDS["theirs"] = rounds
"""


@pytest.mark.parametrize("whole_queue", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_threads_wait_beside_a_wait_for_an_out_of_order_queue(run_python, in_order, whole_queue):
    threads = f'(ours, "first", False, {whole_queue}), (ours, "second", {in_order}, {whole_queue})'
    print(run_python(PRELUDE + f"run({threads})").stdout)


@pytest.mark.parametrize("in_order", [False, True])
def test_threads_wait_beside_host_tasks_of_dpctl(run_python, in_order):
    threads = f'(theirs,), (ours, "ours", {in_order}, False)'
    print(run_python(PRELUDE + BESIDE + f"run({threads})").stdout)


def test_threads_wait_beside_host_tasks_of_dpctl_without_an_exchange(run_python):
    code = BESIDE.replace("    usmq.asarray(Foreign(MEMORY), copy=False)\n", "")
    assert code != BESIDE
    print(run_python(PRELUDE + code + 'run((theirs,), (ours, "ours", True, False))').stdout)


# The layer as a loader leaves it that has opened and then refused it.
REFUSED = """
import ctypes, usmq, pathlib
REFUSED = ctypes.CDLL(str(next(pathlib.Path(usmq.__file__).parent.rglob("libusmq_layers.so"))))
assert not REFUSED.usmq_layer_parts()
"""


@pytest.mark.parametrize(("before", "mapped"), [("", False), (REFUSED, True)])
def test_threads_wait_without_the_layer_after_an_exchange(run_python, before, mapped):
    threads = '(theirs,), (ours, "first", False, False), (ours, "second", True, False)'
    code = PRELUDE + before + BESIDE + f"run({threads})\n" + LISTED
    done = run_python(code, USMQ_WAIT_LAYER="0", OPENCL_LAYERS=None, USMQ_EMULATE_GPUS=None)
    assert (done.stdout.splitlines()[-1] != "0") == mapped


PEER_ALONE = """
import sys, faulthandler
faulthandler.dump_traceback_later(40, exit=True)
import usmq
sys.argv = ["control.py", "waits"]
import runpy
runpy.run_path(CONTROL, run_name="__main__")
"""


def test_an_import_of_usmq_keeps_two_threads_of_dpctl_from_locking_up(run_python):
    control = Path(__file__).parents[1] / "coexistence" / "control.py"
    print(run_python(f"CONTROL = {str(control)!r}" + PEER_ALONE).stdout)


LISTED = """
import os, usmq
print(os.environ.get("OPENCL_LAYERS", ""), usmq.devices()[0].backend, usmq.layers()["waits"])
print(sum("libusmq_layers" in line for line in open("/proc/self/maps")))
"""


@pytest.mark.parametrize(
    ("before", "listed"),
    [(None, ["libusmq_layers.so"]), ("/nonexistent/other.so", ["libusmq_layers.so", "other.so"])],
)
def test_the_layer_stands_before_the_layers_of_the_user(run_python, before, listed):
    layers, mapped = run_python(
        LISTED, OPENCL_LAYERS=before, USMQ_EMULATE_GPUS=None
    ).stdout.splitlines()
    assert [Path(layer).name for layer in layers.split()[0].split(":")] == listed
    assert layers.endswith(" True")
    assert int(mapped) > 0


RELEASES = """
import faulthandler, time
faulthandler.dump_traceback_later(60, exit=True)
import usmq
import dpctl, dpctl.memory
device = dpctl.SyclDevice("cpu")
first = dpctl.SyclQueue(device)
memory, there = (dpctl.memory.MemoryUSMShared(1 << 20, queue=first) for _ in range(2))
for _ in range(600):
    queue = dpctl.SyclQueue(memory.sycl_context, device)
    event = queue.memcpy_async(there, memory, 1 << 20)
    while event.execution_status != dpctl.event_status_type.complete:
        time.sleep(1e-5)
    del event, queue
"""


def test_queues_of_dpctl_that_are_released_after_a_query_do_not_stop_later_ones(run_python):
    run_python(RELEASES)
