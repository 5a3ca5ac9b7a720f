"""``dask usmq worker``: real schedulers and workers, started and ended as a shell does it."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import usmq

distributed = pytest.importorskip("distributed")

import cloudpickle  # noqa: E402
import psutil  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from distributed import Client  # noqa: E402
from usmq import _dask_command  # noqa: E402
from usmq.dask import _selectors  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROOT = Path(__file__).parents[2]
POINT = ("usmq", "usmq._dask_command:group")


def points() -> list[tuple[str, str]]:
    found = importlib.metadata.entry_points(group="dask_cli")
    return [(point.name, point.value) for point in found]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which dask finds the command, by written metadata if necessary."""
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [(name, value)] = written["project"]["entry-points"]["dask_cli"].items()
    assert (name, value) == POINT
    here = dict(os.environ)
    if POINT not in points():
        folder = tmp_path_factory.mktemp("installed")
        info = folder / f"usmq-{usmq.__version__}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: usmq\nVersion: {usmq.__version__}\n")
        (info / "entry_points.txt").write_text(f"[dask_cli]\n{name} = {value}\n")
        here["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), here.get("PYTHONPATH")]))
    return here


def dask(*words: str) -> list[str]:
    return [sys.executable, "-m", "dask", *words]


@contextmanager
def process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start one in its own process group, as a shell does, and kill the group at the end."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    ) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def scheduler(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Return the file of a real one."""
    file = tmp_path_factory.mktemp("scheduler") / "scheduler.json"
    command = dask("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    # It writes to the log, which is not read here.
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as started:
        try:
            with Client(scheduler_file=str(file), timeout=40):
                pass
            yield file
        finally:
            started.kill()


@pytest.fixture
def client(scheduler: Path) -> Iterator[Client]:
    with Client(scheduler_file=str(scheduler), timeout=40) as client:
        yield client
        client.retire_workers()


def where() -> tuple[str, int, int]:
    queue = usmq.current_queue()
    limit = usmq.memory_stats(queue.device)["device"]["limit"]
    return queue.device.driver_version, len(usmq.devices()), limit


def workers(client: Client) -> dict[str, Any]:
    known = client.scheduler_info(n_workers=-1)["workers"].values()
    return {worker["name"]: worker for worker in known}


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)]
)
def test_each_device_gets_a_worker_and_a_signal_ends_all(
    number: signal.Signals,
    group: bool,
    scheduler: Path,
    environment: dict[str, str],
    client: Client,
    two_devices: tuple[usmq.Device, usmq.Device],
    tmp_path: Path,
) -> None:
    command = dask("usmq", "worker", "--scheduler-file", str(scheduler), "--name", "here")
    command += ["--pool-limit", "64 MiB", "--device-memory-limit", "32 MiB", "--no-dashboard"]
    command += ["--memory-limit", "1 GiB", "--nthreads", "2", "--resources", "GPU=1"]
    command += ["--local-directory", str(tmp_path), "--pid-file", str(tmp_path / "pid")]
    with process(command, env=environment) as started:
        client.wait_for_workers(2, timeout=50)
        assert (tmp_path / "pid").read_text() == str(started.pid)
        about = workers(client)
        assert set(about) == {"here-0", "here-1"}
        for worker in about.values():
            assert (worker["memory_limit"], worker["nthreads"]) == (2**30, 2)
            assert worker["resources"] == {"GPU": 1}
            assert worker["local_directory"].startswith(str(tmp_path))
        seen = client.run(where)
        assert {driver for driver, _, _ in seen.values()} == {
            device.driver_version for device in two_devices
        }
        assert {(count, limit) for _, count, limit in seen.values()} == {(1, 64 << 20)}
        spill = client.run(lambda dask_worker: dask_worker.data.device_limit)
        assert set(spill.values()) == {32 << 20}
        # Ctrl-C in a shell reaches the workers, too; a batch system tells the parent alone.
        family = psutil.Process(started.pid).children(recursive=True)
        assert len(family) >= 2
        if group:
            os.killpg(started.pid, number)
        else:
            os.kill(started.pid, number)
        _, words = started.communicate(timeout=30)
        assert started.returncode == 0, words
        assert "Traceback" not in words
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not (tmp_path / "pid").exists()
    assert not list(tmp_path.glob("**/worker-*"))


def test_workers_end_after_their_parent_is_killed(
    scheduler: Path, environment: dict[str, str], client: Client
) -> None:
    command = dask("usmq", "worker", "--scheduler-file", str(scheduler), "--nworkers", "1")
    with process([*command, "--no-dashboard"], env=environment) as started:
        client.wait_for_workers(1, timeout=50)
        family = psutil.Process(started.pid).children(recursive=True)
        started.kill()
        _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


def test_sub_devices_and_preloads(
    scheduler: Path, environment: dict[str, str], client: Client, tmp_path: Path
) -> None:
    preload = tmp_path / "loaded_first.py"
    preload.write_text("import os\nos.environ['LOADED_FIRST'] = 'yes'\n")
    address = client.scheduler.address  # By address instead of a scheduler file.
    command = dask("usmq", "worker", address, "--devices", "opencl:0", "--sub-devices", "1")
    command += ["--preload", str(preload), "--no-dashboard", "--host", "127.0.0.1"]
    with process(command, env=environment) as started:
        client.wait_for_workers(2, timeout=50)
        assert all(worker["host"] == "127.0.0.1" for worker in workers(client).values())
        seen = client.run(
            lambda: (usmq.current_queue().device.max_compute_units, os.environ["LOADED_FIRST"])
        )
        assert list(seen.values()) == [(1, "yes")] * 2
        # The scheduler may end them, too.
        client.retire_workers(close_workers=True)
        assert started.wait(timeout=40) == 0


def test_the_command_starts_no_driver(
    scheduler: Path, environment: dict[str, str], client: Client
) -> None:
    command = dask("usmq", "worker", "--scheduler-file", str(scheduler), "--nworkers", "1")
    with process([*command, "--no-dashboard"], env=environment) as started:
        client.wait_for_workers(1, timeout=50)
        assert client.submit(lambda: usmq.arange(4).size).result(timeout=40) == 4
        loaded = Path(f"/proc/{started.pid}/maps").read_text()
    assert "libsycl" in loaded
    assert "libur_adapter" not in loaded
    assert "libintelocl" not in loaded


def test_a_signal_takes_effect_while_waiting_for_the_scheduler(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = dask("usmq", "worker", "--scheduler-file", str(tmp_path / "later.json"))
    with process([*command, "--pid-file", str(tmp_path / "pid")], env=environment) as started:
        while not (tmp_path / "pid").exists():
            assert started.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        started.terminate()
        _, words = started.communicate(timeout=20)
    assert started.returncode == 0, words


def test_a_device_invisible_to_a_worker_ends_the_command_in_time(
    scheduler: Path, environment: dict[str, str]
) -> None:
    command = dask("usmq", "worker", "--scheduler-file", str(scheduler), "--sub-devices", "4096")
    with process([*command, "--no-dashboard"], env=environment) as started:
        _, words = started.communicate(timeout=50)
    assert started.returncode == 1
    assert "Error: " in words
    assert "4096" in words.rsplit("Error: ", 1)[1]


def test_an_unresponsive_scheduler_ends_the_command_in_time(
    environment: dict[str, str],
) -> None:
    command = dask("usmq", "worker", "tcp://127.0.0.1:9", "--death-timeout", "3", "--no-dashboard")
    with process(command, env=environment) as started:
        _, words = started.communicate(timeout=50)
    assert started.returncode == 1
    assert "Error: no worker for the scheduler of tcp://127.0.0.1:9: " in words


@pytest.mark.parametrize(
    ("words", "message", "status"),
    [
        ([], "no scheduler to connect to", 2),
        (["tcp://127.0.0.1:9", "--devices", "cuda:*"], "visible devices: opencl:0", 1),
        (["tcp://127.0.0.1:9", "--devices", "!opencl:*"], "cannot be divided among workers", 2),
        (["tcp://127.0.0.1:9", "--nworkers", "-1"], "n_workers must be 0 or more, not -1", 2),
        (["tcp://127.0.0.1:9", "--nworkers", "0"], "must be 1 or more", 2),
        (["tcp://127.0.0.1:9", "--nthreads", "0"], "threads must be 1 or more, not 0", 2),
        (
            ["tcp://127.0.0.1:9", "--sub-devices", "1", "--parts", "0"],
            "parts must be 1 or more, not 0",
            2,
        ),
        (["tcp://127.0.0.1:9", "--resources", "GPU"], "are not names with numbers", 2),
        (["tcp://127.0.0.1:9", "--memory-limit", "much"], "much", 2),
        (["tcp://127.0.0.1:9", "--pool-limit", "3 apples"], "apples", 2),
        (["tcp://127.0.0.1:9", "--device-memory-limit", "3 apples"], "apples", 2),
        (["tcp://127.0.0.1:9", "--death-timeout", "soon"], "soon", 2),
        (["--scheduler-file", "/nowhere.json", "--death-timeout", "0.2"], "file /nowhere.json", 1),
        (["tcp://127.0.0.1:9", "--tls-key", "/nowhere"], "/nowhere", 2),
        (["tcp://127.0.0.1:9", "--local-directory", "/proc/nowhere"], "/proc/nowhere", 2),
        (["tcp://127.0.0.1:9", "--pid-file", "/nowhere/pid"], "cannot write /nowhere/pid: No", 2),
        (["tcp://127.0.0.1:9", "--pid-file", "/dev"], "/dev", 2),
        (["--nosuch"], "--nosuch", 2),
        (["tcp://127.0.0.1:9", "--nthreads", "two"], "two", 2),
    ],
)
def test_errors_are_one_line(
    words: list[str], message: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [_selectors.Found("opencl:0", "opencl", "cpu", "Xeon")]
    monkeypatch.setattr(_selectors, "all_devices", lambda: found)
    done = CliRunner().invoke(_dask_command.group, ["worker", *words])
    assert done.exit_code == status, done.output
    assert message in done.output
    assert "Error: " in done.output
    assert "Traceback" not in done.output


def test_without_distributed_the_command_shows_what_to_install(
    run_python: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "distributed.py").write_text("raise ImportError('nothing here')")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = run_python(None, "-m", "usmq._dask_command", "worker", check=False, PYTHONPATH=path)
    assert done.returncode == 1
    assert "pip install 'usmq[dask]'" in done.stderr
    # dask loads it at each start: it must be fast and without dependencies.
    code = "import sys, usmq._dask_command; print('distributed' in sys.modules)"
    assert run_python(code, PYTHONPATH=path).stdout == "False\n"
