"""Foreign owners are released soon after their last use, by a thread that may block.

No call of usmq is needed for it, none waits for it, and the end of the process does not either.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from children import PRELUDE

Run = Callable[..., subprocess.CompletedProcess[str]]

# The kernel writes shared USM at its end, so the host sees the end without a call of usmq.
OWNERS = {
    "SUAI": """
def owner(memory):
    foreign = ForeignArray(memory)
    alive = weakref.ref(foreign)
    return foreign, lambda: alive() is not None
""",
    "DLPack": """
import dpnp
def owner(memory):
    foreign = dpnp.tensor.usm_ndarray((2,), dtype="u4", buffer=memory)
    data = foreign.usm_data  # two references are those of `alive` and of the call
    return foreign, lambda: sys.getrefcount(data) > 2
""",
}

LAUNCH = """
def begin():
    "A launch of 0.2 s on memory whose owner only usmq holds then."
    memory = shared_memory()
    seen = np.asarray(memory).view("u4")
    foreign, alive = owner(memory)
    x = usmq.asarray(foreign, copy=False) if OF == "SUAI" else usmq.from_dlpack(foreign)
    begin.last_use = spin(1, x, steps(0.2))
    del x, foreign
    gc.collect()
    assert alive(), "released with the kernel in flight"
    assert until(lambda: seen[0] != 0) < 10
    return alive
"""


def code(of: str, then: str) -> str:
    return f"{PRELUDE}\nOF = {of!r}\n{OWNERS[of]}{LAUNCH}{then}"


@pytest.mark.parametrize("of", OWNERS)
def test_an_owner_is_released_within_a_tenth_of_a_second_without_a_call(
    run_python: Run, of: str
) -> None:
    then = """
took = []
for _ in range(5):  # the machine may be busy with others
    alive = begin()
    took.append(until(lambda: not alive(), 2))
    if took[-1] < 0.1:
        break
print(min(took))
"""
    assert float(run_python(code(of, then)).stdout) < 0.1


@pytest.mark.parametrize("of", OWNERS)
def test_trim_memory_releases_the_owners_whose_last_use_is_complete(
    run_python: Run, of: str
) -> None:
    # The host sees the kernel's write before the driver has completed the command.
    then = "alive = begin(); begin.last_use.wait(); usmq.trim_memory(); print(alive())"
    assert run_python(code(of, then)).stdout == "False\n"


STILL_USED = """
foreign = ForeignArray(shared_memory())
usmq.asarray(foreign, copy=False)
usmq.trim_memory()
before = sys.getrefcount(foreign)
sys.setswitchinterval(1000)  # no other thread gets the GIL inside the statements below
for _ in range(100):
    x = usmq.asarray(foreign, copy=False)
    assert sys.getrefcount(foreign) == before + 1
    del x
    assert sys.getrefcount(foreign) == before, "another thread drops the reference"
print("dropped")
"""


def test_an_owner_that_python_still_uses_is_dropped_at_once(run_python: Run) -> None:
    assert run_python(PRELUDE + STILL_USED).stdout == "dropped\n"


BLOCKS = """
begun, ended = threading.Event(), threading.Event()

class Slow(ForeignArray):
    def __del__(self):
        begun.set()
        time.sleep(5)
        ended.set()

device = usmq.devices()[0]
sub = usmq.Queue(device, context=usmq.Context([device]))
y = usmq.zeros(2, "u4")
usmq.collocate(y, queue=sub).wait()
read_late(1, y, usmq.zeros(1, "u4"), 1).wait()
# Only usmq holds the owner, and a kernel uses its memory.
x = usmq.asarray(Slow(shared_memory()), copy=False)
spin(1, x, steps(0.05))
del x
assert begun.wait(3), "the owner was not released without another call"
"""


@pytest.mark.parametrize(
    "call",
    [
        "spin(1, y, 1)",
        "spin(1, y, 1).wait()",
        "y.queue.wait()",
        "y.to_numpy()",
        "usmq.collocate(y, queue=sub).to_numpy()",
        "usmq.empty(1 << 20, 'u1')",
    ],
)
def test_an_owner_whose_release_blocks_delays_no_other_release(run_python: Run, call: str) -> None:
    then = f"took = timed(lambda: {call}); print(took, ended.is_set())"
    took, ended = run_python(PRELUDE + BLOCKS + then).stdout.split()
    assert ended == "False", "the release did not block all the time"
    assert float(took) < 1


# 200 owners, each with a kernel in flight: together half a second.
PENDING = """
import atexit
foreign = [ForeignArray(shared_memory()) for _ in range(200)]
x = usmq.zeros(1, "u4")
spin(1, x, steps(0.5))
for one in foreign:
    spin(1, one, 1000)
del foreign, one
"""
ENDS = {
    "exit": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "blocks": ("x = usmq.asarray(Blocks(shared_memory()), copy=False); spin(1, x, 1); del x", 0),
    "thread": ("threading.Thread(target=x.wait, daemon=True).start()", 0),
    "fork, os._exit": ("pid = fork()\nif pid == 0: os._exit(0)\n" + "collect(pid)", 0),
    "fork, sys.exit": ("pid = fork()\nif pid == 0: sys.exit(0)\n" + "collect(pid)", 0),
    "fork, garbage": ("pid = fork()\nif pid == 0: gc.collect(); sys.exit(0)\ncollect(pid)", 0),
}
HELPERS = """
class Blocks(ForeignArray):
    def __del__(self, sleep=time.sleep):
        sleep(5)

def fork():
    "A fork without the watchdog: Python waits for its thread at the end, and the child has none."
    faulthandler.cancel_dump_traceback_later()
    return os.fork()

def collect(pid):
    "The child ends with status 0, in time."
    ended = [0, 0]
    def gone():
        ended[:] = os.waitpid(pid, os.WNOHANG)
        return ended[0] == pid
    if until(gone, 20) > 20:
        os.kill(pid, 9)
        raise SystemExit("the forked child did not end")
    assert ended[1] == 0, ended
"""


@pytest.mark.parametrize("name", ENDS)
def test_a_process_with_pending_releases_exits_with_its_status(run_python: Run, name: str) -> None:
    end, status = ENDS[name]
    done = run_python(PRELUDE + HELPERS + PENDING + end, check=False, timeout=70)
    assert (done.returncode, done.stderr) == (status, "")
