"""usmq.dask where something is missing or wrong, and which worker gets which device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import usmq

distributed = pytest.importorskip("distributed")

from distributed import Client, LocalCluster  # noqa: E402
from usmq.dask import LocalUsmCluster, _selectors  # noqa: E402
from usmq.dask._device_lock import DeviceLock  # noqa: E402
from usmq.dask._rank import VARIABLES, local_rank  # noqa: E402
from usmq.dask._selectors import Found, Visible, best, chosen, matching  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUIET: dict[str, Any] = {"dashboard_address": ":0"}

GPU = [Found(f"level_zero:{n}", "level_zero", "gpu", "Max") for n in range(2)]
SAME_GPU = [Found(f"opencl:{n}", "opencl", "gpu", "Max") for n in range(2)]
CPU = [Found("opencl:2", "opencl", "cpu", "Xeon")]
MACHINE = [*SAME_GPU, *CPU, *GPU]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_selectors, "all_devices", lambda: MACHINE)


def test_a_gpu_listed_twice_gets_one_worker() -> None:
    assert best(MACHINE) == GPU
    assert best([*SAME_GPU, *CPU]) == SAME_GPU
    assert best(CPU) == CPU
    assert best([]) == []


@pytest.mark.parametrize(
    ("term", "selectors"),
    [
        ("level_zero:1", ["level_zero:1"]),
        ("level_zero:0,1", ["level_zero:0", "level_zero:1"]),
        ("opencl:cpu", ["opencl:2"]),
        ("opencl:*", ["opencl:0", "opencl:1", "opencl:2"]),
        ("*:gpu", ["opencl:0", "opencl:1", "level_zero:0", "level_zero:1"]),
        # SYCL accepts the variable in both cases.
        ("Level_Zero:GPU", ["level_zero:0", "level_zero:1"]),
    ],
)
def test_a_selector_is_split_into_devices(term: str, selectors: list[str]) -> None:
    assert [device.selector for device in matching(term, MACHINE)] == selectors


@pytest.mark.usefixtures("machine")
def test_the_selector_of_this_process_is_applied() -> None:
    assert chosen(None, {}) == ["level_zero:0", "level_zero:1"]
    environment = {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu;level_zero:1"}
    assert chosen(None, environment) == ["opencl:2", "level_zero:1"]
    assert chosen(["level_zero:0"], environment) == ["level_zero:0"]


@pytest.mark.usefixtures("machine")
def test_the_string_of_a_device_counts_the_devices_of_this_process() -> None:
    def selected(name: str, selector: str) -> list[str]:
        return chosen([Visible(name)], {"ONEAPI_DEVICE_SELECTOR": selector})

    assert selected("level_zero:gpu:0", "level_zero:1") == ["level_zero:1"]
    assert selected("opencl:gpu:1", "opencl:1;opencl:0") == ["opencl:1"]
    assert selected("opencl:cpu:0", "opencl:cpu") == ["opencl:2"]
    assert selected("opencl:gpu:1", "") == ["opencl:1"]
    with pytest.raises(usmq.DeviceNotFoundError, match=r"devices: level_zero:1 .gpu Max.$"):
        selected("level_zero:gpu:1", "level_zero:1")


TWO = [
    Found("level_zero:0", "level_zero", "gpu", "A"),
    Found("level_zero:1", "level_zero", "gpu", "B"),
    Found("opencl:0", "opencl", "gpu", "A"),
    Found("opencl:1", "opencl", "cpu", "C"),
]


@pytest.mark.parametrize(
    ("term", "selectors"),
    [
        (0, ["level_zero:0"]),
        (1, ["level_zero:1"]),
        ("1", ["level_zero:1"]),
        ("0,1", ["level_zero:0", "level_zero:1"]),
        # The first GPU is visible twice.
        ("gpu", ["level_zero:0", "level_zero:1"]),
        ("gpu:0", ["level_zero:0"]),
        ("gpu:1,0", ["level_zero:1", "level_zero:0"]),
        ("cpu", ["opencl:1"]),
        ("cpu:0", ["opencl:1"]),
        ("opencl:gpu:0", ["opencl:0"]),
        ("opencl:gpu", ["opencl:0"]),
        ("opencl:1", ["opencl:1"]),
    ],
)
def test_a_device_is_named_by_number_or_type(term: str | int, selectors: list[str]) -> None:
    assert [device.selector for device in _selectors.matching(term, TWO)] == selectors


@pytest.mark.parametrize("term", [2, -1, "2", "gpu:2", "gpu:x", "gpu:", "cpu:1", "level_zero:cpu"])
def test_a_number_without_a_device_lists_the_devices(term: str | int) -> None:
    text = f"{term!r} was requested; visible devices: level_zero:0 .gpu A."
    with pytest.raises(usmq.DeviceNotFoundError, match=text):
        _selectors.matching(term, TWO)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("term", ["!opencl:*", "level_zero:0.1", "level_zero", ""])
def test_a_selector_that_is_too_complex_is_refused(term: str) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        chosen([term], {})


@pytest.mark.usefixtures("machine")
def test_a_selector_without_a_match_lists_the_devices() -> None:
    with pytest.raises(usmq.DeviceNotFoundError, match=r"'cuda:\*'.*level_zero:1 \(gpu Max\)"):
        chosen(["cuda:*"], {})


@pytest.mark.usefixtures("machine")
def test_an_empty_list_of_devices_is_refused() -> None:
    with pytest.raises(usmq.DeviceNotFoundError, match="an empty list was requested; visible"):
        chosen([], {})


def test_an_affinity_mask_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0,1")
    with pytest.raises(ValueError, match="ZE_AFFINITY_MASK='0,1' is set"):
        LocalUsmCluster(**QUIET)


def test_workers_in_one_process_are_refused() -> None:
    with pytest.raises(ValueError, match="a process of its own"):
        LocalUsmCluster(processes=False, **QUIET)


def test_unresponsive_drivers_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_selectors, "PATIENCE", 0.01)
    with pytest.raises(usmq.DeviceNotFoundError, match="did not list their devices within"):
        LocalUsmCluster(**QUIET)


def test_a_failing_child_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "usmq.py").write_text("raise SystemExit('the disk is on fire')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(usmq.DeviceNotFoundError, match="the disk is on fire"):
        LocalUsmCluster(**QUIET)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_device_lost_before_its_worker_starts_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = [Found("opencl:7", "opencl", "cpu", "gone")]
    monkeypatch.setattr(_selectors, "all_devices", lambda: gone)
    with pytest.raises(usmq.DeviceNotFoundError, match="no SYCL device is visible to this worker"):
        LocalUsmCluster(death_timeout=30, **QUIET)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_local_rank_comes_from_the_launcher(name: str) -> None:
    assert local_rank({name: "3"}) == 3
    assert local_rank({name: ""}) is None
    with pytest.raises(ValueError, match=f"{name}='first' is not a local rank"):
        local_rank({name: "first"})


def test_a_device_lock_is_reported_to_others_and_ends_with_its_holder() -> None:
    first = DeviceLock("test:0", "worker 1")
    assert first.holder is None
    second = DeviceLock("test:0", "worker 2")
    assert second.holder == f"worker 1 (process {os.getpid()})"
    assert DeviceLock("test:1", "worker 3").holder is None
    first.release()
    assert DeviceLock("test:0", "worker 4").holder is None


def test_the_parent_starts_no_driver(run_python: Callable[..., Any]) -> None:
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


@contextmanager
def dask_worker(address: str, name: str, **environment: str) -> Iterator[Any]:
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


def about(client: Client) -> dict[str, dict[str, str]]:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return {worker["name"]: worker["usmq"] for worker in workers}


def test_batch_jobs_choose_by_local_rank_and_report_a_shared_device(
    two_devices: tuple[usmq.Device, usmq.Device],
) -> None:
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


def test_a_batch_job_without_a_device_ends_with_an_error() -> None:
    with LocalCluster(n_workers=0, **QUIET) as cluster:
        environment = {"ONEAPI_DEVICE_SELECTOR": "hip:gpu"}
        with dask_worker(cluster.scheduler_address, "a", **environment) as process:
            error = process.communicate(timeout=45)[1]  # It ends by itself.
    assert "no device for worker a: no SYCL device is visible to this worker" in error
