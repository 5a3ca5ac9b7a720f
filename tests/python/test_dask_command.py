"""``dask usmq worker``: real schedulers and workers, started and ended as a shell does it."""

import importlib.metadata
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import usmq
from dask_workers import UNCLOSED_SOCKETS, send_by_value, workers
from distributed import Client
from usmq import _dask_command
from usmq.dask import _selectors

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

ROOT = Path(__file__).parents[2]
POINT = ("usmq", "usmq._dask_command:group")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return an environment in which dask finds the command, by written metadata if necessary."""
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [(name, value)] = written["project"]["entry-points"]["dask_cli"].items()
    assert (name, value) == POINT
    here = dict(os.environ)
    points = importlib.metadata.entry_points(group="dask_cli")
    if POINT not in [(point.name, point.value) for point in points]:
        folder = tmp_path_factory.mktemp("installed")
        info = folder / f"usmq-{usmq.__version__}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: usmq\nVersion: {usmq.__version__}\n")
        (info / "entry_points.txt").write_text(f"[dask_cli]\n{name} = {value}\n")
        here["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), here.get("PYTHONPATH")]))
    return here


@pytest.fixture(scope="module")
def scheduler(environment, tmp_path_factory):
    """Return the file of a real one."""
    file = str(tmp_path_factory.mktemp("scheduler") / "scheduler.json")
    command = [sys.executable, "-m", "dask", "scheduler", "--port", "0", "--no-dashboard"]
    command += ["--scheduler-file", file]
    # It writes to the log, which is not read here.
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as started:
        try:
            with Client(scheduler_file=file, timeout=40):
                pass
            yield file
        finally:
            started.kill()


@pytest.fixture
def client(scheduler):
    with Client(scheduler_file=scheduler, timeout=40) as client:
        yield client
        client.retire_workers()


@pytest.fixture
def start(environment):
    """Return a call that starts the command in its own process group, as a shell does.

    The group is killed at the end.
    """

    @contextmanager
    def start(*words):
        command = [sys.executable, "-m", "dask", "usmq", "worker", "--no-dashboard", *words]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
        ) as started:
            try:
                yield started
            finally:
                if started.poll() is None:
                    os.killpg(started.pid, signal.SIGKILL)

    return start


def family_of(started):
    return psutil.Process(started.pid).children(recursive=True)


def where():
    queue = usmq.current_queue()
    limit = usmq.memory_stats(queue.device)["device"]["limit"]
    return queue.device.driver_version, len(usmq.devices()), limit


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)]
)
def test_each_device_gets_a_worker_and_a_signal_ends_all(
    number, group, scheduler, start, client, two_devices, tmp_path
):
    words = ["--scheduler-file", scheduler, "--name", "here", "--pool-limit", "64 MiB"]
    words += ["--device-memory-limit", "32 MiB", "--memory-limit", "1 GiB", "--nthreads", "2"]
    words += ["--resources", "GPU=1", "--local-directory", str(tmp_path)]
    with start(*words, "--pid-file", str(tmp_path / "pid")) as started:
        client.wait_for_workers(2, timeout=50)
        assert (tmp_path / "pid").read_text() == str(started.pid)
        about = workers(client)
        assert set(about) == {"here-0", "here-1"}
        for worker in about.values():
            assert (worker["memory_limit"], worker["nthreads"]) == (2**30, 2)
            assert worker["resources"] == {"GPU": 1}
            assert worker["local_directory"].startswith(str(tmp_path))
        drivers = {device.driver_version for device in two_devices}
        seen = set(client.run(where).values())
        assert seen == {(driver, 1, 64 << 20) for driver in drivers}
        spill = client.run(lambda dask_worker: dask_worker.data.device_limit)
        assert set(spill.values()) == {32 << 20}
        # Ctrl-C in a shell reaches the workers, too; a batch system tells the parent alone.
        family = family_of(started)
        assert len(family) >= 2
        (os.killpg if group else os.kill)(started.pid, number)
        _, words = started.communicate(timeout=30)
        assert started.returncode == 0, words
        assert "Traceback" not in words
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not (tmp_path / "pid").exists()
    assert not list(tmp_path.glob("**/worker-*"))


def test_the_command_starts_no_driver_and_its_workers_end_after_it_is_killed(
    scheduler, start, client
):
    with start("--scheduler-file", scheduler, "--nworkers", "1") as started:
        client.wait_for_workers(1, timeout=50)
        assert client.submit(lambda: usmq.arange(4).size).result(timeout=40) == 4
        loaded = Path(f"/proc/{started.pid}/maps").read_text()
        assert "libsycl" in loaded
        assert "libur_adapter" not in loaded
        assert "libintelocl" not in loaded
        family = family_of(started)
        started.kill()
        _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


def test_sub_devices_and_preloads(start, client, tmp_path):
    preload = tmp_path / "loaded_first.py"
    preload.write_text("import os\nos.environ['LOADED_FIRST'] = 'yes'\n")
    # By address instead of a scheduler file.
    words = [client.scheduler.address, "--devices", "opencl:0", "--sub-devices", "1"]
    with start(*words, "--preload", str(preload), "--host", "127.0.0.1") as started:
        client.wait_for_workers(2, timeout=50)
        assert all(worker["host"] == "127.0.0.1" for worker in workers(client).values())
        seen = client.run(
            lambda: (usmq.current_queue().device.max_compute_units, os.environ["LOADED_FIRST"])
        )
        assert list(seen.values()) == [(1, "yes")] * 2
        # The scheduler may end them, too.
        client.retire_workers(close_workers=True)
        assert started.wait(timeout=40) == 0


def test_a_signal_takes_effect_while_waiting_for_the_scheduler(start, tmp_path):
    pid = tmp_path / "pid"
    words = ["--scheduler-file", str(tmp_path / "later.json"), "--pid-file", str(pid)]
    with start(*words) as started:
        while not pid.exists():
            assert started.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        started.terminate()
        _, words = started.communicate(timeout=20)
    assert started.returncode == 0, words


@pytest.mark.parametrize("missing", ["device", "scheduler"])
def test_a_missing_device_or_scheduler_ends_the_command_in_time(missing, scheduler, start):
    words, text = {
        "device": (["--scheduler-file", scheduler, "--sub-devices", "4096"], "4096"),
        "scheduler": (
            ["tcp://127.0.0.1:9", "--death-timeout", "3"],
            "no worker for the scheduler of tcp://127.0.0.1:9: ",
        ),
    }[missing]
    with start(*words) as started:
        _, words = started.communicate(timeout=50)
    assert started.returncode == 1
    assert "Error: " in words
    assert text in words.rsplit("Error: ", 1)[1]


@pytest.mark.parametrize(
    ("words", "message", "status"),
    [
        ("", "no scheduler to connect to", 2),
        ("tcp://127.0.0.1:9 --devices cuda:*", "visible devices: opencl:0", 1),
        ("tcp://127.0.0.1:9 --devices !opencl:*", "cannot be divided among workers", 2),
        ("tcp://127.0.0.1:9 --nworkers -1", "n_workers must be 0 or more, not -1", 2),
        ("tcp://127.0.0.1:9 --nworkers 0", "must be 1 or more", 2),
        ("tcp://127.0.0.1:9 --nthreads 0", "threads must be 1 or more, not 0", 2),
        ("tcp://127.0.0.1:9 --sub-devices 1 --parts 0", "parts must be 1 or more, not 0", 2),
        ("tcp://127.0.0.1:9 --resources GPU", "are not names with numbers", 2),
        ("tcp://127.0.0.1:9 --memory-limit much", "much", 2),
        ("tcp://127.0.0.1:9 --pool-limit '3 apples'", "apples", 2),
        ("tcp://127.0.0.1:9 --device-memory-limit '3 apples'", "apples", 2),
        ("tcp://127.0.0.1:9 --death-timeout soon", "soon", 2),
        ("--scheduler-file /nowhere.json --death-timeout 0.2", "file /nowhere.json", 1),
        ("tcp://127.0.0.1:9 --tls-key /nowhere", "/nowhere", 2),
        ("tcp://127.0.0.1:9 --local-directory /proc/nowhere", "/proc/nowhere", 2),
        ("tcp://127.0.0.1:9 --pid-file /nowhere/pid", "cannot write /nowhere/pid: No", 2),
        ("tcp://127.0.0.1:9 --pid-file /dev", "/dev", 2),
        ("--nosuch", "--nosuch", 2),
        ("tcp://127.0.0.1:9 --nthreads two", "two", 2),
    ],
)
def test_errors_are_one_line(words, message, status, monkeypatch):
    from click.testing import CliRunner

    found = [_selectors.Found("opencl:0", "opencl", "cpu", "Xeon")]
    monkeypatch.setattr(_selectors, "all_devices", lambda: found)
    done = CliRunner().invoke(_dask_command.group, ["worker", *shlex.split(words)])
    assert done.exit_code == status, done.output
    assert message in done.output
    assert "Error: " in done.output
    assert "Traceback" not in done.output


def test_without_distributed_the_command_shows_what_to_install(run_python, tmp_path):
    (tmp_path / "distributed.py").write_text("raise ImportError('nothing here')")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = run_python(None, "-m", "usmq._dask_command", "worker", check=False, PYTHONPATH=path)
    assert done.returncode == 1
    assert "pip install 'usmq[dask]'" in done.stderr
    # dask loads it at each start: it must be fast and without dependencies.
    code = "import sys, usmq._dask_command; print('distributed' in sys.modules)"
    assert run_python(code, PYTHONPATH=path).stdout == "False\n"
