"""Fills, ranges and assigned elements return at once while an unrelated kernel runs."""

import pytest
from children import PRELUDE

CALLS = {
    "fill": "y.fill(n)",
    "fill of a part": "y[10:5000].fill(n)",
    "fill of a strided view": "y[::2].fill(n)",
    "element": "y[3] = n",
    "slice": "y[5:9] = n",
    "full": "kept.append(usmq.full(1000, n, 'u4'))",
    "zeros": "kept.append(usmq.zeros(100_000, 'u4'))",
    "arange": "kept.append(usmq.arange(0, 100_000, 1, dtype='u4'))",
}

CODE = """
x, y, z = usmq.zeros(1, "u4"), usmq.zeros(1 << 20, "u4"), usmq.zeros(8, "u4")
kept = []

def call(n):
    exec(sys.argv[1])

for n in range(2):
    call(n)
y.queue.wait()
running = spin(1, x, steps(3))
took = [timed(lambda: call(n)) for n in range(6)]
done = running.done()
running.wait()
y.queue.wait()
if sys.argv[1].startswith("y"):
    assert 5 in y[:12].to_numpy(), y[:12].to_numpy()
print(max(took), done)
"""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_returns_at_once_every_time(run_python, name):
    took, done = run_python(PRELUDE + CODE, CALLS[name]).stdout.split()
    assert done == "False", f"a call took {took} s, so the kernel of 3 s had ended"
    assert float(took) < 0.3
