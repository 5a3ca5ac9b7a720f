"""Copies: copy, copy_from, astype and to_numpy; the buffer protocol makes no copy."""

import contextlib
import gc
import zlib

import numpy as np
import pytest
import usmq

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def views(host):
    return [host, host[1], host[:, ::2], host[::-1], host.T, host[1:, ::-2, 1:4], host[:0]]


def test_copy_returns_an_independent_contiguous_array():
    base = np.arange(120, dtype="i4").reshape(4, 5, 6)
    for host, x in zip(views(base), views(usmq.asarray(base)), strict=True):
        copy = x.copy()
        assert copy.shape == host.shape
        if host.size:
            assert copy.strides == np.ascontiguousarray(host).strides
            assert copy.ptr != x.ptr
            copy.copy_from(np.full_like(host, -1))
        np.testing.assert_array_equal(x.to_numpy(), host)
        assert (copy.queue, copy.usm_type, copy.dtype) == (x.queue, x.usm_type, x.dtype)


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("source", ["numpy", "strided numpy", "usmq", "strided usmq"])
def test_copy_from_writes_only_the_elements_of_a_view(number, source):
    base = np.arange(120, dtype="i4").reshape(4, 5, 6)
    x = usmq.asarray(base)
    target, expected = views(x)[number], views(base)[number]
    host = np.arange(1000, 1000 + 2 * expected.size, dtype="i4").reshape(2, *expected.shape)[1]
    if source.startswith("strided"):
        host = host[..., ::-1]
    given = usmq.asarray(host)
    if source == "strided usmq":
        given = usmq.asarray(np.ascontiguousarray(host[..., ::-1]))[..., ::-1]
    target.copy_from(given if source.endswith("usmq") else host)
    expected[...] = host
    np.testing.assert_array_equal(x.to_numpy(), base)


def test_copy_from_another_shape_or_object_is_an_error():
    x = usmq.zeros(4, "i4")
    for shape in [(3,), (5,), (2, 2), (4, 1), (0,)]:
        for other in (np.ones(shape, "i4"), usmq.full(shape, 1, "i4")):
            with pytest.raises(ValueError, match="shape"):
                x.copy_from(other)
    for other in (None, "abcd", object()):
        with pytest.raises(TypeError):
            x.copy_from(other)
    assert x.to_numpy().tolist() == [0, 0, 0, 0]


def test_copy_from_an_overlapping_view_matches_numpy():
    host = np.arange(1000, dtype="i4")
    x = usmq.asarray(host)
    x[100:].copy_from(x[:-100])
    host[100:] = host[:-100].copy()
    np.testing.assert_array_equal(x.to_numpy(), host)
    x.copy_from(x[::-1])
    np.testing.assert_array_equal(x.to_numpy(), host[::-1])


@pytest.mark.parametrize("source", DTYPES)
def test_astype_converts_like_numpy(source):
    values = [0, 1] if source == "?" else [0, 1, 2, 100, 127]
    if source[0] in "if":
        values += [-1, -128]
    if source[0] == "f":
        values += [0.5, 1.5, -2.75]
    host = np.array(values).astype(source)
    x = usmq.asarray(host)
    for target in DTYPES:
        if source[0] == "c" and target[0] not in "c?":
            with pytest.raises(TypeError, match="would drop the imaginary parts"):
                x.astype(target)
            continue
        if target[0] == "u" and source[0] in "if":
            expected_host = host[host >= 0]
            got = usmq.asarray(np.ascontiguousarray(expected_host)).astype(target)
        else:
            expected_host, got = host, x.astype(target)
        expected = expected_host.astype(target)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.to_numpy(), expected, err_msg=f"{source} to {target}")


def test_astype_of_integers_wraps_and_of_floats_rounds():
    wide = np.array([300, -1, 2**31, 2**40 + 5], "i8")
    precise = np.array([0.1, 1 / 3, 1e-8, 2049.0, -65503.0, np.inf], "f8")
    for host, targets in ((wide, ("i1", "u1", "i2", "i4", "u4", "u8")), (precise, ("f2", "f4"))):
        for target in targets:
            found = usmq.asarray(host).astype(target).to_numpy()
            np.testing.assert_array_equal(found, host.astype(target))
    assert np.isnan(usmq.asarray(np.array([np.nan], "f4")).astype("f8").to_numpy()).all()


def test_astype_of_views_and_to_something_else():
    host = np.arange(24, dtype="i4").reshape(4, 6)
    x = usmq.asarray(host)
    np.testing.assert_array_equal(x.T[::-1, 1:].astype("f8").to_numpy(), host.T[::-1, 1:])
    assert x[:0].astype("f8").shape == (0, 6)
    assert x[2, 3].astype("c8").to_numpy() == 15
    for dtype in ("nosuch", "S4", object, None, 3):
        with pytest.raises((TypeError, ValueError)):
            x.astype(dtype)


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_to_numpy_is_a_writable_copy(kind):
    x = usmq.zeros((2, 3), usm_type=kind)
    host = x.to_numpy()
    assert type(host) is np.ndarray
    assert host.flags.writeable
    assert host.flags.c_contiguous
    host[:] = 1
    assert not x.to_numpy().any()


@pytest.mark.parametrize("kind", ["shared", "host"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_host_accessible_memory_is_a_buffer_without_a_copy(dtype, kind):
    x = usmq.zeros((3, 4), dtype, usm_type=kind)
    host = np.asarray(x)
    assert host.dtype == np.dtype(dtype)
    assert host.shape == x.shape
    assert host.strides == x.strides
    assert host.__array_interface__["data"] == (x.ptr, False)
    host[1, 2] = 1
    assert x.to_numpy()[1, 2] == 1


@pytest.mark.parametrize("kind", ["shared", "host"])
def test_a_view_is_a_strided_buffer(kind):
    base = np.arange(120, dtype="i4").reshape(4, 5, 6)
    for host, x in zip(views(base), views(usmq.asarray(base, usm_type=kind)), strict=True):
        view = memoryview(x)
        assert (view.shape, view.itemsize, view.nbytes) == (host.shape, 4, host.nbytes)
        assert view.readonly is False
        if host.size:
            assert view.strides == host.strides
            assert np.asarray(x).__array_interface__["data"][0] == x.ptr
        assert view.tolist() == host.tolist()
    view = memoryview(usmq.full((), 2.5, "f8", usm_type=kind))
    assert (view.ndim, view.format, view.tolist()) == (0, "d", 2.5)


def test_device_memory_refuses_the_buffer_protocol():
    x = usmq.arange(0, 4, 1, dtype="i4", usm_type="device")
    for consume in (memoryview, lambda a: np.frombuffer(a, "i4")):
        with pytest.raises(BufferError, match="to_numpy"):
            consume(x)
    with contextlib.suppress(BufferError, TypeError):
        host = np.asarray(x)
        assert (host.dtype, host.tolist()) == (np.int32, [0, 1, 2, 3])


def test_a_consumer_that_needs_contiguous_memory_gets_an_error():
    x = usmq.arange(0, 10, 1, dtype="u1", usm_type="shared")
    assert bytes(x[:3]) == b"\0\1\2"
    assert zlib.crc32(x[:3]) == zlib.crc32(b"\0\1\2")
    with pytest.raises(BufferError):
        zlib.crc32(x[::2])
    assert memoryview(x[::2]).c_contiguous is False
    assert memoryview(x[::2]).tobytes() == bytes([0, 2, 4, 6, 8])


@pytest.mark.parametrize("kind", ["shared", "host"])
def test_a_buffer_keeps_its_memory(kind):
    x = usmq.arange(0, 1000, 1, dtype="i4", usm_type=kind)
    host = np.asarray(x[500:])
    del x
    gc.collect()
    others = [usmq.zeros(1000, "i4", usm_type=kind) for _ in range(50)]
    for other in others:
        other.wait()
    assert host.tolist() == list(range(500, 1000))


def test_bfloat16_rounds_to_nearest_even_and_round_trips():
    every = np.arange(1 << 16, dtype="u4") << 16
    # All bfloat16 values, and numbers just below, at and just above the midpoints.
    source = (every[:, None] + np.array([0, 0x7FFF, 0x8000, 0x8001], "u4")).reshape(-1).view("f4")
    bits = source.view("u4")
    up = (bits >> 16) + ((bits & 0xFFFF) + ((bits >> 16) & 1) > 0x8000)
    expected = (np.where(np.isnan(source), (bits >> 16) | 0x40, up) << 16).astype("u4").view("f4")
    x = usmq.asarray(source).astype("bfloat16")
    assert (str(x.dtype), x.itemsize) == ("bfloat16", 2)
    found = x.astype("f4").to_numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(source))
    numbers = ~np.isnan(source)
    np.testing.assert_array_equal(found[numbers].view("u4"), expected[numbers].view("u4"))
    whole = usmq.asarray([0, 1, 2, 250], "bfloat16").astype("c8")
    np.testing.assert_array_equal(whole.to_numpy(), np.array([0, 1, 2, 250], "c8"))
    for dtype in ("?", "f2"):
        back = usmq.asarray(np.array([0, 1, 2, 250]).astype(dtype)).astype("bfloat16").astype(dtype)
        np.testing.assert_array_equal(back.to_numpy(), np.array([0, 1, 2, 250]).astype(dtype))


@pytest.mark.parametrize("size", [(256 << 10) - 1, 256 << 10, (256 << 10) + 1, 524_287, 999_983])
@pytest.mark.parametrize("in_order", [True, False])
def test_large_copies_and_fills_of_any_size_are_complete(size, in_order):
    queue = usmq.Queue(in_order=in_order)
    numbers = np.random.default_rng(size).integers(0, 255, size, dtype="u1")
    x = usmq.asarray(numbers, queue=queue)
    y = usmq.zeros(size, "u1", queue=queue)
    y[...] = x
    x.fill(7)
    assert (y.to_numpy() == numbers).all()
    assert (y.copy().to_numpy() == numbers).all()
    assert (x.to_numpy() == 7).all()
    z = usmq.full(size, 0.1, "f8", queue=queue)
    assert (z.to_numpy() == 0.1).all()
    assert (z.astype("f4").to_numpy() == np.float32(0.1)).all()
