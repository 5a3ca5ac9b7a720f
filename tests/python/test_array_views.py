"""Views: basic indexing, reshape and transpose share memory and match numpy."""

import random

import numpy as np
import pytest
import usmq

KEEP = slice(None)
INDEXES = [
    0,
    -1,
    np.int64(2),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(None, None, -2),
    slice(3, 0, -1),
    slice(-2, None),
    slice(10, 20),
    slice(2, 2),
    slice(100, None, -3),
    slice(0, 4, 100),
    slice(None, None, 2**62),
    slice(None, None, -(2**63)),
    slice(None, None, 10**30),
    ...,
    None,
    (),
    (1, 2),
    (1, 2, 3),
    (-4, -5, -6),
    (KEEP, 1),
    (KEEP, KEEP, -1),
    (KEEP, slice(None, None, -1), slice(1, None, 2)),
    (..., 0),
    (0, ...),
    (0, ..., 0),
    (..., slice(None, None, -2)),
    (1, 2, 3, ...),
    (None, 0),
    (..., None),
    (KEEP, None, 1, None, slice(0, 0)),
    (None, ..., None),
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


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_of_views_match_numpy(seed):
    rng = random.Random(seed)
    base_host, base_x = host, x = base()
    for _ in range(8):
        if rng.random() < 0.2:
            host, x = host.T, x.T
        elif rng.random() < 0.2 and host.flags.c_contiguous:
            shape = rng.choice([(-1,), (host.size,), (1, *host.shape), (*host.shape, 1)])
            if host.size or -1 not in shape:
                host, x = host.reshape(shape), x.reshape(shape)
        else:
            index = []
            for length in host.shape:
                step = rng.choice([1, 1, 2, -1, -2, 3])
                ends = rng.choice([(None, None), (1, None), (None, -1), (-3, None), (0, length)])
                index.append(slice(*ends, step))
            if rng.random() < 0.2:
                index.insert(rng.randrange(len(index) + 1), None)
            if host.ndim > 1 and host.shape[0] and rng.random() < 0.3:
                index[0 if index[0] is not None else 1] = rng.randrange(host.shape[0])
            host, x = host[tuple(index)], x[tuple(index)]
        assert_same_view(x, host, base_x, base_host)


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
