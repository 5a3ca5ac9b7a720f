"""A copy between contexts does not wait for an unrelated one behind a slow kernel."""

from children import PRELUDE

CODE = """
device = usmq.Device("cpu")
parts = device.sub_devices(1)
if len(parts) < 2:
    print("one core: no second part for the slow copy")
    raise SystemExit
near, far = (usmq.Queue(part) for part in parts[:2])
first, second = usmq.Queue(device), usmq.Queue(device, profiling=True)
a, b = usmq.zeros(1, "u4", queue=first), usmq.zeros(1, "u4", queue=second)

def copy():
    "A short kernel on the second queue, and a copy of its result to another context."
    spin(1, b, 100)
    usmq.collocate(b, queue=near).wait()

usmq.collocate(a, queue=far).wait()
copy()
alone = statistics.median(timed(copy) for _ in range(9))
beside = []
for _ in range(5):
    slow = spin(1, a, steps(1))
    late = usmq.collocate(a, queue=far)
    beside.append(timed(copy))
    assert not slow.done(), "the copy has waited for the slow kernel"
    late.wait()
print(f"alone {alone * 1e3:.2f} ms, beside {statistics.median(beside) * 1e3:.2f} ms")
assert statistics.median(beside) < 0.1
"""


def test_a_copy_overtakes_an_unrelated_one_behind_a_slow_kernel(run_python):
    print(run_python(PRELUDE + CODE).stdout)
