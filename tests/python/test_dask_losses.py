"""usmq.dask during a graph: loss of workers, devices and memory."""

import contextlib
import logging
import os
import signal
import time

import dask
import psutil
import pytest
import usmq
from dask_workers import (
    QUIET,
    UNCLOSED_SOCKETS,
    clients,
    die,
    part,
    send_by_value,
    sum_of_part,
    total,
    workers,
)
from distributed import KilledWorker, LocalCluster, wait
from usmq.dask import QueuePlugin

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)


def by_name(client):
    return {name: worker["address"] for name, worker in workers(client).items()}


def pid_of(client, worker):
    return client.run(os.getpid, workers=[worker])[worker]


def die_amid(moved_bytes, method, marker):
    """Have this process kill itself once it has moved so many bytes through its sockets."""
    from tornado.iostream import IOStream

    original = getattr(IOStream, method)
    moved = 0

    def counted(stream, data):
        nonlocal moved
        count = original(stream, data)
        moved += count or 0
        if moved > moved_bytes:
            die(marker, str(moved))
        return count

    setattr(IOStream, method, counted)


def die_sharing(reader, marker):
    """Have this process kill itself with an array in shared memory: written, or opened."""
    from usmq.dask import _shm_transport

    place, name = (_shm_transport, "mapped") if reader else (usmq._core, "fill_frame")
    original = getattr(place, name)

    def killed(*words):
        original(*words)
        die(marker)

    setattr(place, name, killed)


@pytest.mark.parametrize("victim", [0, 1], ids=["sender", "receiver"])
@pytest.mark.parametrize("shared", [False, True], ids=["socket", "shared memory"])
def test_a_worker_killed_during_a_transfer_loses_no_array(shared, victim, tmp_path):
    size, count, most = 1 << 18 if shared else 4 << 20, 3, 8 << 20
    marker = tmp_path / "died"
    # An idle worker that takes a part over would leave the other less to send.
    settings = {"usmq.dask.same-host": shared, "distributed.scheduler.work-stealing": False}
    with dask.config.set(settings), clients(n_workers=2) as client:
        names = by_name(client)
        before = pid_of(client, names[victim])
        on = {"workers": [names[0]], "allow_other_workers": True}
        parts = [client.submit(part, n, size, **on) for n in range(count)]
        wait(parts, timeout=40)
        assert all(set(where) == {names[0]} for where in client.who_has(parts).values())
        method = "write_to_fd" if victim == 0 else "read_from_fd"
        armed = (die_sharing, victim == 1) if shared else (die_amid, most, method)
        client.run(*armed, str(marker), workers=[names[victim]])
        everything = client.submit(total, *parts, workers=[names[1]], allow_other_workers=True)
        assert everything.result(timeout=45) == sum(range(size * count))
        if shared:
            assert marker.read_text() == "there"
        else:  # It died with some of the bytes on their way, and most not.
            assert most < int(marker.read_text()) < 8 * size * count / 2
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        # Each array is still available.
        sums = [total(array) for array in client.gather(parts)]
        assert sums == [sum_of_part(n, size) for n in range(count)]


def test_tasks_of_a_device_lost_in_a_graph_run_on_the_others():
    settings = {"distributed.deploy.lost-worker-timeout": "60 s"}
    with dask.config.set(settings), clients(n_workers=2) as client:
        pid = pid_of(client, by_name(client)[0])
        parts = [client.submit(part, n, pure=False) for n in range(20)]
        wait(parts, timeout=40)
        # The worker that its nanny starts in place of the first sees no device.
        client.cluster.workers[0].env["ONEAPI_DEVICE_SELECTOR"] = "opencl:7"
        os.kill(pid, signal.SIGKILL)
        sums = client.map(total, parts, pure=False)
        assert client.submit(sum, sums).result(timeout=45) == sum(range(20_000))
        assert 0 not in by_name(client)
        # The nanny retries because a device may return; it stops with the cluster.
        client.cluster.workers[0].env["ONEAPI_DEVICE_SELECTOR"] = "opencl:0"
        client.wait_for_workers(2, timeout=40)
        assert set(by_name(client)) == {0, 1}
        family = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [child for child in alive if "spawn_main" in " ".join(child.cmdline())]


def kill_and_wait(client):
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


def test_a_worker_that_is_lost_twice_comes_back_twice():
    with clients(n_workers=1) as client:
        took = kill_and_wait(client)
        # The time after the first loss ends while the worker is starting after the second one.
        with dask.config.set({"distributed.deploy.lost-worker-timeout": 3 * took}):
            begin = time.monotonic()
            kill_and_wait(client)
            time.sleep(max(0, begin + 2.7 * took - time.monotonic()))
            kill_and_wait(client)
            assert list(client.cluster.workers) == [0]


def held_by_a_log():
    """Log an exception whose frame has an array; return the device memory that is still in use."""

    def fail(array):
        raise OSError(f"a peer has gone with {array.nbytes} bytes")

    logger = logging.getLogger("distributed.worker")
    try:
        fail(usmq.zeros(1 << 20, "u1"))
    except OSError:
        logger.exception("failed during a transfer of %s", usmq.zeros(1 << 20, "u1"))
    usmq.trim_memory()
    return int(usmq.memory_stats()["device"]["used"])


def test_the_log_of_a_worker_keeps_no_device_memory():
    with clients(n_workers=1) as client:
        assert set(client.run(held_by_a_log).values()) == {0}
        (log,) = client.get_worker_logs().values()
        text = "\n".join(line for _, line in log)
        assert "a peer has gone with 1048576 bytes" in text
        assert "failed during a transfer of" in text


def elsewhere():
    with usmq.use_queue("cpu:7"):
        return part(0).size


def too_large():
    array = usmq.full(128 << 20, 1, "i8")
    array.wait()
    time.sleep(30)
    return array.size


@pytest.mark.parametrize(
    ("task", "error", "options"),
    [
        (elsewhere, usmq.DeviceNotFoundError, {}),
        # The limit of a process with its drivers loaded leaves no room for the partition.
        (too_large, KilledWorker, {"memory_limit": "700 MiB"}),
    ],
    ids=["a device missing on the worker", "a host limit below one partition"],
)
def test_a_failure_is_of_the_task_not_of_the_cluster(task, error, options):
    settings = {"distributed.scheduler.allowed-failures": 0}
    with dask.config.set(settings), clients(n_workers=1, **options) as client:
        with pytest.raises(error, match="cpu:7" if task is elsewhere else None):
            client.submit(task).result(timeout=45)
        assert client.submit(total, client.submit(part, 0)).result(timeout=45) == sum_of_part(0)


def test_a_device_limit_below_one_partition_keeps_one_at_a_time():
    size = 1 << 18
    with clients(n_workers=1, device_memory_limit="1 MiB") as client:
        parts = [client.submit(part, n, size) for n in range(4)]
        assert client.submit(total, *parts).result(timeout=40) == sum(range(4 * size))
        held = client.run(lambda dask_worker: len(dask_worker.data.device))
        assert set(held.values()) == {1}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_worker_with_another_version_is_refused_by_the_plugin(tmp_path):
    older = tmp_path / "older.py"
    older.write_text("import usmq\nusmq.__version__ = '0.0.1'\n")
    env = {name: os.environ[name] for name in ("OCL_ICD_FILENAMES",) if name in os.environ}
    options = {"n_workers": 1, "threads_per_worker": 1, "env": env, "preload": [str(older)]}
    with LocalCluster(**options, **QUIET) as cluster, cluster.get_client() as client:
        with pytest.raises(RuntimeError, match=r"has usmq 0\.0\.1, the client has .*same version"):
            client.register_plugin(QueuePlugin())
        # It is a dask worker, but not one of usmq.
        assert client.submit(sum, [1, 2]).result(timeout=20) == 3


def nested():
    return {"list": [part(0), (part(1), "text")], "table": usmq.Table({"x": part(2)})}


def test_dask_counts_the_bytes_on_the_device():
    from dask.sizeof import sizeof

    def known(dask_scheduler, key):
        return int(dask_scheduler.tasks[key].nbytes)

    with clients(n_workers=1) as client:
        for make, least in ((lambda: part(0, 100_000), 800_000), (nested, 24_000)):
            future = client.submit(make)
            wait(future, timeout=40)
            seen = client.run_on_scheduler(known, key=future.key)
            assert least <= seen < least + 4000
            assert client.submit(sizeof, future).result(timeout=40) == seen
        # The worker's own data agrees.
        back = future.result(timeout=40)
        assert [back["list"][1][0].size, back["table"].num_rows] == [1000, 1000]
        assert 24_000 <= sizeof(back) < 28_000
        for usm_type in ("device", "shared", "host"):
            array = usmq.zeros((10, 1000), "f8", usm_type=usm_type)
            assert 80_000 <= sizeof(array) < 81_000
            assert 8_000 <= sizeof(array[:1]) < 9_000
