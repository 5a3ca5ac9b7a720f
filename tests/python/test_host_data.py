"""Arrays in system memory: host memory, used in place."""

import array
import contextlib
import gc
import mmap
import pickle
from multiprocessing import shared_memory

import numpy as np
import pyarrow as pa
import pytest
import usmq
from emulated import result
from host_memory import GPU, address, frozen, in_place


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2", "f4", "f8", "c8", "c16"])
def test_a_numpy_array_is_used_in_place_on_request(dtype):
    host = np.arange(12).reshape(3, 4).astype(dtype)
    for copy in (None, True):
        assert usmq.asarray(host, copy=copy).usm_type == "device"
    x = in_place(host)
    assert (x.ptr, x.shape, x.strides) == (address(host), (3, 4), host.strides)
    assert str(x.dtype) == host.dtype.name
    assert not x.readonly
    x.fill(1)
    x.wait()
    assert (host == 1).all()


@pytest.mark.parametrize(
    "part", [np.s_[::2], np.s_[::-1], np.s_[1:, 1], np.s_[..., ::-2], np.s_[0], np.s_[2:2]]
)
def test_strided_views_keep_their_strides(part):
    host = np.arange(24, dtype="i4").reshape(4, 6)
    view = np.asarray(host[part])
    x = in_place(view)
    assert x.shape == view.shape
    assert x.to_numpy().tolist() == view.tolist()
    x.fill(-1)
    x.wait()
    expected = np.arange(24, dtype="i4").reshape(4, 6)
    expected[part] = -1
    assert (host == expected).all()


@contextlib.contextmanager
def shared_bytes(size):
    """Shared memory of a name, which the block must not use at its end."""
    shared = shared_memory.SharedMemory(create=True, size=size)
    try:
        yield shared
    finally:
        usmq.trim_memory()
        shared.close()
        shared.unlink()


def test_every_kind_of_buffer_is_used_in_place():
    with mmap.mmap(-1, 4096) as mapped:
        x = in_place(mapped)
        x[0] = 7
        x.wait()
        assert mapped[0] == 7
        del x
        usmq.trim_memory()
    with shared_bytes(4096) as shared:
        x = in_place(shared.buf)
        x[:3].fill(9)
        x.wait()
        assert bytes(shared.buf)[:4] == b"\x09\x09\x09\x00"
        del x
    for host in (bytearray(b"abc"), memoryview(bytearray(b"abc")), array.array("d", [1, 2, 3])):
        x = in_place(host)
        x[1] = 65
        x.wait()
        assert host[1] == 65
    assert in_place(b"abc").readonly
    assert in_place(b"abc").tolist() == [97, 98, 99]


def test_read_only_memory_stays_so():
    x = in_place(frozen())
    assert x.readonly
    with pytest.raises(ValueError, match="read-only"):
        x.fill(1)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.0, 2.0, 3.0]),
        pa.array([0.0, 1.0, 2.0, 3.0, 4.0])[1:4],
        pa.chunked_array([[1.0, 2.0, 3.0]]),
        pa.chunked_array([[], [1.0, 2.0, 3.0], []], pa.float64()),
        pa.chunked_array([[0.0, 1.0, 2.0, 3.0, 4.0]]).slice(1, 3),
        pa.chunked_array([[0.0], [1.0, 2.0, 3.0]]).slice(1),
        pa.table({"x": [1.0, 2.0, 3.0]})["x"],
    ],
    ids=["array", "part", "one", "with empty ones", "slice", "slice of the second", "of a table"],
)
@pytest.mark.usefixtures("reaches")
def test_arrow_numbers_in_one_place_are_used_in_place(values):
    x = usmq.asarray(values, copy=False)
    assert (x.usm_type, x.dtype, x.readonly) == ("system", "float64", True)
    part = next(part for part in getattr(values, "chunks", [values]) if len(part))
    assert x.ptr == part.buffers()[1].address + part.offset * 8
    del values, part
    gc.collect()
    assert x.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([1, None]), "nulls"),
        (pa.array(["a"]), "does not hold plain numbers"),
        (pa.chunked_array([[1.0], [2.0]]), r"chunks 0 and 1 .*not contiguous.*combine_chunks\(\)"),
        (pa.chunked_array([[], [1.0], [], [2.0]], pa.float64()), "chunks 1 and 3"),
        (pa.chunked_array([[1.0, None]]), "has nulls"),
        (pa.chunked_array([[True, False]]), "does not hold plain numbers"),
        (pa.chunked_array([["a"]]), "does not hold plain numbers"),
        (pa.table({"x": [1, 2]}), "a table is not an array"),
        (pa.table({"x": [1, 2]}).to_reader(), "a table is not an array"),
    ],
)
@pytest.mark.usefixtures("reaches")
def test_arrow_data_that_is_no_array_in_place_is_an_error(values, text):
    with pytest.raises((ValueError, TypeError), match=text):
        usmq.asarray(values, copy=False)


@pytest.mark.usefixtures("reaches")
def test_data_without_elements_needs_no_copy_and_no_alignment():
    for empty in (
        pa.chunked_array([], type=pa.float32()),
        pa.chunked_array([[]], pa.float32()),
        pa.array([], pa.float32()),
        array.array("f"),
        b"",
        bytearray(),
        np.zeros((0, 3), "f4"),
        np.zeros((4, 0), "f4")[::2],
    ):
        x = usmq.asarray(empty, copy=False)
        assert x.size == 0
        assert x.tolist() == np.zeros(x.shape).tolist()


def test_dlpack_tensors_of_the_host_are_used_in_place():
    class Tensor:
        def __init__(self, host):
            self.host = host

        def __dlpack__(self, **kwargs):
            return self.host.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.host.__dlpack_device__()

    host = np.arange(6, dtype="f4").reshape(2, 3)[:, ::2]
    x = in_place(Tensor(host))
    assert (x.ptr, x.tolist()) == (address(host), host.tolist())


def test_a_view_of_host_usm_is_ordered_with_it(kernels):
    x = usmq.zeros(1 << 14, "u4", usm_type="host", queue=usmq.Queue("cpu", in_order=False))
    y = in_place(np.asarray(x), queue=usmq.Queue("cpu"))
    assert y.ptr == x.ptr
    kernels.advance(x.size, x, np.uint32(2000))
    kernels.advance(y.size, y, np.uint32(2000))
    once = usmq.zeros(1 << 14, "u4")
    kernels.advance(once.size, once, np.uint32(4000))
    assert (y.to_numpy() == once.to_numpy()).all()


def test_system_memory_is_in_reach_in_any_context(queue_of_other_context, host_kernels):
    host = np.ones(1000, "f4")
    x = in_place(host)
    moved = usmq.collocate(x, queue=queue_of_other_context)
    assert (moved.ptr, moved.usm_type, moved.queue) == (x.ptr, "system", queue_of_other_context)
    step = usmq.explain(x, queue=queue_of_other_context).steps[0]
    assert (step.action, step.bytes) == ("rebind", 0)
    assert "system memory" in step.reason
    host_kernels.add(1000, x, moved, queue=queue_of_other_context)
    x.wait()
    assert (host == 2).all()


@pytest.mark.parametrize("take", [np.from_dlpack, np.asarray])
def test_dlpack_and_the_buffer_protocol_export_it_as_host_memory(host_kernels, take):
    x = in_place(np.ones(1 << 20, "f4"))
    host_kernels.add(x.size, x, x)
    theirs = take(x)
    assert (address(theirs), theirs[0], theirs[-1]) == (x.ptr, 2, 2)


def test_it_is_not_exported_as_usm():
    x = in_place(np.ones(3))
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="collocate"):
        x.__dlpack__(dl_device=(14, 0))
    with pytest.raises(AttributeError, match=r"system memory.*is not USM"):
        _ = x.__sycl_usm_array_interface__
    assert not hasattr(x, "__usm_ndarray__")


def test_arrow_exports_it_as_host_memory(host_kernels):
    host = np.ones(1 << 20, "f4")
    x = in_place(host)
    host_kernels.add(x.size, x, x)
    column = usmq.from_arrow(x)
    assert column.usm_type == "system"
    theirs = pa.array(column.host_view())
    assert (theirs.buffers()[1].address, theirs[0].as_py()) == (x.ptr, 2)
    schema, data = x.__arrow_c_device_array__()
    back = pa.Array._import_from_c_device_capsule(schema, data)
    assert (back.device_type, back.buffers()[1].address) == (pa.DeviceAllocationType.CPU, x.ptr)
    table = usmq.Table({"x": x, "n": usmq.zeros(x.size, "f4", queue=x.queue)})
    with pytest.raises(usmq.InteropError, match="system memory and in device USM"):
        pa.record_batch(table)


def test_pools_limits_and_statistics_leave_it_out():
    before = usmq.memory_stats()
    x = in_place(np.ones(1 << 20))
    assert usmq.memory_stats() == before
    usmq.set_memory_limit(1 << 20)
    try:
        assert in_place(np.ones(1 << 20)).nbytes == 8 << 20
    finally:
        usmq.set_memory_limit(None)
    assert "usm_type='system'" in repr(x)


@pytest.mark.parametrize("protocol", [4, 5])
def test_pickles_copy_it(protocol):
    host = np.arange(12.0).reshape(3, 4)[:, ::2]
    back = pickle.loads(pickle.dumps(in_place(host), protocol=protocol))
    assert (back.usm_type, back.tolist()) == ("device", host.tolist())


def test_copies_and_conversions():
    host = np.arange(6, dtype="i4").reshape(2, 3)
    x = in_place(host)
    assert (x.copy().usm_type, x.T.reshape(6).usm_type) == ("host", "host")
    assert x.astype("f4").tolist() == host.tolist()
    moved = usmq.asarray(x, usm_type="device")
    assert (moved.usm_type, moved.tolist()) == ("device", host.tolist())
    assert usmq.asarray(x) is x
    y = usmq.zeros((2, 3), "i4")
    y.copy_from(x)
    x[0] = y[1]
    x.wait()
    assert host.tolist() == [[3, 4, 5], [3, 4, 5]]
    assert usmq.follow(x) == x.queue


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: usmq.asarray([1, 2], copy=False), "a number or a list"),
        (lambda: usmq.asarray(3, copy=False), "a number or a list"),
        (lambda: usmq.asarray(np.zeros(3), "f4", copy=False), "dtype float32 instead of float64"),
        (lambda: usmq.asarray(np.zeros(3), usm_type="host", copy=False), "host USM"),
        (lambda: usmq.asarray(np.zeros(9, "u1")[1:].view("f4"), copy=False), "not a multiple"),
        (lambda: usmq.asarray(np.zeros(3, "u1,f4")["f1"], copy=False), "not a multiple"),
    ],
)
@pytest.mark.usefixtures("reaches")
def test_a_needed_copy_is_an_error(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("host", [np.zeros(3, ">f4"), np.array([None]), np.zeros(3, "M8[s]")])
def test_unsupported_elements_are_errors(host):
    with pytest.raises((TypeError, ValueError)):
        usmq.asarray(host, copy=False)


def test_two_processes_compute_on_shared_memory(run_python):
    with shared_bytes(4096) as shared:
        mine = in_place(shared.buf)
        mine.fill(3)
        mine.wait()
        code = f"""
from multiprocessing import resource_tracker, shared_memory
import usmq
shared = shared_memory.SharedMemory({shared.name!r})
resource_tracker.unregister(shared._name, "shared_memory")  # The other process owns it.
x = usmq.asarray(shared.buf, copy=False, queue="cpu")
print(int(x[4095]))
x[:4].fill(5)
x.wait()
del x
usmq.trim_memory()
shared.close()
"""
        assert run_python(code).stdout.split() == ["3"]
        assert mine[:5].tolist() == [5, 5, 5, 5, 3]
        del mine


def test_a_gpu_without_system_memory_refuses_arrays_in_place():
    code = """
import numpy as np, pyarrow as pa, usmq
for host in (np.zeros(3), b"abc", pa.array([1.0])):
    try:
        usmq.asarray(host, copy=False)
    except ValueError as error:
        print("usm_system_allocations" in str(error))
print(usmq.asarray(np.zeros(3)).usm_type)
"""
    assert result(code) == ["True"] * 3 + ["device"]


def test_a_gpu_with_system_memory_uses_it_in_place():
    code = f"""{GPU}
host = numbers()
x = usmq.asarray(host, copy=False)
y = usmq.collocate(x, queue="gpu:1")
print(x.usm_type, x.device.device_type, y.ptr == x.ptr)
axpy(1000, 1.0, y, x, queue=x.queue)
axpy(1000, 1.0, x, y, queue=y.queue)
x.wait()
print((host == 4 * numbers()).all())
z = usmq.zeros(1000, "f4")
axpy(1000, 1.0, host, z)
print((z.to_numpy() == host).all())
"""
    assert result(code, USMQ_EMULATE_SYSTEM_USM="1") == ["system gpu True", "True", "True"]
