"""A cluster on this machine: one worker process per device."""

import logging
import os
from collections.abc import Iterable
from typing import Any

from distributed import LocalCluster
from distributed.worker_memory import parse_memory_limit

import usmq
from usmq.dask._plugin import QueuePlugin
from usmq.dask._selectors import SELECTOR, chosen
from usmq.dask._spill import DeviceSpill

logger = logging.getLogger("usmq.dask")


# A driver that was loaded here rewrites these unseen by Python, and a child would find its words.
DRIVERS = ("OCL_ICD_FILENAMES",)


class LocalUsmCluster(LocalCluster):
    """Workers on this machine, one per device, each of which sees its device only.

    The devices are found in a child process, and no driver is started in this one.

    Parameters
    ----------
    devices : list of str, optional
        Values of ``ONEAPI_DEVICE_SELECTOR``, one or more devices each, as ``"level_zero:0"`` or
        ``"opencl:*"``. By default those of this process's own selector, else all GPUs, else all
        CPUs.
    n_workers : int, optional
        By default one per device; more share devices in turn.
    sub_devices : int, optional
        Divide each device into parts of so many compute units, with ``parts`` workers each.
    parts : int
        Workers per device when it is divided.
    pool_limit : int or str, optional
        Most bytes of device memory that usmq's pools of a worker take, as ``"2 GiB"``.
    device_memory_limit : int or str, optional
        Most bytes of device memory that a worker's results hold; the rest waits in host memory.
    threads_per_worker : int
        Tasks that a worker runs at once.
    memory_limit : int, float or str
        Host memory of a worker, as of ``LocalCluster``: near it, it writes to disk and pauses.
    **kwargs
        As of ``LocalCluster``.

    Raises
    ------
    DeviceNotFoundError
        There is no such device; the text lists those that there are.
    ValueError
        ``ZE_AFFINITY_MASK`` is set, too.

    Examples
    --------
    >>> from usmq.dask import LocalUsmCluster  # doctest: +SKIP
    >>> with LocalUsmCluster() as cluster, cluster.get_client() as client:  # doctest: +SKIP
    ...     client.submit(lambda: usmq.current_queue().device.name).result()
    """

    def __init__(
        self,
        devices: Iterable[str] | None = None,
        n_workers: int | None = None,
        *,
        sub_devices: int | None = None,
        parts: int = 2,
        pool_limit: int | str | None = None,
        device_memory_limit: int | str | None = None,
        threads_per_worker: int = 1,
        memory_limit: int | float | str | None = "auto",
        **kwargs: Any,
    ):
        if kwargs.pop("processes", True) is not True:
            raise ValueError(
                "each worker needs a process of its own, since a process has one device"
            )
        wanted = [devices] if isinstance(devices, str) else devices
        self._selectors = chosen(wanted)
        each = parts if sub_devices else 1
        self._parts = [(sub_devices, part) for part in range(each)] if sub_devices else [None]
        count = len(self._selectors) * each if n_workers is None else n_workers
        limit = parse_memory_limit(memory_limit, threads_per_worker, max(count, 1), logger=logger)
        self._pool_limit = pool_limit
        if device_memory_limit is not None:
            target = int(0.6 * limit) if limit else 2**62
            spill = {"device_limit": device_memory_limit, "target": target}
            kwargs.setdefault("data", (DeviceSpill, spill))
        # A worker that cannot start says so within this time instead of trying for ever.
        kwargs.setdefault("death_timeout", 60)
        super().__init__(
            n_workers=0,
            threads_per_worker=threads_per_worker,
            memory_limit=limit,
            processes=True,
            **kwargs,
        )
        for _ in range(count):
            self.worker_spec.update(self.new_worker_spec())
        if not self.asynchronous:
            try:
                self.sync(self._correct_state)
            except BaseException as failed:
                self.close()
                raise reason(failed) from failed

    def new_worker_spec(self) -> dict[Any, Any]:
        """Return the next worker, with the device that is its turn."""
        ((name, spec),) = super().new_worker_spec().items()
        options = dict(spec["options"])
        turn = len(self.worker_spec)
        selector = self._selectors[turn // len(self._parts) % len(self._selectors)]
        part = self._parts[turn % len(self._parts)]
        environment = {name: os.environ[name] for name in DRIVERS if name in os.environ}
        options["env"] = environment | dict(options.get("env") or {}) | {SELECTOR: selector}
        options["plugins"] = (
            *options.get("plugins", ()),
            QueuePlugin(memory_limit=self._pool_limit, part=part),
        )
        return {name: dict(spec) | {"options": options}}


def reason(failed: BaseException) -> BaseException:
    """Return what a worker itself said, of an error that says only that it did not start."""
    cause: BaseException | None = failed
    while cause is not None:
        if isinstance(cause, usmq.Error):
            return cause
        cause = cause.__cause__
    return failed
