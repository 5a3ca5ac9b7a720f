"""Values that a dtype cannot hold are refused, by every call that stores them."""

import ctypes
import datetime

import dpnp
import numpy as np
import pyarrow as pa
import pytest
import usmq


def assigned(values, dtype):
    x = usmq.ones(np.shape(values), dtype)
    x[...] = values
    return x


def copied(values, dtype):
    x = usmq.ones(np.shape(values), dtype)
    x.copy_from(values)
    return x


def strided(values, dtype):
    x = usmq.ones((*np.shape(values), 2), dtype)[..., 1]
    x[...] = values
    return x


def captured(values, dtype):
    with usmq.capture() as graph:
        x = assigned(values, dtype)
    graph.replay().wait()
    return x


STORES = {
    "setitem": assigned,
    "copy_from": copied,
    "strided": strided,
    "capture": captured,
    "asarray": lambda values, dtype: usmq.asarray(values, dtype=dtype),
    "host USM": lambda values, dtype: usmq.asarray(values, dtype=dtype, usm_type="host"),
}


# Others are in src/array/scalar.rs.
MISFITS = [(1.5, "i4"), (-1, "u8"), (2**63, "i8"), (float("nan"), "i4"), (2, "?"), (1e300, "f4")]
MISFITS += [(1 + 2j, "f4"), (1 + 0j, "i4"), (1e300 + 0j, "c8")]


@pytest.fixture(params=STORES, ids=str)
def store(request):
    return STORES[request.param]


@pytest.mark.parametrize(("value", "dtype"), MISFITS, ids=str)
def test_a_list_refuses_what_a_number_refuses(store, value, dtype):
    x = usmq.zeros(1, dtype)
    with pytest.raises(ValueError, match=r"not an integer|out of range|complex") as one:
        x[0] = value
    reason = str(one.value).removeprefix("value does not fit: ")
    lists = ([value], [0, value], (value, 1), [[0, value], [1, 0]], [[[value]]], [True, value])
    for values in lists:
        with pytest.raises(ValueError) as several:  # noqa: PT011 - compared below
            store(values, dtype)
        assert str(several.value) == reason


def test_a_number_of_numpy_is_refused_as_one_of_python(store):
    for number, dtype in [
        (np.float64(2.5), "i4"),
        (np.float32(2.5), "u1"),
        (np.int64(-1), "u1"),
        (np.float64(1e300), "f4"),
        (np.complex128(1j), "f4"),
        (np.array(2.5), "i4"),
        (np.array(-1), "u8"),
        (np.array(1j), "f8"),
    ]:
        values = [number, [number.item()], [[0], [number.item()]]]
        for value in values + [[number]] * isinstance(number, np.generic):
            with pytest.raises(ValueError, match=r"not an integer|out of range|complex"):
                store(value, dtype)


def test_a_list_that_fits_is_stored_as_by_numpy(store):
    for values, dtype in [
        ([1, 2, 255], "u1"),
        ([[1, 2], [3, 4]], "i2"),
        ([True, False], "?"),
        ([0, 1], "?"),
        ([True, 2], "i4"),
        ([2**64 - 1, 0], "u8"),
        ([1, 2.5], "f4"),
        ([2**100], "f8"),
        ([float("nan"), float("-inf")], "f2"),
        ([1, 2.5, 1j], "c8"),
        ([], "i4"),
        ([[], []], "u1"),
        (range(5), "i1"),
        ((0.1, 0.2), "f4"),
        ([np.float32(0.5), 2], "f8"),
    ]:
        x = store(values, dtype)
        np.testing.assert_array_equal(x.to_numpy(), np.array(values, dtype))


def test_a_refused_list_changes_nothing():
    x = usmq.arange(3, dtype="i4")
    with pytest.raises(ValueError, match=r"1\.5 is not an integer, which int32 needs"):
        x[...] = [7, 8, 1.5]
    assert x.tolist() == [0, 1, 2]


def test_elements_of_arrays_and_buffers_convert_as_by_astype(store):
    host = np.array([1.75, -2.5, 100.0])
    for source in (host, memoryview(host), usmq.asarray(host)):
        assert store(source, "i4").tolist() == [1, -2, 100]
    for source in (ctypes.c_double(2.5), memoryview(np.float64(2.5))):
        assert store(source, "i4").tolist() == 2
        assert store(source, "f4").tolist() == 2.5


@pytest.mark.parametrize("dtype", ["i4", "u8", "?"])
def test_arange_refuses_fractions_of_integers(dtype):
    for bounds in [(0, 3, 0.5), (0.5, 3), (0.0, 1.0, 0.25), (-0.5, 2, 1)]:
        with pytest.raises(ValueError, match=r"is not an integer|out of range"):
            usmq.arange(*bounds, dtype=dtype)
    with pytest.raises(ValueError, match="out of range"):
        usmq.arange(0.0, 300.0, dtype="u1")
    assert usmq.arange(0.0, 6.0, 2.0, dtype="i4").tolist() == [0, 2, 4]
    assert usmq.arange(3.0, dtype="u1").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "dtype"),
    [("c8", "f4"), ("c16", "f8"), ("c16", "f4"), ("c8", "f2"), ("c8", "i4"), ("c16", "u1")],
)
def test_complex_numbers_do_not_lose_their_imaginary_parts(store, source, dtype):
    for count in (0, 1, 5):
        host = (np.arange(count) + 1j).astype(source)
        x = usmq.asarray(host)
        calls = [lambda x=x: x.astype(dtype), lambda x=x: x.to("cpu", dtype=dtype)]
        calls.append(lambda x=x: x[::-1].astype(dtype))
        for values in (x, host, host[::-1], memoryview(host), dpnp.asarray(host)):
            calls.append(lambda values=values: store(values, dtype))
        for call in calls:
            with pytest.raises(TypeError, match=r"would drop the imaginary parts; x\.real"):
                call()


def test_complex_numbers_become_truth_values_and_other_complex_numbers():
    for source in ("c8", "c16"):
        host = np.array([0, 1, 2j, 1 + 1j], source)
        for dtype in ("?", "c8", "c16"):
            found = usmq.asarray(host).astype(dtype).to_numpy()
            np.testing.assert_array_equal(found, host.astype(dtype))


@pytest.mark.parametrize("source", ["c8", "c16"])
def test_the_parts_of_complex_numbers_are_views(source):
    for key in (..., np.s_[::2], np.s_[:, ::-1], np.s_[1], np.s_[1, 2:3], np.s_[:0]):
        host = (np.arange(12).reshape(3, 4) * (1 - 2j)).astype(source)
        x = usmq.asarray(host)
        for part in ("real", "imag"):
            mine, theirs = getattr(x[key], part), getattr(host[key], part)
            assert mine.dtype == theirs.dtype
            assert not mine.readonly
            np.testing.assert_array_equal(mine.to_numpy(), theirs)
            mine[...] = 7
            theirs[...] = 7
            np.testing.assert_array_equal(x.to_numpy(), host)


def test_real_numbers_are_their_own_real_parts():
    x = usmq.arange(3, dtype="f4")
    assert x.real.ptr == x.ptr
    with pytest.raises(TypeError, match="without imaginary parts"):
        _ = x.imag
    assert usmq.asarray(np.frombuffer(b"\0" * 24, "c8"), copy=False, queue="cpu").real.readonly


def test_times_are_refused_by_a_text_that_names_their_integers(store):
    for times in [
        np.datetime64("2024-01-01"),
        np.timedelta64(3, "s"),
        np.array(["2024-01-01", "2024-01-02"], "M8[ns]"),
        np.array([1, 2], "m8[D]"),
        np.array(np.datetime64("2024-01-01")),
        np.array([[np.datetime64("2024-01-01")]]),
        [np.datetime64("2024-01-01")],
        [[np.timedelta64(1, "h")]],
        np.array([1, 2], ">M8[s]"),
    ]:
        for dtype in ("i8", "u1", "f8"):
            with pytest.raises(TypeError, match=r"x\.view\('i8'\)"):
                store(times, dtype)
        with pytest.raises(TypeError, match=r"x\.view\('i8'\)"):
            usmq.asarray(times)


def test_a_time_is_not_a_number():
    day = np.datetime64("2024-01-01")
    x = usmq.zeros(3, "i8")
    calls = [
        lambda: x.fill(day),
        lambda: x.__setitem__(0, day),
        lambda: usmq.full(3, day),
        lambda: usmq.arange(day),
        lambda: usmq.elementwise("long a, long *x", "x[i] = a")(day, x),
        lambda: usmq.elementwise("const long *a, long *x", "x[i] = a[i]")(np.array([day] * 3), x),
        lambda: usmq.from_dlpack(np.array([day])),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError, BufferError, usmq.LaunchError)):
            call()
    assert usmq.asarray(np.array([day]).view("i8")).tolist() == [day.astype("i8")]


@pytest.mark.parametrize(
    "other",
    [
        np.bytes_(b"ab"),
        np.str_("ab"),
        np.void(b"abc"),
        np.array([b"ab"]),
        np.array([(1, 2.0)], "i4,f8")[0],
        np.longdouble(2),
        [datetime.timedelta(1)],
        pa.array([datetime.date(2024, 1, 1)]),
        pa.array([datetime.datetime(2024, 1, 1)]),
        pa.scalar(datetime.datetime(2024, 1, 1)),
    ],
    ids=lambda other: f"{type(other).__name__} {str(other)[:20]!r}",
)
def test_other_objects_are_refused_and_not_read_as_bytes(store, other):
    with pytest.raises(TypeError):
        usmq.asarray(other)
    # Inside a capture every import of Arrow data is refused, before its type is read.
    refused = (TypeError, usmq.CaptureError) if store is captured else TypeError
    with pytest.raises(refused):
        store(other, "u1")


def test_bytes_are_numbers():
    for source in (b"ab", bytearray(b"ab"), memoryview(b"ab"), np.frombuffer(b"ab", "u1")):
        assert usmq.asarray(source).tolist() == [97, 98]
