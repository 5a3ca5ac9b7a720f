"""Transfers arrays between workers of one machine through shared memory instead of a socket.

When a worker connects to another one to fetch data, it sends the identity of its machine. If both
are on one machine, the sender copies an array once, from the device to a memfd, which the reader
opens by its number. A device that uses host memory in place, as a CPU, computes on that memory; for
others the reader copies it. Other readers get the frames of a pickle.
"""

import mmap
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import dask
from distributed import Worker
from distributed.metrics import context_meter
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import usmq

# A key of the handshake. Its value is equal only if one process can open the other's memory.
KEY = "usmq-machine"
# The size in bytes below which a socket is as fast.
SMALLEST = 1 << 20
# The header before the elements: whether the reader is done, and a secret that identifies the data.
PAGE = mmap.PAGESIZE
FULL, FREE = 1, 2
SECRET = slice(8, 24)
# Seconds: how long unused memory is cached, and how long memory waits for its reader.
IDLE, FORGOTTEN = 5.0, 300.0
# The format of restore_array; both sides have the same version of usmq, which KEY ensures.
FORMAT = 1


def machine() -> str | None:
    """Return an identity shared by processes of one user on one machine; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "user")]
    except OSError:
        return None
    return " ".join([boot, *spaces, str(os.getuid()), usmq.__version__])


class Segment:
    """Memory that another process can open."""

    def __init__(self, room: int):
        self.room = room
        self.number = os.memfd_create("usmq", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.number, PAGE + room)
            self.memory = mmap.mmap(self.number, PAGE + room)
        except BaseException:
            os.close(self.number)
            raise
        self.fill()

    def fill(self) -> None:
        """Prepare it for new data, with a secret that no earlier reader knows."""
        self.memory[SECRET] = secrets.token_bytes(16)
        self.memory[0] = FULL
        self.since = time.monotonic()

    def free(self) -> bool:
        """Return whether its reader is done."""
        return self.memory[0] == FREE

    def close(self) -> None:
        """Close it; a reader that has opened it keeps the memory."""
        self.memory.close()
        os.close(self.number)


class Outbox:
    """The segments of this worker: data for other workers, and cached segments for reuse."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._lock = threading.Lock()

    def take(self, room: int) -> Segment:
        """Return a segment for this many bytes; prefer reuse, because new pages are slow."""
        with self._lock:
            for segment in self._segments:
                if segment.free() and room <= segment.room <= 2 * room:
                    segment.fill()
                    return segment
        segment = Segment(room)
        with self._lock:
            self._segments.append(segment)
        return segment

    def sweep(self, idle: float = IDLE) -> None:
        """Close segments that were not used for this many seconds."""
        now = time.monotonic()
        with self._lock:
            for segment in list(self._segments):
                if now - segment.since > (idle if segment.free() else FORGOTTEN):
                    self._segments.remove(segment)
                    segment.close()


class Place:
    """The state of this process for transfers on its machine."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.worker: Worker | None = None
        self.outbox = Outbox()

    def join(self, worker: Worker) -> None:
        """Send the identity of the machine with each new connection of this worker."""
        if not dask.config.get("usmq.dask.same-host", True) or (name := machine()) is None:
            return
        worker.rpc.connection_args["handshake_overrides"] = {KEY: name}
        self.name, self.worker = name, worker

    def leave(self) -> None:
        """Stop sending the identity, and close the connections that have sent it."""
        worker, self.worker, self.name = self.worker, None, None
        if worker is None:
            return
        worker.rpc.connection_args.pop("handshake_overrides", None)

        def forget() -> None:
            for address in list(worker.rpc.available):
                worker.rpc.remove(address)

        # Close them later: the caller is still using one of them.
        worker.loop.add_callback(worker.loop.call_later, 0.1, forget)


HERE = Place()


@dask_serialize.register(usmq.Array)
def dumps(array: usmq.Array, context: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """Store an array in shared memory for its reader; otherwise dask falls back to pickle."""
    asker = (context or {}).get("recipient", {}).get(KEY)
    if HERE.name is None or asker != HERE.name or array.nbytes < SMALLEST:
        raise NotImplementedError("this array is sent as a pickle")
    try:
        segment = HERE.outbox.take(array.nbytes)
    except (OSError, ValueError) as failed:
        raise NotImplementedError("could not allocate memory to share") from failed
    # The segment is FULL from here on, so no other thread takes or closes it.
    try:
        with memoryview(segment.memory) as whole, whole[PAGE : PAGE + array.nbytes] as target:
            usmq._core.fill_frame(array, target)
    except BaseException:
        segment.memory[0] = FREE
        raise
    header = {
        "process": os.getpid(),
        "number": segment.number,
        "secret": segment.memory[SECRET],
        "nbytes": array.nbytes,
        "array": (array.dtype.name, array.shape, array.usm_type, array.readonly),
    }
    context_meter.digest_metric("usmq-same-host", array.nbytes, "bytes")
    return header, []


class Received(mmap.mmap):
    """The memory of a sender. Deletion, after the last use of an array in it, tells the sender."""

    # The process that reads the memory, once it is known to be the sender's: not a forked child.
    reader: int | None = None

    def __del__(self) -> None:
        if self.reader == os.getpid():
            self[0] = FREE


@dask_deserialize.register(usmq.Array)
def loads(header: dict[str, Any], frames: list[Any]) -> usmq.Array:
    """Read an array from the shared memory of its sender.

    Device memory of the sender becomes system memory, in place, if the current device uses that.

    Raises
    ------
    ConnectionError
        The memory or its process no longer exists: dask then asks another worker, or recomputes.
    """
    nbytes = header["nbytes"]
    memory = opened(header, PAGE + nbytes)
    dtype, shape, usm_type, readonly = header["array"]
    if usm_type in ("device", "system"):
        reaches = "usm_system_allocations" in usmq.current_queue().device.aspects
        usm_type = "system" if reaches else "device"
    frame = memoryview(memory)[PAGE : PAGE + nbytes]
    # A copy is complete on return; an array in place holds the frame.
    return usmq._core.restore_array(FORMAT, dtype, shape, usm_type, readonly, frame)


def opened(header: dict[str, Any], size: int) -> Received:
    """Map the memory that a header describes."""
    process = Path(f"/proc/{header['process']}")
    try:
        # O_NONBLOCK: the number may be reused for a file whose opening would block.
        number = os.open(process / "fd" / str(header["number"]), os.O_RDWR | os.O_NONBLOCK)
        try:
            memory = Received(number, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(number)
    except (OSError, ValueError) as failed:
        if process.exists():
            # The process is alive but its memory cannot be read: use the socket from now on.
            HERE.leave()
        raise ConnectionError(f"the array of process {process.name} is gone: {failed}") from failed
    if memory[SECRET] != header["secret"]:
        memory.close()
        raise ConnectionError(f"the array of process {process.name} is gone")
    memory.reader = os.getpid()
    return memory
