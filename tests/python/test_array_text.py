"""``str`` and ``repr`` of arrays have numpy's text, and copy only what they show."""

import numpy as np
import pytest
import usmq
from emulated import result

PREFIX = "usmq.Array("


new_numpy = pytest.mark.skipif(
    tuple(int(part) for part in np.__version__.split(".")[:2]) < (2, 3),
    reason="numpy before 2.3 chooses exponents in another way",
)


INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8", "c8", "c16"]


SHAPES = [(), (1,), (0,), (3, 0), (7,), (40,), (5, 6), (2, 3, 4), (2, 1, 3, 2)]


LONG = [(1001,), (5000,), (40, 50), (4, 300), (11, 12, 13), (2, 2000, 1)]


def check(host):
    """Compare the texts of an array with those of numpy."""
    x = usmq.asarray(host)
    assert str(x) == str(host), repr(host)
    elements = np.array2string(host, separator=", ", prefix=PREFIX, suffix=")")
    assert repr(x).startswith(f"{PREFIX}{elements},"), repr(x)


def random_integers(rng, dtype, shape):
    info = np.iinfo(dtype)
    if rng.random() < 0.5:
        info = np.iinfo("i1" if dtype[0] == "i" else "u1")
    return rng.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


@pytest.mark.parametrize("dtype", ["?", *INTEGERS])
@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
def test_integers_and_booleans_have_exactly_the_text_of_numpy(dtype, shape):
    rng = np.random.default_rng(sum(shape))
    for likely in (0.0, 0.3, 0.5, 0.7, 1.0):
        host = rng.random(shape) < likely if dtype == "?" else random_integers(rng, dtype, shape)
        check(np.asarray(host, dtype))


def random_reals(rng, shape):
    kind = rng.integers(6)
    if kind == 0:
        return rng.integers(-100, 100, shape).astype("f8")
    if kind == 1:
        return np.round(rng.normal(size=shape), int(rng.integers(4)))
    if kind == 2:
        return rng.normal(size=shape) * 10.0 ** rng.integers(-7, 9, shape)
    values = rng.normal(size=shape) * 10.0 ** float(rng.integers(-6, 8))
    if kind == 3:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
        values = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), values)
    return values


@new_numpy
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_floats_have_the_text_of_numpy(dtype, shape):
    rng = np.random.default_rng(sum(shape) + 1)
    for _ in range(20):
        host = random_reals(rng, shape)
        if dtype[0] == "c":
            host = host + 1j * random_reals(rng, shape)
        check(np.asarray(host, dtype))


@new_numpy
@pytest.mark.parametrize("dtype", FLOATS)
def test_bit_patterns_of_floats_have_the_text_of_numpy(dtype):
    rng = np.random.default_rng(2)
    for size in (1, 2, 3):
        for _ in range(300):
            raw = rng.integers(0, 256, size * np.dtype(dtype).itemsize, dtype="u1")
            with np.errstate(invalid="ignore"):
                check(raw.view(dtype))
                check(raw.view(dtype)[0, ...])


@new_numpy
def test_every_float16_has_the_text_of_numpy():
    host = np.arange(1 << 16, dtype="u2").view("f2")
    host = host[np.isfinite(host)]
    x = usmq.asarray(host, usm_type="host")
    for start in range(0, host.size, 101):
        assert str(x[start]) == str(host[start])
        assert str(x[start : start + 1]) == str(host[start : start + 1])


def test_views_show_their_own_elements():
    host = np.arange(3000).reshape(60, 50)
    x = usmq.asarray(host)
    for part in (np.s_[::-1], np.s_[:, ::-7], np.s_[3:9, 4:8], np.s_[5], np.s_[:0], np.s_[2, 3]):
        assert str(x[part]) == str(host[part])
    assert str(x.T) == str(host.T)
    assert str(x.T[::2, ::-3]) == str(host.T[::2, ::-3])


def test_repr_names_dtype_kind_and_device():
    x = usmq.asarray([0, 1, 2], "f4", usm_type="shared")
    where = x.device.filter_string
    assert (
        repr(x) == f"usmq.Array([0., 1., 2.], dtype=float32, usm_type='shared', device='{where}')"
    )
    assert "shape=(2000,), dtype=int64, usm_type='device'" in repr(usmq.arange(2000))
    assert repr(usmq.zeros((0, 3))).startswith("usmq.Array([], shape=(0, 3), dtype=float32")
    assert f"{x}" == "[0. 1. 2.]"


def test_arrays_that_numpy_does_not_have_are_shown():
    assert str(usmq.full(2, 1.5, "bfloat16")) == "[1.5 1.5]"
    assert str(usmq.full((), 0.1, "bfloat16")) == "0.1"
    x = usmq.zeros(1)
    for _ in range(70):
        x = x[None]
    assert str(x) == "[...]"


def test_a_large_array_is_not_copied_to_the_host():
    x = usmq.zeros((4000, 1000), "f4")
    x.wait()
    with usmq.profile() as recorded:
        text = repr(x)
    moved = sum(event.bytes for event in recorded.events if event.kind == "copy")
    assert "shape=(4000, 1000)" in text
    assert 0 < moved <= 64 << 10, moved


def test_the_text_waits_for_pending_work(kernels, advanced):
    x = usmq.zeros(3, "u4")
    event = kernels.advance(3, x, 30_000_000)
    assert not event.done()
    assert str(x) == str(advanced(np.zeros(3), 30_000_000))


def test_the_error_of_a_failed_producer_is_part_of_the_text():
    code = """
import usmq
x = usmq.zeros(3, queue="gpu:0")
print(repr(x))
y = usmq.ones(3, "i4", queue="gpu:0")
print(y)
"""
    lines = result(code, USMQ_EMULATE_FAULTS="gpu:0=command-error@1+")
    assert lines[0].startswith("usmq.Array(<not readable: ")
    assert "SYCL error" in lines[0]
    assert "shape=(3,), dtype=float32, usm_type='device', device='opencl:gpu:0')" in " ".join(lines)
    assert lines[-1].startswith("<not readable: ")


def test_an_error_text_does_not_wait_for_an_array():
    x = usmq.zeros(3)
    with pytest.raises(TypeError, match=r"not float32\[3\] \(device USM"):
        usmq.use_queue(x)


def test_text_needs_no_numpy(run_python):
    script = """
import sys
sys.modules["numpy"] = None
import usmq
print(usmq.arange(3), repr(usmq.ones(2)), usmq.full((), 2.5))
"""
    text = run_python(script).stdout
    assert text.startswith("[0 1 2] usmq.Array([1., 1.], dtype=float32")
    assert text.endswith(" 2.5\n")
