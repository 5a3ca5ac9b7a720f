"""usmq.dask on real workers: one device each, transfers of arrays, spilled results."""

import os

import pytest
import usmq
from dask_workers import (
    QUIET,
    UNCLOSED_SOCKETS,
    addresses,
    clients,
    part,
    send_by_value,
    sum_of_part,
    total,
    workers,
)
from distributed import LocalCluster, wait
from usmq.dask import QueuePlugin

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)


def where():
    return usmq.current_queue().device.driver_version, len(usmq.devices())


@pytest.fixture(scope="module")
def client():
    with clients() as client:
        yield client


def test_each_worker_sees_only_its_own_device(client, two_devices):
    seen = client.run(where)
    drivers = sorted(device.driver_version for device in two_devices)
    assert sorted(seen.values()) == [(driver, 1) for driver in drivers]
    # Task threads are not the thread that set the default.
    futures = [client.submit(where, workers=worker, pure=False) for worker in seen]
    assert client.gather(futures) == list(seen.values())


def test_arrays_travel_between_workers_and_to_the_client(client):
    first, *_, last = addresses(client)
    parts = [client.submit(part, number, workers=first) for number in range(4)]
    there = client.submit(total, *parts, workers=last)
    assert there.result(timeout=40) == sum(range(4000))
    back = parts[1].result(timeout=40)
    assert isinstance(back, usmq.Array)
    assert back.queue == usmq.current_queue()
    assert back.to_numpy().tolist() == list(range(1000, 2000))
    nested = client.submit(lambda: {"a": [part(0)], "b": (part(1), "text")}, workers=last)
    found = client.submit(lambda x: total(x["a"][0], x["b"][0]), nested, workers=first)
    assert found.result(timeout=40) == sum(range(2000))


def test_a_scattered_table_round_trips(client):
    pa = pytest.importorskip("pyarrow")
    source = pa.table({"x": [1, None, 3], "text": ["a", None, "ccc"]})
    future = client.scatter(usmq.from_arrow(source))
    doubled = client.submit(lambda table: (table, table["x"].queue == usmq.current_queue()), future)
    table, is_current = doubled.result(timeout=40)
    assert is_current
    assert table.to_arrow() == source


def test_copies_are_in_the_metrics_of_dask(client):
    first, *_, last = addresses(client)
    if first == last:
        pytest.skip("workers exchange data only if there are two")
    array = client.submit(part, 77, 50_000, workers=first)
    assert client.submit(total, array, workers=last).result(timeout=40)

    def copied(dask_worker):
        digests = {
            key: value for key, value in dask_worker.digests_total.items() if "usmq-" in str(key)
        }
        ways = ("usmq-device-to-host", "usmq-host-to-device")
        return [sum(value for key, value in digests.items() if way in key) for way in ways], digests

    made, read = client.run(copied, workers=[first, last]).values()
    assert made[0][0] >= 400_000, made
    assert read[0][1] >= 400_000, read


def test_the_device_and_its_memory_are_in_the_metrics(client, eventually):
    held = client.submit(part, 5, 100_000, pure=False)
    wait(held, timeout=40)

    def shown():
        known = workers(client).values()
        assert all(worker["usmq"]["usmq"] == usmq.__version__ for worker in known)
        metrics = [worker["metrics"].get("usmq", {}).get("memory", {}) for worker in known]
        return max(memory.get("used", 0) for memory in metrics) >= 800_000

    assert eventually(shown)


def test_an_installed_plugin_is_not_set_up_again(client):
    client.register_plugin(QueuePlugin())
    client.register_plugin(QueuePlugin())
    plugins = client.run(lambda dask_worker: [*dask_worker.plugins].count("usmq"))
    assert set(plugins.values()) == {1}


def small_target(dask_worker):
    dask_worker.data.host.n = 6 * 2**20


def places(dask_worker):
    data = dask_worker.data
    return sum(data.weights.values()), len(data.host), len(data.host.slow)


@pytest.mark.parametrize(
    ("device_limit", "to_disk", "count"), [(8 << 20, False, 20), (4 << 20, True, 30)]
)
def test_results_are_spilled_to_host_or_disk_and_restored(device_limit, to_disk, count):
    size = 1 << 17
    options = {"memory_limit": "500 MiB"} if to_disk else {}
    with clients(n_workers=1, device_memory_limit=device_limit, **options) as client:
        if to_disk:
            client.run(small_target)
        parts = [client.submit(part, number, size) for number in range(count)]
        wait(parts, timeout=50)
        for _ in range(2):
            sums = client.gather(client.map(total, parts, pure=False))
            assert sums == [sum_of_part(number, size) for number in range(count)]
        [(held, on_host, on_disk)] = client.run(places).values()
        assert held <= device_limit
        assert on_disk >= 5 if to_disk else on_host >= 10


def test_sub_devices_get_workers():
    with clients(["opencl:0"], sub_devices=1) as client:
        units = client.run(lambda: usmq.current_queue().device.max_compute_units)
        assert list(units.values()) == [1, 1]
        first, second = units
        array = client.submit(part, 3, workers=first)
        found = client.submit(total, array, workers=second)
        assert found.result(timeout=40) == sum(range(3000, 4000))


def test_plugins_work_on_any_cluster(two_devices):
    # The loaded driver has rewritten this variable; see usmq.dask.
    env = {name: os.environ[name] for name in ("OCL_ICD_FILENAMES",) if name in os.environ}
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, env=env, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        client.register_plugin(QueuePlugin(two_devices[1].filter_string))
        drivers = client.gather([client.submit(where, pure=False) for _ in range(4)])
    assert {driver for driver, _ in drivers} == {two_devices[1].driver_version}
