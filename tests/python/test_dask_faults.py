"""usmq.dask where something is missing or wrong, and which worker gets which device."""

import contextlib
import os
import subprocess
import sys

import pytest
import usmq
from dask_workers import QUIET, UNCLOSED_SOCKETS, workers
from distributed import LocalCluster
from usmq.dask import LocalUsmCluster, _selectors
from usmq.dask._device_lock import DeviceLock
from usmq.dask._rank import VARIABLES, local_rank
from usmq.dask._selectors import Found, Visible, best, chosen, matching

pytestmark = UNCLOSED_SOCKETS

GPU = [Found(f"level_zero:{n}", "level_zero", "gpu", "Max") for n in range(2)]
SAME_GPU = [Found(f"opencl:{n}", "opencl", "gpu", "Max") for n in range(2)]
CPU = [Found("opencl:2", "opencl", "cpu", "Xeon")]
MACHINE = [*SAME_GPU, *CPU, *GPU]
# The first GPU is visible twice.
TWO = [
    Found("level_zero:0", "level_zero", "gpu", "A"),
    Found("level_zero:1", "level_zero", "gpu", "B"),
    Found("opencl:0", "opencl", "gpu", "A"),
    Found("opencl:1", "opencl", "cpu", "C"),
]


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(_selectors, "all_devices", lambda: MACHINE)


def test_a_gpu_listed_twice_gets_one_worker():
    assert best(MACHINE) == GPU
    assert best([*SAME_GPU, *CPU]) == SAME_GPU
    assert best(CPU) == CPU
    assert best([]) == []


@pytest.mark.parametrize(
    ("devices", "term", "selectors"),
    [
        (MACHINE, "level_zero:1", "level_zero:1"),
        (MACHINE, "level_zero:0,1", "level_zero:0 level_zero:1"),
        (MACHINE, "opencl:cpu", "opencl:2"),
        (MACHINE, "opencl:*", "opencl:0 opencl:1 opencl:2"),
        (MACHINE, "*:gpu", "opencl:0 opencl:1 level_zero:0 level_zero:1"),
        # SYCL accepts the variable in both cases.
        (MACHINE, "Level_Zero:GPU", "level_zero:0 level_zero:1"),
        (TWO, 0, "level_zero:0"),
        (TWO, 1, "level_zero:1"),
        (TWO, "1", "level_zero:1"),
        (TWO, "0,1", "level_zero:0 level_zero:1"),
        (TWO, "gpu", "level_zero:0 level_zero:1"),
        (TWO, "gpu:0", "level_zero:0"),
        (TWO, "gpu:1,0", "level_zero:1 level_zero:0"),
        (TWO, "cpu", "opencl:1"),
        (TWO, "cpu:0", "opencl:1"),
        (TWO, "opencl:gpu:0", "opencl:0"),
        (TWO, "opencl:gpu", "opencl:0"),
        (TWO, "opencl:1", "opencl:1"),
    ],
)
def test_a_selector_a_number_or_a_type_names_devices(devices, term, selectors):
    assert [device.selector for device in matching(term, devices)] == selectors.split()


@pytest.mark.usefixtures("machine")
def test_the_selector_of_this_process_is_applied():
    assert chosen(None, {}) == ["level_zero:0", "level_zero:1"]
    environment = {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu;level_zero:1"}
    assert chosen(None, environment) == ["opencl:2", "level_zero:1"]
    assert chosen(["level_zero:0"], environment) == ["level_zero:0"]


@pytest.mark.usefixtures("machine")
def test_the_string_of_a_device_counts_the_devices_of_this_process():
    def selected(name, selector):
        return chosen([Visible(name)], {"ONEAPI_DEVICE_SELECTOR": selector})

    assert selected("level_zero:gpu:0", "level_zero:1") == ["level_zero:1"]
    assert selected("opencl:gpu:1", "opencl:1;opencl:0") == ["opencl:1"]
    assert selected("opencl:cpu:0", "opencl:cpu") == ["opencl:2"]
    assert selected("opencl:gpu:1", "") == ["opencl:1"]
    with pytest.raises(usmq.DeviceNotFoundError, match=r"devices: level_zero:1 .gpu Max.$"):
        selected("level_zero:gpu:1", "level_zero:1")


@pytest.mark.parametrize("term", [2, -1, "2", "gpu:2", "gpu:x", "gpu:", "cpu:1", "level_zero:cpu"])
def test_a_number_without_a_device_lists_the_devices(term):
    text = f"{term!r} was requested; visible devices: level_zero:0 .gpu A."
    with pytest.raises(usmq.DeviceNotFoundError, match=text):
        matching(term, TWO)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (["!opencl:*"], ValueError, "cannot be divided"),
        (["level_zero:0.1"], ValueError, "cannot be divided"),
        (["level_zero"], ValueError, "cannot be divided"),
        ([""], ValueError, "cannot be divided"),
        (["cuda:*"], usmq.DeviceNotFoundError, r"'cuda:\*'.*level_zero:1 \(gpu Max\)"),
        ([], usmq.DeviceNotFoundError, "an empty list was requested; visible"),
    ],
)
def test_a_selector_without_a_match_or_too_complex_is_refused(given, error, text):
    with pytest.raises(error, match=text):
        chosen(given, {})


def an_affinity_mask(monkeypatch, _):
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0,1")


def unresponsive_drivers(monkeypatch, _):
    monkeypatch.setattr(_selectors, "PATIENCE", 0.01)


def a_failing_child(monkeypatch, folder):
    (folder / "usmq.py").write_text("raise SystemExit('the disk is on fire')")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def a_device_lost_before_its_worker_starts(monkeypatch, _):
    gone = [Found("opencl:7", "opencl", "cpu", "gone")]
    monkeypatch.setattr(_selectors, "all_devices", lambda: gone)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("prepare", "error", "text"),
    [
        (an_affinity_mask, ValueError, "ZE_AFFINITY_MASK='0,1' is set"),
        (unresponsive_drivers, usmq.DeviceNotFoundError, "did not list their devices within"),
        (a_failing_child, usmq.DeviceNotFoundError, "the disk is on fire"),
        (
            a_device_lost_before_its_worker_starts,
            usmq.DeviceNotFoundError,
            "no SYCL device is visible to this worker",
        ),
    ],
)
def test_a_cluster_that_cannot_start_is_an_error_in_time(
    prepare, error, text, monkeypatch, tmp_path
):
    prepare(monkeypatch, tmp_path)
    with pytest.raises(error, match=text):
        LocalUsmCluster(death_timeout=30, **QUIET)


def test_workers_in_one_process_are_refused():
    with pytest.raises(ValueError, match="a process of its own"):
        LocalUsmCluster(processes=False, **QUIET)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_local_rank_comes_from_the_launcher(name):
    assert local_rank({name: "3"}) == 3
    assert local_rank({name: ""}) is None
    with pytest.raises(ValueError, match=f"{name}='first' is not a local rank"):
        local_rank({name: "first"})


def test_a_device_lock_is_reported_to_others_and_ends_with_its_holder():
    first = DeviceLock("test:0", "worker 1")
    assert first.holder is None
    second = DeviceLock("test:0", "worker 2")
    assert second.holder == f"worker 1 (process {os.getpid()})"
    assert DeviceLock("test:1", "worker 3").holder is None
    first.release()
    assert DeviceLock("test:0", "worker 4").holder is None


def test_the_parent_starts_no_driver(run_python):
    code = """
from pathlib import Path
from usmq.dask import LocalUsmCluster
with LocalUsmCluster(n_workers=1, dashboard_address=":0") as cluster:
    with cluster.get_client() as client:
        print(client.submit(lambda: __import__("usmq").arange(4).size).result(timeout=40))
maps = Path("/proc/self/maps").read_text()
print("libsycl" in maps, "libur_adapter" in maps, "libintelocl" in maps)
"""
    assert run_python(code, timeout=55).stdout.split() == ["4", "True", "False", "False"]


@contextlib.contextmanager
def dask_worker(address, name, **environment):
    """Start one as a batch job would, in another process."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--name", name]
    command += ["--preload", "usmq.dask", "--no-dashboard", "--no-nanny", "--nthreads", "1"]
    with subprocess.Popen(
        command, env=os.environ | environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            # At once: dask tests the shutdown of a worker.
            process.kill()


def test_batch_jobs_choose_by_local_rank_and_report_a_shared_device(two_devices):
    def about(client):
        return {name: worker["usmq"] for name, worker in workers(client).items()}

    drivers = {device.driver_version for device in two_devices}
    with LocalCluster(n_workers=0, **QUIET) as cluster, cluster.get_client() as client:
        address = cluster.scheduler_address
        with (
            dask_worker(address, "a", SLURM_LOCALID="0"),
            dask_worker(address, "b", OMPI_COMM_WORLD_LOCAL_RANK="1"),
        ):
            client.wait_for_workers(2, timeout=40)
            reported = about(client)
            # One platform each, so the ranks count over both.
            assert {reported[name]["driver"] for name in "ab"} == drivers
            assert not any("shared_with" in worker for worker in reported.values())
            with dask_worker(address, "c", PALS_LOCAL_RANKID="3") as third:
                client.wait_for_workers(3, timeout=40)
                assert about(client)["c"]["device"] == reported["b"]["device"]
                assert about(client)["c"]["shared_with"].startswith("b (process ")
                third.kill()
                assert "worker c shares" in third.communicate(timeout=20)[1]


def test_a_batch_job_without_a_device_ends_with_an_error():
    with LocalCluster(n_workers=0, **QUIET) as cluster:
        environment = {"ONEAPI_DEVICE_SELECTOR": "hip:gpu"}
        with dask_worker(cluster.scheduler_address, "a", **environment) as process:
            error = process.communicate(timeout=45)[1]  # It ends by itself.
    assert "no device for worker a: no SYCL device is visible to this worker" in error
