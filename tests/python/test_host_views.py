"""Arrays in shared and host USM in libraries that take memory of the host, without a copy."""

import gc

import numpy as np
import pyarrow as pa
import pytest
import usmq

KINDS = ("shared", "host")


def torch_or_skip():
    return pytest.importorskip(
        "torch", reason="torch is not installed: its wheel needs 3 GB of libraries for CUDA"
    )


def of_torch(view):
    torch = torch_or_skip()
    tensors = [torch.from_dlpack(view), torch.as_tensor(view), torch.asarray(view)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 1
    return tensors[0].data_ptr(), tensors[0].tolist()


def of_jax(view):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    array = jax.numpy.from_dlpack(view)
    return array.unsafe_buffer_pointer(), array.tolist()


def of_polars(view):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    series = polars.Series(view)
    return series.to_numpy(allow_copy=False).ctypes.data, series.to_list()


def of_pyarrow(view):
    array = pa.array(view)
    return array.buffers()[1].address, array.to_pylist()


def of_numpy(view):
    arrays = [np.from_dlpack(view), np.asarray(view), np.frombuffer(memoryview(view), "f4")]
    assert len({(array.ctypes.data, *array.tolist()) for array in arrays}) == 1
    return arrays[0].ctypes.data, arrays[0].tolist()


READERS = (of_torch, of_jax, of_polars, of_pyarrow, of_numpy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_a_view_is_read_in_place(reader, kind):
    x = usmq.arange(64, dtype="f4", usm_type=kind)
    if x.ptr % 64:
        pytest.skip("jax copies memory that is not aligned to 64 bytes")
    address, values = reader(x.host_view())
    assert address == x.ptr
    assert values == list(range(64))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_waits_for_writes(kind, kernels, advanced):
    x = usmq.zeros(1, "u4", usm_type=kind)
    view = x.host_view()
    kernels.advance(1, x, np.uint32(1 << 22))
    assert np.from_dlpack(view).tolist() == advanced([0], 1 << 22).tolist()
    kernels.advance(1, x, np.uint32(1 << 22))
    assert np.asarray(view).tolist() == advanced([0], 1 << 23).tolist()


def test_a_view_writes_and_keeps_the_memory():
    x = usmq.zeros((2, 3), "i8", usm_type="shared")
    matrix = np.from_dlpack(x.host_view())
    matrix[1] = [4, 5, 6]
    assert x.tolist() == [[0, 0, 0], [4, 5, 6]]
    part = x[:, 1].host_view()
    assert len(part) == 2
    assert np.asarray(part).tolist() == [0, 5]
    del x
    gc.collect()
    assert matrix[1].tolist() == [4, 5, 6]


def test_a_view_is_on_the_host():
    view = usmq.ones(3, usm_type="host").host_view()
    assert view.__dlpack_device__() == (1, 0)
    with pytest.raises(TypeError, match="stream must be None"):
        view.__dlpack__(stream=1)
    with pytest.raises(usmq.InteropError, match=r"DLPack device \(2, 0\) was requested"):
        view.__dlpack__(dl_device=(2, 0))
    assert repr(view).startswith("<usmq host view of float32[3] (host USM")
    with pytest.raises(BufferError, match=r"the host cannot read float32\[3\].*to_numpy\(\)"):
        usmq.ones(3).host_view()


def test_numpy_reads_the_dtype_of_an_array():
    for dtype in ("bool", "i1", "u8", "f2", "f8", "c8"):
        x = usmq.zeros(2, dtype)
        assert np.dtype(x) == np.dtype(x.dtype) == np.dtype(dtype)
        assert np.result_type(x, "f8") == np.result_type(np.dtype(dtype), "f8")


class Tensor:
    """An object that has only DLPack, as tensors of torch."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_are_assigned_and_passed_to_kernels(kernels):
    source = np.arange(6, dtype="f4")
    x = usmq.zeros(6, "f4")
    x[:] = Tensor(source)
    assert x.tolist() == source.tolist()
    x[::2] = Tensor(np.array([7, 8, 9]))
    assert x.tolist() == [7, 1, 8, 3, 9, 5]
    x.copy_from(Tensor(usmq.ones(6, "f4")))
    assert x.tolist() == [1] * 6
    kernels.axpy(6, np.float32(2), Tensor(source), x, np.uint64(6)).wait()
    assert x.tolist() == (2 * source + 1).tolist()
    result = np.zeros(6, "f4")
    marked = usmq.read(Tensor(x)), usmq.write(Tensor(result))
    kernels.axpy(6, np.float32(2), *marked, np.uint64(6)).wait()
    assert result.tolist() == (2 * x.to_numpy()).tolist()
    with pytest.raises(usmq.LaunchError, match="elements of int64"):
        kernels.axpy(6, np.float32(2), Tensor(np.arange(6)), x, np.uint64(6))
    read_only = pa.array(source)
    kernels.axpy(6, np.float32(1), read_only, x, np.uint64(6)).wait()
    assert x.tolist() == (3 * source + 1).tolist()
    with pytest.raises(usmq.LaunchError, match="read-only"):
        kernels.axpy(6, np.float32(2), x, read_only, np.uint64(6))


def test_torch_tensors_are_assigned_and_passed_to_kernels(kernels):
    torch = torch_or_skip()
    x = usmq.zeros(6, "f4")
    x[:] = torch.arange(6, dtype=torch.float32)
    kernels.axpy(6, np.float32(2), torch.ones(6), x, np.uint64(6)).wait()
    assert x.tolist() == [2, 3, 4, 5, 6, 7]
    with pytest.raises(BufferError, match="detach"):
        x[:] = torch.ones(6, requires_grad=True)


def test_jax_takes_shared_memory_as_an_array():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = usmq.arange(3, dtype="f4", usm_type="shared")
    assert jax.numpy.asarray(x).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"call to_numpy\(\)"):
        jax.numpy.asarray(usmq.ones(3))


def test_a_bare_capsule_is_imported_once():
    capsule = usmq.arange(3).__dlpack__(max_version=(1, 0))
    assert usmq.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(usmq.InteropError, match=r"has been used.*call __dlpack__\(\) again"):
        usmq.from_dlpack(capsule)
    assert usmq.from_dlpack(np.arange(3).__dlpack__()).tolist() == [0, 1, 2]


MAKERS = {
    "empty": [2],
    "zeros": [2],
    "ones": [2],
    "full": [2, 7],
    "arange": [2],
    "empty_like": [np.ones(2)],
    "zeros_like": [np.ones(2)],
    "ones_like": [np.ones(2)],
    "full_like": [np.ones(2), 7],
    "asarray": [[1, 2]],
    "from_dlpack": [np.arange(2)],
    "from_arrow": [pa.array([1.0])],
}


@pytest.mark.parametrize("name", [*MAKERS, "to"])
def test_device_is_another_name_of_queue(name):
    def make(**given):
        if name == "to":
            return usmq.ones(2).to(*([given.pop("queue")] if "queue" in given else []), **given)
        made = getattr(usmq, name)(*MAKERS[name], **given)
        return made.values() if name == "from_arrow" else made

    queue = usmq.Queue(in_order=False)
    assert make(device=queue).queue == queue
    assert make(device=queue.device).device == queue.device
    with pytest.raises(TypeError, match="pass one of them"):
        make(device=queue, queue=queue)
    with pytest.raises(TypeError, match="device must be a filter string"):
        make(device=3.5)
