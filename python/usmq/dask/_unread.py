"""Restores arguments that a worker could not restore when it read a task, inside of the task."""

import pickle
from typing import Any

from dask._task_spec import Task, TaskRef
from distributed import Worker
from distributed.protocol.pickle import dumps

import usmq
from usmq._restore import UNREAD


def postpone(worker: Worker, key: Any) -> None:
    """Change a task with an unread argument: it first reads its arguments, or fails."""
    task = worker.state.tasks.get(key)
    if not UNREAD or task is None or (spec := task.run_spec) is None:
        return
    frames: list[pickle.PickleBuffer] = []
    before = list(UNREAD)
    for unread in before:
        unread.pickled = False
    stream = dumps(spec, buffer_callback=frames.append)
    if not any(unread.pickled for unread in before):
        return
    names = tuple(spec.dependencies)
    call = read_and_wait if spec.is_coro else read_and_call
    task.run_spec = Task(key, call, key, stream, frames, names, *map(TaskRef, names))


def read_and_call(
    key: Any, stream: bytes, frames: list[Any], names: tuple[Any, ...], *values: Any
) -> Any:
    """Read a task, and call it with the results that it depends on."""
    return read(key, stream, frames)(dict(zip(names, values, strict=True)))


async def read_and_wait(
    key: Any, stream: bytes, frames: list[Any], names: tuple[Any, ...], *values: Any
) -> Any:
    """Do the same for a coroutine function."""
    return await read_and_call(key, stream, frames, names, *values)


def read(key: Any, stream: bytes, frames: list[Any]) -> Any:
    """Read a task.

    Raises
    ------
    DeviceNotFoundError
        The device of an argument is not visible to this worker.
    """
    try:
        return pickle.loads(stream, buffers=frames)
    except usmq.DeviceNotFoundError as failed:
        raise usmq.DeviceNotFoundError(
            f"cannot read an argument of task {key!r}: {failed}; devices and queues travel by "
            "filter string, and a worker sees only its own device, usmq.current_queue().device"
        ) from None
