"""usmq.dask on real workers: one device each, transfers of arrays, exact results after failures."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
import usmq

distributed = pytest.importorskip("distributed")

from distributed import Client, LocalCluster, wait  # noqa: E402
from usmq.dask import LocalUsmCluster, QueuePlugin  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUIET: dict[str, Any] = {"dashboard_address": ":0"}

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def where() -> tuple[str, str, int]:
    device = usmq.current_queue().device
    return device.backend, device.driver_version, len(usmq.devices())


def part(number: int, size: int = 1000) -> usmq.Array:
    return usmq.arange(number * size, (number + 1) * size, dtype="i8")


def total(*parts: usmq.Array) -> int:
    queue = usmq.current_queue()
    assert all(part.queue == queue for part in parts)
    return sum(int(part.to_numpy().sum()) for part in parts)


def slow_part(number: int) -> usmq.Array:
    time.sleep(0.05)
    return part(number)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalUsmCluster]:
    with LocalUsmCluster(**QUIET) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalUsmCluster) -> Iterator[Client]:
    with cluster.get_client() as client:
        yield client


def addresses(client: Client) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])


def test_each_worker_sees_only_its_own_device(
    client: Client, two_devices: tuple[usmq.Device, usmq.Device]
) -> None:
    seen = client.run(where)
    assert sorted(driver for _, driver, _ in seen.values()) == sorted(
        device.driver_version for device in two_devices
    )
    assert {count for *_, count in seen.values()} == {1}
    # Task threads are not the thread that set the default.
    futures = [client.submit(where, workers=worker, pure=False) for worker in seen]
    assert client.gather(futures) == list(seen.values())


def test_arrays_travel_between_workers_and_to_the_client(client: Client) -> None:
    first, *_, last = addresses(client)
    parts = [client.submit(part, number, workers=first) for number in range(4)]
    there = client.submit(total, *parts, workers=last)
    assert there.result(timeout=40) == sum(range(4000))
    back = parts[1].result(timeout=40)
    assert isinstance(back, usmq.Array)
    assert back.queue == usmq.current_queue()
    assert back.to_numpy().tolist() == list(range(1000, 2000))
    nested = client.submit(lambda: {"a": [part(0)], "b": (part(1), "text")}, workers=last)
    assert client.submit(lambda x: total(x["a"][0], x["b"][0]), nested, workers=first).result(
        timeout=40
    ) == sum(range(2000))


def test_a_scattered_table_round_trips(client: Client) -> None:
    pa = pytest.importorskip("pyarrow")
    source = pa.table({"x": [1, None, 3], "text": ["a", None, "ccc"]})
    future = client.scatter(usmq.from_arrow(source))
    doubled = client.submit(lambda table: (table, table["x"].queue == usmq.current_queue()), future)
    table, is_current = doubled.result(timeout=40)
    assert is_current
    assert table.to_arrow() == source


def test_copies_are_in_the_metrics_of_dask(client: Client, cluster: LocalUsmCluster) -> None:
    first, *_, last = addresses(client)
    if first == last:
        pytest.skip("workers exchange data only if there are two")
    array = client.submit(part, 77, 50_000, workers=first)
    assert client.submit(total, array, workers=last).result(timeout=40)

    def copied(dask_worker: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for (*label, _unit), value in dask_worker.digests_total.items():
            for word in label:
                if str(word).startswith("usmq-"):
                    found[str(word)] = found.get(str(word), 0) + value
        return found

    def digests(dask_worker: Any) -> list[Any]:
        return [key for key in dask_worker.digests_total if isinstance(key, tuple)]

    made, read = (
        client.run(copied, workers=[first])[first],
        client.run(copied, workers=[last])[last],
    )
    assert made.get("usmq-device-to-host", 0) >= 400_000, client.run(digests, workers=[first])
    assert read.get("usmq-host-to-device", 0) >= 400_000, client.run(digests, workers=[last])


def test_the_device_and_its_memory_are_in_the_metrics(client: Client, eventually: Any) -> None:
    held = client.submit(part, 5, 100_000, pure=False)
    wait(held, timeout=40)

    def shown() -> bool:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        used = [
            worker["metrics"].get("usmq", {}).get("memory", {}).get("used", 0) for worker in workers
        ]
        return (
            all(worker["usmq"]["usmq"] == usmq.__version__ for worker in workers)
            and max(used) >= 800_000
        )

    assert eventually(shown)


def test_an_installed_plugin_is_not_set_up_again(client: Client) -> None:
    client.register_plugin(QueuePlugin())
    client.register_plugin(QueuePlugin())
    plugins = client.run(
        lambda dask_worker: [name for name in dask_worker.plugins if name == "usmq"]
    )
    assert set(map(tuple, plugins.values())) == {("usmq",)}


def test_a_killed_worker_loses_no_result() -> None:
    with LocalUsmCluster(n_workers=2, **QUIET) as cluster, cluster.get_client() as client:
        victim = next(iter(client.run(os.getpid).items()))
        parts = [client.submit(slow_part, number) for number in range(40)]
        sums = client.map(lambda *pair: total(*pair), parts[::2], parts[1::2])
        everything = client.submit(sum, sums)
        time.sleep(0.5)
        os.kill(victim[1], signal.SIGKILL)
        assert everything.result(timeout=45) == sum(range(40_000))


def test_a_version_mismatch_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = QueuePlugin()
    plugin.version, plugin.name, plugin.idempotent = "9.9.9", "other-usmq", False
    with pytest.raises(RuntimeError, match=r"the client has 9\.9\.9; install the same version"):
        client.register_plugin(plugin)


def test_a_limit_below_one_partition_is_a_clear_error() -> None:
    with (
        LocalUsmCluster(n_workers=1, pool_limit="1 MiB", **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        assert client.submit(part, 0).result(timeout=40).size == 1000
        with pytest.raises(usmq.AllocationError, match=r"limit 1\.0 MiB"):
            client.submit(part, 0, 1_000_000).result(timeout=40)


def results_survive(client: Client, count: int, size: int) -> list[Any]:
    """Return the futures, which hold the results."""
    parts = [client.submit(part, number, size) for number in range(count)]
    wait(parts, timeout=50)
    for _ in range(2):
        sums = client.gather(client.map(lambda x: int(x.to_numpy().sum()), parts, pure=False))
        expected = [int(np.arange(n * size, (n + 1) * size).sum()) for n in range(count)]
        assert sums == expected
    return parts


def test_results_are_spilled_to_the_host_and_restored() -> None:
    with (
        LocalUsmCluster(n_workers=1, device_memory_limit="8 MiB", **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        _parts = results_survive(client, 20, 1 << 17)
        held = client.run(lambda dask_worker: sum(dask_worker.data.weights.values()))
        assert set(held.values()) <= set(range(8 * 2**20 + 1))
        kept = client.run(lambda dask_worker: len(dask_worker.data.host))
        assert min(kept.values()) >= 10


def test_results_are_spilled_to_disk_and_restored() -> None:
    with (
        LocalUsmCluster(
            n_workers=1, device_memory_limit="4 MiB", memory_limit="500 MiB", **QUIET
        ) as cluster,
        cluster.get_client() as client,
    ):

        def small_target(dask_worker: Any) -> None:
            dask_worker.data.host.n = 6 * 2**20

        client.run(small_target)
        _parts = results_survive(client, 30, 1 << 17)
        on_disk = client.run(lambda dask_worker: len(dask_worker.data.host.slow))
        assert min(on_disk.values()) >= 5


def test_sub_devices_get_workers() -> None:
    with (
        LocalUsmCluster(["opencl:0"], sub_devices=1, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        units = client.run(lambda: usmq.current_queue().device.max_compute_units)
        assert list(units.values()) == [1, 1]
        first, second = units
        array = client.submit(part, 3, workers=first)
        assert client.submit(total, array, workers=second).result(timeout=40) == sum(
            range(3000, 4000)
        )


def test_plugins_work_on_any_cluster(two_devices: tuple[usmq.Device, usmq.Device]) -> None:
    # The loaded driver has rewritten this variable; see usmq.dask.
    env = {name: os.environ[name] for name in ("OCL_ICD_FILENAMES",) if name in os.environ}
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, env=env, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        client.register_plugin(QueuePlugin(two_devices[1].filter_string))
        drivers = client.gather([client.submit(where, pure=False) for _ in range(4)])
    assert {driver for _, driver, _ in drivers} == {two_devices[1].driver_version}
