"""Memory of another device of a context: in place with peer access, else through host USM."""

import os

import pytest

PROGRAM = """
import numpy as np
import usmq
first, second = usmq.Queue("level_zero:gpu:0"), usmq.Queue("level_zero:gpu:1")
add = usmq.elementwise("const int *x, int *y", "y[i] += x[i]")
for kind in ("device", "shared", "host"):
    x = usmq.asarray(np.arange(1000, dtype="i4"), queue=first, usm_type=kind)
    y = usmq.zeros(1000, "i4", queue=second)
    print(kind, usmq.explain(x, queue=second).steps[0].action)
    add(usmq.collocate(x, queue=second), y)
    x.fill(1)
    add(usmq.collocate(x, queue=second), y)
    assert (y.to_numpy() == np.arange(1000) + 1).all()
"""


@pytest.mark.skipif(
    "USMQ_LEVEL_ZERO_OPENCL" not in os.environ,
    reason="needs the driver in front of Level Zero, whose devices have peer access or none: "
    "tests/run level-zero",
)
@pytest.mark.parametrize(("peers", "action"), [("1", "rebind"), ("0", "copy_staged")])
def test_peer_access_decides_between_use_in_place_and_copies(peers, action, run_python):
    printed = run_python(PROGRAM, USMQ_LEVEL_ZERO_PEERS=peers).stdout
    assert printed.splitlines() == [f"device {action}", f"shared {action}", "host rebind"]
