"""The start parameters of each worker of a machine: its device, its limits, its plugin."""

import logging
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dask
from distributed.worker_memory import parse_memory_limit

import usmq
from usmq.dask._limits import parse_limit, shared
from usmq.dask._plugin import QueuePlugin
from usmq.dask._selectors import SELECTOR, Visible, chosen
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
        devices: Iterable[str | int | usmq.Device] | str | usmq.Device | None,
        n_workers: int | None,
        sub_devices: int | None,
        parts: int,
        pool_limit: int | float | str | None,
        device_memory_limit: int | float | str | None,
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
        self._selectors = chosen(None if devices is None else [*terms(devices)])
        each = parts if sub_devices else 1
        self._parts = [(sub_devices, part) for part in range(each)] if sub_devices else [None]
        self.count = len(self._selectors) * each if n_workers is None else n_workers
        self.memory_limit = parse_memory_limit(
            memory_limit, threads, max(self.count, 1), logger=logger
        )
        # Workers of one device divide its memory.
        sharing = -(-self.count // max(len(set(self._selectors)), 1)) or 1
        self._pool_limit = shared(parse_limit(pool_limit, "pool_limit"), sharing)
        # Parse here, so that a wrong value is reported before any worker starts.
        limit = shared(parse_limit(device_memory_limit, "device_memory_limit"), sharing)
        self.data: tuple[Any, dict[str, Any]] | None = None
        if limit is not None:
            of_host = self.memory_limit and dask.config.get("distributed.worker.memory.target")
            target = int(of_host * self.memory_limit) if of_host else 2**62
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


def terms(devices: Any) -> Iterator[str | int]:
    """Yield the devices of the parameter ``devices`` as selectors or numbers.

    Raises
    ------
    TypeError
        It is not a list of them.
    """
    if isinstance(devices, (str, usmq.Device)):
        devices = [devices]
    elif isinstance(devices, (int, bytes)) or not isinstance(devices, Iterable):
        is_number = hasattr(devices, "__index__")
        raise TypeError(
            f"devices is a list of devices such as ['gpu:0', 'gpu:1'] or [0, 1], not {devices!r}"
            + ("; the number of workers is n_workers" if is_number else "")
        )
    for device in devices:
        if isinstance(device, usmq.Device):
            if device.filter_string is None:
                raise TypeError(
                    f"devices are root devices, not {device!r}; sub_devices divides a device"
                )
            yield Visible(device.filter_string)
        elif isinstance(device, str):
            yield from device.split(";")
        elif hasattr(device, "__index__") and not isinstance(device, bool):
            yield operator.index(device)
        else:
            raise TypeError(
                f"devices are selectors such as 'gpu:0' or 'opencl:0', or numbers, not {device!r}"
            )


def reason(failed: BaseException) -> BaseException:
    """Return the worker's own error behind an error that only reports a failed start."""
    return next((cause for cause in causes(failed) if isinstance(cause, usmq.Error)), failed)


def causes(failed: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the root cause last."""
    cause: BaseException | None = failed
    while cause is not None:
        yield cause
        cause = cause.__cause__
