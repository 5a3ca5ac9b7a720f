"""A limit that fits a request suffices, independent of block and slab sizes."""

import pytest

KIB, MIB = 1 << 10, 1 << 20

CODE = """
import sys
import usmq
limit, size, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
usmq.set_memory_limit(limit, usm_type=kind)
for _ in range(3):
    x = usmq.empty(size, "u1", usm_type=kind)
    found = usmq.memory_stats()[kind]
    assert found["used"] <= limit, found
    assert found["reserved"] <= limit, found
    try:
        usmq.empty(limit + 1, "u1", usm_type=kind)
    except usmq.AllocationError:
        pass
    else:
        raise SystemExit("one byte more than the limit was given out")
    del x
"""


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize(
    ("limit", "size"),
    [
        (100 * MIB, 100 * MIB),
        (92 * MIB, 90 * MIB),
        (12_345_679, 12_345_679),
        (1_000_003, 1_000_003),
        (33 * KIB + 1, 33 * KIB + 1),
        (40 * KIB, 20 * KIB),
        (20 * KIB, 20 * KIB),
    ],
)
def test_a_limit_that_fits_the_request_suffices(run_python, limit, size, kind):
    run_python(CODE, str(limit), str(size), kind)


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_empty_arrays_fit_every_limit(run_python, kind):
    code = """
import sys
import usmq
kind = sys.argv[1]
usmq.set_memory_limit(100, usm_type=kind)
x = usmq.empty(100, "u1", usm_type=kind)
for limit in (100, 50, 0):
    usmq.set_memory_limit(limit, usm_type=kind)
    empty = [usmq.empty(0, "u1", usm_type=kind) for _ in range(3)]
    empty += [usmq.zeros((0, 5), usm_type=kind), x[:0].copy()]
    assert all(array.size == 0 and array.usm_type == kind for array in empty)
    del empty
assert usmq.memory_stats()[kind]["reserved"] == 100
"""
    run_python(code, kind)
