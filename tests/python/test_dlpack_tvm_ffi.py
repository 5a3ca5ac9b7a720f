"""The DLPack C exchange API with apache-tvm-ffi, an independent consumer."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from collections.abc import Callable
from ctypes import addressof, byref, c_int64, c_void_p
from pathlib import Path
from typing import Any

import arrow_structs
import dlpack_structs as dl
import numpy as np
import pytest
import tvm_ffi
import usmq
from arrow_structs import KINDS, capsule, eventually, live
from dlpack_exchange import queue_at
from dlpack_structs import DTYPES, ONEAPI, VIEWS, base, on_device

no_leaks = arrow_structs.no_leaks

Oracle = Callable[[Any, int], Any]
LIBRARY = ctypes.CDLL(str(Path(tvm_ffi.__file__).parent / "lib" / "libtvm_ffi.so"))


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a Python function through tvm-ffi's own calling convention."""
    return tvm_ffi.convert(function)(*arguments)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_tvm_ffi_sees_our_memory_as_that_of_a_oneapi_device(kind: str, dtype: str) -> None:
    x = usmq.empty((4, 6), dtype, usm_type=kind)
    theirs = tvm_ffi.from_dlpack(x)
    assert theirs.data_ptr() == x.ptr
    assert tuple(theirs.shape) == (4, 6)
    if not dtype.startswith("c"):  # tvm-ffi has no names for complex types
        assert str(theirs.dtype) == str(x.dtype)
    assert (str(theirs.device), theirs.__dlpack_device__()) == ("oneapi:0", (ONEAPI, 0))
    back = usmq.from_dlpack(theirs)
    assert (back.ptr, back.dtype, back.usm_type) == (x.ptr, x.dtype, kind)


@pytest.mark.parametrize("view", VIEWS)
def test_an_argument_is_returned_as_our_array_at_its_address(view: str) -> None:
    x, expected = VIEWS[view](usmq.asarray(base())), VIEWS[view](base())
    seen = []

    def look(given: Any) -> Any:
        seen.append((type(given), tuple(given.shape), tuple(given.strides)))
        return given

    back = called(look, x)
    assert seen == [(tvm_ffi.Tensor, expected.shape, tuple(stride // 4 for stride in x.strides))]
    assert isinstance(back, usmq.Array)
    assert not back.size or back.ptr == x.ptr
    np.testing.assert_array_equal(back.to_numpy(), expected)
    back = tvm_ffi.get_global_func("testing.echo")(x)  # in C++
    np.testing.assert_array_equal(back.to_numpy(), expected)


def test_a_callback_may_request_our_class() -> None:
    x = usmq.asarray(base())

    def negate(given: usmq.Array) -> usmq.Array:
        assert isinstance(given, usmq.Array)
        given.copy_from(-base())
        return given

    back = tvm_ffi.convert_func(negate, tensor_cls=usmq.Array)(x)
    assert back.ptr == x.ptr
    np.testing.assert_array_equal(x.to_numpy(), -base())


def test_a_function_is_called_with_our_current_queue_as_its_stream(
    two_devices: tuple[usmq.Device, usmq.Device],
) -> None:
    seen = []

    def streams(given: Any) -> int:
        seen.append(given.device)
        return int(tvm_ffi.get_raw_stream(given.device))

    for device in two_devices:
        x = usmq.zeros(3, queue=usmq.Queue(device))
        for queue in (usmq.Queue(device), usmq.Queue(device, profiling=True)):
            with usmq.use_queue(queue):
                assert queue_at(called(streams, x)) == queue
    assert all(tvm_ffi.get_raw_stream(device) == 0 for device in seen), "only for the call"


def prototype(shape: tuple[int, ...]) -> dl.DLTensor:
    """Return a prototype for the allocator: float32 on the first oneAPI device."""
    extents = (c_int64 * len(shape))(*shape)
    made = dl.DLTensor(
        shape=addressof(extents),
        ndim=len(shape),
        dtype=dl.DLDataType(2, 32, 1),
        device=dl.DLDevice(ONEAPI, 0),
    )
    made.extents = extents
    return made


def test_a_function_allocates_through_usmq_and_returns_our_array() -> None:
    seen = []

    def make(given: Any) -> Any:
        handle, managed = c_void_p(), c_void_p()
        assert LIBRARY.TVMFFIEnvTensorAlloc(byref(prototype((2**45,))), byref(handle)) == -1
        assert LIBRARY.TVMFFIEnvTensorAlloc(byref(prototype((2, 3))), byref(handle)) == 0
        assert LIBRARY.TVMFFITensorToDLPackVersioned(handle, byref(managed)) == 0
        made = dl.Answers((ONEAPI, 0), capsule(managed.value or 0, dl.VERSIONED))
        array = usmq.from_dlpack(made)
        assert LIBRARY.TVMFFIObjectDecRef(handle) == 0
        array.copy_from(np.arange(6, dtype="f4").reshape(2, 3))
        seen.append(array.ptr)
        return tvm_ffi.from_dlpack(array)

    before = live()
    back = called(make, usmq.zeros(1))
    assert isinstance(back, usmq.Array)
    assert back.ptr == seen[0]
    assert back.to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del back
    assert eventually(lambda: live() == before)


@pytest.mark.parametrize("dtype", [(10, 8, 1), (17, 4, 2)])
def test_a_result_we_cannot_import_stays_a_tvm_tensor_and_is_deleted_once(dtype: Any) -> None:
    producer = on_device(shape=(4,), strides=(1,), dtype=dtype, name=dl.LEGACY)
    theirs = tvm_ffi.from_dlpack(producer)
    back = called(lambda x, given: given, usmq.zeros(1), theirs)
    assert isinstance(back, tvm_ffi.Tensor)
    assert producer.deleted == 0
    del theirs, back
    gc.collect()
    assert producer.deleted == 1


def test_a_forked_child_gets_an_error(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = """
import ctypes, os, tvm_ffi, usmq
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = get(usmq.Array.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
number, at = ctypes.c_int, ctypes.c_void_p
stream = ctypes.PYFUNCTYPE(number, number, number, at).from_address(table + 48)
lend = ctypes.PYFUNCTYPE(number, at, at).from_address(table + 40)
x, out = usmq.zeros(3), ctypes.create_string_buffer(48)
calls = [
    lambda: tvm_ffi.from_dlpack(x),
    lambda: stream(14, 0, out),
    lambda: lend(id(x), out),
]
for call in calls:
    call()
if os.fork() == 0:
    for call in calls:
        try:
            call()
        except usmq.ForkError:
            continue
        os._exit(3)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_python(code, timeout=60).stdout.split() == ["0"]
