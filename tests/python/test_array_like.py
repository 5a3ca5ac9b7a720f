"""``ones``, ``zeros_like`` and the others, ``to``, ``squeeze``, ``concatenate`` and ``stack``."""

import functools

import numpy as np
import pytest
import usmq

DTYPES = ["?", "i1", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


@functools.cache
def other_queue():
    """Return a queue in another context than the default one."""
    device = usmq.Device()
    return usmq.Queue(device, context=usmq.Context([device]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ones_have_the_dtype(dtype):
    x = usmq.ones((2, 3), dtype, usm_type="shared")
    np.testing.assert_array_equal(x.to_numpy(), np.ones((2, 3), dtype))
    assert x.usm_type == "shared"
    assert (usmq.ones(2).dtype, usmq.ones(0).tolist()) == ("float32", [])


@pytest.mark.parametrize(
    ("like", "value"),
    [
        (usmq.empty_like, None),
        (usmq.zeros_like, 0),
        (usmq.ones_like, 1),
        (lambda x, *given, **names: usmq.full_like(x, 7, *given, **names), 7),
    ],
)
def test_the_prototype_decides_what_is_not_given(like, value):
    x = usmq.zeros((2, 3), "i2", usm_type="shared", queue=other_queue())
    own = usmq.current_queue()
    for given, shape, dtype, kind, queue in (
        ({}, (2, 3), "int16", "shared", x.queue),
        (
            {"dtype": "f8", "shape": 4, "usm_type": "host", "queue": own},
            (4,),
            "float64",
            "host",
            own,
        ),
    ):
        y = like(x, **given)
        assert (y.shape, y.dtype, y.usm_type, y.queue) == (shape, dtype, kind, queue)
        assert value is None or (y.to_numpy() == value).all()
    assert like(x.T[::-1, :1]).strides == (2, 2)
    assert like(x, shape=()).shape == ()
    assert like(x, shape=(0, 2)).size == 0
    with pytest.raises(ValueError, match=r"2\.5 is not an integer"):
        usmq.full_like(x, 2.5)


def test_host_and_foreign_arrays_can_be_prototypes():
    y = usmq.zeros_like(np.zeros((2, 2), "u2"))
    assert (y.shape, y.dtype, y.usm_type) == ((2, 2), "uint16", "device")
    assert y.queue == usmq.current_queue()
    dpnp = pytest.importorskip("dpnp", reason="dpnp is not installed")
    y = usmq.full_like(dpnp.ones(3, dtype="f4", usm_type="shared"), 2)
    assert (y.tolist(), y.usm_type) == ([2.0, 2.0, 2.0], "shared")


@pytest.mark.usefixtures("reaches")
def test_arrays_like_system_memory_are_host_usm():
    assert usmq.zeros_like(usmq.asarray(np.arange(3), copy=False)).usm_type == "host"


def test_to_moves_only_as_far_as_needed():
    x = usmq.arange(3)
    assert x.to() is x.to(x.queue, dtype="i8", usm_type="device") is x.collocate(x) is x
    view = x.to(usmq.Queue(x.device, profiling=True))
    assert (view.ptr, view.queue == x.queue) == (x.ptr, False)
    far = x.to(other_queue())
    assert (far.queue, far.tolist()) == (other_queue(), [0, 1, 2])
    assert x.collocate(far).queue == far.queue
    assert far.to().queue == usmq.current_queue()
    with usmq.use_queue(other_queue()):
        assert x.to().queue == other_queue()
    y = x.to(dtype="f4", usm_type="host")
    assert (y.dtype, y.usm_type, y.tolist()) == ("float32", "host", [0.0, 1.0, 2.0])
    with pytest.raises(TypeError, match="target must be"):
        x.to(3)
    with pytest.raises(TypeError):
        x.collocate(None)


@pytest.mark.parametrize(
    ("shape", "axes"), [((1, 3, 1), [None, 0, -1, (0, 2), ()]), ((), [None]), ((1,), [None])]
)
def test_squeeze_is_as_in_numpy(shape, axes):
    host = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = usmq.asarray(host)
    for axis in axes:
        y = x.squeeze(axis)
        assert y.shape == usmq.squeeze(x, axis).shape == host.squeeze(axis).shape
        np.testing.assert_array_equal(y.to_numpy(), host.squeeze(axis))
        assert y.ptr == x.ptr


def test_expand_dims_is_as_in_numpy():
    host = np.arange(6).reshape(2, 3)
    x = usmq.asarray(host)
    for axis in (0, 1, 2, -1, -3, (0, 1), (0, -1), (3, 1)):
        assert x.expand_dims(axis).shape == np.expand_dims(host, axis).shape
        assert usmq.expand_dims(x, axis).ptr == x.ptr


def test_wrong_axes_are_named():
    x = usmq.zeros((1, 3))
    for call, axis, error, text in (
        (x.squeeze, 1, ValueError, r"axis 1 of shape \[1, 3\]: its extent is 3"),
        (x.squeeze, 2, IndexError, "axis 2 is out of range"),
        (x.squeeze, (0, -2), ValueError, "given twice"),
        (x.squeeze, 1 << 70, (ValueError, TypeError), None),
        (x.expand_dims, 4, IndexError, "axis 4 is out of range"),
        *((x.expand_dims, wrong, TypeError, "axis must be") for wrong in (1.5, "0", [0], None)),
    ):
        with pytest.raises(error, match=text):
            call(axis)


def test_ravel_is_a_view_and_flatten_a_copy():
    host = np.arange(6).reshape(2, 3)
    x = usmq.asarray(host)
    assert x.ravel().ptr == x.ptr
    assert x.flatten().ptr != x.ptr
    np.testing.assert_array_equal(x.T.ravel().to_numpy(), host.T.ravel())
    np.testing.assert_array_equal(x[::-1].flatten().to_numpy(), host[::-1].flatten())
    assert usmq.zeros((0, 3)).ravel().shape == (0,)
    assert usmq.full((), 2).ravel().tolist() == [2]


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "c16"])
def test_concatenate_is_as_in_numpy(axis, dtype):
    host = np.arange(12).reshape(3, 4).astype(dtype)
    parts = [host, host[::-1], host[:0] if axis == 0 else host, host.copy(order="F")]
    x = usmq.asarray(host)
    ours = [x, x[::-1], x[:0] if axis == 0 else x, usmq.asarray(parts[3])]
    joined = usmq.concatenate(ours, axis)
    np.testing.assert_array_equal(joined.to_numpy(), np.concatenate(parts, axis))
    assert (joined.queue, joined.dtype) == (x.queue, x.dtype)


def test_stack_is_as_in_numpy():
    host = np.arange(6, dtype="f4").reshape(2, 3)
    x = usmq.asarray(host)
    for axis in (0, 1, 2, -1, -3):
        found = usmq.stack((x, x[::-1], x), axis=axis)
        expected = np.stack((host, host[::-1], host), axis=axis)
        np.testing.assert_array_equal(found.to_numpy(), expected)
    assert usmq.stack([usmq.full((), 1), usmq.full((), 2)]).tolist() == [1, 2]
    # The kind of memory is that of the parts, or device USM.
    shared, host = usmq.ones(2, usm_type="shared"), usmq.ones(2, usm_type="host")
    assert usmq.concatenate([shared, shared]).usm_type == "shared"
    assert usmq.concatenate([shared, host]).usm_type == "device"


def test_parts_that_do_not_fit_are_refused_by_name():
    x, number = usmq.zeros((2, 3)), usmq.full((), 1)
    dtypes = r"array 0 has dtype float32, but array 1 has int64.*astype"
    for error, text, call in [
        (ValueError, "at least one array", lambda: usmq.concatenate([])),
        (TypeError, dtypes, lambda: usmq.concatenate([x, usmq.arange(3)])),
        (
            ValueError,
            r"array 1 of shape \[2, 2\]",
            lambda: usmq.concatenate([x, usmq.zeros((2, 2))]),
        ),
        (ValueError, "shapes must be equal", lambda: usmq.stack([x, x[0]])),
        (ValueError, "without axes", lambda: usmq.concatenate([number, number])),
        (IndexError, "axis 2 is out of range", lambda: usmq.concatenate([x, x], 2)),
        (usmq.PlacementError, "collocate", lambda: usmq.concatenate([x, x.to(other_queue())])),
        (TypeError, "expected an array in USM, not list", lambda: usmq.concatenate([[1], [2]])),
        (TypeError, "arrays must be", lambda: usmq.stack(3)),
    ]:
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_raise_with_the_fix(sign):
    names = {"x": usmq.ones(2), "y": usmq.ones(2), "np": np}
    for other in ("x", "y", "1", "2.5", "[1]", "y.to_numpy()", "np.float32(1)"):
        with pytest.raises(TypeError, match=r"x\.to_numpy\(\)|dpnp"):
            eval(f"x {sign} {other}", names)


def test_arrays_and_other_objects_compare_by_identity():
    x, y = usmq.ones(2), usmq.ones(2)
    assert (x == None, x != None, x == "text", x is x) == (False, True, False, True)  # noqa: E711
    with pytest.raises(TypeError):
        x < None  # noqa: B015
    table = {x: 1, y: 2}
    assert (table[x], table[y], len({x, y, x})) == (1, 2, 2)
    assert x in [x, y]
    assert x in (None, "a", x)
    assert hash(x) == hash(x)


def test_masked_arrays_are_refused_with_the_fix():
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    kernel = usmq.Kernel.from_opencl("kernel void f(global const float *x) {}", "f")
    for call in (
        lambda: usmq.asarray(masked),
        lambda: usmq.asarray(masked, copy=False),
        lambda: usmq.asarray([1.0, masked[0]]),
        lambda: usmq.asarray([masked, masked]),
        lambda: usmq.asarray([[1.0, 2.0], masked]),
        lambda: usmq.from_dlpack(masked),
        lambda: usmq.zeros(2, "f8").copy_from(masked),
        lambda: usmq.collocate(masked, queue=usmq.current_queue()),
    ):
        with pytest.raises(TypeError, match=r"\.filled\(value\)"):
            call()
    with pytest.raises(usmq.LaunchError, match=r"\.filled\(value\)"):
        kernel(2, masked.astype("f4"))
    assert usmq.asarray(masked.filled(0)).tolist() == [0.0, 2.0]
