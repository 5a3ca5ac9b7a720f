"""Arrays between workers of one machine: through memory that both map, instead of a socket.

A worker tells those that it fetches from, when it connects, which machine it is on. An array that
such a one asks for is copied once, from the device to memory of this process that the other opens
by its number; it copies from there to its device. Everyone else gets the frames of a pickle.
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

# Of a handshake. Its value is the same only where one process can open the other's memory.
KEY = "usmq-machine"
# Bytes below which the socket is as good.
SMALLEST = 1 << 20
# Before the elements: whether the reader is done, and what tells this memory from any other.
PAGE = mmap.PAGESIZE
FULL, FREE = 1, 2
SECRET = slice(8, 24)
# Seconds: how long memory waits for its next use, and how long for a reader that never came.
IDLE, FORGOTTEN = 5.0, 300.0
# Of what restore_array reads; both sides have the same version of usmq, which KEY says.
FORMAT = 1


def machine() -> str | None:
    """Return what processes of one user on one machine have in common; None if that is unknown."""
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
        """Make it another one's that no earlier reader knows."""
        self.memory[SECRET] = secrets.token_bytes(16)
        self.memory[0] = FULL
        self.since = time.monotonic()

    def free(self) -> bool:
        """Whether its reader is done with it."""
        return self.memory[0] == FREE

    def close(self) -> None:
        """Let it go; a reader that has opened it keeps it."""
        self.memory.close()
        os.close(self.number)


class Outbox:
    """What this worker has for others of its machine, and what it keeps for the next."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._lock = threading.Lock()

    def take(self, room: int) -> Segment:
        """Return memory for so many bytes: used before, if it may be, since new pages are dear."""
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
        """Let go what has not been used for so long."""
        now = time.monotonic()
        with self._lock:
            for segment in list(self._segments):
                if now - segment.since > (idle if segment.free() else FORGOTTEN):
                    self._segments.remove(segment)
                    segment.close()


class Place:
    """A process among the others of its machine."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.worker: Worker | None = None
        self.outbox = Outbox()

    def join(self, worker: Worker) -> None:
        """Tell those that this worker connects to where it is."""
        if not dask.config.get("usmq.dask.same-host", True) or (name := machine()) is None:
            return
        worker.rpc.connection_args["handshake_overrides"] = {KEY: name}
        self.name, self.worker = name, worker

    def leave(self) -> None:
        """Tell them nothing any more, and end the connections that know."""
        worker, self.worker, self.name = self.worker, None, None
        if worker is None:
            return
        worker.rpc.connection_args.pop("handshake_overrides", None)

        def forget() -> None:
            for address in list(worker.rpc.available):
                worker.rpc.remove(address)

        # One of them is in use by whoever asks for this.
        worker.loop.add_callback(worker.loop.call_later, 0.1, forget)


HERE = Place()


@dask_serialize.register(usmq.Array)
def dumps(array: usmq.Array, context: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """Leave an array where its reader can open it. dask goes on to pickle with all others."""
    asker = (context or {}).get("recipient", {}).get(KEY)
    if HERE.name is None or asker != HERE.name or array.nbytes < SMALLEST:
        raise NotImplementedError("this array is sent as a pickle")
    try:
        segment = HERE.outbox.take(array.nbytes)
    except (OSError, ValueError) as failed:
        raise NotImplementedError("could not allocate memory to share") from failed
    # From here on it is FULL, so nobody else takes it or lets it go.
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


@dask_deserialize.register(usmq.Array)
def loads(header: dict[str, Any], frames: list[Any]) -> usmq.Array:
    """Read an array where its maker has left it.

    Raises
    ------
    ConnectionError
        It is gone, as its maker: dask then asks another, or computes it again.
    """
    nbytes = header["nbytes"]
    memory = opened(header, PAGE + nbytes)
    try:
        dtype, shape, usm_type, readonly = header["array"]
        with memoryview(memory) as whole, whole[PAGE : PAGE + nbytes] as frame:
            return usmq._core.restore_array(FORMAT, dtype, shape, usm_type, readonly, frame)
    finally:
        memory[0] = FREE
        memory.close()


def opened(header: dict[str, Any], size: int) -> mmap.mmap:
    """Map the memory that a header is about."""
    process = Path(f"/proc/{header['process']}")
    try:
        # Nothing that this number may mean by now is to make us wait.
        number = os.open(process / "fd" / str(header["number"]), os.O_RDWR | os.O_NONBLOCK)
        try:
            memory = mmap.mmap(number, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(number)
    except (OSError, ValueError) as failed:
        if process.exists():
            # It lives and cannot be read: from now on by the socket.
            HERE.leave()
        raise ConnectionError(f"the array of process {process.name} is gone: {failed}") from failed
    if memory[SECRET] != header["secret"]:
        memory.close()
        raise ConnectionError(f"the array of process {process.name} is gone")
    return memory
