"""The start parameters of each worker of a machine: its device, its limits, its plugin."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dask.utils import parse_bytes
from distributed.worker_memory import parse_memory_limit

import usmq
from usmq.dask._plugin import QueuePlugin
from usmq.dask._selectors import SELECTOR, chosen
from usmq.dask._spill import DeviceSpill

logger = logging.getLogger("usmq.dask")

# A loaded driver changes these without Python's knowledge; a child would inherit its values.
DRIVERS = ("OCL_ICD_FILENAMES",)


class Assignment:
    """The devices of this machine, assigned to workers; parameters as for `LocalUsmCluster`.

    Raises
    ------
    DeviceNotFoundError
        A requested device does not exist.
    ValueError
        ``ZE_AFFINITY_MASK`` is also set, or a number of workers, parts or threads is too small.
    """

    def __init__(
        self,
        devices: Iterable[str] | None,
        n_workers: int | None,
        sub_devices: int | None,
        parts: int,
        pool_limit: int | str | None,
        device_memory_limit: int | str | None,
        threads: int,
        memory_limit: int | float | str | None,
    ):
        for name, number in {
            "n_workers": n_workers,
            "sub_devices": sub_devices,
            "parts": parts,
            "threads": threads,
        }.items():
            least = 0 if name == "n_workers" else 1
            if number is not None and number < least:
                raise ValueError(f"{name} must be {least} or more, not {number}")
        wanted = [devices] if isinstance(devices, str) else list(devices or ())
        for device in wanted:
            if not isinstance(device, str):
                raise TypeError(f"devices are selectors such as 'opencl:0', not {device!r}")
        self._selectors = chosen(None if devices is None else wanted)
        each = parts if sub_devices else 1
        self._parts = [(sub_devices, part) for part in range(each)] if sub_devices else [None]
        self.count = len(self._selectors) * each if n_workers is None else n_workers
        self.memory_limit = parse_memory_limit(
            memory_limit, threads, max(self.count, 1), logger=logger
        )
        self._pool_limit = pool_limit
        self.data: tuple[Any, dict[str, Any]] | None = None
        if device_memory_limit is not None:
            target = int(0.6 * self.memory_limit) if self.memory_limit else 2**62
            # Parse here, so that a wrong value is reported before any worker starts.
            limit = parse_bytes(device_memory_limit)
            if limit < 0:
                raise ValueError(
                    f"device_memory_limit must be 0 or more, not {device_memory_limit}"
                )
            self.data = (DeviceSpill, {"device_limit": limit, "target": target})

    def environment(self, turn: int, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the given variables and those that show a worker only the device of this turn."""
        there = {name: os.environ[name] for name in DRIVERS if name in os.environ}
        selector = self._selectors[turn // len(self._parts) % len(self._selectors)]
        return there | dict(given or {}) | {SELECTOR: selector}

    def plugin(self, turn: int) -> QueuePlugin:
        """Return the plugin that selects the device in the worker of this turn."""
        part = self._parts[turn % len(self._parts)]
        return QueuePlugin(memory_limit=self._pool_limit, part=part)


def reason(failed: BaseException) -> BaseException:
    """Return the worker's own error behind an error that only reports a failed start."""
    return next((cause for cause in causes(failed) if isinstance(cause, usmq.Error)), failed)


def causes(failed: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the root cause last."""
    cause: BaseException | None = failed
    while cause is not None:
        yield cause
        cause = cause.__cause__
