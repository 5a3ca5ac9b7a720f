"""The system refuses new threads: an error at the first use of a device, and no loss after it."""

import pytest
from emulated import needs_system_usm

# The limit does not hold for root, so the child becomes another user.
PRELUDE = """
import asyncio, faulthandler, gc, os, resource, threading, time
faulthandler.dump_traceback_later(50, exit=True)
import numpy as np
import usmq

def refuse_threads():
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return
    raise SystemExit("a thread could start")

SOURCE = '''
kernel void spin(uint n, global uint *y) {
    uint v = y[0];
    for (uint k = 0; k < n; ++k) v = v * 1664525u + 1013904223u;
    y[0] = v;
}
'''
"""

USED = """
spin = usmq.Kernel.from_opencl(SOURCE, "spin")
device = usmq.devices()[0]
x = usmq.zeros(4, "u4")
spin(1, np.uint32(1), x).wait()
elsewhere = usmq.Queue(device, context=usmq.Context([device]))
y = usmq.zeros(4, "u4", queue=elsewhere)
spin(1, np.uint32(1), y).wait()
usmq.trim_memory()
refuse_threads()
LONG = np.uint32(100_000_000)

def until(condition):
    while not condition():
        time.sleep(0.001)
"""

CASES = {
    "a callback runs": """
called = []
spin(1, LONG, x).add_done_callback(called.append)
until(lambda: called)
""",
    "a task awaits an event": """
async def main():
    await spin(1, LONG, x)
asyncio.run(main())
""",
    "a task awaits a read": """
async def main():
    event = spin(1, LONG, x)
    await asyncio.gather(event, event)
    return x.to_numpy()
assert asyncio.run(main()).shape == (4,)
""",
    "a copy to another context follows": """
spin(1, LONG, x)
z = usmq.collocate(x, queue=elsewhere)
assert z.tolist() == x.tolist()
""",
    "work of another context follows": """
spin(1, LONG, y)
z = usmq.collocate(y, like=x)
spin(1, np.uint32(1), z)
assert z.tolist()[1:] == [0, 0, 0]
""",
    "memory in flight returns": """
before = usmq.memory_stats("cpu")["device"]["used"]
z = usmq.zeros(1 << 20, "u4")
spin(1, LONG, z)
del z
until(lambda: usmq.memory_stats("cpu")["device"]["used"] == before)
usmq.trim_memory()
""",
    "an owner is released": """
import weakref
class Owner(np.ndarray):
    pass
owner = np.zeros(1 << 16, "u4").view(Owner)
alive = weakref.ref(owner)
z = usmq.asarray(owner, copy=False)
del owner
spin(1, LONG, z)
del z
gc.collect()
until(lambda: alive() is None)
""",
    "a profile is recorded": """
with usmq.profile() as profile:
    spin(1, LONG, x).wait()
assert "spin" in str(profile)
""",
    "threads submit": """
for _ in range(1000):
    spin(1, np.uint32(1), x)
x.wait()
""",
    "a long copy": "assert usmq.full(1 << 25, 7, 'u4').copy().to_numpy().sum() == 7 << 25",
    "a kernel is built": """
usmq.Kernel.from_opencl("kernel void other(global uint *y) { y[0] = 3; }", "other")(1, x).wait()
""",
}


def test_the_first_use_of_a_device_reports_that_no_thread_can_start(run_python):
    done = run_python(f"{PRELUDE}\nrefuse_threads()\nusmq.devices()", check=False)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith('usmq.Error: usmq cannot start its thread "usmq-signal"')
    assert "ulimit -u" in last


@pytest.mark.parametrize("cores", ["all cores", "one core"])
@pytest.mark.parametrize("case", CASES)
def test_work_goes_on_if_no_thread_can_start_after_the_first_use(run_python, case, cores):
    needs_system_usm(CASES[case])
    one = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    bound = one if cores == "one core" else ""
    done = run_python(f"{bound}{PRELUDE}{USED}{CASES[case]}\nprint('done')", check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
