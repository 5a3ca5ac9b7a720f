"""Arrays: creation, attributes, and round trips of every dtype, compared with numpy."""

import itertools
import operator

import numpy as np
import pytest
import usmq

KINDS = ["device", "shared", "host"]
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


SHAPES = [(), (0,), (1,), (7,), (3, 4), (2, 0, 5), (2, 3, 4), (1, 1, 1, 1, 2)]


def sample(shape, dtype):
    """Return random values over the whole range of integers, and floats without NaN."""
    rng = np.random.default_rng(7)
    if dtype == "?":
        return rng.integers(0, 2, shape).astype("?")
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    real = rng.standard_normal(shape) * 100
    return (real + 1j * rng.standard_normal(shape) if kind == "c" else real).astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_round_trips_with_the_attributes_of_numpy(dtype, kind):
    value = 1 if dtype == "?" else 100
    for shape in SHAPES:
        host = sample(shape, dtype)
        for x, expected in (
            (usmq.asarray(host, usm_type=kind), host),
            (usmq.zeros(shape, dtype, usm_type=kind), np.zeros(shape, dtype)),
            (usmq.full(shape, value, dtype, usm_type=kind), np.full(shape, value, dtype)),
            (usmq.empty(shape, dtype, usm_type=kind), None),
        ):
            for name in ("shape", "ndim", "size", "itemsize", "nbytes", "dtype"):
                assert getattr(x, name) == getattr(host, name), name
            assert type(x.shape) is tuple
            assert (x.readonly, x.usm_type) == (False, kind)
            assert len(x.strides) == host.ndim
            if host.size:
                assert x.strides == host.strides
                assert x.ptr > 0
                assert x.ptr % x.itemsize == 0
            if expected is not None:
                back = x.to_numpy()
                assert (back.dtype, back.shape) == (host.dtype, host.shape)
                np.testing.assert_array_equal(back, expected)


def test_the_shape_dtype_kind_and_queue_are_those_requested(queue):
    for shape in (3, (3,), [3], np.int64(3), (np.int32(3),), np.array([3]), np.array(3)):
        assert usmq.zeros(shape).shape == (3,)
    for x in (usmq.empty(3), usmq.zeros(3)):
        assert (x.dtype, x.usm_type) == ("f4", "device")
    profiled = usmq.Queue(queue.device, profiling=True)
    for kind in KINDS:
        x = usmq.empty(5, "i8", usm_type=kind, queue=profiled)
        assert (x.queue, x.usm_type) == (profiled, kind)
        assert x.device == profiled.device == queue.device


def test_full_accepts_python_and_numpy_numbers():
    numbers = [(1.5, "f4"), (-2, "i2"), (True, "?"), (3, "f8"), (1 + 2j, "c8"), (2**64 - 1, "u8")]
    numbers += [(-(2**63), "i8"), (np.inf, "f2"), (np.float32(2.5), "f4"), (np.int64(-9), "i8")]
    for value, dtype in numbers:
        expected = np.full(5, value, dtype)
        np.testing.assert_array_equal(usmq.full(5, value, dtype).to_numpy(), expected)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("?", "c8", "c16")])
def test_arange_matches_numpy(dtype):
    calls = [(0, 10, 1), (3, 50, 7), (0, 0, 1), (5, 1, 1), (0, 1, 100), (2, 3, 1), (5,), (2, 5)]
    if dtype[0] != "u":
        calls.append((10, 0, -3))
    if dtype == "f8":
        calls += [(0.0, 1.0, 0.25), (1.0, -1.0, -0.5), (0.0, 1.1, 0.5)]
    for bounds in calls:
        x, expected = usmq.arange(*bounds, dtype=dtype), np.arange(*bounds, dtype=dtype)
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(x.to_numpy(), expected)


@pytest.mark.parametrize("dtype", ["i8", "f8", "f4", "c16"])
@pytest.mark.parametrize("number", [int, float])
def test_ranges_that_cannot_be_made_are_errors(number, dtype):
    with pytest.raises((ValueError, ZeroDivisionError)):
        usmq.arange(0, 5, 0, dtype=dtype)
    with pytest.raises(usmq.AllocationError):
        usmq.arange(number(0), number(1e15), dtype=dtype)
    for low, high in ((-(2**62), 2**62), (-(2**63), 2**63 - 1)):
        with pytest.raises(ValueError, match="address space"):
            usmq.arange(number(low), number(high), dtype=dtype)


def test_nested_lists_convert_like_numpy():
    for nested in (
        [1, 2, 3],
        [[1, 2], [3, 4]],
        [1.5, 2],
        [True, False],
        [1, 2j],
        [[[1.0], [2.0]]],
        (1, 2),
        3.5,
        7,
        [np.float32(1), np.float32(2)],
    ):
        x, expected = usmq.asarray(nested), np.asarray(nested)
        assert (x.dtype, x.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(x.to_numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_given_to_asarray_converts(dtype):
    for source in ([0, 1], np.array([0, 1], "i8"), usmq.arange(0, 2, 1, dtype="i4")):
        x = usmq.asarray(source, dtype)
        assert x.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(x.to_numpy(), np.array([0, 1]).astype(dtype))


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("float32", ["f4", "float32", np.float32, np.dtype("f4"), "<f4"]),
        ("bool", [np.bool_, "?", "bool", bool]),
        ("int8", ["i1"]),
        ("uint64", ["uint64"]),
        ("float16", ["f2"]),
        ("float64", [float]),
        ("int64", [int]),
        ("complex128", ["c16", complex]),
    ],
)
def test_a_dtype_has_one_name_and_many_spellings(name, spellings):
    for spelling in spellings:
        x = usmq.empty(2, spelling)
        assert str(x.dtype) == name
        assert x.dtype == name == usmq.empty(2, x.dtype).dtype
        assert x.dtype == np.dtype(name)
        assert x.dtype == usmq.DType(spelling)
        assert hash(x.dtype) == hash(usmq.DType(name))
        assert x.dtype != ("float16" if name != "float16" else "float32")
        assert x.dtype != 4


def test_live_arrays_never_overlap():
    rng = np.random.default_rng(3)
    arrays = [
        usmq.empty(int(n), "u1", usm_type=KINDS[k])
        for n, k in zip(rng.integers(1, 5000, 300), rng.integers(0, 3, 300), strict=True)
    ]
    spans = sorted((x.ptr, x.ptr + x.nbytes) for x in arrays)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_the_length_is_the_first_axis_and_the_in_operator_is_refused():
    assert len(usmq.zeros((3, 2))) == 3
    assert len(usmq.zeros((0, 2))) == 0
    with pytest.raises(TypeError):
        len(usmq.zeros(()))
    with pytest.raises(TypeError, match=r"value in x\.to_numpy\(\)"):
        3 in usmq.arange(4)  # noqa: B015


def test_arrays_of_other_sizes_do_not_convert_to_numbers():
    text = r"one element, not one of shape .*to_numpy\(\)"
    for shape in (0, 2, (2, 3), (1, 0)):
        for number in (int, float, complex, bool, usmq.Array.item):
            error = ValueError if number in (bool, usmq.Array.item) else TypeError
            with pytest.raises(error, match=text):
                number(usmq.zeros(shape))


@pytest.mark.parametrize("usm_type", KINDS)
@pytest.mark.parametrize(
    ("value", "dtypes"),
    [
        (True, "?"),
        (False, "?"),
        (0, "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16"),
        (-3, "i1 i2 i4 i8 f2 f4 f8 c8 c16"),
        (2**63, "u8 f4 f8"),
        (-0.5, "f2 f4 f8 c8 c16"),
        (1 + 2j, "c8 c16"),
    ],
    ids=str,
)
def test_an_array_of_one_element_is_a_number(value, dtypes, usm_type):
    for shape, dtype in itertools.product([(), (1,), (1, 1)], dtypes.split()):
        x = usmq.full(shape, value, dtype, usm_type=usm_type)
        peer = np.full((), value, dtype)
        assert (x.item(), type(x.item())) == (peer.item(), type(peer.item()))
        assert bool(x) is bool(peer)
        for number in (int, float, complex):
            if dtype[0] == "c" and number is not complex:
                with pytest.raises(TypeError):
                    number(x)
            else:
                assert (number(x), type(number(x))) == (number(peer), number)
        if dtype[0] in "iu" and not shape:
            assert operator.index(x) == operator.index(peer)
        else:
            with pytest.raises(TypeError, match="an index must be"):
                operator.index(x)


def test_one_element_of_a_view_is_a_number_and_an_index():
    x = usmq.arange(10, 20, dtype="i4")
    assert int(x[::-3][1]) == 16
    assert list(range(20))[x[4]] == 14
    assert x[usmq.full((), 3, "u1")].item() == 13
    assert usmq.full(1, 1.5, "bfloat16").item() == 1.5


def test_assigning_from_an_array_does_not_mark_it_as_used_elsewhere():
    x, y = usmq.zeros(3, queue=usmq.Queue(profiling=True)), usmq.full((), 2.0)
    x[1] = y
    with usmq.profile() as profile:
        y.fill(1.0)
        x[0] = y
    assert x.to_numpy().tolist() == [1, 2, 0]
    assert "barrier" not in [event.kind for event in profile.events]


def test_asarray_of_an_array_shares_its_memory_unless_copied():
    x = usmq.arange(0, 6, 1, dtype="i4")
    assert usmq.asarray(x).ptr == x.ptr
    assert usmq.asarray(x, copy=False).ptr == x.ptr
    assert usmq.asarray(x, "i4", usm_type="device", queue=x.queue).ptr == x.ptr
    assert usmq.asarray(x, copy=True).ptr != x.ptr
    for options in ({"dtype": "f4"}, {"usm_type": "shared"}):
        y = usmq.asarray(x, **options)
        assert y.ptr != x.ptr
        assert all(getattr(y, name) == value for name, value in options.items())
        np.testing.assert_array_equal(y.to_numpy(), np.arange(6))


def test_numpy_arrays_of_any_layout_are_copied_in():
    host = np.arange(42, dtype="i2").reshape(6, 7)
    host.flags.writeable = False
    for source in (host, np.asfortranarray(host), host[:, ::-2], host[::-1].T, memoryview(host)):
        x = usmq.asarray(source)
        np.testing.assert_array_equal(x.to_numpy(), source)
        assert x.readonly is False
    for size in (3, 5_000_000):  # the source may change as soon as asarray returns
        host = np.ones(size, "u1")
        x = usmq.asarray(host)
        host[:] = 2
        assert x.to_numpy().max() == 1
