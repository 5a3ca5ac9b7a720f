"""usmq's threads stay idle while work is in flight."""

import pytest
from children import PRELUDE

# 1,000 events in flight behind a kernel of 6 s, on one queue or on their way to another context.
WORK = {
    "launches": "keep = [spin(1, x, 1) for _ in range(1000)]",
    "dropped arrays": """
for _ in range(1000):
    y = usmq.empty(2, "u4")
    read_late(1, x, y, 1)
    del y""",
    "foreign owners": """
arrays = [ForeignArray(shared_memory()) for _ in range(1000)]
for one in arrays:
    read_late(1, x, one, 1, queue=x.queue)
del arrays, one""",
    "copies between contexts": "keep = [usmq.collocate(x, queue=sub) for _ in range(500)]",
}

CODE = """
SECONDS, TICK = 2, os.sysconf("SC_CLK_TCK")

def used():
    "Seconds of a core that each thread of usmq has used so far, by its number and name."
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            name, _, rest = open(f"/proc/self/task/{task}/stat").read().rpartition(")")
        except OSError:
            continue
        name = name.partition("(")[2]
        # A thread that waits in the CPU driver may execute the kernel there.
        if name.startswith("usmq-") and name != "usmq-assist":
            fields = rest.split()
            found[f"{name} {task}"] = (int(fields[11]) + int(fields[12])) / TICK
    return found

x = usmq.zeros(2, "u4")
sub = usmq.Queue(x.device, context=usmq.Context([x.device]))
usmq.collocate(x, queue=sub).wait()
running = spin(1, x, steps(6))
exec(sys.argv[1])
time.sleep(0.3)  # the threads take note of the work
before = used()
time.sleep(SECONDS)
after = used()
assert not running.done()
share = {name: (after[name] - before.get(name, 0.0)) / SECONDS for name in after}
print(sum(share.values()), share, file=sys.stderr)
print(sum(share.values()))
running.wait()
"""


@pytest.mark.parametrize("work", WORK)
def test_threads_are_idle_with_1000_events_in_flight(run_python, work):
    done = run_python(PRELUDE + CODE, WORK[work])
    assert float(done.stdout) < 0.02, done.stderr
