"""A worker's results: in device memory up to a limit, then in host memory, then on disk."""

import pickle
import sys
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any

from dask.utils import parse_bytes
from distributed.spill import SpillBuffer

import usmq


class Parked:
    """A value whose device memory was copied to the host."""

    def __init__(self, value: Any):
        frames: list[pickle.PickleBuffer] = []
        self.stream = pickle.dumps(value, protocol=5, buffer_callback=frames.append)
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


def device_bytes(value: Any) -> int:
    """Return the bytes of device memory in a value, nested lists, tuples and dicts included."""
    if isinstance(value, usmq.Array):
        return value.nbytes if value.usm_type == "device" else 0
    if isinstance(value, usmq.Column):
        return value.nbytes if value.usm_type == "device" else 0
    if isinstance(value, usmq.Table):
        return sum(device_bytes(column) for batch in value.batches for column in batch.columns)
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(map(device_bytes, value))
    if isinstance(value, dict):
        return sum(map(device_bytes, value.values()))
    return 0


class DeviceSpill(MutableMapping[Any, Any]):
    """A worker's ``data``: device memory, then host memory, then files.

    Above the limit, values move from the device to the host, the least recently used first. They
    return to the device on access. The worker's own memory limit moves them to disk, as it does
    without usmq.

    Parameters
    ----------
    worker_local_directory : str
        The folder for files.
    device_limit : int or str
        Limit in bytes for the device memory of results.
    target : int
        Bytes of host memory above which results move to disk.
    """

    def __init__(self, worker_local_directory: str, device_limit: int | str, target: int):
        self.device_limit = parse_bytes(device_limit)
        self.host = SpillBuffer(worker_local_directory + "/storage", target=target)
        # Most recently used last.
        self.device: dict[Any, Any] = {}
        self.weights: dict[Any, int] = {}
        self._lock = threading.RLock()
        self._parked = self._restored = 0

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
            for key in self.device:
                weight = self.weights[key]
                return weight if self._park(key) else -1
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
            try:
                value = value.restored()
            except usmq.AllocationError:
                # Move all other values out; if that is not enough, the error reports the sizes.
                self._make_room(limit=0)
                usmq.trim_memory()
                value = value.restored()
            self[key] = value
            self._restored += self.weights.get(key, 0)
            return value

    def __delitem__(self, key: Any) -> None:
        with self._lock:
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

    def _make_room(self, keep: Any = None, limit: int | None = None) -> None:
        limit = self.device_limit if limit is None else limit
        for key in list(self.device):
            if sum(self.weights.values()) <= limit:
                return
            if key != keep and not self._park(key):
                return

    def _park(self, key: Any) -> bool:
        value = self.device[key]
        try:
            self.host[key] = Parked(value)
        except Exception:  # The disk is full or host memory is short: keep the value on the device.
            return False
        self._parked += self.weights[key]
        del self.device[key], self.weights[key]
        return True
