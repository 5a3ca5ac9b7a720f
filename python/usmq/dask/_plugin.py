"""Makes a device the default of a worker's process, limits its memory and reports metrics."""

import asyncio
import logging
import warnings
from typing import Any

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

import usmq
from usmq._restore import UNREAD
from usmq.dask._device_lock import DeviceLock
from usmq.dask._limits import in_bytes, parse_limit
from usmq.dask._log_records import keep_text_only
from usmq.dask._metrics import Metrics
from usmq.dask._rank import local_rank
from usmq.dask._shm_transport import HERE
from usmq.dask._unread import postpone

logger = logging.getLogger("usmq.dask")

# Seconds. A driver that does not answer within this time never answers.
PATIENCE = 60.0
# The fraction of the worker's memory limit, if dask configures none.
CROWDED = 0.6


class QueuePlugin(WorkerPlugin):
    """Assign one device to each worker; tasks run on its queue by default.

    The device's queue becomes the default of the worker's process, for all its threads. The
    worker's metrics contain its use of device memory under ``usmq``; its startup information also
    names the device.

    Parameters
    ----------
    device : str, optional
        A filter string. By default the only visible device; of several, the one selected by the
        launcher's local rank (Slurm, MPI, Flux, torchrun), else SYCL's default.
    memory_limit : int, float or str, optional
        Limit for the device memory of usmq's pools, as ``"2 GiB"``, or a fraction of the device's
        memory, as 0.5.
    part : tuple of int, optional
        ``(units, number)``: the sub-device of this number, with this many compute units.

    Raises
    ------
    DeviceNotFoundError
        At the start of the worker: it does not see the device.
    RuntimeError
        At the start of the worker: its version of usmq differs from that of the process that
        created the plugin, or its drivers do not answer.
    """

    name = "usmq"
    idempotent = True

    def __init__(
        self,
        device: str | None = None,
        memory_limit: int | float | str | None = None,
        part: tuple[int, int] | None = None,
    ):
        self.device = device
        self.memory_limit = parse_limit(memory_limit, "memory_limit")
        self.part = part
        self.version = usmq.__version__
        self._device_lock: DeviceLock | None = None
        self._metrics: Metrics | None = None
        self._worker: Worker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_device_lock": None, "_metrics": None, "_worker": None}

    async def setup(self, worker: Worker) -> None:
        """Select the device and make it the default of this process."""
        if self.version != usmq.__version__:
            raise RuntimeError(
                f"worker {worker.name} has usmq {usmq.__version__}, the client has {self.version}; "
                "install the same version on both sides"
            )
        try:
            device = await asyncio.wait_for(asyncio.to_thread(self._prepare), PATIENCE)
        except TimeoutError:
            raise RuntimeError(
                f"worker {worker.name} queried its devices, but the drivers did not answer within "
                f"{PATIENCE:.0f} s; run python -m usmq doctor"
            ) from None
        about = {"device": str(device.filter_string or self._name(device)), "name": device.name}
        about |= {"driver": device.driver_version, "usmq": usmq.__version__}
        self._device_lock = DeviceLock(self._name(device), str(worker.name))
        if self._device_lock.holder:
            text = (
                f"worker {worker.name} shares {about['device']} {device.name} with "
                f"{self._device_lock.holder}; start one worker per device, or divide it "
                "(sub_devices)"
            )
            about["shared_with"] = self._device_lock.holder
            logger.warning(text)
            warnings.warn(text, stacklevel=2)
        if self._device_lock.fault:
            logger.warning(
                "could not check whether another worker uses this device: %s",
                self._device_lock.fault,
            )
        self._worker = worker
        worker.startup_information["usmq"] = lambda _: about
        self._metrics = Metrics(worker, device, about)
        self._metrics.install()
        HERE.join(worker)
        keep_text_only()
        relief = PeriodicCallback(lambda: relieve(worker), 500)
        worker.periodic_callbacks["usmq"] = relief
        relief.start()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Let a task with an argument that this worker could not restore report that."""
        if UNREAD and self._worker is not None:
            postpone(self._worker, key)

    def teardown(self, worker: Worker) -> None:
        """Restore SYCL's default device."""
        if (relief := worker.periodic_callbacks.pop("usmq", None)) is not None:
            relief.stop()
        if self._metrics is not None:
            self._metrics.remove()
        worker.startup_information.pop("usmq", None)
        HERE.leave()
        HERE.sweep(idle=0)
        if self._device_lock is not None:
            self._device_lock.release()
        usmq.set_default_queue(None)

    def _prepare(self) -> usmq.Device:
        # The selector of this worker hides other devices on purpose; standard error has the text.
        warnings.filterwarnings("ignore", "USMQ_EMULATE_GPUS=.* hides them", RuntimeWarning)
        device = choose(self.device)
        if self.part is not None:
            units, number = self.part
            parts = device.sub_devices(units)
            if number >= len(parts):
                raise usmq.DeviceNotFoundError(
                    f"{device.filter_string} has {len(parts)} parts of {units} compute units, "
                    f"so there is no part {number}"
                )
            device = parts[number]
        usmq.set_default_queue(device)
        if self.memory_limit is not None:
            usmq.set_memory_limit(in_bytes(self.memory_limit, device), device, "device")
        return device

    def _name(self, device: usmq.Device) -> str:
        root = device.parent or device
        return f"{root.filter_string}{'' if self.part is None else f' part {self.part}'}"


def choose(device: str | None) -> usmq.Device:
    """Return the requested device, else the one assigned to this worker."""
    if device is not None:
        return usmq.Device(device)
    visible = usmq.devices()
    if not visible:
        raise usmq.DeviceNotFoundError(
            "no SYCL device is visible to this worker; run python -m usmq doctor on its machine"
        )
    default = usmq.Device()
    rank = local_rank()
    if rank is None:
        return default
    # Compare type and backend: a GPU may be visible through two backends.
    alike = [
        other
        for other in visible
        if (other.backend, other.device_type) == (default.backend, default.device_type)
    ]
    return alike[rank % len(alike)]


def relieve(worker: Worker) -> None:
    """Free unused cached memory; free all of it if the worker is short, because dask counts it."""
    HERE.sweep()
    manager = worker.memory_manager
    if not manager.memory_limit:
        return
    most = manager.memory_limit * (manager.memory_target_fraction or CROWDED)
    if worker.monitor.get_process_memory() > most:
        usmq.trim_memory()
        HERE.sweep(idle=0)
