"""The figures that a worker reports to dask's metrics, its dashboard and Prometheus."""

from collections.abc import Iterator
from typing import Any

import dask
from dask.utils import format_bytes
from distributed import Worker

import usmq
from usmq.dask._shm_transport import HERE
from usmq.dask._spill import DeviceSpill

# The names of the columns on the dashboard's page "Workers".
QUEUE, MEMORY, SPILLED, COPIES = (
    "usmq queue",
    "usmq device memory",
    "usmq spilled",
    "usmq copies",
)
# The ways of `HERE.ways` that add up to all bytes sent and received.
WAYS = ("same-host", "socket", "in-place", "copied-from-shared")


class Metrics:
    """The metrics of one worker and its device; ``install`` adds them, ``remove`` removes them."""

    def __init__(self, worker: Worker, device: usmq.Device, about: dict[str, str]):
        self._worker, self._device, self._about = worker, device, about
        self._collector: Collector | None = None

    def install(self) -> None:
        """Add the metrics to the worker, and to Prometheus if its client is installed."""
        # dask calls a metric with its worker.
        self._worker.metrics |= {
            QUEUE: lambda _: self._queue(),
            MEMORY: lambda _: self._memory(),
            SPILLED: lambda _: self._spilled(),
            COPIES: lambda _: self._copies(),
        }
        self._worker.metrics["usmq"] = lambda _: self.numbers()
        try:
            import prometheus_client
        except ModuleNotFoundError:
            return
        self._collector = Collector(self)
        prometheus_client.REGISTRY.register(self._collector)

    def remove(self) -> None:
        """Remove what `install` has added."""
        for name in ("usmq", QUEUE, MEMORY, SPILLED, COPIES):
            self._worker.metrics.pop(name, None)
        if self._collector is not None:
            import prometheus_client

            prometheus_client.REGISTRY.unregister(self._collector)
            self._collector = None

    def numbers(self) -> dict[str, Any]:
        """Return the device, its memory, the bytes of results by place, and of copies by way."""
        return self._about | {
            "memory": usmq.memory_stats(self._device)["device"],
            "results": self.results(),
            "copies": dict(HERE.ways),
        }

    def results(self) -> dict[str, int]:
        """Return the bytes of results on the device and beyond it, and all moved so far."""
        data = self._worker.data
        return data.bytes_by_place() if isinstance(data, DeviceSpill) else {}

    def _queue(self) -> str:
        order = "in-order" if usmq.current_queue().in_order else "out-of-order"
        return f"{order}, {self._about['name']}"

    def _memory(self) -> str:
        stats = usmq.memory_stats(self._device)["device"]
        limit = stats["limit"]
        of = f" of {format_bytes(limit)}" if limit is not None else ""
        return f"{format_bytes(stats['used'])}{of}, peak {format_bytes(stats['peak'])}"

    def _spilled(self) -> str:
        places = self.results()
        if not places:
            return "no device_memory_limit"
        held = format_bytes(places["host"] + places["disk"])
        return f"{held} now, {format_bytes(places['moved-from-device'])} in all"

    def _copies(self) -> str:
        ways = HERE.ways
        return f"{format_bytes(ways['same-host'])} shared, {format_bytes(ways['socket'])} by socket"


class Collector:
    """The same numbers for Prometheus, on dask's endpoint ``/metrics`` of the worker."""

    def __init__(self, metrics: Metrics):
        self._metrics = metrics
        namespace = dask.config.get("distributed.dashboard.prometheus.namespace")
        self._prefix = f"{namespace}_worker_usmq" if namespace else "worker_usmq"

    def collect(self) -> Iterator[Any]:
        """Yield the families; prometheus_client calls this for each request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        numbers, prefix = self._metrics.numbers(), self._prefix
        device = [numbers["device"], numbers["name"]]
        memory = GaugeMetricFamily(
            f"{prefix}_device_memory_bytes",
            "Device memory of usmq's pools: used, reserved, peak, limit",
            labels=["device", "name", "kind"],
        )
        for kind in ("used", "reserved", "peak", "limit"):
            if numbers["memory"][kind] is not None:
                memory.add_metric([*device, kind], numbers["memory"][kind])
        yield memory
        results = GaugeMetricFamily(
            f"{prefix}_result_bytes", "Results of tasks by place", labels=["place"]
        )
        moved = CounterMetricFamily(
            f"{prefix}_spilled_bytes",
            "Bytes of results that have left the device, or returned to it",
            labels=["direction"],
        )
        for place, nbytes in numbers["results"].items():
            family = moved if place.startswith("moved-") else results
            family.add_metric([place.removeprefix("moved-")], nbytes)
        yield results
        yield moved
        copies = CounterMetricFamily(
            f"{prefix}_copied_bytes",
            "Bytes between this worker and others by way",
            labels=["way"],
        )
        for way in sorted({*WAYS, *numbers["copies"]}):
            copies.add_metric([way], numbers["copies"].get(way, 0))
        yield copies
