"""What each worker of a machine is started with: its device, its limits, its plugin."""

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

# A driver that was loaded here rewrites these unseen by Python, and a child would find its words.
DRIVERS = ("OCL_ICD_FILENAMES",)


class Assignment:
    """The devices of this machine, divided among workers; as of `LocalUsmCluster`.

    Raises
    ------
    DeviceNotFoundError
        There is no such device.
    ValueError
        ``ZE_AFFINITY_MASK`` is set, too, or a number is no number of workers or parts.
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
        self._selectors = chosen([devices] if isinstance(devices, str) else devices)
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
            # Read here, so that a wrong one is no matter of each worker's start.
            limit = parse_bytes(device_memory_limit)
            self.data = (DeviceSpill, {"device_limit": limit, "target": target})

    def environment(self, turn: int, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return those given, and what shows the device of this turn, and no other, to a worker."""
        there = {name: os.environ[name] for name in DRIVERS if name in os.environ}
        selector = self._selectors[turn // len(self._parts) % len(self._selectors)]
        return there | dict(given or {}) | {SELECTOR: selector}

    def plugin(self, turn: int) -> QueuePlugin:
        """Return what chooses the device in the worker of this turn."""
        part = self._parts[turn % len(self._parts)]
        return QueuePlugin(memory_limit=self._pool_limit, part=part)


def reason(failed: BaseException) -> BaseException:
    """Return what a worker itself said, of an error that says only that it did not start."""
    return next((cause for cause in causes(failed) if isinstance(cause, usmq.Error)), failed)


def causes(failed: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from, the first cause last."""
    cause: BaseException | None = failed
    while cause is not None:
        yield cause
        cause = cause.__cause__
