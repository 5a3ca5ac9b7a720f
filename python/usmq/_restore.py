"""Restores a pickled object; in a task that dask reads, a failure waits for the task."""

import pickle
import sys
import weakref
from typing import Any

import usmq._core

# The names that a pickle may contain.
KNOWN = frozenset(
    ("Device", "restore_array", "restore_column", "restore_field", "restore_queue", "restore_table")
)

# The objects of tasks that dask has read and this process could not restore.
UNREAD: "weakref.WeakSet[Unread]" = weakref.WeakSet()


class Unread:
    """An object that could not be restored here; any use of it raises the error.

    dask's scheduler unpickles the arguments of a task only to send them on, and it may have no
    device. A worker unpickles them outside of the task, where an exception ends the worker. Its
    pickle is that of the object.
    """

    def __init__(self, name: str, args: tuple[Any, ...], error: Exception):
        self._call, self._error = (name, *args), error
        # Whether a pickle was made since this was reset: a task that contains it is found by that.
        self.pickled = False
        UNREAD.add(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self.pickled = True
        return restore, tuple(
            packed(arg, protocol) if isinstance(arg, (memoryview, bytearray)) else arg
            for arg in self._call
        )

    def __repr__(self) -> str:
        return f"<usmq object that could not be restored: {self._error}>"

    def __getattr__(self, name: str) -> Any:
        # Python asks for private names to find out whether an object has a protocol.
        raise AttributeError(name) if name.startswith("__dask") else self._error


def packed(frame: Any, protocol: int) -> Any:
    """Return a buffer in a form that a pickle of this protocol accepts."""
    return pickle.PickleBuffer(frame) if protocol >= 5 else bytes(frame)


def restore(name: str, *args: Any) -> Any:
    """Call a function of `usmq._core` with the arguments of a pickle."""
    if name not in KNOWN:
        raise ValueError(f"the pickle names {name!r}, which this version of usmq does not restore")
    try:
        return getattr(usmq._core, name)(*args)
    except Exception as failed:
        if not in_task_of_dask():
            raise
        return Unread(name, args, failed)


def in_task_of_dask() -> bool:
    """Return whether dask's scheduler or a worker unpickles a task, not its data."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") != "distributed.protocol.pickle":
        return False
    while frame.f_globals.get("__name__", "").startswith("distributed.protocol."):
        if frame.f_code.co_name == "_decode_default":
            # A worker reads a task; dask reads data by `merge_and_deserialize`.
            return True
        if frame.f_code.co_name == "merge_and_deserialize" or frame.f_back is None:
            return False
        frame = frame.f_back
    return frame.f_code.co_name == "update_graph"
