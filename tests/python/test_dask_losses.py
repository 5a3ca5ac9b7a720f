"""usmq.dask during a graph: loss of workers, devices and memory."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import psutil
import pytest
import usmq

distributed = pytest.importorskip("distributed")

from dask.sizeof import sizeof  # noqa: E402
from distributed import Client, KilledWorker, LocalCluster, wait  # noqa: E402
from usmq.dask import LocalUsmCluster, QueuePlugin  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUIET: dict[str, Any] = {"dashboard_address": ":0"}

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def part(number: int, size: int) -> usmq.Array:
    return usmq.arange(number * size, (number + 1) * size, dtype="i8")


def total(*parts: usmq.Array) -> int:
    return sum(int(part.to_numpy().sum()) for part in parts)


def by_name(client: Client) -> dict[int, str]:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {worker["name"]: address for address, worker in workers.items()}


def die_amid(moved_bytes: int, method: str, marker: str) -> None:
    """Have this process kill itself once it has moved so many bytes through its sockets."""
    from tornado.iostream import IOStream

    original = getattr(IOStream, method)
    moved = 0

    def counted(stream: Any, data: Any) -> Any:
        nonlocal moved
        count = original(stream, data)
        moved += count or 0
        if moved > moved_bytes:
            Path(marker).write_text(str(moved))
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    setattr(IOStream, method, counted)


@pytest.mark.parametrize(
    ("victim", "method"), [(0, "write_to_fd"), (1, "read_from_fd")], ids=["sender", "receiver"]
)
def test_a_worker_killed_during_a_transfer_loses_no_array(
    victim: int, method: str, tmp_path: Path
) -> None:
    size, count, most = 4 << 20, 3, 8 << 20
    with (
        # An idle worker that takes a part over would leave the other less to send.
        dask.config.set(
            {"usmq.dask.same-host": False, "distributed.scheduler.work-stealing": False}
        ),
        LocalUsmCluster(n_workers=2, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        names = by_name(client)
        before = client.run(os.getpid, workers=[names[victim]])[names[victim]]
        parts = [
            client.submit(part, n, size, workers=[names[0]], allow_other_workers=True)
            for n in range(count)
        ]
        wait(parts, timeout=40)
        assert all(set(where) == {names[0]} for where in client.who_has(parts).values())
        marker = tmp_path / "moved"
        client.run(die_amid, most, method, str(marker), workers=[names[victim]])
        everything = client.submit(total, *parts, workers=[names[1]], allow_other_workers=True)
        assert everything.result(timeout=45) == sum(range(size * count))
        # It did die then: with some of the bytes on their way, and most not.
        assert most < int(marker.read_text()) < 8 * size * count / 2
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        # Nor is any gone: each can still be had.
        for n, array in enumerate(client.gather(parts)):
            assert int(array.to_numpy().sum()) == sum(range(n * size, (n + 1) * size))


def die_sharing(reader: bool, marker: str) -> None:
    """Have this process kill itself with an array in shared memory: written, or opened."""
    from usmq.dask import _shm_transport

    original = _shm_transport.mapped if reader else usmq._core.fill_frame

    def killed(*words: Any) -> None:
        original(*words)
        Path(marker).write_text("there")
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(*((_shm_transport, "mapped") if reader else (usmq._core, "fill_frame")), killed)


@pytest.mark.parametrize("victim", [0, 1], ids=["sender", "receiver"])
def test_a_worker_killed_with_an_array_in_shared_memory_loses_no_array(
    victim: int, tmp_path: Path
) -> None:
    size, count = 1 << 18, 3
    with LocalUsmCluster(n_workers=2, **QUIET) as cluster, cluster.get_client() as client:
        names = by_name(client)
        parts = [
            client.submit(part, n, size, workers=[names[0]], allow_other_workers=True)
            for n in range(count)
        ]
        wait(parts, timeout=40)
        marker = tmp_path / "there"
        client.run(die_sharing, victim == 1, str(marker), workers=[names[victim]])
        everything = client.submit(total, *parts, workers=[names[1]], allow_other_workers=True)
        assert everything.result(timeout=45) == sum(range(size * count))
        assert marker.read_text() == "there"
        for n, array in enumerate(client.gather(parts)):
            assert int(array.to_numpy().sum()) == sum(range(n * size, (n + 1) * size))


def test_tasks_of_a_device_lost_in_a_graph_run_on_the_others() -> None:
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "60 s"}),
        LocalUsmCluster(n_workers=2, **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        names = by_name(client)
        pid = client.run(os.getpid, workers=[names[0]])[names[0]]
        parts = [client.submit(part, n, 1000, pure=False) for n in range(20)]
        wait(parts, timeout=40)
        # The worker that its nanny starts in place of the first sees no device.
        cluster.workers[0].env["ONEAPI_DEVICE_SELECTOR"] = "opencl:7"
        os.kill(pid, signal.SIGKILL)
        sums = client.map(total, parts, pure=False)
        assert client.submit(sum, sums).result(timeout=45) == sum(range(20_000))
        assert 0 not in by_name(client)
        # The nanny retries because a device may return; it stops with the cluster.
        cluster.workers[0].env["ONEAPI_DEVICE_SELECTOR"] = "opencl:0"
        client.wait_for_workers(2, timeout=40)
        assert set(by_name(client)) == {0, 1}
        family = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [child for child in alive if "spawn_main" in " ".join(child.cmdline())]


def kill_and_wait(client: Client) -> float:
    """Kill the only worker, and return the seconds until another one has registered."""
    (pid,) = client.run(os.getpid).values()
    begin = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while True:
        with contextlib.suppress(OSError, ValueError):
            if set(client.run(os.getpid).values()) - {pid}:
                return time.monotonic() - begin
        assert time.monotonic() - begin < 60, "the worker did not come back"
        time.sleep(0.05)


def test_a_worker_that_is_lost_twice_comes_back_twice() -> None:
    with LocalUsmCluster(n_workers=1, **QUIET) as cluster, cluster.get_client() as client:
        took = kill_and_wait(client)
        # The time after the first loss ends while the worker is starting after the second one.
        with dask.config.set({"distributed.deploy.lost-worker-timeout": 3 * took}):
            begin = time.monotonic()
            kill_and_wait(client)
            time.sleep(max(0, begin + 2.7 * took - time.monotonic()))
            kill_and_wait(client)
            assert list(cluster.workers) == [0]


def held_by_a_log() -> int:
    """Log an exception whose frame has an array; return the device memory that is still in use."""

    def fail(array: usmq.Array) -> None:
        raise OSError(f"a peer has gone with {array.nbytes} bytes")

    logger = logging.getLogger("distributed.worker")
    try:
        fail(usmq.zeros(1 << 20, "u1"))
    except OSError:
        logger.exception("failed during a transfer of %s", usmq.zeros(1 << 20, "u1"))
    usmq.trim_memory()
    return int(usmq.memory_stats()["device"]["used"])


def test_the_log_of_a_worker_keeps_no_device_memory() -> None:
    with LocalUsmCluster(n_workers=1, **QUIET) as cluster, cluster.get_client() as client:
        assert set(client.run(held_by_a_log).values()) == {0}
        (log,) = client.get_worker_logs().values()
        text = "\n".join(line for _, line in log)
        assert "a peer has gone with 1048576 bytes" in text
        assert "failed during a transfer of" in text


def test_a_task_that_names_a_device_missing_on_its_worker_is_an_error() -> None:
    def elsewhere() -> int:
        with usmq.use_queue("cpu:7"):
            return part(0, 10).size

    with LocalUsmCluster(n_workers=1, **QUIET) as cluster, cluster.get_client() as client:
        with pytest.raises(usmq.DeviceNotFoundError, match="cpu:7"):
            client.submit(elsewhere).result(timeout=40)
        assert client.submit(total, client.submit(part, 0, 10)).result(timeout=40) == 45


def test_a_host_limit_below_one_partition_fails_the_task_not_the_cluster() -> None:
    # Of a process with its drivers loaded, and no room for the partition beside them.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalUsmCluster(n_workers=1, memory_limit="700 MiB", **QUIET) as cluster,
        cluster.get_client() as client,
    ):

        def too_large() -> int:
            array = usmq.full(128 << 20, 1, "i8")
            array.wait()
            time.sleep(30)
            return array.size

        with pytest.raises(KilledWorker):
            client.submit(too_large).result(timeout=45)
        assert client.submit(total, client.submit(part, 0, 10)).result(timeout=45) == 45


def test_a_device_limit_below_one_partition_keeps_one_at_a_time() -> None:
    size = 1 << 18
    with (
        LocalUsmCluster(n_workers=1, device_memory_limit="1 MiB", **QUIET) as cluster,
        cluster.get_client() as client,
    ):
        parts = [client.submit(part, n, size) for n in range(4)]
        assert client.submit(total, *parts).result(timeout=40) == sum(range(4 * size))
        held = client.run(lambda dask_worker: len(dask_worker.data.device))
        assert set(held.values()) == {1}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_worker_with_another_version_is_refused_by_the_plugin(tmp_path: Path) -> None:
    older = tmp_path / "older.py"
    older.write_text("import usmq\nusmq.__version__ = '0.0.1'\n")
    env = {name: os.environ[name] for name in ("OCL_ICD_FILENAMES",) if name in os.environ}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, env=env, preload=[str(older)], **QUIET
        ) as cluster,
        cluster.get_client() as client,
    ):
        with pytest.raises(RuntimeError, match=r"has usmq 0\.0\.1, the client has .*same version"):
            client.register_plugin(QueuePlugin())
        # It is a dask worker, but not one of usmq.
        assert client.submit(sum, [1, 2]).result(timeout=20) == 3


def test_dask_counts_the_bytes_on_the_device() -> None:
    def nested() -> dict[str, Any]:
        table = usmq.Table({"x": part(2, 1000)})
        return {"list": [part(0, 1000), (part(1, 1000), "text")], "table": table}

    def known(dask_scheduler: Any, key: str) -> int:
        return int(dask_scheduler.tasks[key].nbytes)

    with LocalUsmCluster(n_workers=1, **QUIET) as cluster, cluster.get_client() as client:
        for make, least in ((lambda: part(0, 100_000), 800_000), (nested, 24_000)):
            future = client.submit(make)
            wait(future, timeout=40)
            seen = client.run_on_scheduler(known, key=future.key)
            assert least <= seen < least + 4000
            there = client.submit(sizeof, future).result(timeout=40)
            assert there == seen
        # The worker's own data agrees.
        back = future.result(timeout=40)
        assert [back["list"][1][0].size, back["table"].num_rows] == [1000, 1000]
        assert 24_000 <= sizeof(back) < 28_000
        for usm_type in ("device", "shared", "host"):
            array = usmq.zeros((10, 1000), "f8", usm_type=usm_type)
            assert 80_000 <= sizeof(array) < 81_000
            assert 8_000 <= sizeof(array[:1]) < 9_000
