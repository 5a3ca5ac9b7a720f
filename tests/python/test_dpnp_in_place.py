"""One line turns a usmq array into a dpnp array in place, and one turns it back."""

import numpy as np
import pytest
import usmq

dpnp = pytest.importorskip("dpnp", reason="dpnp is not installed")


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8", "c8"])
def test_a_usmq_array_becomes_a_dpnp_array_in_place(kind, dtype):
    x = usmq.ones((2, 3), dtype, usm_type=kind)
    d = dpnp.asarray(x)
    assert d.get_array()._pointer == x.ptr
    d *= 3
    d += d
    np.testing.assert_array_equal(x.to_numpy(), np.full((2, 3), 6, dtype))
    x[0] = 1
    np.testing.assert_array_equal(dpnp.asnumpy(d == 1), [[True] * 3, [False] * 3])


def test_a_dpnp_array_becomes_a_usmq_array_in_place():
    d = dpnp.arange(6, dtype="f4").reshape(2, 3)
    x = usmq.asarray(d, copy=False)
    assert x.ptr == d.get_array()._pointer
    x.fill(2)
    assert dpnp.asnumpy(d + d).tolist() == [[4.0] * 3] * 2


def test_views_stay_views():
    x = usmq.arange(10)
    d = dpnp.asarray(x[8:2:-2])
    d += 100
    assert x.tolist() == [0, 1, 2, 3, 104, 5, 106, 7, 108, 9]
    assert usmq.asarray(d[::-1]).tolist() == [104, 106, 108]
