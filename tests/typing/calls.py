"""The main calls for a type checker: `make lint` checks this file with mypy; it is never run.

An `ignore` stands where an error is expected; mypy complains about one that is not needed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, assert_type

import numpy as np
import numpy.typing as npt
import usmq

UsmType = Literal["device", "shared", "host"]
MemoryType = Literal["device", "shared", "host", "system"]


def queues(device: usmq.Device, queue: usmq.Queue) -> None:
    assert_type(usmq.devices(), list[usmq.Device])
    assert_type(usmq.Device(), usmq.Device)
    assert_type(usmq.Device("gpu:1"), usmq.Device)
    assert_type(usmq.Device(queue), usmq.Device)
    assert_type(device.filter_string, str | None)
    assert_type(device.parent, usmq.Device | None)
    assert_type(device.global_mem_size, int)
    assert_type(device.aspects, list[str])
    assert_type(device.sub_devices(2), list[usmq.Device])
    assert_type(device.sub_devices([1, 1]), list[usmq.Device])
    assert_type(device.sub_devices("numa"), list[usmq.Device])
    assert_type(device.has_usm("host"), bool)
    assert_type(usmq.Queue(device, in_order=False, profiling=True), usmq.Queue)
    assert_type(usmq.Queue("cpu", context=queue.context), usmq.Queue)
    assert_type(queue.context.devices, list[usmq.Device])
    assert_type(usmq.current_queue(), usmq.Queue)
    assert_type({queue: 1}, dict[usmq.Queue, int])
    with usmq.use_queue("cpu") as inner:
        assert_type(inner, usmq.Queue)
    with usmq.use_queue(None):
        pass
    usmq.set_default_queue(None)
    manager = usmq.QueueManager("package")
    assert_type(manager.current_queue(), usmq.Queue)
    with manager.use_queue(device) as inner:
        assert_type(inner, usmq.Queue)

    assert_type(device.max_work_item_sizes2d, tuple[int, int])
    assert_type(device.sub_group_sizes, list[int])
    assert_type(device.platform, usmq.Platform)
    assert_type(usmq.platforms()[0].default_context, usmq.Context)
    assert_type(usmq.devices(aspects=["fp64"], backend="opencl"), list[usmq.Device])
    assert_type(usmq.Device.select(device_type="gpu", excluded_aspects=("emulated",)), usmq.Device)

    event = queue.barrier(after=[queue.barrier()])
    assert_type(event, usmq.Event)
    assert_type(usmq.Queue(priority="high").priority, Literal["high", "normal", "low"])
    with usmq.capture(inputs={"x": usmq.zeros(3)}) as graph:
        assert_type(graph, usmq.Graph)
    assert_type(graph.replay({"x": usmq.ones(3)}), usmq.Event)
    assert_type(graph.explain(), str)
    assert_type(usmq.capture().svg(), str)
    with usmq.Timer(queue) as timer:
        pass
    assert_type(timer.device_s, float)

    usmq.Queue(priority="urgent")  # type: ignore[arg-type]
    queue.barrier(event)  # type: ignore[arg-type]
    usmq.Device.select(["fp64"])  # type: ignore[call-arg]
    usmq.Device(1)  # type: ignore[arg-type]
    usmq.Queue("cpu", None, True)  # type: ignore[call-arg]
    usmq.Queue(profiling="yes")  # type: ignore[arg-type]
    usmq.use_queue()  # type: ignore[call-arg]
    device.has_usm("managed")  # type: ignore[arg-type]
    device.sub_devices("l3")  # type: ignore[arg-type]
    device.name = "other"  # type: ignore[misc]
    queue.submit()  # type: ignore[attr-defined]


class Foreign:
    """Another library's queue."""

    def _get_capsule(self) -> Any: ...


def a_scope_does_not_hide_what_comes_after(foreign: Foreign) -> int:
    # UseQueue never swallows an exception, so this function is known to return.
    with usmq.use_queue(foreign):
        return 1


@usmq.use_queue("cpu")
def decorated(x: int) -> str:
    return str(x)


@usmq.QueueManager("package").use_queue(None)
async def decorated_coroutine() -> int:
    return 1


async def a_decorated_function_keeps_its_type() -> None:
    assert_type(decorated(1), str)
    assert_type(await decorated_coroutine(), int)
    decorated("1")  # type: ignore[arg-type]
    usmq.use_queue("cpu")(3)  # type: ignore[type-var]


def arrays(x: usmq.Array, host: npt.NDArray[np.float32]) -> None:
    assert_type(usmq.empty(3), usmq.Array)
    assert_type(usmq.empty((2, 3), "f4", usm_type="shared", queue="cpu"), usmq.Array)
    assert_type(usmq.zeros(np.int64(3), np.float32), usmq.Array)
    assert_type(usmq.full(3, 1j, complex), usmq.Array)
    assert_type(usmq.full(3, np.float16(1)), usmq.Array)
    assert_type(usmq.ones((2, 3), "f4"), usmq.Array)
    assert_type(usmq.zeros_like(x, "f4", shape=3, usm_type="host", queue="cpu"), usmq.Array)
    assert_type(usmq.ones_like(host), usmq.Array)
    assert_type(usmq.full_like(x, 1), usmq.Array)
    assert_type(usmq.concatenate([x, x], axis=None), usmq.Array)
    assert_type(usmq.stack((x, x), 1), usmq.Array)
    assert_type(usmq.squeeze(x, (0, 1)), usmq.Array)
    assert_type(x.squeeze().expand_dims(0), usmq.Array)
    assert_type(x.ravel(), usmq.Array)
    assert_type(x.to("gpu:1", dtype="f4", usm_type="host"), usmq.Array)
    assert_type(x.collocate(x), usmq.Array)
    assert_type({x: 1}, dict[usmq.Array, int])
    usmq.set_memory_limit("512MiB", "cpu")
    assert_type(usmq.live_allocations()[0]["source"], str | None)
    usmq.record_allocations(False)
    assert_type(usmq.arange(3), usmq.Array)
    assert_type(usmq.arange(0, 1, 0.25, "f8"), usmq.Array)
    assert_type(usmq.asarray(host, copy=None), usmq.Array)
    assert_type(usmq.asarray([[1, 2], [3, 4]], x.dtype), usmq.Array)
    assert_type(usmq.asarray(b"bytes"), usmq.Array)
    assert_type(usmq.asarray(x, copy=False), usmq.Array)
    assert_type(usmq.from_dlpack(host), usmq.Array)
    assert_type(x.prefetch("cpu"), usmq.Event)
    assert_type(x.mem_advise(0, queue=None), usmq.Event)
    x.mem_advise("read")  # type: ignore[arg-type]
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.dtype, usmq.DType)
    assert_type(x.dtype.dtype, np.dtype[Any])
    assert_type(x.dtype.str, str | None)
    assert_type(x.usm_type, MemoryType)
    assert_type(x.ptr, int)
    assert_type(x.readonly, bool)
    assert_type(x.T, usmq.Array)
    assert_type(x.real, usmq.Array)
    assert_type(x.imag, usmq.Array)
    assert_type(x.reshape(2, -1), usmq.Array)
    assert_type(x.reshape((2, -1)), usmq.Array)
    assert_type(x.transpose(1, 0), usmq.Array)
    assert_type(x[0], usmq.Array)
    assert_type(x[..., None, 1:-1:2], usmq.Array)
    assert_type(x.astype("f8"), usmq.Array)
    assert_type(x.to_numpy(), npt.NDArray[Any])
    assert_type(x.tolist(), Any)
    assert_type(memoryview(x.host_view()), memoryview)
    assert_type(memoryview(x), memoryview)
    assert_type(len(x), int)
    assert_type(x.__dlpack_device__(), tuple[int, int])
    assert_type(x.__sycl_usm_array_interface__["shape"], tuple[int, ...])
    assert_type(np.asarray(x), npt.NDArray[Any])
    x[1:] = 0
    x[0] = [1, 2]
    x.copy_from(host)
    x.fill(1)

    usmq.full_like(x)  # type: ignore[call-arg]
    usmq.concatenate(3)  # type: ignore[arg-type]
    usmq.zeros()  # type: ignore[call-arg]
    usmq.zeros("3")  # type: ignore[arg-type]
    usmq.zeros(3, "f4", "shared")  # type: ignore[call-arg]
    usmq.zeros(3, usm_type="managed")  # type: ignore[arg-type]
    usmq.full(3)  # type: ignore[call-arg]
    usmq.asarray(None)  # type: ignore[call-overload]
    x["column"]  # type: ignore[index]
    x[[0, 1]]  # type: ignore[index]
    x + x  # type: ignore[operator]
    x.reshape("2")  # type: ignore[arg-type]
    x.fill([1])  # type: ignore[arg-type]
    x.__sycl_usm_array_interface__["stream"]  # type: ignore[typeddict-item]


def placement(x: usmq.Array, y: usmq.Array, queue: usmq.Queue) -> None:
    assert_type(usmq.follow(x, y), usmq.Queue)
    assert_type(usmq.follow(x, queue="cpu"), usmq.Queue)
    assert_type(usmq.collocate(x, like=y), usmq.Array)
    assert_type(usmq.collocate([1.0], queue=queue), usmq.Array)
    assert_type(usmq.collocate(x, y), tuple[usmq.Array, ...])
    assert_type(usmq.collocate(*[x, y], like=x), tuple[usmq.Array, ...])
    plan = usmq.explain(x, y, queue=queue)
    assert_type(plan, usmq.Plan)
    assert_type(plan.target, usmq.Queue | str)
    assert_type(plan.steps, list[usmq.Step])
    assert_type(
        plan.steps[0].action,
        Literal[
            "keep", "rebind", "copy_direct", "copy_staged", "from_host", "from_cuda", "to_cuda"
        ],
    )

    usmq.follow([x, y])  # type: ignore[arg-type]
    usmq.collocate()  # type: ignore[call-overload]
    usmq.collocate(x, y, target=queue)  # type: ignore[call-overload]
    usmq.explain(x, like="cpu")  # type: ignore[arg-type]
    if plan.steps[0].action == "move":  # type: ignore[comparison-overlap]
        pass


def kernels(x: usmq.Array, source: str) -> None:
    kernel = usmq.Kernel.from_sycl(source, "axpy", options=["-O2"], queue="cpu", debug=True)
    assert_type(kernel.debug, bool)
    assert_type(kernel, usmq.Kernel)
    given = usmq.Kernel.from_opencl(
        source, "axpy", params=["f4", usmq.read("f4"), usmq.write("f4"), usmq.local(4), int]
    )
    assert_type(given, usmq.Kernel)
    assert_type(usmq.Kernel.from_spirv(b"", "axpy"), usmq.Kernel)
    event = kernel((4, 4), 2.0, np.float32(1), usmq.read(x), x, usmq.local(64), local_size=(2, 2))
    assert_type(event, usmq.Event)
    assert_type(kernel(4, b"", bytearray(4), np.zeros(3), usmq.read(b"")), usmq.Event)
    assert_type(event.timestamps, usmq.Timestamps)
    assert_type(event.timestamps.start, int)
    assert_type(event.done(), bool)
    event.add_done_callback(lambda done: print(done.queue))
    event.add_done_callback(print)
    event.add_done_callback(lambda: None)  # type: ignore[arg-type,misc]
    assert_type(event.queue, usmq.Queue)

    add = usmq.elementwise("const float *x, float *y", "y[i] += x[i]")
    assert_type(add(np.zeros(3), bytearray(12)), usmq.Event)
    total = usmq.reduction("const float *x", "float", "x[i]", "a + b", "0")
    assert_type(total(memoryview(b"")), usmq.Array)
    add([1.0], x)  # type: ignore[arg-type]
    kernel()  # type: ignore[call-arg]
    kernel(4, "text")  # type: ignore[arg-type]
    kernel(4, [1.0])  # type: ignore[arg-type]
    usmq.Kernel.from_sycl(source)  # type: ignore[call-arg]
    usmq.Kernel.from_spirv(source, "axpy")  # type: ignore[arg-type]
    usmq.local("4")  # type: ignore[arg-type]


async def waits(event: usmq.Event) -> None:
    await event
    await asyncio.gather(event, event)
    await asyncio.wait_for(event, 1)


def tables(x: usmq.Array, table: usmq.Table, column: usmq.Column) -> None:
    assert_type(usmq.Table({"x": x, "y": column}), usmq.Table)
    assert_type(table["x"], usmq.Column)
    assert_type(usmq.Column(x, validity=x, offsets=x, type="string", name="a"), usmq.Column)
    assert_type(usmq.Column(column), usmq.Column)
    assert_type(table[1:3], usmq.Table)
    assert_type(table[["x", "y"]], usmq.Table)
    assert_type(column.to_numpy(), npt.NDArray[Any])
    assert_type(column.type, str)
    assert_type(table.columns, list[usmq.Column])
    assert_type(table.schema, usmq.Field)
    assert_type(table.batches, list[usmq.Table])
    assert_type("x" in table, bool)
    assert_type(list(table), list[str])
    assert_type(table.to("cpu", "shared"), usmq.Table)
    assert_type(column.values(), usmq.Array)
    assert_type(column.validity(), usmq.Array | None)
    assert_type(column.filter(usmq.ones(3, "bool")), usmq.Column)
    assert_type(table.filter(column), usmq.Table)
    assert_type(column.dictionary, usmq.Column | None)
    assert_type(column.usm_type, MemoryType | None)
    assert_type(column[1:], usmq.Column)
    assert_type(column.field.metadata, dict[bytes, bytes])
    assert_type(usmq.DeviceStream([table, table]).schema, usmq.Field)
    # What it is depends on the data, so the caller says what is expected.
    known: usmq.Table = usmq.from_arrow(usmq.DeviceStream([table]), columns=["x"])
    assert_type(usmq.from_arrow(known.host_view()), Any)

    table[0]  # type: ignore[call-overload]
    column[0]  # type: ignore[index]
    usmq.Table([x])  # type: ignore[arg-type]
    usmq.from_arrow([1, 2])  # type: ignore[arg-type]


def memory() -> None:
    stats = usmq.memory_stats("cpu")
    assert_type(stats["device"]["used"], int)
    assert_type(stats["host"]["limit"], int | None)
    usmq.set_memory_limit(None)
    usmq.set_memory_limit(2**30, "cpu", "device")
    usmq.trim_memory("cpu")

    stats["managed"]  # type: ignore[index]
    stats["device"]["free"]  # type: ignore[typeddict-item]
    usmq.set_memory_limit(1.5)  # type: ignore[arg-type]


def errors() -> None:
    try:
        usmq.devices()
    except usmq.KernelBuildError as build:
        assert_type(build.log, str)
    except usmq.SyclError as sycl:
        assert_type(sycl.code, str)
    _memory: MemoryError = usmq.AllocationError()
    _buffer: BufferError = usmq.InteropError()
    _value: ValueError = usmq.SelectorError()
    _wrong: ValueError = usmq.PlacementError()  # type: ignore[assignment]
