"""Small copies and fills by the calling thread: order, errors and results as with commands."""

import pytest
from children import PRELUDE

SPIN = '''
import faulthandler, sys, time
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
import usmq

# usmq does not know that the kernel uses the memory at the address.
late = usmq.Kernel.from_sycl("""
#include <usmq/kernel.h>
USMQ_KERNEL(1) void late(size_t address, size_t steps) {
  volatile size_t sum = 0;
  for (size_t i = 0; i < steps; ++i) sum = sum + i;
  int *x = reinterpret_cast<int *>(address);
  x[1] = x[0];
  x[0] = 42;
}
""", "late")
queue = usmq.Queue("opencl:cpu", in_order=sys.argv[1] == "in_order")
x = usmq.full(16, 1, "i4", queue=queue)
late(1, x.ptr, 10, queue=queue).wait()
x.fill(1)
queue.wait()
event = late(1, x.ptr, 1 << 26, queue=queue)
if sys.argv[1] != "in_order":
    queue.barrier([event])  # orders later commands of the queue
'''


@pytest.mark.parametrize("order", ["in_order", "out_of_order"])
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("", [42, 1]),
        ("x.fill(7)", [7, 7]),
        ("x.copy_from(np.full(16, 7, 'i4'))", [7, 7]),
        ("x.copy_from(usmq.full(16, 7, 'i4', queue=usmq.Queue('opencl:cpu')))", [7, 7]),
    ],
)
def test_kernels_with_unknown_addresses_are_ordered_by_queue_or_barrier(
    run_python, order, act, expected
):
    code = f"{SPIN}{act}\nprint(x.tolist()[:2])"
    assert run_python(code, order).stdout == f"{expected}\n"


def test_a_read_that_need_not_wait_raises_the_stored_error(run_python):
    code = """
import time
import usmq

add = usmq.elementwise("int *x", "x[i] += 1")
device = usmq.Queue("opencl:cpu").device
cpu = usmq.Queue(device, context=usmq.Context([device]))
x = usmq.zeros(16, "i4", queue="opencl:gpu:0")
x.wait()
add(x)  # fails
y = x.to(cpu)
time.sleep(0.5)
try:
    y.to_numpy()
except usmq.SyclError:
    print("SyclError")
"""
    faults = {"USMQ_EMULATE_GPUS": "1", "USMQ_EMULATE_FAULTS": "gpu:0=command-error@2"}
    assert run_python(code, **faults).stdout == "SyclError\n"


def test_a_forked_child_gets_an_error_while_another_thread_submits(run_python):
    code = """
import os, signal, threading, time, warnings
import usmq

warnings.simplefilter("ignore")
add = usmq.elementwise("int *x", "x[i] += 1")
x, y = usmq.zeros(16, "i4"), usmq.zeros(16, "i4")
add(y).wait()
stop = False

def work():
    while not stop:
        for _ in range(20):
            add(y)
        y.wait()

thread = threading.Thread(target=work)
thread.start()
end, results = time.monotonic() + 5, set()
while time.monotonic() < end:
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        for use in (lambda: x.fill(1), x.tolist):
            try:
                use()
                os._exit(2)
            except usmq.ForkError:
                pass
        os._exit(0)
    results.add(os.waitpid(child, 0)[1])
stop = True
thread.join()
print(results)
"""
    assert run_python(code).stdout == "{0}\n"


@pytest.mark.parametrize("order", ["in_order", "out_of_order"])
def test_an_interrupted_write_takes_place(run_python, order):
    code = """
import signal
queue = usmq.Queue("opencl:cpu", in_order=sys.argv[1] == "in_order")
x = usmq.zeros(2, "u4", queue=queue)
spin(1, x, 1).wait()
running = spin(1, x, steps(2))
main = threading.get_ident()
threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
try:
    x.copy_from(np.full(2, 9, "u4"))
except KeyboardInterrupt:
    print("interrupted", running.done())
queue.wait()
print(x.tolist())
"""
    done = run_python(PRELUDE + code, order)
    assert done.stdout == "interrupted False\n[9, 9]\n"
