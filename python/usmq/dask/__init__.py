"""usmq for dask.distributed: one device per worker, transfer of arrays, spilling of memory.

``dask worker --preload usmq.dask`` assigns a device to each worker; ``LocalUsmCluster`` starts one
worker per device of this machine. Importing this module queries no device.
"""

from typing import TYPE_CHECKING, Any, Literal

try:
    from distributed.metrics import context_meter
except ImportError as _missing:
    raise ImportError(
        f"usmq.dask needs dask.distributed ({_missing}): pip install 'usmq[dask]'"
    ) from _missing

import usmq._core
from usmq.dask._cluster import LocalUsmCluster
from usmq.dask._plugin import QueuePlugin
from usmq.dask._spill import DeviceSpill

if TYPE_CHECKING:
    from distributed import Worker

    from usmq.dask._column import LogicalColumn
    from usmq.dask._table import LogicalTable

__all__ = [
    "DeviceSpill",
    "LocalUsmCluster",
    "LogicalColumn",
    "LogicalTable",
    "QueuePlugin",
    "dask_setup",
]


def __getattr__(name: str) -> Any:
    """Import tables on first use: a worker without tables does not need pyarrow."""
    if name not in ("LogicalColumn", "LogicalTable"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from usmq.dask._column import LogicalColumn
        from usmq.dask._table import LogicalTable
    except ModuleNotFoundError as missing:
        raise ImportError(f"{name} needs pyarrow ({missing}): pip install pyarrow") from missing
    return LogicalTable if name == "LogicalTable" else LogicalColumn


def _count(direction: Literal["device-to-host", "host-to-device"], nbytes: int) -> None:
    """Add a copy made by a pickle to dask's metrics of the current activity."""
    context_meter.digest_metric(f"usmq-{direction}", nbytes, "bytes")


usmq._core.observe_pickles(_count)


async def dask_setup(worker: "Worker") -> None:
    """Assign a device to a worker, or close it; called by ``dask worker --preload usmq.dask``."""
    try:
        await worker.plugin_add(QueuePlugin(), catch_errors=False)
    except Exception as failed:
        # dask logs an exception of a preload and continues; without a device each task would fail.
        text = f"no device for worker {worker.name}: {failed}"

        async def give_up() -> None:
            await worker
            await worker.close(reason=text)

        worker.loop.add_callback(give_up)
        raise
