"""Operations of the Python API; `test_faults.py` fails each of their runtime calls.

An operation makes what it needs, computes, and returns plain values, the same each time. What an
error might change is made by `set_up`, without faults, and looked at by `after`.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import pickle
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any

import dpnp
import numpy as np
import pyarrow as pa
import usmq
from arrow_structs import ArrowDeviceArray, ArrowSchema
from c_peer import Peer, PeerError

NUMBERS = list(range(1000))


@dataclass
class Operation:
    name: str
    act: Callable[[Any], object]
    set_up: Callable[[], Any] = lambda: None
    # The result of the setup, and whether the operation succeeded.
    after: Callable[[Any, bool], None] = lambda _made, _done: None
    # Classes under which another library, or C, reports usmq's errors.
    errors: tuple[type[Exception], ...] = ()
    # Whether its objects live until the process exits; tests/faults/ checks that by type.
    keeps: bool = False


OPERATIONS: list[Operation] = []


def operation(**options: Any) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    def add(act: Callable[[Any], object]) -> Callable[[Any], object]:
        OPERATIONS.append(Operation(act.__name__, act, **options))
        return act

    return add


def numbers() -> usmq.Array:
    return usmq.asarray(np.array(NUMBERS, "i4"))


def unchanged(x: usmq.Array, _done: bool) -> None:
    assert x.to_numpy().tolist() == NUMBERS


def one_or_other(new: list[int]) -> Callable[[usmq.Array, bool], None]:
    """Return a check of written memory: after an error each value is old or new."""

    def check(x: usmq.Array, done: bool) -> None:
        found = x.to_numpy().tolist()
        if done:
            assert found == new
        assert all(value in pair for value, *pair in zip(found, NUMBERS, new, strict=True))

    return check


# --- arrays


@operation()
def host(_: None) -> object:
    return usmq.asarray([1.0, 2.0, 3.0]).to_numpy().tolist()


@operation()
def created(_: None) -> object:
    made = [usmq.zeros(5), usmq.full((2, 3), 7, "i2"), usmq.arange(3, 9, 2), usmq.empty(0)]
    kinds = [usmq.arange(4, usm_type=kind) for kind in ("device", "shared", "host")]
    return [x.to_numpy().tolist() for x in made + kinds]


@operation()
def rows_of_fortran_order(_: None) -> object:
    table = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    return [row.to_numpy().tolist() for row in usmq.asarray(table)]


@operation(set_up=numbers, after=unchanged)
def views(x: usmq.Array) -> object:
    square = x[:100].reshape(10, 10)
    found = [x[1::2], x[::-3], square.T, square[2:5, ::4], square.T.reshape(100)]
    return [view.to_numpy().tolist() for view in found]


@operation(set_up=numbers, after=unchanged)
def copies(x: usmq.Array) -> object:
    made = [x.copy(), x[::2].copy(), copy.deepcopy(x[5:9]), x.astype("f8"), x[::7].astype("i2")]
    return [y.to_numpy().tolist() for y in made]


@operation(set_up=numbers, after=one_or_other(list(range(1000, 2000))))
def copy_from_host(x: usmq.Array) -> object:
    x.copy_from(np.arange(1000, 2000, dtype="i4"))


@operation(set_up=numbers, after=one_or_other([0, 5] * 500))
def assignments(x: usmq.Array) -> object:
    x[::2] = 0
    x[1::2] = usmq.full(500, 5, "i4")
    x[1:3] = [5, 0]


@operation(set_up=numbers, after=one_or_other([-1] * 1000))
def fill(x: usmq.Array) -> object:
    x.fill(-1)


@operation()
def host_views(_: None) -> object:
    x = usmq.zeros(100, dtype="i4", usm_type="shared")
    x.fill(3)
    return memoryview(x.host_view())[0], memoryview(x).tolist()


@operation(set_up=numbers, after=unchanged)
def pickles(x: usmq.Array) -> object:
    return pickle.loads(pickle.dumps(x[::5])).to_numpy().tolist()


# --- queues, devices and memory


@operation()
def queues(_: None) -> object:
    queue = usmq.Queue("cpu", profiling=True, in_order=False)
    context = usmq.Context([queue.device])
    copied = usmq.Queue(queue._get_capsule())
    return copied == queue, len(context.devices), queue.device.has_usm("host")


@operation(set_up=usmq.current_queue, after=lambda queue, _: check_current(queue))
def scopes(_: usmq.Queue) -> object:
    with usmq.use_queue("cpu") as queue:
        return usmq.zeros(3).queue == queue == usmq.current_queue()


@operation(after=lambda _, __: usmq.set_default_queue(None))
def default_queue(_: None) -> object:
    usmq.set_default_queue("cpu:0")
    return usmq.zeros(3).device.ordinal


def check_current(queue: usmq.Queue) -> None:
    assert usmq.current_queue() == queue


@operation(after=lambda _, __: usmq.set_memory_limit(None))
def memory(_: None) -> object:
    usmq.set_memory_limit(64 << 20)
    x = usmq.empty(1000)
    usmq.trim_memory()
    return x.nbytes, bool(usmq.memory_stats())


# --- kernels and placement

SOURCE = "kernel void add(global int *x, int term) { x[get_global_id(0)] += term; }"
TEXTS = (f"// {number}\n{SOURCE}" for number in itertools.count())


@operation(set_up=numbers, after=one_or_other([n + 10 for n in NUMBERS]), keeps=True)
def build_and_launch(x: usmq.Array) -> object:
    event = usmq.Kernel.from_opencl(next(TEXTS), "add", queue=x.queue)(1000, x, 10)
    event.wait()
    return event.done()


def elsewhere() -> tuple[usmq.Array, usmq.Array]:
    there = usmq.Queue(usmq.devices()[-1])
    return numbers(), usmq.full(1000, 2, "i4", queue=there)


@operation(set_up=elsewhere, after=lambda pair, done: unchanged(pair[0], done))
def collocation(pair: tuple[usmq.Array, usmq.Array]) -> object:
    usmq.explain(*pair)
    x, y = usmq.collocate(*pair)
    return x.queue == y.queue, x.to_numpy().sum(), y.to_numpy().sum()


@operation(set_up=numbers, after=unchanged)
def tasks(x: usmq.Array) -> object:
    def work(task: usmq.TaskContext) -> usmq.Array:
        y = task.memory.zeros(1000, "i4")
        y[:] = task.array("i4")
        return task.memory.release(y)

    return usmq.run_task(work, x).to_numpy().tolist()


@operation(set_up=numbers, after=unchanged)
def profiles(x: usmq.Array) -> object:
    with usmq.profile() as profile:
        x.copy().wait()
    return len(profile.events) > 0


# --- other libraries


class Tensor:
    """An array of a library that supports only DLPack."""

    def __init__(self, array: usmq.Array) -> None:
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


@operation(set_up=numbers, after=unchanged)
def dlpack(x: usmq.Array) -> object:
    from_host = usmq.from_dlpack(np.arange(4.0), copy=True)
    return usmq.asarray(Tensor(x))[3:5].to_numpy().tolist(), from_host.to_numpy().tolist()


@operation(set_up=lambda: dpnp.arange(10, dtype="i4"))
def array_interface(x: dpnp.ndarray) -> object:
    ours = usmq.asarray(x)
    ours[:5] = 3
    return ours.__sycl_usm_array_interface__["shape"], ours.to_numpy().tolist()


@operation(set_up=numbers, after=unchanged)
def to_dpnp(x: usmq.Array) -> object:
    return dpnp.asarray(x)[7:9].asnumpy().tolist()


BATCH = pa.record_batch({"n": pa.array([1, None, 3]), "t": pa.array(["one", "two", None])})


def table() -> usmq.Table:
    return usmq.from_arrow(BATCH)


def same_table(made: usmq.Table, _done: bool) -> None:
    assert made.to_arrow().equals(pa.table(BATCH))


@operation()
def arrow_from_host(_: None) -> object:
    return table()["t"].to_arrow().to_pylist()


@operation(set_up=table, after=same_table)
def arrow_columns(made: usmq.Table) -> object:
    numbers = made["n"].values().to_numpy()[[0, 2]].tolist()
    return numbers, made["t"][1:].to("cpu").to_arrow().to_pylist()


class Columns:
    """A table of a library that supports only Arrow device streams."""

    def __init__(self, made: usmq.Table) -> None:
        self.__arrow_c_device_stream__ = made.__arrow_c_device_stream__


@operation(set_up=table, after=same_table)
def arrow_stream(made: usmq.Table) -> object:
    return usmq.from_arrow(Columns(made)).num_rows


@operation(set_up=table, after=same_table)
def arrow_pickle(made: usmq.Table) -> object:
    return pickle.loads(pickle.dumps(made)).num_rows


@operation(set_up=lambda: usmq.Table({"x": usmq.arange(5, usm_type="shared")}))
def arrow_host_view(made: usmq.Table) -> object:
    return pa.record_batch(made.host_view()).column(0).to_pylist()


# --- C


def c_operations(peer: Peer) -> list[Operation]:
    """Return those of `usmq.h`; the result of the first call is released if any call fails."""

    def current(_: object) -> object:
        return peer.current_queue() == usmq.current_queue()

    def queue_of(_: object) -> object:
        return peer.taken(peer.address_of("cpu")).device.device_type

    def scope(_: object) -> object:
        number = peer.enter("cpu")
        try:
            return peer.current_queue().device.device_type
        finally:
            peer.leave(number)

    def default(_: object) -> object:
        peer.call("set_default_queue", b"cpu:0")
        address = peer.address_of("cpu:0")
        try:
            peer.call("set_default_queue_to", address)
            return usmq.current_queue().device.ordinal
        finally:
            peer.call("queue_release", address)

    def blocks(_: object) -> object:
        block, address = peer.allocate(1000), None
        try:
            address = peer.address_of("cpu")
            peer.call("use_on", block, address)
        finally:
            peer.call("queue_release", address)
            peer.call("free", block)

    def export(block: int) -> object:
        schema, array = ArrowSchema(), ArrowDeviceArray()
        peer.call("arrow_export", block, b"i", 10, byref(schema), byref(array))
        for struct in (array.array, schema):
            release = ctypes.CFUNCTYPE(None, c_void_p)(struct.release)
            release(ctypes.addressof(struct))
        return array.array.length

    def free(block: int, _done: bool) -> None:
        peer.call("free", block)

    in_c = functools.partial(Operation, errors=(PeerError,))
    return [
        in_c("c: current queue", current),
        in_c("c: queue of a device", queue_of),
        in_c("c: scope", scope),
        in_c("c: default queue", default, after=lambda _, __: usmq.set_default_queue(None)),
        in_c("c: allocate, use, free", blocks),
        in_c("c: arrow", export, set_up=lambda: peer.allocate(40), after=free),
    ]
