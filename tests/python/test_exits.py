"""Processes that exit with work in flight: at once, by an error, with Python code still running.

More ways are in test_runtime.py.
"""

import pytest
from children import KERNEL
from emulated import needs_system_usm

START = f"""{KERNEL}
import asyncio, atexit, ctypes, os, signal, sys, threading, time, weakref
STEPS = 60_000_000
"""

# The work left in flight and the end of a program that exits with status 0 and prints nothing.
QUIET = {
    "atexit reads": """
atexit.register(lambda: print('read', x.to_numpy().size))
spin(1, x, STEPS)""",
    "atexit launches": """
atexit.register(lambda: spin(1, usmq.zeros(1, 'u4'), STEPS))
spin(1, x, STEPS)""",
    "a finalizer drops the last array": """
class Owner:
    pass
owner = Owner()
weakref.finalize(owner, lambda y: y.fill(1), x.copy())
spin(1, x, STEPS)""",
    "__del__ of a global uses a device": """
class Owner:
    def __init__(self):
        self.array = usmq.zeros(1, 'u4')
    def __del__(self):
        spin(1, self.array, STEPS) if spin else None
owner = Owner()
spin(1, x, STEPS)""",
    "__del__ at the very end": """
class Owner:
    def __init__(self):
        self.array, self.usmq = usmq.zeros(1, 'u4'), usmq
    def __del__(self):
        self.array.fill(1)
        self.array.wait()
sys.modules['owner'] = Owner()
spin(1, x, STEPS)""",
    "a cycle": """class C: pass
c = C(); c.c, c.x = c, x.copy(); spin(1, c.x, STEPS); del c""",
    "a daemon thread launches": """
def launch():
    while True:
        spin(1, usmq.zeros(1, 'u4'), 1000)
threading.Thread(target=launch, daemon=True).start()
spin(1, x, STEPS)""",
    "a daemon thread waits": """
event = spin(1, x, STEPS)
threading.Thread(target=event.wait, daemon=True).start()""",
    "a daemon thread waits for a queue that another library knows": """
import dpctl
shared = dpctl.SyclQueue(x.queue._get_capsule())
spin(1, x, STEPS)
event = spin(1, x, STEPS)
threading.Thread(target=event.wait, daemon=True).start()
time.sleep(0.05)""",
    "a daemon thread ends a profile": """
def profiled():
    with usmq.profile():
        spin(1, x, STEPS)
        spin(1, x, STEPS)
threading.Thread(target=profiled, daemon=True).start()
time.sleep(0.2)""",
    "a daemon thread builds": """
begun = threading.Event()
def build_one():
    text = f"x[i] = {int.from_bytes(os.urandom(3), 'little')}"  # not in the cache
    usmq.elementwise("unsigned *x", text)(x)
def build():
    while True:
        begun.set()
        build_one()
build_one()  # loads the compiler
threading.Thread(target=build, daemon=True).start()
begun.wait()
time.sleep(0.3)""",
    "a daemon thread is in the first build": """
begun = threading.Event()
def build():
    number = int.from_bytes(os.urandom(3), "little")  # not in the cache
    begun.set()
    usmq.elementwise("unsigned *x", f"x[i] = {number}")(x)
threading.Thread(target=build, daemon=True).start()
begun.wait()
time.sleep(0.3)  # the compiler is at work""",
    # Python before 3.14 ends a daemon thread by unwinding its stack when it next takes the lock; in
    # the middle of Python code that Rust has called, as numpy's own import, that ends the process.
    "a daemon thread copies": """
import numpy
def copy():
    while True:
        x.to_numpy()
threading.Thread(target=copy, daemon=True).start()
spin(1, x, STEPS)""",
    "a thread goes on": """
def work():
    for _ in range(20):
        spin(1, x, 1_000_000)
    print('worked', x.to_numpy().size)
threading.Thread(target=work).start()""",
    "a pool of threads": """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(4)
for _ in range(8):
    pool.submit(lambda: spin(1, x, 3_000_000))""",
    "a task that was never awaited": """
async def main():
    spin(1, x, STEPS)
    asyncio.get_running_loop().create_task(asyncio.sleep(100))
asyncio.run(main())""",
}


def staying(body):
    """Return a program whose callback is at work when the process ends."""
    return f"""
begun = threading.Event()
def stays(_):
    begun.set()
    {body}
spin(1, x, STEPS).add_done_callback(stays)
assert begun.wait(30)
raise SystemExit(7)"""


STAYS = "usmq: the process ends while a callback"
# The same with other ends: the exit status and the start of the last line.
LOUD = {
    "os._exit": ("spin(1, x, STEPS); os._exit(3)", 3, ""),
    "os.abort is the user's own": ("spin(1, x, STEPS); os.abort()", -6, "Aborted"),
    "an exception": ("spin(1, x, STEPS); raise RuntimeError('boom')", 1, "RuntimeError: boom"),
    "an exception that holds arrays": (
        """
class Held(Exception):
    pass
def fails():
    y = x.copy()
    spin(1, y, STEPS)
    raise Held(y)
fails()""",
        1,
        "Held: ",
    ),
    "an exception in atexit": (
        """
def fails():
    raise RuntimeError('boom')
atexit.register(fails)
spin(1, x, STEPS)""",
        0,
        "RuntimeError: boom",
    ),
    "SIGTERM": ("spin(1, x, STEPS); os.kill(os.getpid(), 15)", -15, ""),
    "os._exit in a callback": (
        """
spin(1, x, STEPS).add_done_callback(lambda _: os._exit(7))
time.sleep(30)""",
        7,
        "",
    ),
    "exit of the C library in a callback": (
        """
spin(1, x, STEPS).add_done_callback(lambda _: ctypes.CDLL(None).exit(7))
time.sleep(30)""",
        7,
        "",
    ),
    "sys.exit in a callback is an exception of the callback": (
        """
told = threading.Event()
def hook(raised):
    print(repr(raised.exc_value), file=sys.stderr)
    told.set()
sys.unraisablehook = hook
spin(1, x, STEPS).add_done_callback(lambda _: sys.exit(7))
assert told.wait(30)""",
        0,
        "SystemExit(7)",
    ),
    "a callback sleeps": (staying("time.sleep(40)"), 7, STAYS),
    # The interpreter ends the thread when it takes the GIL again.
    "a callback runs Python until the end": (staying("while True: time.sleep(0)"), 7, STAYS),
    "a callback uses a device until the end": (
        staying("while True: spin(1, usmq.zeros(1, 'u4'), 1000).wait()"),
        7,
        STAYS,
    ),
    "the destructor of an owner sleeps": (
        """
import numpy
begun = threading.Event()
class Owner(numpy.ndarray):
    def __del__(self):
        begun.set()
        time.sleep(40)
y = usmq.asarray(numpy.zeros(1 << 16, 'u4').view(Owner), copy=False)
spin(1, y, STEPS)
del y
assert begun.wait(30)
raise SystemExit(7)""",
        7,
        STAYS,
    ),
    # A signal during numpy's import makes it fail with an ImportError.
    "Ctrl-C, with the copy in flight": (
        """
import numpy
event = spin(1, x, 10 * STEPS)
threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    x.to_numpy()
except KeyboardInterrupt:
    assert not event.done()
    raise""",
        -2,
        "KeyboardInterrupt",
    ),
}


@pytest.mark.parametrize("name", [*QUIET, *LOUD])
def test_a_process_with_work_in_flight_exits_with_its_own_status(run_python, name):
    code, status, last = LOUD.get(name) or (QUIET[name], 0, "")
    needs_system_usm(code)
    done = run_python(f"{START}\n{code}\n", check=False, timeout=60)
    assert done.returncode == status, done.stderr
    if name.startswith("os.abort"):
        assert last in done.stderr  # with the stack of faulthandler
    elif last:
        assert done.stderr.splitlines()[-1].startswith(last)
    else:
        assert done.stderr == ""
