"""DLPack with other libraries: dpnp for USM, numpy and jax for the host."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from ctypes import c_uint32
from typing import Any

import arrow_structs
import dlpack_structs as dl
import dpnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import usmq
from arrow_structs import KINDS, STEPS, eventually, kernel, live
from dlpack_structs import CPU, DTYPES, LENDERS, VIEWS, address, base

no_leaks = arrow_structs.no_leaks

Oracle = Callable[[Any, int], Any]


class OnHost:
    """An array for consumers that accept only arrays on the host."""

    def __init__(self, array: usmq.Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options | {"dl_device": (CPU, 0)})


# --- dpnp


@pytest.mark.parametrize("peer", LENDERS)
def test_dpnp_reads_complete_data_keeps_it_alive_and_writes_ours(
    peer: str, advanced: Oracle
) -> None:
    before = live()
    x = usmq.arange(0, 16, 1, dtype="u4")
    kernel("advance")(16, x, STEPS)
    theirs = LENDERS[peer](x)
    expected = advanced(np.arange(16), STEPS)
    np.testing.assert_array_equal(dpnp.asnumpy(theirs), expected)
    theirs[:] = 7
    theirs.sycl_queue.wait()
    assert x.to_numpy().tolist() == [7] * 16
    del x
    others = [usmq.zeros(16, "u4") for _ in range(20)]
    assert dpnp.asnumpy(theirs[3:]).tolist() == [7] * 13
    del theirs, others
    assert eventually(lambda: gc.collect() >= 0 and live() == before)


def test_pending_work_of_dpnp_is_complete_in_our_array(advanced: Oracle) -> None:
    theirs = dpnp.tensor.asarray(np.arange(16, dtype="u4"))
    built = arrow_structs.built_by_dpctl(theirs.sycl_queue)
    arguments = [theirs.usm_data, c_uint32(STEPS)]
    event = theirs.sycl_queue.submit_async(built.get_sycl_kernel("advance"), arguments, [16])
    x = usmq.from_dlpack(theirs)
    np.testing.assert_array_equal(x.to_numpy(), advanced(np.arange(16), STEPS))
    event.wait()


def test_an_array_of_dpnp_lives_as_long_as_ours_and_stays_read_only() -> None:
    theirs = dpnp.tensor.asarray(base())
    theirs.flags.writable = False
    held = sys.getrefcount(theirs.usm_data)
    x = usmq.from_dlpack(theirs)
    assert x.readonly
    assert sys.getrefcount(theirs.usm_data) > held
    del x
    assert eventually(lambda: sys.getrefcount(theirs.usm_data) == held)


@pytest.mark.parametrize("place", dl.ELSEWHERE)
def test_dpnp_memory_without_a_device_ordinal_is_our_buffer_error(place: str) -> None:
    theirs = dpnp.tensor.asarray(base(), sycl_queue=dl.ELSEWHERE[place]())
    with pytest.raises(usmq.InteropError, match="asarray") as refused:
        usmq.from_dlpack(theirs)
    assert isinstance(refused.value, BufferError)
    assert type(refused.value.__cause__).__name__ == "DLPackCreationError"
    assert "default" in str(refused.value)
    x = usmq.asarray(theirs)  # as the message suggests
    assert x.ptr == address(theirs)
    np.testing.assert_array_equal(x.to_numpy(), base())


# --- numpy


@pytest.mark.parametrize("dtype", dl.DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_an_array_of_numpy_is_copied(view: str, dtype: str) -> None:
    theirs = VIEWS[view](base(dtype))
    x = usmq.from_dlpack(np.asarray(theirs))
    assert (x.shape, x.dtype, x.readonly) == (theirs.shape, theirs.dtype, False)
    np.testing.assert_array_equal(x.to_numpy(), theirs)


def test_numpy_arrays_are_not_kept_and_read_only_ones_are_copied() -> None:
    theirs = base()
    theirs.flags.writeable = False
    x = usmq.from_dlpack(theirs)
    assert not x.readonly
    x.fill(0)
    np.testing.assert_array_equal(theirs, base())
    alive = weakref.ref(theirs)
    del theirs
    assert eventually(lambda: alive() is None)
    with pytest.raises(usmq.InteropError, match="copy"):
        usmq.from_dlpack(base(), usm_type="device", copy=False)
    for refused in (
        np.array(["a"]),
        np.array([object()]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, ">i4"),
    ):
        with pytest.raises(BufferError):
            usmq.from_dlpack(refused)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_reads_host_accessible_arrays_in_place(kind: str, dtype: str) -> None:
    x = usmq.asarray(base(dtype), usm_type=kind)
    for view in VIEWS.values():
        theirs = np.from_dlpack(view(x), device="cpu")
        assert theirs.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(theirs, view(base(dtype)))
        if theirs.size:
            assert (theirs.ctypes.data == view(x).ptr) == (kind != "device")
    if kind != "device":
        theirs = np.from_dlpack(x, device="cpu", copy=False)
        theirs[1] = 1
        assert (x.to_numpy()[1] == 1).all()
    copied = np.from_dlpack(x, device="cpu", copy=True)
    del x
    np.testing.assert_array_equal(copied[2:], base(dtype)[2:])
    with pytest.raises((RuntimeError, BufferError), match=r"(?i)device"):
        np.from_dlpack(usmq.zeros(3, dtype, usm_type=kind))


# --- jax, on the host


JAX_DTYPES = ["?", "i1", "i2", "i4", "u1", "u2", "u4", "f2", "f4", "c8", "bfloat16"]


@pytest.mark.parametrize("dtype", JAX_DTYPES)
@pytest.mark.parametrize("kind", ["host", "shared"])
def test_jax_reads_host_and_shared_usm_in_place_and_releases_it(kind: str, dtype: str) -> None:
    given = jnp.asarray(base("u1"), dtype=dtype)
    x = usmq.from_dlpack(given, usm_type=kind)
    assert (x.dtype, x.shape, x.usm_type) == (dtype, (4, 6), kind)
    theirs = jax.dlpack.from_dlpack(OnHost(x))
    assert theirs.unsafe_buffer_pointer() == x.ptr
    assert (theirs.dtype, theirs.shape) == (given.dtype, given.shape)
    np.testing.assert_array_equal(np.asarray(theirs), np.asarray(given))
    for back in (usmq.from_dlpack(theirs), usmq.asarray(theirs)):
        assert (back.dtype, back.shape, back.usm_type) == (dtype, (4, 6), "device")
        again = jax.dlpack.from_dlpack(OnHost(back))
        np.testing.assert_array_equal(np.asarray(again), np.asarray(given))


def test_jax_imports_our_arrays_through_numpy_as_documented() -> None:
    x = usmq.asarray(base(), usm_type="host")
    with pytest.raises(TypeError, match="14"):
        jax.dlpack.from_dlpack(x)
    theirs = jax.dlpack.from_dlpack(np.from_dlpack(x, device="cpu"))
    assert theirs.unsafe_buffer_pointer() == x.ptr
    np.testing.assert_array_equal(np.asarray(theirs), base())


# jax supports only strides of a transposition and refuses others.
REFUSED_BY_JAX = {"columns", "reversed", "both", "part"}


@pytest.mark.parametrize("view", VIEWS)
def test_jax_reads_a_view_correctly_or_refuses_it(view: str) -> None:
    x = VIEWS[view](usmq.asarray(base(), usm_type="host"))
    if view in REFUSED_BY_JAX:
        with pytest.raises(RuntimeError, match="stri"):
            jax.dlpack.from_dlpack(OnHost(x))
        return
    theirs = jax.dlpack.from_dlpack(OnHost(x))
    np.testing.assert_array_equal(np.asarray(theirs), VIEWS[view](base()))


def test_a_jax_dtype_unknown_to_usmq_is_refused() -> None:
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        with pytest.raises(usmq.InteropError, match="code"):
            usmq.from_dlpack(jnp.arange(4, dtype=dtype))
