"""A cluster on this machine: one worker process per device."""

import asyncio
from collections.abc import Iterable
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import LocalCluster
from distributed.deploy.cluster import Cluster

import usmq
from usmq.dask._assignment import Assignment, reason


class LocalUsmCluster(LocalCluster):
    """Workers on this machine, one per device; each sees only its own device.

    A child process lists the devices; this process loads no driver.

    Parameters
    ----------
    devices : list of str, int or Device, optional
        Devices by type and number, as ``"gpu:0"``; numbers of the GPUs (without GPUs, of the CPUs),
        as 0; or values of ``ONEAPI_DEVICE_SELECTOR``, one or more devices each, as
        ``"level_zero:0"`` or ``"opencl:*"``. These count all devices of the machine. One str or
        Device is a list of itself. By default those of this process's own selector, else all GPUs,
        else all CPUs.
    n_workers : int, optional
        By default one per device; additional workers share the devices in turn.
    sub_devices : int, optional
        Partition each device into sub-devices of this many compute units, with ``parts`` workers
        per device.
    parts : int
        Workers per partitioned device.
    pool_limit : int, float or str, optional
        Limit for the device memory of a worker's memory pools, as ``"2 GiB"``, or a fraction of the
        device's memory, as 0.5. Workers that share a device divide a fraction.
    device_memory_limit : int, float or str, optional
        Limit for the device memory of a worker's results, in the same forms; other results stay in
        host memory. None: all stay on the device.
    threads_per_worker : int
        Number of tasks that a worker runs concurrently.
    memory_limit : int, float or str
        Host memory of a worker, as for ``LocalCluster``: near the limit the worker writes results
        to disk and pauses.
    **kwargs
        As for ``LocalCluster``.

    Raises
    ------
    DeviceNotFoundError
        A requested device does not exist; the text lists the existing ones.
    ValueError
        ``ZE_AFFINITY_MASK`` is also set.

    Examples
    --------
    >>> from usmq.dask import LocalUsmCluster  # doctest: +SKIP
    >>> with LocalUsmCluster() as cluster, cluster.get_client() as client:  # doctest: +SKIP
    ...     client.submit(lambda: usmq.current_queue().device.name).result()
    """

    def __init__(
        self,
        devices: Iterable[str | int | usmq.Device] | str | usmq.Device | None = None,
        n_workers: int | None = None,
        *,
        sub_devices: int | None = None,
        parts: int = 2,
        pool_limit: int | float | str | None = None,
        device_memory_limit: int | float | str | None = 0.8,
        threads_per_worker: int = 1,
        memory_limit: int | float | str | None = "auto",
        **kwargs: Any,
    ):
        if kwargs.pop("processes", True) is not True:
            raise ValueError(
                "each worker needs a process of its own, since a process has one device"
            )
        self._assignment = Assignment(
            devices,
            n_workers,
            sub_devices,
            parts,
            pool_limit,
            device_memory_limit,
            threads_per_worker,
            memory_limit,
        )
        self._lost: dict[Any, asyncio.TimerHandle] = {}
        if self._assignment.data is not None:
            kwargs.setdefault("data", self._assignment.data)
        # A worker that cannot start fails after this time instead of retrying indefinitely.
        kwargs.setdefault("death_timeout", 60)
        super().__init__(
            n_workers=0,
            threads_per_worker=threads_per_worker,
            memory_limit=self._assignment.memory_limit,
            processes=True,
            **kwargs,
        )
        for _ in range(self._assignment.count):
            self.worker_spec.update(self.new_worker_spec())
        if not self.asynchronous:
            try:
                self.sync(self._correct_state)
            except BaseException as failed:
                self.close()
                said = reason(failed)
                if said is failed:
                    raise
                # Not from `failed`, whose causes include it.
                raise said from said.__cause__

    def new_worker_spec(self) -> dict[Any, Any]:
        """Return the specification of the next worker, with the next device in turn."""
        ((name, spec),) = super().new_worker_spec().items()
        options = dict(spec["options"])
        turn = len(self.worker_spec)
        options["env"] = self._assignment.environment(turn, options.get("env"))
        options["plugins"] = (*options.get("plugins", ()), self._assignment.plugin(turn))
        return {name: dict(spec) | {"options": options}}

    def _update_worker_status(self, op: str, msg: Any) -> None:
        """Drop a worker that does not come back in time.

        dask's own timer of an earlier loss would close the nanny that is starting the worker again
        after a later one.
        """
        if op == "add":
            for worker in msg["workers"].values():
                self._found(worker["name"])
        elif op == "remove":
            name = self.scheduler_info["workers"][msg]["name"]
            self._found(name)
            seconds = parse_timedelta(
                dask.config.get("distributed.deploy.lost-worker-timeout"), "s"
            )
            loop = asyncio.get_running_loop()
            self._lost[name] = loop.call_later(seconds, self._give_up, name)
        Cluster._update_worker_status(self, op, msg)

    def _found(self, name: Any) -> None:
        if (timer := self._lost.pop(name, None)) is not None:
            timer.cancel()

    def _give_up(self, name: Any) -> None:
        self._lost.pop(name, None)
        alive = {worker["name"] for worker in self.scheduler_info["workers"].values()}
        if name in self.workers and name not in alive:
            self._futures.add(asyncio.ensure_future(self.workers.pop(name).close()))
