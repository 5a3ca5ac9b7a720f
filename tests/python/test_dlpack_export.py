"""Exports through `__dlpack__`: fields of the tensor, order, lifetime, peers."""

from __future__ import annotations

import gc
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import arrow_structs
import dlpack_structs as dl
import dpctl
import dpctl.memory
import dpnp
import numpy as np
import pytest
import usmq
from arrow_structs import KINDS, STEPS, At, capsule, eventually, kernel, live, name_of
from dlpack_structs import CPU, DTYPES, IS_COPIED, ONEAPI, VIEWS, Tensor, base

no_leaks = arrow_structs.no_leaks
queue_without_ordinal = arrow_structs.queue_without_ordinal

Oracle = Callable[[Any, int], Any]


@pytest.mark.parametrize("kind", KINDS)
def test_the_device_is_oneapi_with_the_ordinal_of_the_root_device(
    kind: str, two_devices: tuple[usmq.Device, usmq.Device], sub_device: usmq.Device
) -> None:
    for device in two_devices:
        x = usmq.zeros(3, queue=usmq.Queue(device), usm_type=kind)
        assert x.__dlpack_device__() == (ONEAPI, device.ordinal)
        assert Tensor(x).device == (ONEAPI, device.ordinal)
    assert sub_device.parent is not None
    x = usmq.zeros(3, queue=usmq.Queue(sub_device), usm_type=kind)
    assert x.__dlpack_device__() == (ONEAPI, sub_device.parent.ordinal)


@pytest.mark.parametrize("max_version", [None, (0, 8), (0, 99), (1, 0), (1, 1), (1, 3), (2, 0)])
def test_the_requested_version_selects_the_struct(max_version: Any) -> None:
    name = dl.VERSIONED if max_version and max_version >= (1, 0) else dl.LEGACY
    x = usmq.zeros(3)
    given = Tensor(x, max_version)
    assert given.name == name == name_of(x.__dlpack__(max_version=max_version))
    if name == dl.VERSIONED:
        assert (given.struct.major, given.struct.minor) == (1, 3)
        assert given.flags == 0
    assert given.address == x.ptr


@pytest.mark.parametrize("max_version", [None, (1, 1)])
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_every_dtype_has_its_code(dtype: str, max_version: Any) -> None:
    given = Tensor(usmq.zeros(3, dtype), max_version)
    assert given.dtype == (dl.BFLOAT16 if dtype == "bfloat16" else dl.triple(dtype))
    assert dl.triple("?") == (6, 8, 1)
    assert dl.triple("c8") == (5, 64, 1)


@pytest.mark.parametrize("max_version", [None, (1, 1)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_exports_first_element_shape_and_strides(
    view: str, kind: str, max_version: Any
) -> None:
    x, expected = VIEWS[view](usmq.asarray(base(), usm_type=kind)), VIEWS[view](base())
    given = Tensor(x, max_version)
    assert given.tensor.ndim == expected.ndim
    assert given.shape == expected.shape
    assert given.address == x.ptr or not expected.size
    if expected.ndim:
        assert given.strides is not None
        assert given.strides == tuple(stride // 4 for stride in x.strides)
    if expected.size:
        assert [s * 4 for s in given.strides or ()] == list(expected.strides)
    if kind != "device" and expected.size:
        np.testing.assert_array_equal(given.to_numpy(), expected)


@pytest.mark.parametrize("view", VIEWS)
def test_usm_starts_at_its_lowest_address_and_host_data_at_its_first_element(view: str) -> None:
    x = VIEWS[view](usmq.asarray(base(), usm_type="shared"))
    if not x.size:
        return  # as below
    lowest = x.ptr
    lowest += sum((n - 1) * min(s, 0) for n, s in zip(x.shape, x.strides, strict=True))
    given = Tensor(x)
    assert given.tensor.data == lowest
    assert given.tensor.byte_offset == x.ptr - lowest
    assert (given.tensor.byte_offset > 0) == (view in ("reversed", "both"))
    given = Tensor(x, dl_device=(CPU, 0))
    assert (given.tensor.data, given.tensor.byte_offset) == (x.ptr, 0)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 5)])
def test_an_empty_array_has_the_address_of_usm(shape: tuple[int, ...]) -> None:
    full = usmq.zeros((5, 5))
    for x in (usmq.zeros(shape), full[5:], full[:, 5:], full[::-1][:0]):
        for options in ({}, {"dl_device": (CPU, 0)}, {"copy": True}):
            given = Tensor(x, **options)
            assert given.shape == x.shape
            assert given.strides is not None
            if "dl_device" not in options:
                context = usmq.current_queue().context
                assert usmq.pointer_info(given.tensor.data, context).kind == "device"
        assert dpnp.tensor.from_dlpack(x).shape == x.shape
        assert usmq.from_dlpack(x).shape == x.shape


def test_a_read_only_array_needs_the_flag_of_the_versioned_struct() -> None:
    memory, x = dl.read_only()
    assert x.readonly
    assert Tensor(x).flags == dl.READ_ONLY
    assert Tensor(x[2:]).flags == dl.READ_ONLY
    assert Tensor(x, dl_device=(CPU, 0)).flags == dl.READ_ONLY
    for max_version in (None, (0, 8)):
        with pytest.raises(usmq.InteropError, match=r"(?i)read.?only"):
            x.__dlpack__(max_version=max_version)
    assert Tensor(x, copy=True).flags & IS_COPIED
    assert dpnp.tensor.from_dlpack(x).flags.writable is False
    theirs = np.from_dlpack(x, device="cpu")
    assert (theirs.flags.writeable, theirs.ctypes.data) == (False, memory._pointer)
    assert issubclass(usmq.InteropError, BufferError)
    del memory


@pytest.mark.parametrize("max_version", [None, (1, 1)])
def test_an_unconsumed_capsule_frees_the_memory(max_version: Any) -> None:
    for copy in (None, True):
        before = live()
        given = usmq.zeros(1000).__dlpack__(max_version=max_version, copy=copy)
        gc.collect()
        assert live() >= before + 1
        del given
        assert eventually(lambda before=before: live() == before)


@pytest.mark.parametrize("max_version", [None, (1, 1)])
@pytest.mark.parametrize("options", [{}, {"copy": True}, {"dl_device": (CPU, 0)}])
def test_a_consumed_tensor_lives_until_its_deleter_runs_on_any_thread(
    max_version: Any, options: dict[str, Any]
) -> None:
    before = live()
    given = Tensor(usmq.asarray(base(), usm_type="shared")[::-1], max_version, **options)
    given.take()
    gc.collect()
    others = [usmq.zeros((4, 6), "i4", usm_type="shared") for _ in range(20)]
    np.testing.assert_array_equal(given.to_numpy(), base()[::-1])
    del others
    assert eventually(lambda: live() <= before + 1)
    thread = threading.Thread(target=given.delete)
    thread.start()
    thread.join()
    assert eventually(lambda: live() == before)


def test_a_thousand_tensors_deleted_on_many_threads_leak_nothing() -> None:
    before = live()
    x = usmq.zeros(10)
    given = [Tensor(x[n % 5 :]) for n in range(1000)]
    for tensor in given:
        tensor.take()
    del x
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(Tensor.delete, given)) == {None}
    assert eventually(lambda: live() == before)


def test_the_deleter_keeps_memory_for_work_in_flight(advanced: Oracle) -> None:
    x, y = usmq.arange(0, 16, 1, dtype="u4"), usmq.empty(16, "u4")
    given = Tensor(x, stream=-1)
    given.take()
    running = kernel("advance_into")(16, x, y, STEPS)
    del x
    given.delete()
    others = [usmq.full(16, 7, "u4") for _ in range(20)]
    np.testing.assert_array_equal(y.to_numpy(), advanced(np.arange(16), STEPS))
    assert running.done()
    del others


def test_without_a_stream_the_export_waits_and_minus_one_does_not() -> None:
    x = usmq.zeros(4, "u4")
    running = kernel("advance")(4, x, STEPS)
    lazy = Tensor(x, stream=-1)
    early = running.done()
    waited = Tensor(x, stream=None)
    assert not early
    assert running.done()
    assert lazy.address == waited.address == x.ptr


STREAMS: dict[str, Callable[[Any], Any]] = {
    "usmq": usmq.Queue,
    "dpctl": lambda q: q,
    "capsule": lambda q: q._get_capsule(),
    "address": lambda q: q.addressof_ref(),
}


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("form", STREAMS)
def test_later_work_on_the_stream_follows_ours_without_a_wait(
    form: str, in_order: bool, advanced: Oracle
) -> None:
    theirs = dpctl.SyclQueue(property="in_order") if in_order else dpctl.SyclQueue()
    x = usmq.arange(0, 16, 1, dtype="u4")
    running = kernel("advance")(16, x, STEPS)
    given = Tensor(x, stream=STREAMS[form](theirs))
    waited = running.done()
    memory = dpctl.memory.as_usm_memory(At(given.address, 64))
    found = dpctl.memory.MemoryUSMShared(64, queue=theirs)
    theirs.memcpy_async(found, memory, 64)
    theirs.wait()
    np.testing.assert_array_equal(found.copy_to_host().view("u4"), advanced(np.arange(16), STEPS))
    assert not waited


def test_the_data_is_complete_for_a_stream_of_another_context(
    two_devices: tuple[usmq.Device, usmq.Device], advanced: Oracle
) -> None:
    others = [dl.other_context(), usmq.Queue(two_devices[1])]
    own = usmq.current_queue().context
    # Where the second device shares the context, its queue is ordered instead.
    for queue in (other for other in others if getattr(other, "context", None) != own):
        x = usmq.arange(0, 4, 1, dtype="u4", usm_type="shared")
        kernel("advance")(4, x, STEPS // 4)
        given = Tensor(x, stream=queue)
        np.testing.assert_array_equal(given.to_numpy(), advanced(np.arange(4), STEPS // 4))


@pytest.mark.parametrize("stream", ["gpu", 1.5, [], b"", True, capsule(1, b"no"), dpctl.SyclDevice])
def test_a_stream_of_another_type_is_a_type_error(stream: Any) -> None:
    with pytest.raises(TypeError, match="stream"):
        usmq.zeros(3).__dlpack__(stream=stream)


@pytest.mark.parametrize("stream", [0, 1, 2, 5, 8, 4095, 0x7F0000000004, -2, 1 << 63, 1 << 64])
def test_a_number_that_is_not_a_queue_address_is_refused(stream: int) -> None:
    with pytest.raises(BufferError, match="stream"):
        usmq.zeros(3).__dlpack__(stream=stream)
    with pytest.raises(usmq.InteropError, match='"SyclQueueRef" has been used'):
        usmq.zeros(3).__dlpack__(stream=capsule(1, b"used_SyclQueueRef"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_host_gets_accessible_memory_or_a_copy(kind: str, advanced: Oracle) -> None:
    x = usmq.arange(0, 16, 1, dtype="u4", usm_type=kind)
    running = kernel("advance")(16, x, STEPS // 4)
    given = Tensor(x[::-3], dl_device=(CPU, 0))
    assert running.done()
    assert given.device == (CPU, 0)
    expected = advanced(np.arange(16), STEPS // 4)
    np.testing.assert_array_equal(given.to_numpy(), expected[::-3])
    copied = kind == "device"
    assert given.flags == (IS_COPIED if copied else 0)
    assert (given.address != x[::-3].ptr) == copied
    if copied:
        with pytest.raises(usmq.InteropError, match="copy"):
            x.__dlpack__(dl_device=(CPU, 0), copy=False)
    else:
        assert Tensor(x, dl_device=(CPU, 0), copy=False).address == x.ptr
    fresh = Tensor(x, dl_device=(CPU, 0), copy=True)
    assert fresh.flags == IS_COPIED
    assert fresh.address != x.ptr
    x.fill(0)
    x.wait()
    np.testing.assert_array_equal(fresh.to_numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_on_the_device_is_a_new_array(kind: str) -> None:
    x = usmq.asarray(base(), usm_type=kind)
    own = x.__dlpack_device__()
    for options in ({}, {"dl_device": own}, {"copy": False}, {"dl_device": own, "copy": False}):
        assert Tensor(x, **options).address == x.ptr
    for options in ({"copy": True}, {"copy": True, "dl_device": own}):
        given = Tensor(x[::-1], **options)
        assert given.flags == IS_COPIED
        assert given.device == own
        assert given.address != x[::-1].ptr
        if kind == "shared":
            np.testing.assert_array_equal(given.to_numpy(), base()[::-1])


@pytest.mark.parametrize(
    "device", [(ONEAPI, 1), (ONEAPI, 99), (ONEAPI, -1), (2, 0), (3, 0), (13, 0), (7, 0), (0, 0)]
)
def test_another_device_is_refused(device: tuple[int, int]) -> None:
    x = usmq.zeros(3)
    for copy in (None, False, True):
        with pytest.raises(usmq.InteropError):
            x.__dlpack__(dl_device=device, copy=copy)


@pytest.mark.parametrize("device", ["cpu", (1,), (1, 0, 0), 5, ("a", 0), (None, 0)])
@pytest.mark.parametrize("option", ["dl_device", "max_version"])
def test_a_device_that_is_not_a_pair_of_numbers_is_an_error(option: str, device: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
        usmq.zeros(3).__dlpack__(**{option: device})
    with pytest.raises(TypeError):
        usmq.zeros(3).__dlpack__(None)  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_without_a_device_ordinal_is_exported_only_to_the_host(
    queue_without_ordinal: usmq.Queue, kind: str
) -> None:
    x = usmq.asarray(base(), queue=queue_without_ordinal, usm_type=kind)
    for options in ({}, {"max_version": (1, 1)}, {"dl_device": x.__dlpack_device__()}):
        with pytest.raises(usmq.InteropError, match=r"context|sub-device"):
            x.__dlpack__(**options)
    for lend in dl.LENDERS.values():
        with pytest.raises(BufferError, match=r"context|sub-device"):
            lend(x)
    np.testing.assert_array_equal(Tensor(x, dl_device=(CPU, 0)).to_numpy(), base())
    np.testing.assert_array_equal(np.from_dlpack(x[::-1], device="cpu"), base()[::-1])


def test_tensors_may_outlive_the_interpreter(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run_python("""
import sys, usmq, numpy as np
x = usmq.zeros(100, usm_type="shared")
sys.kept = [x.__dlpack__(), x.__dlpack__(max_version=(1, 1)), np.from_dlpack(x, device="cpu")]
np.kept = [np.from_dlpack(usmq.zeros(9), device="cpu"), usmq.from_dlpack(np.arange(3))]
""")
