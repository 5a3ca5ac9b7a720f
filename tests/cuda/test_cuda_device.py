"""Arrays to and from CUDA memory, beside another CUDA library, on a GPU or the mock driver."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import peer
import pytest
import usmq

LARGE = 5 * (8 << 20) // 4 + 3  # float32 elements: large, and not a multiple of a page


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_elements_of_every_dtype_round_trip(dtype: str) -> None:
    values = (np.arange(24) % 7).astype(dtype).reshape(2, 3, 4)
    there = usmq.asarray(peer.Memory(values))
    assert there.usm_type == "device"
    np.testing.assert_array_equal(there.to_numpy(), values)
    back = usmq.asarray(there, device="cuda:0")
    assert (back.shape, str(back.dtype), back.device) == (values.shape, str(values.dtype), "cuda:0")
    np.testing.assert_array_equal(peer.read(back), values)
    np.testing.assert_array_equal(back.to_numpy(), values)


@pytest.mark.parametrize("number", [None, 1, 2], ids=["handle", "legacy", "per thread"])
def test_our_read_is_ordered_between_the_producers_writes(number: int | None) -> None:
    before, after = np.full(LARGE, 1, "f4"), np.full(LARGE, 2, "f4")
    stream = peer.Stream(number)
    memory = peer.Memory(np.zeros(LARGE, "f4"), stream)
    gate, passed = threading.Event(), []
    stream.run(lambda: passed.append(gate.wait(30)))
    memory.write(before, stream)
    there = usmq.asarray(memory)
    assert not passed, "the host waited for the producer"
    memory.write(after, stream)
    gate.set()
    assert there.to_numpy().min() == there.to_numpy().max() == 1
    stream.wait()
    assert usmq.asarray(memory).to_numpy().min() == 2


def test_a_consumer_of_ours_waits_for_the_transfer() -> None:
    values = np.arange(LARGE, dtype="f4")
    there = usmq.asarray(peer.Memory(values))
    np.testing.assert_array_equal(there.to_numpy(), values)
    for source in (usmq.asarray(values), there):
        ours = usmq.asarray(source, device="cuda:0")
        np.testing.assert_array_equal(peer.read(ours), values)


def test_a_blocking_copy_by_another_library_follows_a_slow_kernel() -> None:
    spin = usmq.Kernel.from_opencl(
        """__kernel void spin(__global float *x, int rounds) {
            float y = x[0];
            for (int i = 0; i < rounds; i++) y = y * 0.5f + 1.0f;
            x[0] = y;
        }""",
        "spin",
    )
    x = usmq.zeros(LARGE, dtype="f4")
    usmq.asarray(x, device="cuda:0").to_numpy()
    spin(1, x, np.int32(100_000_000))  # 0.1 s or more
    x.fill(1)
    ours = usmq.asarray(x, device="cuda:0")
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(peer.read(ours)), daemon=True)
    reader.start()
    # While the reader waits inside the driver, usmq continues.
    again = usmq.asarray(usmq.full(3, 5, dtype="f4"), device="cuda:0")
    np.testing.assert_array_equal(again.to_numpy(), [5, 5, 5])
    reader.join(30)
    assert found, "the reader and the transfer wait for each other"
    assert found[0].min() == found[0].max() == 1


def test_a_kernel_on_the_result_follows_the_transfer() -> None:
    there = usmq.asarray(peer.Memory(np.arange(LARGE, dtype="i4")))
    wide = there.astype("i8")
    assert wide.to_numpy()[-1] == LARGE - 1


def test_strided_and_empty_memory_is_imported() -> None:
    values = np.arange(24, dtype="i4")
    memory = peer.Memory(values)
    entries = memory.__cuda_array_interface__
    start = memory.ptr + 4 * 23
    memory.__cuda_array_interface__ = entries | {
        "shape": (3, 2),
        "strides": (-32, -8),
        "data": (start, True),
    }
    there = usmq.asarray(memory)
    np.testing.assert_array_equal(there.to_numpy(), values[::-1].reshape(3, 8)[:, 0:4:2])
    empty = usmq.asarray(np.empty((0, 3), "f4"), device="cuda:0")
    assert empty.__cuda_array_interface__["data"][0] == 0
    assert usmq.asarray(empty).shape == (0, 3)


def test_a_buffer_of_memory_on_a_device_is_not_used() -> None:
    memory = peer.Memory(np.arange(4, dtype="f4"))

    class LikeCupy(bytearray):
        __cuda_array_interface__ = memory.__cuda_array_interface__

    there = usmq.asarray(LikeCupy(16))
    np.testing.assert_array_equal(there.to_numpy(), [0, 1, 2, 3])
    a, _ = usmq.collocate(LikeCupy(16), usmq.zeros(4, dtype="f4"))
    np.testing.assert_array_equal(a.to_numpy(), [0, 1, 2, 3])


def test_collocate_and_explain_between_cuda_and_sycl() -> None:
    memory = peer.Memory(np.arange(4, dtype="f4"))
    x = usmq.arange(4, dtype="f4")
    plan = usmq.explain(memory, x)
    assert [step.action for step in plan.steps] == ["from_cuda", "keep"]
    assert plan.bytes == 16
    a, b = usmq.collocate(memory, x)
    assert a.queue == b.queue == x.queue
    assert b is x
    c = usmq.collocate(x, like=memory)
    assert isinstance(c, usmq.CudaArray)
    plan = usmq.explain(x, c, [1.0], like=c)
    assert (plan.target, [step.action for step in plan.steps]) == (
        "cuda:0",
        ["to_cuda", "keep", "to_cuda"],
    )
    assert usmq.collocate(c, like=c) is c
    assert usmq.collocate(c, like=x).queue == x.queue
    assert c.to("cpu", usm_type="host").usm_type == "host"


def test_copy_false_refuses_a_transfer() -> None:
    memory = peer.Memory(np.arange(4, dtype="f4"))
    with pytest.raises(ValueError, match="copy=False"):
        usmq.asarray(memory, copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        usmq.asarray([1.0], device="cuda:0", copy=False)
    ours = usmq.asarray(memory, device="cuda:0")
    assert usmq.asarray(ours, device="cuda:0", copy=False) is ours
    other = usmq.asarray(ours, device="cuda:0", copy=True)
    assert other.ptr != ours.ptr
    np.testing.assert_array_equal(peer.read(other), [0, 1, 2, 3])


INVALID: list[tuple[dict[str, Any], type[Exception]]] = [
    *[({"stream": 0}, usmq.InteropError), ({"mask": object()}, usmq.InteropError)],
    *[({"version": version}, usmq.InteropError) for version in (4, 1)],
    *[({"data": (address, False)}, usmq.InteropError) for address in (1, 0)],
    *[({"strides": (3,)}, usmq.InteropError), ({"strides": (4, 4)}, ValueError)],
    *[({"shape": (-1,)}, ValueError), ({"shape": (2**62, 2**62)}, ValueError)],
    *[({"typestr": "<f3"}, TypeError), ({"stream": True}, TypeError)],
]


@pytest.mark.parametrize(("entries", "error"), INVALID)
def test_invalid_descriptions_are_refused(entries: dict[str, Any], error: type[Exception]) -> None:
    memory = peer.Memory(np.arange(4, dtype="f4"), entries=entries)
    with pytest.raises(error):
        usmq.asarray(memory)


def test_an_arrow_array_round_trips_with_its_event() -> None:
    values = np.arange(1000, dtype="i4")
    ours = usmq.asarray(values, device="cuda:0")
    column = usmq.from_arrow(ours)
    np.testing.assert_array_equal(column.values().to_numpy(), values)
    with pytest.raises(usmq.InteropError, match="one axis"):
        usmq.asarray(values.reshape(10, 100), device="cuda:0").__arrow_c_device_array__()


def test_dlpack_round_trips() -> None:
    values = np.arange(LARGE, dtype="f4")
    ours = usmq.asarray(values, device="cuda:0")
    assert ours.__dlpack_device__() == (2, 0)
    there = usmq.from_dlpack(ours)
    np.testing.assert_array_equal(there.to_numpy(), values)


def test_memory_is_released_after_the_transfer() -> None:
    if peer.counts() is None:
        pytest.skip("only the mock driver counts what is alive")
    gc.collect()
    usmq.zeros(1).wait()
    # The release thread may still hold memory of the tests before this one.
    before, since = peer.live(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.01)
        if peer.live() != before:
            before, since = peer.live(), time.monotonic()
    values = np.arange(LARGE, dtype="f4")
    there = usmq.asarray(peer.Memory(values))  # the producer's object is dropped at once
    np.testing.assert_array_equal(there.to_numpy(), values)
    for _ in range(3):
        usmq.asarray(there, device="cuda:0")  # and so does ours

    def released() -> bool:
        usmq.zeros(1).wait()
        return peer.live() == before

    def unregistered() -> bool:
        usmq.trim_memory()
        return peer.counts() is not None and peer.counts()["pinned"] == 0

    assert peer.eventually(released)
    del there
    assert peer.eventually(unregistered), "memory that the runtime has freed is still registered"


def test_transfers_of_threads_are_independent() -> None:
    def work(number: int) -> bool:
        values = np.full(LARGE, number, "f4")
        backs = [usmq.asarray(usmq.asarray(peer.Memory(values)), device="cuda:0") for _ in range(3)]
        return all((peer.read(back) == number).all() for back in backs)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
