"""A worker's results: in device memory up to a limit, then in host memory, then on disk."""

import logging
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed.protocol.pickle import dumps
from distributed.spill import SpillBuffer

import usmq
from usmq.dask._held import device_bytes
from usmq.dask._limits import in_bytes, parse_limit

logger = logging.getLogger("usmq.dask")


class Parked:
    """A value whose device memory was copied to the host."""

    def __init__(self, value: Any):
        frames: list[pickle.PickleBuffer] = []
        # dask's, which also pickles what is defined in a script.
        self.stream = dumps(value, buffer_callback=frames.append)
        # Use pageable memory: this data may be written to disk, and pinned memory is scarce.
        self.frames = [bytearray(frame.raw()) for frame in frames]

    def restored(self) -> Any:
        """Return the value, on the current queue."""
        return pickle.loads(self.stream, buffers=self.frames)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        frames = [pickle.PickleBuffer(frame) if protocol >= 5 else frame for frame in self.frames]
        return (_parked, (self.stream, frames))

    def __sizeof__(self) -> int:
        return len(self.stream) + sum(len(frame) for frame in self.frames)


def _parked(stream: bytes, frames: list[bytearray]) -> Parked:
    parked = Parked.__new__(Parked)
    parked.stream, parked.frames = stream, frames
    return parked


class DeviceSpill(MutableMapping[Any, Any]):
    """A worker's ``data``: device memory, then host memory, then files.

    Above the limit, values move from the device to the host, the least recently used first. They
    return to the device on access. The worker's own memory limit moves them to disk, as it does
    without usmq.

    Parameters
    ----------
    worker_local_directory : str
        The folder for files.
    device_limit : int, float or str
        Limit for the device memory of results: bytes, or a fraction of the device's memory.
    target : int
        Bytes of host memory above which results move to disk.
    """

    def __init__(self, worker_local_directory: str, device_limit: int | float | str, target: int):
        limit = parse_limit(device_limit, "device_limit")
        if limit is None:
            raise ValueError("a DeviceSpill needs a device_limit")
        self._limit = limit
        most = dask.config.get("distributed.worker.memory.max-spill")
        self.host = SpillBuffer(
            worker_local_directory + "/storage",
            target=target,
            max_spill=most and parse_bytes(most),
        )
        # Most recently used last.
        self.device: dict[Any, Any] = {}
        self.weights: dict[Any, int] = {}
        self._lock = threading.RLock()
        self._parked = self._restored = 0
        # Results that could not be moved; they are not tried again.
        self._kept: set[Any] = set()
        this = weakref.ref(self)

        def relieve(device: usmq.Device, usm_type: str, nbytes: int) -> bool:
            spill = this()
            return spill is not None and usm_type == "device" and spill.relieve(nbytes)

        usmq._core.set_relief(relieve)

    @property
    def device_limit(self) -> int:
        """Limit in bytes for the device memory of results, on the device of this worker."""
        if isinstance(self._limit, float):
            self._limit = in_bytes(self._limit, usmq.current_queue().device)
        return self._limit

    @property
    def spilled_total(self) -> Any:
        """Bytes on disk, in memory and as written; dask's own metrics and dashboard read this."""
        return self.host.spilled_total

    @property
    def cumulative_metrics(self) -> Any:
        """Counts of the host part's writes and reads, for dask's own metrics."""
        return self.host.cumulative_metrics

    def bytes_by_place(self) -> dict[str, int]:
        """Return the bytes on the device, in host memory and on disk, and of all moves so far."""
        with self._lock:
            return {
                "device": sum(self.weights.values()),
                "host": int(self.host.fast.total_weight),
                "disk": int(self.host.spilled_total.memory),
                "moved-from-device": self._parked,
                "moved-to-device": self._restored,
            }

    @property
    def fast(self) -> bool:
        """Whether `evict` can move a value out of memory."""
        return bool(self.device) or bool(self.host.fast)

    def evict(self) -> int:
        """Move one value out of memory, host memory first. Return its bytes, or -1."""
        with self._lock:
            if self.host.fast:
                return int(self.host.evict())
            for key in list(self.device):
                weight = self.weights[key]
                if self._park(key):
                    return weight
            return -1

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._lock:
            if key in self:
                del self[key]
            weight = device_bytes(value)
            if weight == 0:
                self.host[key] = value
                return
            self.device[key], self.weights[key] = value, weight
            self._make_room(keep=key)

    def __getitem__(self, key: Any) -> Any:
        with self._lock:
            if key in self.device:
                self.device[key] = value = self.device.pop(key)
                return value
            value = self.host[key]
            if not isinstance(value, Parked):
                return value
            value = value.restored()
            self[key] = value
            self._restored += self.weights.get(key, 0)
            return value

    def __delitem__(self, key: Any) -> None:
        with self._lock:
            self._kept.discard(key)
            if key in self.device:
                del self.device[key], self.weights[key]
            else:
                del self.host[key]

    def __contains__(self, key: object) -> bool:
        # A value that is being moved is in neither mapping.
        with self._lock:
            return key in self.device or key in self.host

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            return iter([*self.device, *self.host])

    def __len__(self) -> int:
        with self._lock:
            return len(self.device) + len(self.host)

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.device)

    def relieve(self, nbytes: int) -> bool:
        """Move idle values off the device for an allocation of so many bytes that has failed.

        Return whether any memory was released. A value in use keeps its memory.
        """
        released = 0
        with self._lock:
            for key in list(self.device):
                # It is referred to by the mapping and as the argument of this call.
                idle = sys.getrefcount(self.device[key]) <= 2
                weight = self.weights[key]
                if idle and self._park(key):
                    released += weight
                if released >= nbytes:
                    break
        return released > 0

    def _make_room(self, keep: Any = None) -> None:
        for key in list(self.device):
            if sum(self.weights.values()) <= self.device_limit:
                return
            if key != keep:
                self._park(key)

    def _park(self, key: Any) -> bool:
        if key in self._kept:
            return False
        value = self.device[key]
        try:
            self.host[key] = Parked(value)
        except Exception as failed:  # The disk is full, host memory is short, or it has no pickle.
            self._kept.add(key)
            logger.warning(
                "the result %r of type %s stays on the device, since it could not be copied to the "
                "host: %s: %s",
                key,
                type(value).__name__,
                type(failed).__name__,
                failed,
            )
            return False
        self._parked += self.weights[key]
        del self.device[key], self.weights[key]
        return True
