"""Host arrays in one-line kernels: in place where the device reaches them, else by copies."""

import array
from multiprocessing import shared_memory

import numpy as np
import pytest
import usmq
from emulated import result
from host_memory import frozen, numbers

# The start of programs for emulated GPUs.
START = """
import numpy as np, usmq
axpy = usmq.elementwise("float a, const float *x, float *y", "y[i] += a * x[i]")
x, y = np.ones(1000, "f4"), np.ones(1000, "f4")
"""


def test_numpy_arrays_are_written_before_the_call_returns(axpy):
    x, y = numbers(), np.ones(1000, "f4")
    event = axpy(2.0, x, y)
    assert event.done()
    assert (y == 2 * x + 1).all()
    assert (x == numbers()).all()


@pytest.fixture(scope="module")
def axpy():
    return usmq.elementwise("float a, const float *x, float *y", "y[i] += a * x[i]", name="axpy")


@pytest.fixture(scope="module")
def total():
    return usmq.reduction("const T *x", "T", "x[i]", "a + b", "0", name="total")


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((), (5,)), ((1,), (0,)), ((), ())],
)
def test_host_arrays_broadcast(left, right):
    add = usmq.elementwise("const T *x, const T *y, T *z", "z[i] = x[i] + y[i]")
    x, y = np.arange(np.prod(left, dtype=int)).reshape(left), np.full(right, 7)
    z = np.zeros(np.broadcast_shapes(left, right), x.dtype)
    add(x, y, z)
    assert np.array_equal(z, x + y)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "part", [np.s_[::2], np.s_[::-1, ::-2], np.s_[:, 1], np.s_[1:3, 1:3], np.s_[1], np.s_[4:]]
)
def test_strided_views_are_read_and_written_in_their_places(axpy, part, order):
    host = np.array(numbers(4, 6), order=order)
    expected = host.copy()
    expected[part] += 2 * expected[part]
    axpy(2.0, host[part].copy(), host[part])
    assert (host == expected).all()


def test_views_that_mix_elements_are_refused_if_one_is_written(axpy):
    host, one = numbers(), np.zeros(1, "f4")
    for x, y, text in (
        (host[:500], host[250:750], "overlaps with x"),
        (host[::-1], host, "overlaps with x"),
        (host[:500], host[::2], "overlaps with x"),
        (np.broadcast_to(host[:1], 1000), host, "overlaps with x"),
        (numbers(4), np.lib.stride_tricks.as_strided(one, (4,), (0,)), "repeats elements"),
        (numbers(4), one, "repeats elements"),
    ):
        with pytest.raises(usmq.LaunchError, match=rf"argument y: .*{text}"):
            axpy(1.0, x, y)
    assert (host == numbers()).all()
    assert one[0] == 0
    dot = usmq.reduction("const float *x, const float *y", "float", "x[i] * y[i]", "a + b", "0")
    assert dot(host[:999], host[1:]).item() == pytest.approx(float(host[:999] @ host[1:]))
    # Views that share no element, and the same view, are fine.
    axpy(1.0, host[::2], host[1::2])
    assert (host[1::2] == numbers()[::2] + numbers()[1::2]).all()
    axpy(1.0, host, host)
    axpy(1.0, host[::2].reshape(1, 500), host[::2])
    assert (host[::2] == 4 * numbers()[::2]).all()


def test_unaligned_arrays_are_packed(axpy):
    packed = np.zeros(10, "u1,f4")
    packed["f0"] = 7
    raw = bytearray(41)
    unaligned = np.frombuffer(raw, "f4", offset=1)
    axpy(1.0, numbers(10), packed["f1"])
    axpy(1.0, packed["f1"], unaligned)
    axpy(1.0, unaligned, unaligned)
    assert (packed["f1"] == numbers(10)).all()
    assert (packed["f0"] == 7).all()
    assert (unaligned == 2 * numbers(10)).all()
    with pytest.raises(usmq.LaunchError, match=r"argument y: it overlaps argument 1.*unaligned"):
        axpy(1.0, unaligned[:5], unaligned[2:7])


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (numbers(), frozen(), "argument y: .*read-only"),
        (numbers().astype(">f4"), numbers(), "argument x: ndarray: .*big-endian"),
        (numbers(), np.array([None] * 1000), r'argument y: ndarray: .*"\|O"'),
        (np.zeros(1000, "M8[s]"), numbers(), "argument x: ndarray"),
        (np.zeros(1000, "f8"), numbers(), "argument x: takes elements of float32, not float64"),
        (numbers(), b"abcd", "argument y: "),
    ],
)
def test_wrong_host_arrays_are_refused_before_anything_runs(axpy, x, y, text):
    before = bytes(memoryview(y).tobytes())
    with pytest.raises(usmq.LaunchError, match=text):
        axpy(1.0, x, y)
    assert memoryview(y).tobytes() == before


def test_an_array_for_a_number_and_objects_without_memory_are_refused(axpy):
    with pytest.raises(usmq.LaunchError, match=r"argument a: takes a number"):
        axpy(numbers(), numbers(), numbers())
    for wrong in ([1.0], "text", None):
        with pytest.raises(TypeError, match="a kernel argument must be"):
            axpy(1.0, numbers(), wrong)
    with pytest.raises(usmq.LaunchError, match=r"takes 3 arguments \(a, x, y\), 2 were given"):
        axpy(1.0, numbers())


def test_buffers_of_other_libraries_work(axpy, total):
    y = array.array("f", [1, 2, 3])
    axpy(1.0, memoryview(array.array("f", [1, 1, 1])), y)
    y.append(5)  # The launch holds the buffer no longer.
    assert y.tolist() == [2, 3, 4, 5]
    shared = shared_memory.SharedMemory(create=True, size=16)
    try:
        shared.buf[:4] = b"abcd"
        assert total(np.frombuffer(shared.buf, "u1", 4)).item() == sum(b"abcd") % 256
        assert total(shared.buf).dtype == "uint8"
    finally:
        shared.close()
        shared.unlink()
    assert total(b"\1\2\3").item() == 6


def test_host_arrays_beside_arrays_in_usm(axpy):
    y = usmq.full(1000, 1, "f4")
    axpy(2.0, numbers(), y)
    assert (y.to_numpy() == 2 * numbers() + 1).all()
    host = np.zeros(1000, "f4")
    axpy(1.0, y, host)
    axpy(1.0, usmq.read(y), usmq.write(host))
    assert (host == 2 * y.to_numpy()).all()
    queue = usmq.Queue("cpu", in_order=False)
    with usmq.use_queue(queue):
        assert axpy(1.0, numbers(), host).queue == queue
        assert axpy(1.0, usmq.zeros(1000, "f4", queue="cpu"), host).queue != queue
    assert axpy(1.0, numbers(), host, queue=queue).queue == queue


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 5000), (100_000,), (9000, 3)])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_reductions_of_host_arrays(total, shape, step):
    host = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    host = host[..., ::step] if shape else host
    expected = host.sum()
    assert total(host).item() == expected
    for axis in range(host.ndim):
        assert (total(host, axis=axis).to_numpy() == host.sum(axis=axis)).all()
        assert total(host, axis=axis, keepdims=True).shape == host.sum(axis, keepdims=True).shape
    host = np.array(host)
    found = total(host)
    host[...] = -1  # The reduction has read it.
    assert found.item() == expected


def test_raw_arrays_of_the_host():
    gather = usmq.elementwise("const int *at, raw const T *x, T *y", "y[i] = x[at[i]]")
    x, y = numbers(), np.zeros(3, "f4")
    gather(np.array([5, 0, 999], "i4"), x, y)
    assert y.tolist() == [5, 0, 999]
    gather(np.array([5, 0, 499], "i4"), x[::2], y)
    assert y.tolist() == [10, 0, 998]
    squares = usmq.elementwise("raw long *x", "x[i] = i * i")
    z = np.zeros(5, "i8")
    squares(z, size=5)
    assert z.tolist() == [0, 1, 4, 9, 16]
    with pytest.raises(usmq.LaunchError, match="size is unknown"):
        squares(z)


@pytest.mark.usefixtures("reaches")
def test_nothing_is_copied_in_place(axpy):
    host = numbers()
    with usmq.profile() as profile:
        axpy(1.0, host[::2], host[1::2])
    assert not [event for event in profile.events if event.kind == "copy"]


ON_BOTH = """
import numpy as np, usmq
axpy = usmq.elementwise("float a, const float *x, float *y", "y[i] += a * x[i]")
mixed = usmq.elementwise("float *x, float *y", "x[i] += 1; y[i] *= 2")
total = usmq.reduction("const T *x", "T", "x[i]", "a + b", "0")
def numbers(*shape):
    return np.arange(np.prod(shape), dtype="f4").reshape(shape)
x, y = numbers(1000), numbers(1000)
event = axpy(2.0, x, y)
print(event.done(), event.queue.device.device_type, (y == 3 * x).all(), (x == numbers(1000)).all())
axpy(1.0, x[::2], x[1::2])
print(x[:6].tolist())
mixed(x[:10], x[:10])
mixed(x[10:30:3].reshape(1, 7), x[10:30:3])
print(x[:30].tolist())
table = np.asfortranarray(numbers(4, 6))
axpy(1.0, table[::-1, 1], table[:, 2])
axpy(1.0, numbers(6), table)
print(table.tolist())
axpy(1.0, np.float32(3.0).reshape(()), table[1:3, ::-2])
print(table.tolist())
odd = np.zeros(5, "u1,f4")
axpy(1.0, numbers(5), odd["f1"])
print(odd.tolist())
g = usmq.zeros(10, "f4")
axpy(1.0, x[25:5:-2], g)
axpy(1.0, np.broadcast_to(x[3:4], 10), g)
print(g.tolist())
print(total(x).item(), total(table, axis=0).tolist(), total(np.zeros(0)).item())
for a, b in ((x[:9], x[1:10]), (x[::-1], x), (x, x.view(">f4")), (x, np.array([None] * 1000))):
    try:
        axpy(1.0, a, b)
    except usmq.LaunchError as error:
        print(str(error)[:60])
print(axpy(1.0, np.zeros(0, "f4"), np.zeros(0, "f4")).done())
"""


def test_the_results_are_the_same_in_place_and_by_copy():
    in_place = result(ON_BOTH, USMQ_EMULATE_SYSTEM_USM="1")
    by_copy = result(ON_BOTH, USMQ_EMULATE_SYSTEM_USM="0")
    assert by_copy == in_place
    assert by_copy[0] == "True gpu True True"
    assert len(by_copy) == 13


def test_an_array_that_is_only_read_is_not_copied_back():
    code = """
axpy(1.0, x, y)
with usmq.profile() as profile:
    axpy(1.0, x, y)
    axpy(1.0, x[::2], y[::4][:250].repeat(2)[:500])
copies = [event for event in profile.events if event.kind == "copy"]
print(sorted(event.bytes for event in copies), {event.reason for event in copies})
"""
    assert result(START + code) == ["[2000, 2000, 2000, 4000, 4000, 4000] {'host argument'}"]


def test_nothing_is_copied_back_after_a_failure():
    code = """
try:
    axpy(1.0, x, y)
except usmq.SyclError:
    print("failed", (y == 1).all())
"""
    # The first two commands copy the arguments.
    assert result(START + code, USMQ_EMULATE_FAULTS="gpu:0=command-error@3") == ["failed True"]
