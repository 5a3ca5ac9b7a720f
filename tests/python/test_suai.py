"""USM to and from dpctl and dpnp, by interface and DLPack: same address, no copy, lifetimes."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dpctl
import dpctl.memory
import dpnp
import numpy as np
import pytest
import usmq
from arrow_structs import MEMORY
from dlpack_structs import DTYPES, LENDERS, VIEWS, address, base


class Foreign:
    """An object of another library: an interface over memory that it owns."""

    def __init__(self, memory: Any, **changes: Any) -> None:
        self.memory = memory
        self.interface = {
            "version": 1,
            "data": (memory._pointer, False),
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "strides": None,
            "offset": 0,
            "syclobj": memory.sycl_queue,
        } | changes

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        return dict(self.interface)


class Holder:
    """An object that only its method tells to be a queue or a context."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def _get_capsule(self) -> Any:
        return self.inner._get_capsule()


@pytest.fixture
def memory() -> Any:
    memory = dpctl.memory.MemoryUSMShared(64, queue=dpctl.SyclQueue())
    np.asarray(memory)[:] = np.arange(64)
    return memory


PEERS = LENDERS | {
    "asarray": dpnp.asarray,
    "tensor.asarray": lambda x: dpnp.tensor.asarray(x, copy=False),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MEMORY)
@pytest.mark.parametrize("peer", PEERS)
def test_our_views_round_trip_through_dpnp_at_their_address(
    peer: str, kind: str, dtype: str
) -> None:
    for view in VIEWS.values():
        ours, expected = view(usmq.asarray(base(dtype), usm_type=kind)), view(base(dtype))
        theirs = PEERS[peer](ours)
        assert not ours.size or address(theirs) == ours.ptr
        assert (theirs.dtype, theirs.shape) == (expected.dtype, expected.shape)
        assert theirs.usm_type == kind
        assert peer in LENDERS or theirs.sycl_queue == dpctl.SyclQueue(ours.queue._get_capsule())
        np.testing.assert_array_equal(dpnp.asnumpy(theirs), expected)
        back = usmq.from_dlpack(theirs)
        np.testing.assert_array_equal(back.to_numpy(), expected)
        assert back.ptr == address(theirs)


@pytest.mark.parametrize("kind", MEMORY)
def test_dpctl_imports_our_array_as_memory_at_the_same_address(kind: str) -> None:
    x = usmq.arange(0, 100, 1, dtype="i4", usm_type=kind)
    x.wait()
    theirs = dpctl.memory.as_usm_memory(x)
    assert type(theirs) is MEMORY[kind]
    assert theirs._pointer == x.ptr
    assert theirs.nbytes == x.nbytes
    assert theirs.sycl_queue == dpctl.SyclQueue(x.queue._get_capsule())
    assert theirs.copy_to_host().view("i4").tolist() == list(range(100))


def test_writes_are_visible_on_both_sides(kernels: SimpleNamespace) -> None:
    x = usmq.zeros(1000, "f4")
    theirs = dpnp.asarray(x)
    for turn in range(50):
        theirs += 1
        kernels.axpy(1000, 2.0, usmq.full(1000, 1, "f4"), x, 1000)
        assert float(theirs[turn]) == 3 * (turn + 1)
    assert (x.to_numpy() == 150).all()


def test_the_interface_is_the_dict_of_the_specification() -> None:
    x = usmq.asarray(base())
    for ours in (x, x[1:, ::-2], x[:0]):
        first = ours.__sycl_usm_array_interface__
        assert type(first) is dict
        assert first["version"] == 1
        assert type(first["data"]) is tuple
        assert first["data"][1] is False, "the flag says read-only"
        assert first["shape"] == ours.shape
        assert np.dtype(first["typestr"]) == ours.dtype
        assert dpctl.memory.as_usm_memory(ours).nbytes >= ours.nbytes
        assert ours.__sycl_usm_array_interface__ is not first
        if ours.size:
            assert address(ours) == ours.ptr
    assert x[1:, ::-2].__sycl_usm_array_interface__["strides"] == (6, -2), "in elements"


def test_a_read_only_array_is_exported_as_read_only(memory: Any) -> None:
    x = usmq.asarray(Foreign(memory, data=(memory._pointer, True)), copy=False)
    assert x.readonly is True
    assert x.__sycl_usm_array_interface__["data"] == (memory._pointer, True)
    assert dpnp.tensor.asarray(x).flags.writable is False
    assert memoryview(x).readonly is True
    assert np.asarray(x).flags.writeable is False
    assert x.copy().readonly is False
    for write in (
        lambda: x.copy_from(np.zeros(64, "u1")),
        lambda: x[3:].copy_from(np.zeros(61, "u1")),
    ):
        with pytest.raises((usmq.Error, ValueError, TypeError), match=r"read.?only"):
            write()
    assert np.asarray(memory).tolist() == list(range(64))


def test_memory_of_dpctl_is_writable_although_its_flag_says_otherwise(memory: Any) -> None:
    assert memory.__sycl_usm_array_interface__["data"][1] is True
    x = usmq.asarray(memory, copy=False)
    assert x.readonly is False
    x.copy_from(np.full(64, 7, "u1"))
    assert set(np.asarray(memory).tolist()) == {7}


@pytest.mark.parametrize("kind", MEMORY)
def test_memory_of_dpctl_is_an_array_of_bytes_at_its_address(kind: str) -> None:
    theirs = MEMORY[kind](64, queue=dpctl.SyclQueue())
    theirs.copy_from_host(np.arange(64, dtype="u1"))
    x = usmq.asarray(theirs, copy=False)
    assert (x.ptr, x.shape, x.dtype, x.usm_type) == (theirs._pointer, (64,), "u1", kind)
    assert x.queue == usmq.Queue(theirs.sycl_queue)
    assert x.to_numpy().tolist() == list(range(64))


IMPORTS: dict[str, Callable[[Any], usmq.Array]] = {
    "asarray": usmq.asarray,
    "asarray in place": lambda x: usmq.asarray(x, copy=False),
    "from_dlpack": usmq.from_dlpack,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [dpnp.asarray, dpnp.tensor.asarray])
@pytest.mark.parametrize("by", IMPORTS)
def test_an_array_of_dpnp_is_imported_at_its_address(by: str, make: Any, dtype: str) -> None:
    for kind, view in itertools.product(MEMORY, VIEWS.values()):
        theirs, host = view(make(base(dtype), usm_type=kind)), view(base(dtype))
        x = IMPORTS[by](theirs)
        assert not x.size or x.ptr == address(theirs)
        assert (x.dtype, x.shape, x.usm_type) == (host.dtype, host.shape, kind)
        if by != "from_dlpack":
            assert (x.queue, x.readonly) == (usmq.Queue(theirs.sycl_queue), False)
        np.testing.assert_array_equal(x.to_numpy(), host)
    theirs = make(base(dtype))
    assert usmq.asarray(theirs, copy=True).ptr != address(theirs)


@pytest.mark.parametrize("by", IMPORTS)
def test_a_read_only_array_of_dpnp_is_read_only(by: str) -> None:
    theirs = dpnp.tensor.asarray(base())
    theirs.flags.writable = False
    assert IMPORTS[by](theirs).readonly is True


def test_a_copy_made_because_of_dtype_kind_or_queue_is_ours(queue: usmq.Queue) -> None:
    theirs = dpnp.asarray(base())
    for x in (usmq.asarray(theirs, "f4"), usmq.asarray(theirs, usm_type="host")):
        assert x.ptr != address(theirs)
        np.testing.assert_array_equal(x.to_numpy(), base())
    profiled = usmq.Queue(queue.device, profiling=True)
    moved = usmq.asarray(theirs, queue=profiled)
    assert moved.queue == profiled
    np.testing.assert_array_equal(moved.to_numpy(), base())
    assert dpnp.asnumpy(theirs).tolist() == base().tolist()


SYCL_OBJECTS: dict[str, Callable[[dpctl.SyclQueue], Any]] = {
    "queue": lambda q: q,
    "context": lambda q: q.sycl_context,
    "filter string": lambda q: q.sycl_device.filter_string,
    "short filter string": lambda q: q.sycl_device.device_type.name,
    "queue capsule": lambda q: q._get_capsule(),
    "context capsule": lambda q: q.sycl_context._get_capsule(),
    "holder of a queue": Holder,
    "holder of a context": lambda q: Holder(q.sycl_context),
    "queue of usmq": usmq.Queue,
    "context of usmq": lambda q: usmq.Queue(q).context,
}


@pytest.mark.parametrize("form", SYCL_OBJECTS)
def test_every_form_of_syclobj_is_accepted(memory: Any, form: str) -> None:
    theirs = Foreign(memory, syclobj=SYCL_OBJECTS[form](memory.sycl_queue))
    x = usmq.asarray(theirs, copy=False)
    assert x.ptr == memory._pointer
    assert x.device.filter_string == memory.sycl_device.filter_string
    assert dpctl.SyclQueue(x.queue._get_capsule()).sycl_context == memory.sycl_context
    assert x.to_numpy().tolist() == list(range(64))
    if form in ("queue", "queue capsule", "holder of a queue", "queue of usmq"):
        assert x.queue == usmq.Queue(memory.sycl_queue)
    if "string" in form:
        assert x.queue == usmq.Queue(memory.sycl_device.filter_string)


@pytest.mark.parametrize("typestr", ["<f4", "|f4", "=f4", "f4", "float32"])
def test_offset_strides_and_typestr_are_in_elements(memory: Any, typestr: str) -> None:
    np.asarray(memory).view("f4")[:] = np.arange(16)
    theirs = Foreign(memory, shape=(2, 3), strides=[-8, 2], offset=9, typestr=typestr)
    x = usmq.asarray(theirs, copy=False)
    assert x.ptr == memory._pointer + 4 * 9
    assert x.strides == (-32, 8)
    assert x.to_numpy().tolist() == [[9, 11, 13], [1, 3, 5]]


def test_optional_keys_lists_and_a_stride_of_zero_are_accepted(memory: Any) -> None:
    theirs = Foreign(memory, data=[memory._pointer, False], shape=[np.int64(64)])
    del theirs.interface["strides"], theirs.interface["offset"]
    assert usmq.asarray(theirs, copy=False).to_numpy().tolist() == list(range(64))
    x = usmq.asarray(Foreign(memory, shape=(3, 2), strides=(0, 1), offset=5), copy=False)
    assert x.to_numpy().tolist() == [[5, 6]] * 3


def test_the_owner_lives_as_long_as_any_view_of_ours(
    memory: Any, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    theirs = Foreign(memory)
    alive = weakref.ref(theirs)
    view = usmq.asarray(theirs, copy=False)[10:20].reshape(2, 5).T
    del theirs
    gc.collect()
    assert alive() is not None
    assert view.to_numpy()[0].tolist() == [10, 15]
    exported = dpnp.tensor.asarray(view, copy=False)
    del view
    gc.collect()
    assert alive() is not None, "dpnp still reads it"
    del exported
    assert eventually(lambda: gc.collect() >= 0 and alive() is None)


def test_the_owner_lives_until_the_work_on_it_completes(
    memory: Any, kernels: SimpleNamespace, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    theirs = Foreign(memory, typestr="<u4", shape=(16,))
    alive = weakref.ref(theirs)
    x = usmq.asarray(theirs, copy=False)
    queue = x.queue
    # Long enough for what stands between this and the question; a collection would take as long.
    event = kernels.advance(1, x, 400_000_000)
    del x, theirs
    still_running = not event.done()
    assert still_running
    assert alive() is not None
    event.wait()
    queue.wait()
    # Released by the next call of usmq.
    assert eventually(lambda: usmq.empty(1, queue=queue).size == 1 and alive() is None)


@pytest.mark.parametrize("library", ["dpnp", "dpctl"])
def test_our_memory_lives_as_long_as_another_library_needs_it(library: str) -> None:
    x = usmq.arange(0, 1000, 1, dtype="i4")
    theirs: Any = dpnp.asarray(x)[500:] if library == "dpnp" else dpctl.memory.as_usm_memory(x)
    del x
    gc.collect()
    others = [usmq.zeros(1000, "i4") for _ in range(50)]
    if library == "dpnp":
        assert dpnp.asnumpy(theirs).tolist() == list(range(500, 1000))
    else:
        assert theirs.copy_to_host().view("i4").tolist() == list(range(1000))
    del others
