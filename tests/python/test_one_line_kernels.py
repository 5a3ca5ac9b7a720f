"""usmq.elementwise and usmq.reduction: against numpy, and with input that does not fit."""

import itertools
import math

import numpy as np
import pytest
import usmq

AXPY = "float a, const float *x, float *y"


@pytest.fixture(scope="module")
def add():
    return usmq.elementwise("const T *x, const T *y, T *sum", "sum[i] = x[i] + y[i]")


@pytest.fixture(scope="module")
def total():
    return usmq.reduction("const T *x", "T", "x[i]", "a + b", "0")


def test_a_statement_runs_for_each_element():
    axpy = usmq.elementwise(AXPY, "y[i] += a * x[i]", name="axpy")
    x, y = usmq.arange(1000, dtype="f4"), usmq.full(1000, 3.0, "f4")
    event = axpy(2, x, y)
    event.wait()
    assert np.array_equal(y.to_numpy(), 2 * np.arange(1000, dtype="f4") + 3)
    assert axpy.name == "axpy"
    assert repr(axpy) == f"<usmq.Elementwise axpy({AXPY})>"


KEYS = [
    np.s_[:],
    np.s_[::2],
    np.s_[::-1],
    np.s_[:, ::-1],
    np.s_[1:, :, ::3],
    np.s_[..., 2],
    np.s_[3:1],
    np.s_[2, ::2, ::-2],
]


def test_views_are_read_and_written_in_place():
    base = np.arange(4 * 6 * 8, dtype="f4").reshape(4, 6, 8)
    x = usmq.asarray(base)
    add = usmq.elementwise("const float *x, float *y", "y[i] = x[i] + y[i] * 10")
    pairs = 0
    for source, target in itertools.product(KEYS, KEYS):
        expected, y = np.full(base.shape, -1, "f4"), usmq.full(base.shape, -1.0, "f4")
        try:
            expected[target] = base[source] + expected[target] * 10
        except ValueError:  # the shapes do not fit
            continue
        add(x[source], y[target])
        assert np.array_equal(y.to_numpy(), expected), (source, target)
        pairs += 1
    assert pairs == 14


@pytest.mark.parametrize(
    "dtype", ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
)
def test_a_letter_stands_for_each_type(dtype):
    select = usmq.elementwise("const T *x, const bool *use, T *y", "y[i] = use[i] ? x[i] : T(0)")
    x = np.array([1, 0, 1, 1]).astype(dtype)
    use = np.array([True, True, False, True])
    y = usmq.zeros(4, dtype)
    select(usmq.asarray(x), usmq.asarray(use), y)
    assert np.array_equal(y.to_numpy(), np.where(use, x, x.dtype.type(0)))


def test_numbers_in_place_of_arrays_and_scalars_of_numpy(add):
    y = usmq.zeros(3, "f4")
    add(usmq.arange(3, dtype="f4"), 0.5, y)
    assert y.tolist() == [0.5, 1.5, 2.5]
    add(np.float32(2), np.float32(3), y)
    assert y.tolist() == [5.0] * 3


def test_raw_arrays_are_used_as_a_whole():
    fill = usmq.elementwise("raw long *x", "x[n - 1 - i] = i", name="fill")
    x = usmq.zeros(5, "i8")
    fill(x, size=5)
    assert x.tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(usmq.LaunchError, match="all its arrays are raw; give size"):
        fill(x)
    with pytest.raises(usmq.LaunchError, match="strided view"):
        fill(x[::2], size=3)
    neighbours = usmq.elementwise(
        "raw const long *x, long *y", "y[i] = x[i] + (i + 1 < n ? x[i + 1] : 0)"
    )
    y = usmq.zeros(5, "i8")
    neighbours(x, y)
    assert y.tolist() == [7, 5, 3, 1, 0]
    with pytest.raises(usmq.LaunchError, match="size is 3, but the arrays have 5 elements"):
        neighbours(x, y, size=3)


def test_a_preamble_options_and_several_statements():
    source = "static float square(float v) { return v * v; }"
    kernel = usmq.elementwise(
        "const float *x, float *y",
        "float s = square(x[i]);\nfor (int k = 0; k < COUNT; ++k)\n  s += 1;\ny[i] = s",
        preamble=source,
        options=["-DCOUNT=3"],
    )
    y = usmq.zeros(3, "f4")
    kernel(usmq.arange(3, dtype="f4"), y)
    assert y.tolist() == [3.0, 4.0, 7.0]


@pytest.fixture
def parts():
    """Return two parts of the CPU."""
    parts = usmq.Device("cpu").sub_devices(1)
    if len(parts) < 2:
        pytest.skip("the CPU has one core")
    return parts[:2]


def test_the_kernel_runs_on_the_queue_of_its_data(parts):
    double = usmq.elementwise("T *x", "x[i] *= 2")
    arrays = [usmq.full(4, number, "i4", queue=part) for number, part in enumerate(parts, 1)]
    for x in arrays:
        double(x)
    assert [x.tolist() for x in arrays] == [[2] * 4, [4] * 4]
    both = usmq.elementwise("const T *x, T *y", "y[i] = x[i]")
    with pytest.raises(usmq.PlacementError):
        both(*arrays)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # Others are in tests/suite/one_line.rs.
        (lambda x: (x, x), "takes 3 arguments \\(a, x, y\\), 2 were given"),
        (lambda x: (1, x.astype("f8"), x), "argument x: takes elements of float32, not float64"),
        (lambda x: (1, x, usmq.zeros(5, "f4")), "do not broadcast: x \\[4\\], y \\[5\\]"),
        (lambda x: (1, x, usmq.zeros(1, "f4")), "argument y: .* repeats elements"),
    ],
)
def test_arguments_that_do_not_fit(arguments, words):
    axpy = usmq.elementwise(AXPY, "y[i] += a * x[i]")
    x = usmq.arange(4, dtype="f4")
    with pytest.raises(usmq.LaunchError, match=words):
        axpy(*arguments(x))
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match=r"usmq\.asarray"):
        axpy(1, "x", x)


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        # The rule is in src/array/overlap.rs, with the sets of bytes as its oracle.
        ((4, 4), np.s_[:, 2:], np.s_[:, :2]),
        ((4, 2, 3), np.s_[:, 0], np.s_[:, 1]),
        ((4, 4), np.s_[::-2], np.s_[::2]),
        ((5, 7), np.s_[1:, 3:], np.s_[:-1, :-3]),
        ((2, 9), np.s_[:, :5], np.s_[:, 4:]),
    ],
)
def test_views_are_refused_exactly_if_they_share_an_element(shape, source, target):
    host = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    copy = usmq.elementwise("const float *x, float *y", "y[i] = x[i]")
    x = usmq.asarray(host)
    if np.shares_memory(host[source], host[target]):
        with pytest.raises(usmq.LaunchError, match="overlaps with x"):
            copy(x[source], x[target])
    else:
        copy(x[source], x[target])
        host[target] = host[source]
    assert x.tolist() == host.tolist()


def test_parameters_that_cannot_be_read():
    """Each mistake is in src/kernel/template.rs."""
    with pytest.raises(ValueError, match="name is missing"):
        usmq.elementwise("float", "")
    with pytest.raises(TypeError, match="params must be a str"):
        usmq.elementwise(7, "")


def test_an_operation_that_does_not_compile():
    with pytest.raises(usmq.KernelBuildError, match="undeclared identifier 'z'"):
        usmq.elementwise("float *x", "x[i] = z")
    later = usmq.elementwise("T *x", "x[i] = x[i] % 2")
    with pytest.raises(usmq.KernelBuildError, match="invalid operands"):
        later(usmq.zeros(2, "f4"))
    later(usmq.zeros(2, "i4"))
    with pytest.raises(ValueError, match="not a name for a kernel"):
        usmq.elementwise("T *x", "", name="a b")


@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (1024,), (1025,), (3, 5), (2, 3000, 3), (100_000,)]
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_are_those_of_numpy(total, shape, keepdims):
    """Other combinations are in tests/suite/one_line.rs."""
    x = np.arange(np.prod(shape), dtype="i8").reshape(shape) % 1009
    for host, view in ((x, usmq.asarray(x)), (x.T[::-1], usmq.asarray(x).T[::-1])):
        for axis in (None, *range(-len(shape), len(shape))):
            found = total(view, axis=axis, keepdims=keepdims)
            expected = host.sum(axis=axis, keepdims=keepdims)
            assert found.shape == expected.shape
            assert np.array_equal(found.to_numpy(), expected)
    mean = usmq.reduction("const long *x", "double", "x[i]", "a + b", "0", post="a / n")
    if x.size:
        assert mean(usmq.asarray(x)).item() == pytest.approx(x.mean())


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_bits_are_the_same_in_each_run(deterministic):
    x = usmq.asarray(np.random.default_rng(2).standard_normal(1_000_003).astype("f4"))
    total = usmq.reduction(
        "const float *x", "float", "x[i]", "a + b", "0", deterministic=deterministic
    )
    assert len({total(x).item() for _ in range(20)}) == 1


def test_a_deterministic_sum_is_the_same_on_a_device_with_fewer_units(parts):
    values = np.random.default_rng(3).standard_normal(500_000).astype("f4")
    total = usmq.reduction("const float *x", "float", "x[i]", "a + b", "0", deterministic=True)
    found = [total(usmq.asarray(values, queue=queue)).item() for queue in ("cpu", parts[0])]
    assert found[0] == found[1]


def test_reductions_that_do_not_fit(total):
    with pytest.raises(ValueError, match="declare x const"):
        usmq.reduction("float *x", "float", "x[i]", "a + b", "0")
    with pytest.raises(ValueError, match="the name a stands for"):
        usmq.reduction("const float *a", "float", "a[i]", "a + b", "0")
    with pytest.raises(ValueError, match="no parameter has the type of the result"):
        usmq.reduction("const float *x", "T", "x[i]", "a + b", "0")
    with pytest.raises(ValueError, match="neither a built-in number"):
        usmq.reduction("const float *x", "float *", "x[i]", "a + b", "0")
    with pytest.raises(TypeError, match="identity must be a str"):
        usmq.reduction("const float *x", "float", "x[i]", "a + b", 0)
    x = usmq.zeros((2, 3), "f4")
    for axis in (2, -3, 10**30):
        with pytest.raises(IndexError, match="out of range"):
            total(x, axis=axis)
    with pytest.raises(TypeError, match="axis must be"):
        total(x, axis="0")
    with pytest.raises(usmq.LaunchError, match="argument x: its type T is unknown"):
        total(1.0)
    with pytest.raises(usmq.LaunchError, match="no arithmetic for complex64"):
        total(usmq.zeros(2, "c8"))
