"""Launches beside a busy Python thread: another thread submits, and the caller keeps the GIL."""

import pytest
from children import PRELUDE

BUSY = """
SOURCE = "kernel void add(global uint *x, uint value) { x[get_global_id(0)] += value; }"
add = usmq.Kernel.from_opencl(SOURCE, "add")
stop = threading.Event()

def compute():
    while not stop.is_set():
        sum(range(100))

def name_of(task):
    try:
        return open(f"/proc/self/task/{task}/comm").read().strip()
    except OSError:  # the thread has ended
        return ""

busy = threading.Thread(target=compute, daemon=True)
busy.start()
warm_up = usmq.zeros(1, "u4")
# The watchdog ends the process if the thread never starts.
while "usmq-submit" not in map(name_of, os.listdir("/proc/self/task")):
    add(1, warm_up, 1)
"""

EXACT = """
def count(number):
    x = usmq.zeros(64, "u4", queue=usmq.Queue("cpu", in_order=number % 2 == 0))
    for _ in range(300):
        add(64, x, 1)
    results[number] = x.tolist()

results = {}
workers = [threading.Thread(target=count, args=(number,)) for number in range(THREADS)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
stop.set()
assert all(result == [300] * 64 for result in results.values()), results
print(len(results))
"""


@pytest.mark.parametrize("number", [1, 2, 4])
def test_launches_beside_busy_python_threads_are_exact(run_python, number):
    code = PRELUDE + BUSY + EXACT.replace("THREADS", str(number))
    assert run_python(code).stdout == f"{number}\n"


FAST = """
x = usmq.zeros(64, "u4")
def launch():
    for _ in range(200):
        add(64, x, 1).wait()
launch()
best = min(timed(launch) for _ in range(5))
stop.set()
print(best)
"""


def test_200_launches_do_not_wait_200_times_for_the_gil(run_python):
    # Python's switch interval is 5 ms: a loss at every launch would take 1 s.
    assert float(run_python(PRELUDE + BUSY + FAST).stdout) < 0.4


ERRORS_AND_EXIT = """
x = usmq.zeros(64, "u4")
for _ in range(100):
    add(64, x, 1)
for _ in range(20):
    try:
        add(64, x, 1, local_size=7)
    except usmq.LaunchError as error:
        text = str(error)
assert "add" in text
assert x.tolist() == [100] * 64
child = os.fork()
if child == 0:
    try:
        add(1, x, 1)
    except usmq.ForkError:
        os.write(1, b"ForkError\\n")
    os._exit(0)
os.waitpid(child, 0)
spin(1, x, steps(0.3))
stop.set()
add(1, x, 1)
"""


def test_errors_reach_the_caller_and_a_child_and_the_process_ends(run_python):
    assert run_python(PRELUDE + BUSY + ERRORS_AND_EXIT).stdout == "ForkError\n"
