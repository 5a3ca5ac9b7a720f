"""``tolist``: nested lists of Python numbers that match numpy's, without numpy."""

import math

import ml_dtypes
import numpy as np
import pytest
import usmq

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# For each dtype values at its ends, and such as a float has no exact digits for.
VALUES = {
    "bool": [True, False],
    **{name: [0, 1, np.iinfo(name).min, np.iinfo(name).max] for name in INTEGERS},
    "float16": [0.1, -0.0, 65504.0, math.inf],
    "float32": [0.1, -0.0, 3.4e38, -math.inf],
    "float64": [0.1, -0.0, 1e308, math.inf],
    "complex64": [0.1 - 0.2j, complex(math.inf, -0.0)],
    "complex128": [0.1 - 0.2j, complex(math.inf, -0.0)],
}


def same(found, wanted):
    """Whether two nested lists have the same values of the same types, -0.0 and nan included."""
    return repr(found) == repr(wanted) and type(found) is type(wanted)


@pytest.mark.parametrize("dtype", VALUES)
def test_every_dtype_gives_the_same_numbers_as_numpy(dtype):
    host = np.array(VALUES[dtype], dtype)
    found = usmq.asarray(host).tolist()
    assert same(found, host.tolist())
    assert all(type(one) is type(other) for one, other in zip(found, host.tolist(), strict=True))


def test_bfloat16_gives_floats_and_nan_stays_nan():
    host = np.array([0.1, -2.0], ml_dtypes.bfloat16)
    assert same(usmq.asarray([0.1, -2.0], "bfloat16").tolist(), [float(value) for value in host])
    assert same(usmq.full(2, math.nan, "f4").tolist(), [math.nan, math.nan])


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_shapes_and_views_nest_as_in_numpy(kind):
    for shape in [(), (0,), (0, 3), (2, 0), (2, 0, 3), (1,), (2, 3), (2, 1, 3, 2)]:
        host = np.arange(math.prod(shape), dtype="i4").reshape(shape)
        assert same(usmq.asarray(host, usm_type=kind).tolist(), host.tolist())
    host = np.arange(24, dtype="i8").reshape(2, 3, 4)
    x = usmq.asarray(host, usm_type=kind)
    assert same(x.T.tolist(), host.T.tolist())
    s = np.s_
    for key in (s[1:, ::-1, ::2], s[0, 1], s[1, 2, 3], s[..., None], s[2:]):
        assert same(x[key].tolist(), host[key].tolist())


def test_tolist_and_list_input_work_without_numpy(run_python):
    code = """
import sys
sys.modules["numpy"] = None
import usmq
x = usmq.asarray([[1, 2], [3, 4]], "u2")
print(x.T.tolist(), x[0, 0].item(), list(memoryview(usmq.zeros(2, usm_type="host"))))
for call in (x.to_numpy, lambda: x.dtype.dtype, lambda: usmq.zeros(1, usm_type="host").__array__()):
    try:
        call()
    except ImportError as error:
        print(f"{type(error).__name__}: {error}")
"""
    needed = "needs numpy, which is not installed: run `pip install numpy`"
    assert run_python(code).stdout.splitlines() == [
        "[[1, 3], [2, 4]] 1 [0.0, 0.0]",
        f"ImportError: to_numpy() {needed}; tolist() needs no package",
        f"ImportError: a numpy dtype {needed}",
        f"ImportError: __array__() {needed}",
    ]
