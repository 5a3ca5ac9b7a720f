"""Imports by `usmq.from_dlpack`: in place, copied or refused, and deleted once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import arrow_structs
import cuda_driver
import dlpack_structs as dl
import dpctl
import dpctl.memory
import numpy as np
import pytest
import usmq
from arrow_structs import KINDS, STEPS, eventually, kernel, usm
from conftest import skip_where_the_driver_knows_all_contexts
from dlpack_structs import CPU, I4, ONEAPI, VIEWS, Producer, base, imported, on_device

no_leaks = arrow_structs.no_leaks

Oracle = Callable[[Any, int], Any]
REFUSED = (usmq.InteropError, ValueError)


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
@pytest.mark.parametrize("kind", KINDS)
def test_usm_is_used_in_place_and_deleted_after_its_last_view(kind: str, name: bytes) -> None:
    producer = on_device(kind, name=name)
    x = imported(producer)
    assert producer.asked[0]["max_version"] >= (1, 0)
    assert (x.ptr, x.shape, x.dtype, x.usm_type) == (producer.data._pointer, (4, 6), "i4", kind)
    assert (x.device, x.readonly) == (usmq.current_queue().device, False)
    np.testing.assert_array_equal(x.to_numpy(), base())
    view = x[1:, ::-2]
    del x
    gc.collect()
    np.testing.assert_array_equal(view.to_numpy(), base()[1:, ::-2])
    view.fill(9)
    view.wait()
    assert producer.deleted == 0
    assert (producer.data.copy_to_host().view("i4").reshape(4, 6)[1:, ::-2] == 9).all()
    del view
    assert eventually(lambda: producer.deleted == 1)


@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize(("shape", "strides", "offset"), dl.LAYOUTS)
def test_a_layout_is_honoured(device: int, shape: Any, strides: Any, offset: int) -> None:
    if device == CPU:
        producer = Producer(base(), shape, I4, strides, byte_offset=offset)
    else:
        producer = on_device(shape=shape, strides=strides, byte_offset=offset)
    if strides is None or not np.prod(shape):
        expected = base().reshape(-1)[offset // 4 :][: int(np.prod(shape))].reshape(shape)
    else:
        steps = [0 if size == 1 else s * 4 for size, s in zip(shape, strides, strict=True)]
        expected = np.ndarray(shape, "i4", base(), offset, steps)
    x = imported(producer)
    assert x.shape == shape
    np.testing.assert_array_equal(x.to_numpy(), expected)
    if device == ONEAPI and x.size:
        assert x.ptr == producer.data._pointer + offset


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 5)])
def test_an_empty_tensor_may_have_a_null_address(
    shape: tuple[int, ...], device: int, name: bytes
) -> None:
    for strides in (None, [1] * len(shape)):
        x = imported(Producer(None, shape, I4, strides, device=(device, 0), name=name))
        assert (x.shape, x.dtype, x.to_numpy().shape) == (shape, "i4", shape)


@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize("dtype", [*dl.DTYPES, "bfloat16"])
def test_every_dtype_is_imported(dtype: str, device: int) -> None:
    host = np.array([0, 1, 1, 0, 1]).astype("u2" if dtype == "bfloat16" else dtype)
    code = dl.BFLOAT16 if dtype == "bfloat16" else dl.triple(dtype)
    data = host.copy() if device == CPU else usm(host)
    x = imported(Producer(data, (5,), code, (1,), device=(device, 0)))
    assert (x.dtype, x.shape) == (dtype, (5,))
    if dtype != "bfloat16":
        np.testing.assert_array_equal(x.to_numpy(), host)


@pytest.mark.parametrize("device", [CPU, ONEAPI])
def test_a_read_only_import_is_read_only_and_its_copy_is_writable(device: int) -> None:
    data = np.arange(4, dtype="u1") if device == CPU else usm(np.arange(4, dtype="u1"))
    producer = Producer(data, (4,), dl.triple("u1"), (1,), device=(device, 0), flags=dl.READ_ONLY)
    x = imported(producer)
    assert x.readonly is (device == ONEAPI)
    assert x.copy().readonly is False
    if x.readonly:
        with pytest.raises((usmq.Error, ValueError, TypeError), match=r"read.?only"):
            x.fill(1)
    assert x.to_numpy().tolist() == [0, 1, 2, 3]


def test_the_device_comes_from_the_pointer_not_from_its_number() -> None:
    for number in (7, 1, -1, 2**31 - 1):
        producer = on_device(device=(ONEAPI, number))
        x = imported(producer)
        assert (x.ptr, x.device) == (producer.data._pointer, usmq.current_queue().device)


def test_memory_of_another_known_device_is_used_on_that_device(
    two_devices: tuple[usmq.Device, usmq.Device],
) -> None:
    for device in two_devices:
        theirs = dpctl.SyclQueue(device.filter_string)
        memory = dpctl.memory.MemoryUSMShared(96, queue=theirs)
        memory.copy_from_host(base().reshape(-1).view("u1"))
        x = imported(Producer(memory, (4, 6), I4, device=(ONEAPI, device.ordinal)))
        assert (x.ptr, x.device) == (memory._pointer, device)
        np.testing.assert_array_equal(x.to_numpy(), base())


@pytest.mark.parametrize("place", ["malloc", "top", "one", "sub-device", "context of its own"])
def test_an_address_that_is_no_known_usm_is_refused(place: str) -> None:
    if place == "context of its own":
        skip_where_the_driver_knows_all_contexts(usmq.current_queue().device)
    if place in dl.ELSEWHERE:
        data: Any = dpctl.memory.MemoryUSMDevice(96, queue=dl.ELSEWHERE[place]())
    else:
        data = {"malloc": base(), "top": 2**64 - 96, "one": 1}[place]
    producer = Producer(data, (24,), I4, (1,), device=(ONEAPI, 0))
    with pytest.raises(usmq.InteropError):
        usmq.from_dlpack(producer)


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
@pytest.mark.parametrize("view", VIEWS)
def test_host_data_is_copied_and_deleted_at_once(view: str, name: bytes) -> None:
    producer = Producer(np.asarray(VIEWS[view](base())), name=name)
    x = imported(producer)
    assert eventually(lambda: producer.deleted == 1), "while the copy lives"
    np.testing.assert_array_equal(x.to_numpy(), VIEWS[view](base()))
    assert x.usm_type == "device"
    assert x.queue == usmq.current_queue()
    assert all(asked.get("stream") is None for asked in producer.asked)
    host = np.asarray(VIEWS[view](base()))
    with pytest.raises(usmq.InteropError, match="copy"):
        usmq.from_dlpack(Producer(host, name=name), usm_type="device", copy=False)


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
@pytest.mark.parametrize("view", VIEWS)
def test_host_data_is_used_in_place_on_request(view: str, name: bytes) -> None:
    if "usm_system_allocations" not in usmq.current_queue().device.aspects:
        pytest.skip("the device does not use system memory")
    host = np.asarray(VIEWS[view](base()))
    producer = Producer(host, name=name)
    x = imported(producer, copy=False)
    assert (x.usm_type, x.queue) == ("system", usmq.current_queue())
    if x.size:
        assert x.ptr == host.__array_interface__["data"][0]
        assert producer.deleted == 0
    np.testing.assert_array_equal(x.to_numpy(), host)
    del x
    assert eventually(lambda: producer.deleted == 1)


def test_copies_are_made_on_the_requested_queue_and_usm_kind(other_queue: usmq.Queue) -> None:
    for kind in KINDS:
        for producer in (Producer(base()), on_device("shared")):
            x = imported(producer, usm_type=kind, queue=other_queue)
            assert (x.usm_type, x.queue) == (kind, other_queue)
            assert isinstance(producer.data, np.ndarray) or x.ptr != producer.data._pointer
            np.testing.assert_array_equal(x.to_numpy(), base())
    with usmq.use_queue(other_queue):
        assert imported(Producer(base())).queue == other_queue
    with pytest.raises(usmq.InteropError):
        usmq.from_dlpack(on_device(), queue=other_queue, copy=False)


@pytest.mark.parametrize("kind", KINDS)
def test_usm_is_copied_if_requested_or_needed(kind: str) -> None:
    producer = on_device(kind, flags=dl.READ_ONLY)
    x = imported(producer, copy=True)
    assert x.ptr != producer.data._pointer
    assert not x.readonly
    assert eventually(lambda: producer.deleted == 1)
    np.testing.assert_array_equal(x.to_numpy(), base())
    same = on_device(kind)
    assert imported(same, usm_type=kind, copy=False).ptr == same.data._pointer
    other = KINDS[KINDS.index(kind) - 1]
    with pytest.raises(REFUSED):
        usmq.from_dlpack(on_device(kind), usm_type=other, copy=False)
    x = imported(on_device(kind), usm_type=other)
    assert x.usm_type == other
    np.testing.assert_array_equal(x.to_numpy(), base())
    with pytest.raises((ValueError, TypeError)):
        usmq.from_dlpack(on_device(kind), usm_type="nosuch")


CUDA = {2, 3, 13}


@pytest.mark.parametrize("device", sorted(CUDA))
def test_cuda_memory_needs_a_driver_and_is_deleted_without_one(device: int) -> None:
    cuda_driver.skip_if_installed()
    producer = Producer(base(), device=(device, 0))
    with pytest.raises(usmq.RuntimeNotFoundError, match=r"libcuda\.so\.1"):
        usmq.from_dlpack(producer)
    mismatched = Producer(usm(base()), (24,), I4, device=(ONEAPI, 0), tensor_device=(device, 0))
    with pytest.raises(usmq.RuntimeNotFoundError):
        usmq.from_dlpack(mismatched)
    assert mismatched.deleted == 1


@pytest.mark.parametrize("device", [device for device in dl.DEVICES if device not in CUDA])
def test_another_device_type_is_refused_by_name(device: int) -> None:
    for options in ({}, {"copy": True}, {"copy": False}):
        with pytest.raises(usmq.InteropError, match=f"(?i){dl.DEVICES[device]}|type {device}"):
            usmq.from_dlpack(Producer(base(), device=(device, 0)), **options)
    mismatched = Producer(usm(base()), (24,), I4, device=(ONEAPI, 0), tensor_device=(device, 0))
    with pytest.raises(usmq.InteropError):
        usmq.from_dlpack(mismatched)


@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize("version", [(0, 8), (2, 0), (2**32 - 1, 0)])
def test_another_major_version_is_refused_and_deleted(version: Any, device: int) -> None:
    producer = on_device("shared", device=(device, 0), version=version, ndim=2**31 - 1)
    producer.struct.dl_tensor.shape = 8  # Nothing but the deleter may be looked at.
    with pytest.raises(usmq.InteropError, match="version"):
        usmq.from_dlpack(producer)
    assert eventually(lambda: producer.deleted == 1 or not producer.taken)
    minor = on_device("shared", device=(device, 0), version=(1, version[0]))
    np.testing.assert_array_equal(imported(minor).to_numpy(), base())


def test_a_copy_without_enough_memory_leaks_nothing() -> None:
    producer = Producer(base(), (2**40,), I4, (0,))
    with pytest.raises(usmq.AllocationError):
        usmq.from_dlpack(producer)
    assert eventually(lambda: not producer.settled())


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize("case", dl.MALFORMED)
def test_a_malformed_tensor_is_refused_and_deleted(case: str, device: int, name: bytes) -> None:
    options = {"shape": (4, 6), "dtype": I4, "data": usm(base(), "shared")} | dl.MALFORMED[case]
    producer = Producer(options.pop("data"), device=(device, 0), name=name, **options)
    with pytest.raises(REFUSED):
        usmq.from_dlpack(producer)


@pytest.mark.parametrize("name", [dl.LEGACY, dl.VERSIONED])
def test_a_capsule_is_consumed_once(name: bytes) -> None:
    producer = on_device(name=name)
    x = imported(producer)
    for _ in range(2):
        with pytest.raises(usmq.InteropError, match=r"dltensor.* has been used"):
            usmq.from_dlpack(producer)
    assert producer.deleted == 0
    np.testing.assert_array_equal(x.to_numpy(), base())


@pytest.mark.parametrize("name", [b"nosuch", b"", b"arrow_array", b"dltensor_versioned2"])
def test_a_capsule_of_another_name_is_refused(name: bytes) -> None:
    with pytest.raises(usmq.InteropError, match="capsule"):
        usmq.from_dlpack(Producer(base(), name=name))


@pytest.mark.parametrize("device", [CPU, ONEAPI])
@pytest.mark.parametrize("takes", ["stream", "max_version", "stream max_version", "", "copy"])
def test_a_producer_that_takes_fewer_arguments_is_asked_again(takes: str, device: int) -> None:
    name = dl.VERSIONED if "max_version" in takes else dl.LEGACY
    options = {"device": (device, 0), "takes": takes.split(), "name": name}
    for copy in (None, True):
        producer = on_device("shared", **options)
        np.testing.assert_array_equal(imported(producer, copy=copy).to_numpy(), base())
        assert len(producer.asked) == producer.refused + 1


def test_an_object_without_the_methods_or_with_wrong_answers_is_an_error() -> None:
    half = type("Half", (), {"__dlpack__": lambda self, **_: None})()
    other_half = type("OtherHalf", (), {"__dlpack_device__": lambda self: (1, 0)})()
    for obj in (None, 5, "x", [1, 2], object(), half, other_half):
        with pytest.raises(TypeError):
            usmq.from_dlpack(obj)
    with pytest.raises(TypeError):
        usmq.from_dlpack(obj=on_device())  # type: ignore[call-arg]
    for device in (None, 1, "cpu", (), (1,), ("a", 0), (2**70, 0), (None, 0)):
        with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
            usmq.from_dlpack(dl.Answers(device, None))
    for nothing in (None, 5, object()):
        with pytest.raises((TypeError, usmq.InteropError)):
            usmq.from_dlpack(dl.Answers((1, 0), nothing))


@pytest.mark.parametrize("error", [ZeroDivisionError, BufferError, TypeError, MemoryError])
def test_exceptions_of_the_producer_propagate(error: type[Exception]) -> None:
    for answers in (dl.Answers((1, 0), error("of theirs")), dl.Answers(error("of theirs"), None)):
        with pytest.raises(error, match="of theirs"):
            usmq.from_dlpack(answers)


def test_our_own_arrays_round_trip_unchanged(queue: usmq.Queue) -> None:
    for kind in KINDS:
        x = usmq.asarray(base(), usm_type=kind)
        for view in VIEWS.values():
            back = usmq.from_dlpack(view(x))
            assert (back.shape, back.dtype) == (view(x).shape, "i4")
            assert not back.size or (back.ptr, back.usm_type) == (view(x).ptr, kind)
            np.testing.assert_array_equal(back.to_numpy(), view(base()))
        assert usmq.from_dlpack(x, copy=True).ptr != x.ptr
    running = kernel("advance")(4, y := usmq.zeros(4, "u4"), STEPS)
    back = usmq.from_dlpack(y)
    kernel("advance")(4, back, 10)
    kernel("advance")(4, y, 10)
    alive = y.to_numpy().tolist()
    del y
    assert back.to_numpy().tolist() == alive
    assert running.done()


def test_a_tensor_lives_until_the_work_on_it_is_done() -> None:
    producer = Producer(usm(np.arange(16, dtype="u4")), (16,), (1, 32, 1), device=(ONEAPI, 0))
    x = imported(producer)
    running = kernel("advance")(16, x, 16 * STEPS)  # longer than a collection takes
    del x
    gc.collect()
    deleted = producer.deleted
    early = not running.done()
    assert early
    assert deleted == 0
    running.wait()
    assert eventually(lambda: producer.deleted == 1)


def test_many_threads_import_and_drop() -> None:
    producers = [on_device() if n % 2 else Producer(base()) for n in range(200)]

    def check(producer: Producer) -> bool:
        return bool((imported(producer).to_numpy() == base()).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, producers))
    assert eventually(lambda: all(producer.deleted == 1 for producer in producers))


def test_the_deleter_may_be_missing() -> None:
    producer = on_device()
    producer.struct.deleter = None
    x = usmq.from_dlpack(producer)
    np.testing.assert_array_equal(x.to_numpy(), base())
    arrow_structs.PRODUCERS.remove(producer)
