"""Views: basic indexing, reshape and transpose share memory and match numpy."""

import numpy as np
import pytest
import usmq

KEEP = slice(None)


INDEXES = [
    *(0, -1, np.int64(2), ..., None, (), (1, 2), (1, 2, 3), (-4, -5, -6), (KEEP, 1)),
    *(np.s_[1:3], np.s_[::2], np.s_[::-1], np.s_[::-2], np.s_[3:0:-1], np.s_[-2:], np.s_[10:20]),
    *(np.s_[2:2], np.s_[100::-3], np.s_[0:4:100]),
    *(np.s_[:: 2**62], np.s_[:: -(2**63)], np.s_[:: 10**30]),
    *((KEEP, KEEP, -1), np.s_[:, ::-1, 1::2], (..., 0), (0, ...), (0, ..., 0), np.s_[..., ::-2]),
    *((1, 2, 3, ...), (None, 0), (..., None), np.s_[:, None, 1, None, 0:0], (None, ..., None)),
]


def base():
    host = np.arange(120, dtype="i4").reshape(4, 5, 6)
    return host, usmq.asarray(host)


def assert_same_view(x, host, of, of_host):
    assert x.shape == host.shape
    np.testing.assert_array_equal(x.to_numpy(), host)
    assert x.to_numpy().dtype == host.dtype
    assert x.queue == of.queue
    assert x.usm_type == of.usm_type
    if host.size:
        # The stride of an axis of length 1 is free.
        strides = zip(x.shape, x.strides, host.strides, strict=True)
        assert all(ours == theirs for length, ours, theirs in strides if length > 1)
        offset = host.__array_interface__["data"][0] - of_host.__array_interface__["data"][0]
        assert x.ptr - of.ptr == offset


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_basic_index_gives_the_same_view_as_numpy(index):
    host, x = base()
    # A full index gives a scalar in numpy and a 0-d view here, as one more Ellipsis does in numpy.
    whole = index if isinstance(index, tuple) else (index,)
    expected = host[index] if any(part is ... for part in whole) else host[(*whole, ...)]
    assert_same_view(x[index], expected, x, host)


def test_an_index_out_of_bounds_is_an_index_error():
    """Other indices and shapes are in src/array/layout_tests.rs."""
    _, x = base()
    for index in (4, (0, 0, -7), (0, 0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            x[index]
    for index in (2**63, -(2**63) - 1, 10**5000):
        for key, where in ((index, "axis 0 with extent 4"), ((0, index), "axis 1 with extent 5")):
            with pytest.raises(IndexError, match=f"out of range for {where}"):
                x[key]
    for to in ((5, 5), (-1, -1), (-2, 12), (2**40, 2**40)):
        with pytest.raises(ValueError, match="shape"):
            usmq.zeros((4, 6)).reshape(to)


def test_advanced_indices_are_refused():
    _, x = base()
    arrays = [[0, 1], np.array([0, 1]), np.array([True, False, True, False]), (0, [1])]
    for index in [*arrays, True, 1.0, "0", {}, slice(0, 4, 0), slice(0.0, 1.0)]:
        with pytest.raises((IndexError, TypeError, ValueError)):
            x[index]


def test_an_index_of_a_0_d_array():
    x = usmq.asarray(7)
    assert x[()].to_numpy() == 7
    assert x[...].ptr == x.ptr
    assert x[None].shape == (1,)
    with pytest.raises(IndexError):
        x[0]


def test_iteration_creates_the_rows_on_demand():
    endless = iter(usmq.empty((2**40, 0)))
    assert next(endless).shape == next(endless).shape == (0,)
    host, x = base()
    assert [row.tolist() for row in x] == host.tolist()
    assert list(usmq.empty(0)) == []
    with pytest.raises(TypeError, match="without axes"):
        iter(usmq.zeros(()))


@pytest.mark.parametrize(
    ("shape", "shapes"),
    [
        ((4, 6), [(24,), (2, 2, 6), (-1,), (3, -1), (4, 1, 6, 1)]),
        ((1,), [()]),
        ((), [(1, 1), ()]),
        ((0, 3), [(0,), (5, 0)]),
        ((2, 0), [(0, 7)]),
        ((3,), [(-1, 3)]),
    ],
)
def test_reshape_is_a_view_in_c_order(shape, shapes):
    host = np.arange(np.prod(shape, dtype=int), dtype="f4").reshape(shape)
    x = usmq.asarray(host)
    for to in shapes:
        for y in [x.reshape(to), x.reshape(list(to)), *([x.reshape(*to)] if to else [])]:
            assert_same_view(y, host.reshape(to), x, host)


def test_a_reshape_of_a_strided_view_never_mixes_elements():
    host, x = base()
    for view, expected, to in [
        (x.T, host.T, (120,)),
        (x[:, ::2], host[:, ::2], (-1,)),
        (x[::-1], host[::-1], (20, 6)),
        (x[:, :1, :], host[:, :1, :], (4, 6)),
    ]:
        try:
            got = view.reshape(to)
        except ValueError:
            continue  # not expressible as a view
        np.testing.assert_array_equal(got.to_numpy(), expected.reshape(to))


def test_transposed_twice_is_the_same_view():
    host, x = base()
    assert_same_view(x.T, host.T, x, host)
    assert_same_view(x.T.T, host, x, host)
    assert usmq.zeros(()).T.shape == ()
    assert usmq.zeros((0, 3)).T.shape == (3, 0)
