"""Transfers arrays and tables between workers of one machine through shared memory, not a socket.

When a worker connects to another one to fetch data, it sends the identity of its machine. If both
are on one machine, the sender copies each buffer once, from the device to a memfd, which the reader
opens by its number. A device that uses host memory in place, as a CPU, computes on that memory; for
others the reader copies it. Both sides keep idle memory mapped for a while: new pages and mappings
are as slow as the copy. Other readers get the frames of a pickle. `HERE.ways` and dask's metrics
count both.
"""

import logging
import mmap
import os
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Worker
from distributed.metrics import context_meter
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import usmq

logger = logging.getLogger("usmq.dask")

# A key of the handshake. Its value is equal only if one process can open the other's memory.
KEY = "usmq-machine"
# A key of the handshake: the process that reads, so that its end frees what it has not read.
READER = "usmq-process"
# The size in bytes below which a socket is as fast.
SMALLEST = 1 << 20
# The alignment of each buffer, as Arrow recommends it.
ALIGNMENT = 64
# The header before the buffers: whether the reader is done (byte 0), whether the sender has closed
# the memory (byte 1), and a secret that identifies the data.
PAGE = mmap.PAGESIZE
FULL, FREE = 1, 2
CLOSED = 1
SECRET = slice(8, 24)
# Seconds: how long unused memory is cached, and how long memory waits for its reader to open it. A
# reader that has opened it keeps it; one that comes later asks again.
IDLE, FORGOTTEN = 5.0, 60.0
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


def start_time(process: int) -> str | None:
    """Return when a process started, in the kernel's ticks; None if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name before the last bracket may contain spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def identity(process: int) -> str:
    """Return a name of a process that no later process gets."""
    return f"{process} {start_time(process)}"


def ended(process: str) -> bool:
    """Return whether a process of this `identity` has ended."""
    number, _, start = process.partition(" ")
    return start_time(int(number)) != start


class Segment:
    """Memory that another process can open."""

    def __init__(self, room: int, reader: str | None = None):
        self.room = room
        self.number = os.memfd_create("usmq", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.number, PAGE + room)
            self.memory = mmap.mmap(self.number, PAGE + room)
        except BaseException:
            os.close(self.number)
            raise
        self.fill(reader)

    def fill(self, reader: str | None = None) -> None:
        """Prepare it for new data, with a secret that no earlier reader knows."""
        self.reader = reader
        self.memory[SECRET] = secrets.token_bytes(16)
        self.memory[0] = FULL
        self.since = time.monotonic()

    def free(self) -> bool:
        """Return whether its reader is done."""
        return self.memory[0] == FREE

    def lost(self) -> bool:
        """Return whether its reader has ended before it was done."""
        return self.reader is not None and ended(self.reader)

    def close(self) -> None:
        """Close it; a reader that uses it keeps the memory until it is done."""
        self.memory[1] = CLOSED
        self.memory.close()
        os.close(self.number)


class Outbox:
    """The segments of this worker: data for other workers, and cached segments for reuse."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._lock = threading.Lock()

    def take(self, room: int, reader: str | None = None) -> Segment:
        """Return a segment for this many bytes; prefer reuse, because new pages are slow."""
        with self._lock:
            for segment in self._segments:
                if segment.free() and room <= segment.room <= 2 * room:
                    segment.fill(reader)
                    return segment
        segment = Segment(room, reader)
        with self._lock:
            self._segments.append(segment)
        return segment

    def sweep(self, idle: float = IDLE) -> None:
        """Close segments that were not used for this many seconds, or whose reader has ended."""
        now = time.monotonic()
        with self._lock:
            for segment in list(self._segments):
                most = idle if segment.free() else FORGOTTEN
                if now - segment.since > most or segment.lost():
                    self._segments.remove(segment)
                    segment.close()


class Lease(np.ndarray[Any, Any]):
    """The memory of a sender in use. Deletion, after the last use of it, tells the sender."""

    # The process that reads the memory: not a forked child. Slices have none.
    reader: int | None = None

    def __del__(self) -> None:
        if self.reader == os.getpid():
            self[0] = FREE


class Mapping:
    """The memory of another process, mapped here. An open lease keeps it mapped."""

    def __init__(self, number: int, room: int):
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self.memory = mmap.mmap(number, PAGE + room, flags=flags)
        self.since = time.monotonic()
        self._lease: weakref.ref[Lease] | None = None

    def holds(self, secret: bytes) -> bool:
        """Return whether it has the data of this secret, for its reader."""
        return self.memory[SECRET] == secret and self.memory[0] == FULL

    def lend(self) -> Lease:
        """Return the memory for one use."""
        lease = np.frombuffer(self.memory, "u1").view(Lease)
        lease.reader = os.getpid()
        self._lease = weakref.ref(lease)
        return lease

    def idle(self, now: float) -> float:
        """Return for how many seconds nothing here has used it."""
        if self._lease is not None and self._lease() is not None:
            self.since = now
        return now - self.since


class Inbox:
    """The memory of other workers that is mapped here; senders use the same memory again."""

    def __init__(self) -> None:
        self._mappings: dict[tuple[int, int], Mapping] = {}
        self._lock = threading.Lock()

    def open(self, header: dict[str, Any]) -> Lease:
        """Return the memory that a header describes; prefer reuse, because mapping is slow.

        Raises
        ------
        ConnectionError
            The memory or its process no longer exists.
        """
        process, number, secret = header["process"], header["number"], header["secret"]
        with self._lock:
            known = self._mappings.get((process, number))
        if known is not None and known.holds(secret):
            return known.lend()
        mapping = mapped(process, number, header["room"])
        if not mapping.holds(secret):
            raise ConnectionError(f"the data of process {process} is gone")
        with self._lock:
            self._mappings[process, number] = mapping
        return mapping.lend()

    def sweep(self, idle: float = IDLE) -> None:
        """Unmap memory that its sender has closed, or that was not used for this many seconds."""
        now, dropped = time.monotonic(), []
        with self._lock:
            for key, mapping in list(self._mappings.items()):
                if mapping.memory[1] == CLOSED or mapping.idle(now) > idle:
                    dropped.append(self._mappings.pop(key))
        # Unmapping takes milliseconds; it happens here, without the lock.
        dropped.clear()


class Place:
    """The state of this process for transfers on its machine."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.worker: Worker | None = None
        self.outbox, self.inbox = Outbox(), Inbox()
        # The bytes that have left or reached this process, for each way.
        self.ways: Counter[str] = Counter()

    def count(self, way: str, nbytes: int) -> None:
        """Count bytes of a way, here and in dask's metrics of the current activity."""
        self.ways[way] += nbytes
        context_meter.digest_metric(f"usmq-{way}", nbytes, "bytes")

    def sweep(self, idle: float = IDLE) -> None:
        """Release memory for transfers that was not used for this many seconds."""
        self.outbox.sweep(idle)
        self.inbox.sweep(idle)

    def join(self, worker: Worker) -> None:
        """Send the identity of the machine with each new connection of this worker."""
        if not dask.config.get("usmq.dask.same-host", True) or (name := machine()) is None:
            return
        mine = {KEY: name, READER: identity(os.getpid())}
        worker.rpc.connection_args["handshake_overrides"] = mine
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


def refused(context: dict[str, Any] | None, nbytes: int) -> str | None:
    """Return why a reader gets a pickle instead of shared memory; None if it gets the latter."""
    recipient = (context or {}).get("recipient", {})
    if nbytes < SMALLEST:
        return "small"
    if KEY not in recipient:
        return "no-worker-here"  # The client, the scheduler, or a worker that does not share.
    if HERE.name is None:
        return "switched-off"
    return None if recipient[KEY] == HERE.name else "other-machine"


def check(context: dict[str, Any] | None, nbytes: int) -> None:
    """Count data that needs the socket, and say so.

    Raises
    ------
    NotImplementedError
        The reader does not map the memory: dask then sends a pickle.
    """
    if (why := refused(context, nbytes)) is None:
        return
    if context and "recipient" in context:  # Else the pickle is for a disk.
        HERE.count("socket", nbytes)
        HERE.count(f"socket-{why}", nbytes)
    raise NotImplementedError(f"this data is sent as a pickle: {why}")


def write(buffers: Sequence[usmq.Array], context: dict[str, Any] | None) -> dict[str, Any]:
    """Copy buffers from the device to shared memory, and return the header that names it.

    Raises
    ------
    NotImplementedError
        No memory: dask then sends a pickle.
    """
    nbytes = sum(buffer.nbytes for buffer in buffers)
    places, end = [], PAGE
    for buffer in buffers:
        places.append(end)
        end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    reader = (context or {}).get("recipient", {}).get(READER)
    try:
        segment = HERE.outbox.take(end - PAGE, reader)
    except (OSError, ValueError) as failed:
        logger.warning("no shared memory for %d bytes (%s); they use the socket", nbytes, failed)
        HERE.count("socket", nbytes)
        HERE.count("socket-no-memory", nbytes)
        raise NotImplementedError("could not allocate memory to share") from failed
    # The segment is FULL from here on, so no other thread takes or closes it.
    try:
        with memoryview(segment.memory) as whole:
            for place, buffer in zip(places, buffers, strict=True):
                with whole[place : place + buffer.nbytes] as target:
                    usmq._core.fill_frame(buffer, target)
    except BaseException:
        segment.memory[0] = FREE
        raise
    HERE.count("same-host", nbytes)
    return {
        "process": os.getpid(),
        "number": segment.number,
        "secret": segment.memory[SECRET],
        "room": segment.room,
        "nbytes": end - PAGE,
        "buffers": [(place, buffer.nbytes) for place, buffer in zip(places, buffers, strict=True)],
    }


@dask_serialize.register(usmq.Array)
def dumps(array: usmq.Array, context: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """Store an array in shared memory for its reader; otherwise dask falls back to pickle."""
    check(context, array.nbytes)
    header = write([array], context)
    about = (array.dtype.name, array.shape, array.usm_type, array.readonly)
    return header | {"array": about}, []


@dask_serialize.register((usmq.Column, usmq.Table))
def dump_columns(
    columns: usmq.Column | usmq.Table, context: dict[str, Any] | None = None
) -> tuple[Any, list[Any]]:
    """Store the buffers of a column or table, as `dumps`."""
    check(context, columns.nbytes)
    packed, usm_type, buffers = usmq._core.pack_in_place(columns)
    header = write(buffers, context)
    return header | {"packed": packed, "usm_type": usm_type}, []


def frames_of(header: dict[str, Any]) -> list[memoryview]:
    """Map the memory that a header describes, and return its buffers.

    Raises
    ------
    ConnectionError
        The memory or its process no longer exists: dask then asks another worker, or recomputes.
    """
    whole = HERE.inbox.open(header).data
    return [whole[place : place + nbytes] for place, nbytes in header["buffers"]]


def in_place(usm_type: str | None, nbytes: int, permitted: bool = True) -> bool:
    """Return whether the current device uses host memory instead of its own; count the bytes."""
    reaches = permitted and "usm_system_allocations" in usmq.current_queue().device.aspects
    place = usm_type in ("device", "system", None) and reaches
    HERE.count("in-place" if place else "copied-from-shared", nbytes)
    return place


@dask_deserialize.register(usmq.Array)
def loads(header: dict[str, Any], frames: list[Any], permitted: bool = True) -> usmq.Array:
    """Read an array from the shared memory of its sender.

    Device memory of the sender becomes system memory, in place, if the current device uses that
    and the caller permits it.

    Raises
    ------
    ConnectionError
        As for `frames_of`.
    """
    (frame,) = frames_of(header)
    dtype, shape, usm_type, readonly = header["array"]
    if in_place(usm_type, frame.nbytes, permitted):
        usm_type = "system"
    elif usm_type == "system":
        usm_type = "device"
    # A copy is complete on return; an array in place holds the frame.
    return usmq._core.restore_array(FORMAT, dtype, shape, usm_type, readonly, frame, shared=True)


@dask_deserialize.register(usmq.Column)
def load_column(header: dict[str, Any], frames: list[Any]) -> usmq.Column:
    """Read a column from the shared memory of its sender, as `loads`."""
    frames = frames_of(header)
    place = in_place(header["usm_type"], header["nbytes"])
    return usmq._core.restore_column(header["packed"], *frames, shared=True, in_place=place)


@dask_deserialize.register(usmq.Table)
def load_table(header: dict[str, Any], frames: list[Any]) -> usmq.Table:
    """Read a table from the shared memory of its sender, as `loads`."""
    frames = frames_of(header)
    place = in_place(header["usm_type"], header["nbytes"])
    return usmq._core.restore_table(header["packed"], *frames, shared=True, in_place=place)


def mapped(process: int, number: int, room: int) -> Mapping:
    """Map the memory of this number in another process."""
    try:
        # O_NONBLOCK: the number may be reused for a file whose opening would block.
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
        try:
            return Mapping(file, room)
        finally:
            os.close(file)
    except (OSError, ValueError) as failed:
        if isinstance(failed, PermissionError):
            # As in some sandboxes. Other errors only mean that the process or its memory is gone.
            logger.warning(
                "cannot open shared memory of process %s (%s); data for this worker uses sockets "
                "from now on",
                process,
                failed,
            )
            HERE.leave()
        raise ConnectionError(f"the data of process {process} is gone: {failed}") from failed
