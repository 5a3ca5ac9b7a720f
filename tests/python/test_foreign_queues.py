"""Queues of another library: creation and drop of handles, and work at process exit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

# Asked whether such a queue is empty, the runtime reads its last event without a lock.
HANDLES = """
import threading, time
import dpctl, dpctl.memory, usmq

queue = dpctl.SyclQueue(property={properties})
source, target = (dpctl.memory.MemoryUSMDevice(64, queue=queue) for _ in range(2))
end = time.monotonic() + 8
handles = copies = 0

def come_and_go():
    global handles
    while time.monotonic() < end:
        usmq.Queue(queue)
        handles += 1
        time.sleep(1e-4)

thread = threading.Thread(target=come_and_go)
thread.start()
while time.monotonic() < end:
    event = queue.memcpy_async(target, source, 64)
    copies += 1
    if copies % 4 == 0:
        event.wait()
thread.join()
queue.wait()
assert handles > 100 and copies > 1000, (handles, copies)
print("alive")
"""


@pytest.mark.parametrize("properties", [["in_order"], []], ids=["in order", "out of order"])
def test_handles_are_dropped_while_another_thread_submits(
    run_python: Run, properties: list[str]
) -> None:
    done = run_python(HANDLES.format(properties=properties), timeout=60)
    assert done.stdout == "alive\n", (done.returncode, done.stderr[-2000:])


# The driver aborts, or never returns, when it is unloaded while an out-of-order queue has work.
AT_THE_END = """
import dpctl, usmq

source = "kernel void advance(global uint *x, uint steps) {{"
source += " for (uint k = 0; k < steps; ++k) x[0] = x[0] * 3u + get_global_id(0); }}"
advance = usmq.Kernel.from_opencl(source, "advance")
kept = []
for _ in range(4):
    queue = usmq.Queue(dpctl.SyclQueue(property={properties}))
    x = usmq.zeros(64, "u4", queue=queue)
    for _ in range(50):
        advance(64, x, 1000, queue=queue)
    advance(1, x[:1], 20_000_000, queue=queue)
    kept.append((queue, x))
"""


@pytest.mark.parametrize("properties", [["in_order"], []], ids=["in order", "out of order"])
def test_the_process_exit_waits_for_work_of_usmq(run_python: Run, properties: list[str]) -> None:
    for _ in range(3):
        run_python(AT_THE_END.format(properties=properties), timeout=60)
