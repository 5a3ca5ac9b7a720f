"""Arrays to and from CuPy, PyTorch, JAX and Numba on an NVIDIA GPU, in one process."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import usmq

COUNT = 5_000_003  # float32 elements: large, and not a multiple of a page


@pytest.fixture(scope="session")
def cupy() -> Any:
    return pytest.importorskip("cupy", exc_type=ImportError)


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", exc_type=ImportError)


@pytest.fixture(scope="session")
def jax() -> Any:
    return pytest.importorskip("jax", exc_type=ImportError)


@pytest.fixture(scope="session")
def cuda() -> Any:
    """Numba's module for CUDA."""
    return pytest.importorskip("numba.cuda", exc_type=ImportError)


def late(cupy: Any) -> Any:
    """Return a kernel that writes after a few milliseconds of work."""
    return cupy.RawKernel(
        """extern "C" __global__ void late(float* x, int n, float value, long long cycles) {
            long long start = clock64();
            while (clock64() - start < cycles) { }
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
                x[i] = value;
        }""",
        "late",
    )


CYCLES = np.int64(100_000_000)  # 50 ms or more


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "u8", "f2", "f4", "f8", "c8"])
def test_cupy_arrays_round_trip(cupy: Any, dtype: str) -> None:
    values = (np.arange(24) % 7).astype(dtype).reshape(2, 3, 4)
    there = usmq.asarray(cupy.asarray(values))
    np.testing.assert_array_equal(there.to_numpy(), values)
    back = usmq.asarray(there, device="cuda:0")
    for view in (cupy.asarray(back), cupy.from_dlpack(back)):
        assert view.data.ptr == back.ptr
        np.testing.assert_array_equal(cupy.asnumpy(view), values)


def test_strided_cupy_arrays_are_imported(cupy: Any) -> None:
    values = cupy.arange(10_000, dtype="f8").reshape(100, 100)
    for view in (values.T, values[::-3, 5::7], values[3], values[:0]):
        np.testing.assert_array_equal(usmq.asarray(view).to_numpy(), cupy.asnumpy(view))


@pytest.mark.parametrize("name", ["null", "ptds", "new"])
def test_an_import_follows_the_work_of_the_current_cupy_stream(cupy: Any, name: str) -> None:
    stream = {
        "null": cupy.cuda.Stream.null,
        "ptds": cupy.cuda.Stream.ptds,
        "new": cupy.cuda.Stream(non_blocking=True),
    }[name]
    kernel = late(cupy)
    x = cupy.zeros(COUNT, "f4")
    cupy.cuda.Device().synchronize()
    with stream:
        for value in (1.0, 2.0, 3.0):
            kernel((64,), (256,), (x, np.int32(COUNT), np.float32(value), CYCLES))
            start = time.perf_counter()
            there = usmq.asarray(x)
            elapsed = time.perf_counter() - start
            kernel((64,), (256,), (x, np.int32(COUNT), np.float32(-1), np.int64(0)))
            if value > 1:  # the first call compiles the kernel and pins buffers
                assert elapsed < 0.04, "the host waited for the producer"
            found = there.to_numpy()
            assert found.min() == found.max() == value


def test_cupy_work_follows_an_export(cupy: Any) -> None:
    x = usmq.empty(COUNT, dtype="f4")
    for value in range(20):
        x.fill(value)
        there = cupy.asarray(usmq.asarray(x, device="cuda:0"))
        total = there + 1
        assert float(total.min()) == float(total.max()) == value + 1


def test_cupy_arrays_take_part_in_collocate(cupy: Any) -> None:
    there = cupy.arange(6, dtype="f4")
    x = usmq.ones(6, dtype="f4")
    a, b = usmq.collocate(there, x)
    assert b is x
    np.testing.assert_array_equal(a.to_numpy(), np.arange(6))
    c = usmq.collocate(x, like=there)
    assert float((there + cupy.asarray(c)).sum()) == 21


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool", "complex64"])
def test_torch_tensors_round_trip(torch: Any, dtype: str) -> None:
    values = torch.arange(24, device="cuda").reshape(4, 6).to(getattr(torch, dtype))
    for source in (values, values.T, values[:, 1::2]):
        for import_ in (usmq.asarray, usmq.from_dlpack):
            there = import_(source)
            np.testing.assert_array_equal(there.to_numpy(), source.cpu().numpy())
            back = usmq.asarray(there, device="cuda:0")
            for view in (torch.from_dlpack(back), torch.as_tensor(back, device="cuda")):
                assert view.data_ptr() == back.ptr
                assert torch.equal(view, source)


def test_an_import_follows_the_work_of_the_current_torch_stream(torch: Any) -> None:
    x = torch.zeros(COUNT, device="cuda")
    torch.cuda.synchronize()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for value in range(1, 6):
                torch.cuda._sleep(int(CYCLES) // 4)
                x.fill_(value)
                there = usmq.asarray(x)
                x.fill_(-1)
                found = there.to_numpy()
                assert found.min() == found.max() == value


def test_torch_work_follows_an_export(torch: Any) -> None:
    x = usmq.empty(COUNT, dtype="f4")
    for value in range(20):
        x.fill(value)
        there = torch.from_dlpack(usmq.asarray(x, device="cuda:0"))
        assert (there + 1).eq(value + 1).all().item()


def test_pinned_torch_memory_is_imported(torch: Any) -> None:
    values = torch.arange(1000, dtype=torch.float32).pin_memory()
    np.testing.assert_array_equal(usmq.from_dlpack(values).to_numpy(), np.arange(1000))


def test_jax_arrays_round_trip(jax: Any) -> None:
    values = jax.numpy.arange(24, dtype="float32").reshape(4, 6) * 2
    there = usmq.asarray(values)
    np.testing.assert_array_equal(there.to_numpy(), np.asarray(values))
    back = jax.dlpack.from_dlpack(usmq.asarray(there, device="cuda:0"))
    assert bool((back == values).all())


def test_numba_arrays_round_trip(cuda: Any) -> None:
    values = np.arange(1000, dtype="i4")
    there = usmq.asarray(cuda.to_device(values))
    np.testing.assert_array_equal(there.to_numpy(), values)
    back = cuda.as_cuda_array(usmq.asarray(there, device="cuda:0"))
    np.testing.assert_array_equal(back.copy_to_host(), values)


def test_threads_of_cupy_torch_and_usmq_share_the_device(cupy: Any, torch: Any) -> None:
    stop = time.monotonic() + 20
    errors: list[str] = []
    rounds = [0, 0, 0, 0]

    def through_cupy(number: int, value: int) -> None:
        with cupy.cuda.Stream(non_blocking=True):
            x = cupy.full(1 << 16, value, "f4") * 2
            there = usmq.asarray(x)
            x.fill(-1)
            back = cupy.asarray(usmq.asarray(there, device="cuda:0"))
            if not bool((back == 2 * value).all()):
                errors.append(f"cupy {number}: {value}")

    def through_torch(number: int, value: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1 << 16,), float(value), device="cuda") * 2
            there = usmq.from_dlpack(x)
            x.fill_(-1)
            back = torch.from_dlpack(usmq.asarray(there, device="cuda:0"))
            if not (back == 2 * value).all().item():
                errors.append(f"torch {number}: {value}")

    def work(number: int, call: Callable[[int, int], None]) -> None:
        try:
            while time.monotonic() < stop and not errors:
                call(number, rounds[number] % 1000)
                rounds[number] += 1
        except Exception as error:
            errors.append(repr(error))

    calls = [through_cupy, through_torch, through_cupy, through_torch]
    threads = [
        threading.Thread(target=work, args=(number, call), daemon=True)
        for number, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread is blocked"
    assert not errors
    assert min(rounds) > 10, rounds
    print(f"rounds of the four threads: {rounds}")
