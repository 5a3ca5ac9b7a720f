"""The C exchange API on `usmq.Array`, called as C would: the table, ownership, order, errors."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, byref, c_void_p
from typing import Any

import arrow_structs
import dlpack_structs as dl
import dpctl
import dpctl.memory
import numpy as np
import pytest
import usmq
from arrow_structs import KINDS, STEPS, At, capsule, eventually, kernel, live, name_of, pointer
from dlpack_exchange import (
    API,
    SET_ERROR,
    TABLE,
    Owned,
    allocated,
    array_at,
    borrowed_tensor,
    queue_at,
    stream,
    taken_from,
)
from dlpack_structs import CPU, DTYPES, I4, ONEAPI, VIEWS, Tensor, base, on_device

no_leaks = arrow_structs.no_leaks
queue_without_ordinal = arrow_structs.queue_without_ordinal

Oracle = Callable[[Any, int], Any]


def test_the_table_is_static_and_on_the_type() -> None:
    given = usmq.Array.__dict__["__dlpack_c_exchange_api__"]
    assert name_of(given) == TABLE
    assert pointer(usmq.zeros(1).__dlpack_c_exchange_api__, TABLE) == addressof(API)
    assert ctypes.sizeof(API) == 56
    assert (API.major, API.minor, API.prev_api) == (1, 3, None)
    for name, _ in API._fields_[3:]:
        assert ctypes.cast(getattr(API, name), c_void_p).value, name
    with pytest.raises((AttributeError, TypeError)):
        usmq.zeros(1).__dlpack_c_exchange_api__ = None  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_both_exports_describe_the_same_as_a_capsule(view: str, kind: str) -> None:
    x = VIEWS[view](usmq.asarray(base(), usm_type=kind))
    expected = Tensor(x)
    owned, borrowed = Owned(x), borrowed_tensor(x)
    for given in (owned, borrowed):
        assert given.address == expected.address
        assert given.tensor.byte_offset == expected.tensor.byte_offset
        assert given.tensor.ndim == len(x.shape)
        for field in ("shape", "strides", "dtype", "device"):
            assert getattr(given, field) == getattr(expected, field)
    assert (owned.struct.major, owned.struct.minor, owned.flags) == (1, 3, 0)
    if not x.shape:
        assert borrowed.tensor.shape is borrowed.tensor.strides is None
    owned.delete()


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_every_dtype_round_trips(dtype: str) -> None:
    x = usmq.empty(3, dtype)
    given = Owned(x)
    assert (
        given.dtype
        == borrowed_tensor(x).dtype
        == (dl.BFLOAT16 if dtype == "bfloat16" else dl.triple(dtype))
    )
    out = c_void_p()
    assert API.managed_tensor_to_py_object_no_sync(addressof(given.struct), byref(out)) == 0
    back = array_at(out)
    assert (back.dtype, back.ptr, back.shape) == (x.dtype, x.ptr, x.shape)


def test_a_tensor_keeps_its_memory_until_deleted_on_any_thread() -> None:
    before = live()
    given = Owned(usmq.asarray(base(), usm_type="shared"))
    gc.collect()
    others = [usmq.zeros((4, 6), "i4", usm_type="shared") for _ in range(20)]
    np.testing.assert_array_equal(given.to_numpy(), base())
    del others
    thread = threading.Thread(target=given.delete)
    thread.start()
    thread.join()
    assert eventually(lambda: live() == before)


def test_a_read_only_array_needs_the_flag_of_a_managed_tensor() -> None:
    memory, x = dl.read_only()
    given = Owned(x)
    assert given.flags == dl.READ_ONLY
    given.delete()
    with pytest.raises(usmq.InteropError, match=r"read.?only"):
        borrowed_tensor(x)
    del memory


def test_objects_other_than_arrays_and_null_pointers_are_errors() -> None:
    out, x = c_void_p(), usmq.zeros(1)
    for obj in (None, 5, base(), usmq.Array):
        with pytest.raises(TypeError, match="Array"):
            API.managed_tensor_from_py_object_no_sync(id(obj), byref(out))
        with pytest.raises(TypeError, match="Array"):
            API.dltensor_from_py_object_no_sync(id(obj), addressof(dl.DLTensor()))
    for call, arguments in (
        (API.managed_tensor_from_py_object_no_sync, (None, byref(out))),
        (API.managed_tensor_from_py_object_no_sync, (id(x), None)),
        (API.dltensor_from_py_object_no_sync, (id(x), None)),
        (API.managed_tensor_to_py_object_no_sync, (None, byref(out))),
        (API.current_work_stream, (ONEAPI, 0, None)),
    ):
        with pytest.raises(BufferError, match="null"):
            call(*arguments)
    producer = on_device()
    with pytest.raises(BufferError, match="null"):
        API.managed_tensor_to_py_object_no_sync(addressof(producer.struct), None)
    assert producer.deleted == 0
    assert out.value is None


def test_memory_without_a_device_ordinal_is_a_buffer_error(
    queue_without_ordinal: usmq.Queue,
) -> None:
    x = usmq.zeros(3, queue=queue_without_ordinal)
    for call in (Owned, borrowed_tensor):
        with pytest.raises(BufferError, match=r"context|sub-device"):
            call(x)


# --- order


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("way", [Owned, borrowed_tensor])
@pytest.mark.parametrize("scope", ["the array's", "another of ours", "one of dpctl"])
def test_work_on_the_stream_is_ordered_with_ours_without_a_wait(
    scope: str, way: Callable[[Any], Tensor], in_order: bool, advanced: Oracle
) -> None:
    own = usmq.Queue(in_order=in_order)
    theirs = dpctl.SyclQueue(property="in_order") if in_order else dpctl.SyclQueue()
    entered = {
        "the array's": own,
        "another of ours": usmq.Queue(profiling=True),
        "one of dpctl": theirs,
    }
    x = usmq.asarray(np.arange(16, dtype="u4"), queue=own)
    y = usmq.zeros(16, "u4", queue=own)
    x.wait()
    y.wait()
    with usmq.use_queue(entered[scope]):
        running = kernel("advance")(16, x, STEPS)
        given, target = way(x), way(y)
        peer = dpctl.SyclQueue(capsule(stream() or 0, b"SyclQueueRef"))
        peer.memcpy_async(
            *(dpctl.memory.as_usm_memory(At(t.address, 64)) for t in (target, given)), 64
        )
        waited = running.done()
    kernel("advance")(16, y, STEPS // 4)  # on the array's queue again
    assert not waited
    np.testing.assert_array_equal(y.to_numpy(), advanced(np.arange(16), STEPS + STEPS // 4))
    for tensor in (given, target):
        if isinstance(tensor, Owned):
            tensor.delete()


def test_the_stream_is_the_current_queue_or_that_of_the_device(
    two_devices: tuple[usmq.Device, usmq.Device], sub_device: usmq.Device
) -> None:
    assert stream((CPU, 0)) is None
    for device in two_devices:
        assert queue_at(stream((ONEAPI, device.ordinal))) == usmq.Queue(device)
        named = usmq.Queue(device, profiling=True)
        with usmq.use_queue(named):
            assert queue_at(stream((ONEAPI, device.ordinal))) == named
            assert stream((CPU, 0)) is None
            for other in two_devices:
                if other != device:
                    assert queue_at(stream((ONEAPI, other.ordinal))) == usmq.Queue(other)
    # These have no device number.
    for queue in (usmq.Queue(sub_device), dl.other_context()):
        with usmq.use_queue(queue):
            assert queue_at(stream()) == usmq.Queue(queue.device.parent or queue.device)
    assert stream() == stream(), "referenced once"


def test_a_stream_outlives_the_scope_and_every_handle_to_its_queue() -> None:
    with usmq.use_queue(dpctl.SyclQueue()) as entered:
        number, address = hash(entered), stream()
    del entered
    gc.collect()
    made = [dpctl.SyclQueue() for _ in range(20)]
    queue = queue_at(address)
    assert hash(queue) == number
    assert usmq.zeros(4, queue=queue).to_numpy().tolist() == [0] * 4
    del made


@pytest.mark.parametrize("device", [(ONEAPI, 99), (ONEAPI, -1), (2, 0), (3, 0), (0, 0), (99, 0)])
def test_an_unsupported_device_has_no_stream_and_no_memory(device: tuple[int, int]) -> None:
    with pytest.raises(BufferError, match=str(device[1])):
        stream(device)
    tensor, said = allocated((3,), device=device)
    assert tensor is None
    assert said[0][0] == b"BufferError"
    assert str(device[1]).encode() in said[0][1]


# --- imported tensors


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_is_used_in_place_and_deleted_after_its_last_use(kind: str) -> None:
    producer = on_device(kind, flags=dl.READ_ONLY)
    x = taken_from(producer)
    assert (x.ptr, x.shape, x.usm_type, x.readonly) == (producer.data._pointer, (4, 6), kind, True)
    view = x[::-1]
    del x
    assert producer.deleted == 0
    np.testing.assert_array_equal(view.to_numpy(), base()[::-1])
    del view
    assert eventually(lambda: producer.deleted == 1)


def test_host_tensors_are_copied_and_empty_ones_are_empty() -> None:
    producer = dl.Producer(base()[:, ::2])
    x = taken_from(producer)
    assert eventually(lambda: producer.deleted == 1)
    np.testing.assert_array_equal(x.to_numpy(), base()[:, ::2])
    x = taken_from(dl.Producer(None, (0, 3), I4, (3, 1), device=(ONEAPI, 0)))
    assert x.shape == (0, 3)


@pytest.mark.parametrize("device", [CPU, ONEAPI, 4, 99])
@pytest.mark.parametrize("case", [*dl.MALFORMED, "version"])
def test_the_caller_keeps_a_refused_tensor(case: str, device: int) -> None:
    options: dict[str, Any] = {
        "shape": (4, 6),
        "dtype": I4,
        "data": arrow_structs.usm(base(), "shared"),
    }
    options |= {"version": (2, 0)} if case == "version" else dl.MALFORMED[case]
    producer = dl.Producer(options.pop("data"), device=(device, 0), **options)
    out = c_void_p()
    with pytest.raises((BufferError, ValueError)):
        API.managed_tensor_to_py_object_no_sync(addressof(producer.struct), byref(out))
    assert out.value is None
    gc.collect()
    assert producer.deleted == 0
    # As tvm-ffi does.
    dl.DELETER(producer.struct.deleter)(addressof(producer.struct))
    assert producer.deleted == 1
    arrow_structs.PRODUCERS.remove(producer)


@pytest.mark.parametrize(
    "make",
    [
        on_device,
        lambda: dl.Producer(base()),
        lambda: dl.Producer(None, (0, 3), I4, (3, 1), device=(ONEAPI, 0)),
    ],
    ids=["device", "host", "empty"],
)
def test_the_caller_keeps_a_tensor_if_python_has_no_memory(make: Callable[[], dl.Producer]) -> None:
    memory = pytest.importorskip("_testcapi", reason="this Python is without its own tests")
    producer = make()
    given, out = producer.__dlpack__(), c_void_p()
    arguments = addressof(producer.struct), byref(out)
    for at in range(1, 100):
        status = -1
        memory.set_nomemory(at, at + 1)
        try:
            status = API.managed_tensor_to_py_object_no_sync(*arguments)
        except (MemoryError, ctypes.ArgumentError):
            pass
        finally:
            memory.remove_mem_hooks()
        if status == 0:
            break
        usmq.current_queue().wait()
        assert producer.deleted == 0
    assert at > 3
    assert dl._set_name(given, ctypes.cast(dl.USED[producer.name], ctypes.c_char_p)) == 0
    x = array_at(out)
    assert x.to_numpy().sum() == (base().sum() if x.size else 0)
    del x
    if make is on_device:
        assert eventually(lambda: producer.deleted == 1)
    else:
        # The tensor of a copy is deleted at once, by Python code that may lack memory itself.
        usmq.current_queue().wait()
        assert producer.deleted <= 1
        assert not producer.faults
        arrow_structs.PRODUCERS.remove(producer)


ADDRESS = ctypes.c_void_p
FAILING = {
    "no array": ("managed_tensor_from_py_object_no_sync", (id(usmq), "out"), TypeError),
    "no array to lend": ("dltensor_from_py_object_no_sync", (id(usmq), "out"), TypeError),
    "no object": ("managed_tensor_from_py_object_no_sync", (None, "out"), BufferError),
    "no place for the result": ("managed_tensor_to_py_object_no_sync", ("out", None), BufferError),
    "unknown device": ("current_work_stream", (99, 0, "out"), usmq.InteropError),
    "no place for a stream": ("current_work_stream", (14, 0, None), BufferError),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_failing_call_without_memory_raises_its_error_or_a_memory_error(case: str) -> None:
    memory = pytest.importorskip("_testcapi", reason="this Python is without its own tests")
    name, given, expected = FAILING[case]
    out = c_void_p()
    numbers = ctypes.c_int if name == "current_work_stream" else ADDRESS
    types = (numbers, numbers, ADDRESS)[-len(given) :] if len(given) == 3 else (ADDRESS, ADDRESS)
    address = ctypes.cast(getattr(API, name), c_void_p).value
    call = ctypes.PYFUNCTYPE(ctypes.c_int, *types)(address)
    arguments = [
        kind(addressof(out) if value == "out" else value)
        for kind, value in zip(types, given, strict=True)
    ]
    found: list[BaseException] = []
    gc.disable()  # other libraries have callbacks that would fail without memory
    for at in range(60):
        raised: BaseException | None = None
        try:
            memory.set_nomemory(at, at + 1)
            call(*arguments)
        except (MemoryError, ctypes.ArgumentError):
            pass
        except expected as error:
            raised = error
        else:
            pytest.fail("the call did not fail")
        finally:
            memory.remove_mem_hooks()
        if raised is not None:
            found.append(raised)
    gc.enable()
    assert len(found) > 30
    assert len({str(error) for error in found}) == 1
    assert "panicked" not in str(found[0])


# --- new tensors


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,), (3, 0, 2)])
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_a_new_tensor_has_the_shape_type_and_device_of_its_prototype(
    dtype: str, shape: tuple[int, ...], two_devices: tuple[usmq.Device, usmq.Device]
) -> None:
    code = dl.BFLOAT16 if dtype == "bfloat16" else dl.triple(dtype)
    for device in ((CPU, 0), *((ONEAPI, device.ordinal) for device in two_devices)):
        before = live()
        tensor, _ = allocated(shape, code, device)
        assert tensor
        assert (tensor.shape, tensor.dtype, tensor.device) == (shape, code, device)
        assert (tensor.struct.major, tensor.struct.minor, tensor.flags) == (1, 3, 0)
        assert tensor.tensor.data is not None  # dpnp and torch refuse null, also of empty tensors
        assert live() == before + 1
        if device[0] == CPU and tensor.address:
            ctypes.memset(tensor.address, 1, int(np.prod(shape)) * code[1] // 8)
        tensor.delete()
        assert eventually(lambda before=before: live() == before)


def test_a_new_tensor_is_on_the_current_queue_and_round_trips() -> None:
    queue = usmq.Queue(profiling=True)
    with usmq.use_queue(queue):
        tensor, _ = allocated((4, 6))
        assert tensor
        out = c_void_p()
        assert API.managed_tensor_to_py_object_no_sync(addressof(tensor.struct), byref(out)) == 0
        x = array_at(out)
        assert (x.ptr, x.queue, x.usm_type) == (tensor.address, queue, "device")
        x.copy_from(base())
    np.testing.assert_array_equal(x.to_numpy(), base())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (b"BufferError", {"shape": (3,), "dtype": (0, 4, 1)}),
        (b"BufferError", {"shape": (3,), "dtype": (2, 32, 4)}),
        (b"BufferError", {"shape": (-1,)}),
        (b"BufferError", {"shape": (3,), "ndim": -1}),
        (b"BufferError", {"shape": (3,), "at": None}),
        (b"ValueError", {"shape": (2**62, 4)}),
        (b"MemoryError", {"shape": (2**45,)}),
    ],
)
@pytest.mark.parametrize("device", [CPU, ONEAPI])
def test_a_failed_allocation_reports_the_reason(device: int, kind: bytes, options: Any) -> None:
    tensor, said = allocated(device=(device, 0), **options)
    assert tensor is None
    assert [k for k, _ in said] == [kind]
    assert said[0][1]


def test_the_allocator_works_without_the_gil_in_each_threads_scope() -> None:
    start = threading.Barrier(8)

    def work(_: int) -> Any:
        start.wait()
        return allocated((100,))[0]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert all(found)
    assert len({tensor.address for tensor in found}) == 8
    for tensor in found:
        tensor.delete()
    # With null pointers for the result or the error the call fails.
    assert API.managed_tensor_allocator(None, None, None, SET_ERROR()) == -1
