"""pyarrow batches in oneAPI memory, through a device mapper that a command builds."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import usmq
from usmq.pyarrow._build import build, library

__all__ = ["build", "memory_manager", "register"]

_lock = threading.Lock()
_mapper: ctypes.PyDLL | None = None


def register() -> None:
    """Let pyarrow hold oneAPI memory in this process: ``pa.record_batch(table)`` without a copy.

    Load the device mapper that ``python -m usmq pyarrow build`` or :func:`build` has compiled for
    this pyarrow and this usmq, and register it in Arrow C++. Later calls do nothing. Nothing is
    compiled here.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    usmq.InteropError
        The mapper is not built for these versions, cannot be loaded, or another library has
        registered one.

    Examples
    --------
    >>> import pyarrow as pa, usmq.pyarrow
    >>> usmq.pyarrow.register()                                         # doctest: +SKIP
    >>> batch = pa.record_batch(usmq.Table({"x": usmq.arange(3)}))      # doctest: +SKIP
    >>> batch.is_cpu                                                    # doctest: +SKIP
    False
    """
    global _mapper
    with _lock:
        if _mapper is not None:
            return
        path = library()
        try:
            # Keeps the GIL: pyarrow's functions need it. usmq releases it while it waits.
            mapper = ctypes.PyDLL(str(path))
        except OSError as problem:
            raise usmq.InteropError(
                f"cannot load {path}: {problem}; build it again with "
                "`python -m usmq pyarrow build --force`"
            ) from None
        mapper.usmq_pyarrow_register.restype = ctypes.c_char_p
        count_nulls = mapper.usmq_pyarrow_count_nulls
        count_nulls.restype = ctypes.c_char_p
        count_nulls.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.py_object]
        refusal = mapper.usmq_pyarrow_register()
        if refusal is not None:
            raise usmq.InteropError(
                f"pyarrow refused the device mapper: {refusal.decode()}; another library may have "
                "registered one for oneAPI devices"
            )
        _mapper = mapper


def memory_manager(queue: Any = None) -> Any:
    """Return pyarrow's memory manager of a device, as the target of ``copy_to``.

    Parameters
    ----------
    queue
        A queue, a device or a filter string; by default the current queue. A root device in its
        platform's default context; pyarrow cannot name others.

    Returns
    -------
    pyarrow.MemoryManager
        ``batch.copy_to(memory_manager("gpu"))`` copies a batch of pyarrow to that device.

    Raises
    ------
    usmq.InteropError
        As :func:`register`, which this calls; or the device is a sub-device, or the queue is in
        another context.
    """
    import pyarrow as pa

    register()
    column = usmq.Column(usmq.empty(1, "u1", queue=queue))
    return pa.array(column).buffers()[1].memory_manager


def _count_nulls(data: Any) -> None:
    """Count the nulls of a batch or array of pyarrow in oneAPI memory, before pyarrow exports it.

    pyarrow counts them on the host, which crashes.
    """
    import pyarrow as pa

    if _mapper is None or data.device_type != pa.DeviceAllocationType.ONEAPI:
        return  # memory of another library
    is_batch = isinstance(data, pa.RecordBatch)
    capsule = pa.lib.__pyx_capi__[f"pyarrow_unwrap_{'batch' if is_batch else 'array'}"]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    unwrap = pointer_of(capsule, name_of(capsule))
    problem = _mapper.usmq_pyarrow_count_nulls(unwrap, is_batch, data)
    if problem is not None:
        raise usmq.InteropError(
            f"cannot count the nulls of {type(data).__name__}: {problem.decode()}"
        )
