"""Arguments of dask's tasks that a worker or the scheduler cannot restore: errors of the task."""

import os

import pytest
import usmq
from dask_workers import UNCLOSED_SOCKETS, clients, send_by_value

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

POOL = 1 << 20


class Box:
    """An object of a user."""

    def __init__(self, held):
        self.held = held


@pytest.fixture(scope="module")
def client():
    with clients(n_workers=2, pool_limit=POOL) as client:
        yield client


@pytest.fixture
def there(two_devices):
    """Return a device that exists in this process, and in no worker under this name."""
    return two_devices[1]


FORMS = {
    "plain": lambda given: given,
    "list": lambda given: [1, given],
    "dict": lambda given: {"a": (given,)},
    "attribute": Box,
    "nested attribute": lambda given: [Box({"a": Box(given)})],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["device", "queue"])
def test_a_device_that_a_worker_does_not_see_is_an_error_of_the_task(client, there, kind, form):
    async def coroutine(x):
        return x

    before = client.run(os.getpid)
    held = client.scatter({"kept": 42})["kept"]
    argument = FORMS[form](there if kind == "device" else usmq.Queue(there))
    text = f'cannot read an argument of task .*no device matches "{there.filter_string}"'
    # No function but the coroutine uses it: the task fails all the same.
    by_position = client.submit(lambda x: 1, argument, pure=False)
    by_name = client.submit(lambda x: 1, x=argument, pure=False)
    beside = client.submit(lambda held, x: held, held, argument, pure=False)
    for failed in by_position, by_name, beside, client.submit(coroutine, argument, pure=False):
        with pytest.raises(usmq.DeviceNotFoundError, match=text):
            failed.result(timeout=40)
    assert client.submit(lambda x: x, held, pure=False).result(timeout=40) == 42
    assert client.run(os.getpid) == before


def test_an_array_that_does_not_fit_is_an_error_of_the_task(client):
    before = client.run(os.getpid)
    large = usmq.zeros(2 * POOL, "u1")
    for task in (
        client.submit(lambda x: 1, large, pure=False),
        client.submit(lambda x: 1, [Box(large)], pure=False),
        client.submit(lambda: usmq.zeros(2 * POOL, "u1").nbytes, pure=False),
    ):
        with pytest.raises(usmq.AllocationError, match=r"limit 1\.0 MiB"):
            task.result(timeout=40)
    assert client.run(os.getpid) == before


def test_a_device_and_a_queue_are_those_of_this_name_on_the_worker(client):
    own = client.submit(lambda: usmq.current_queue().device.filter_string).result(timeout=40)
    device = usmq.Device(own)

    def is_own(device, queue):
        own = usmq.current_queue().device
        return device == own and queue.device == own

    assert client.submit(is_own, device, usmq.Queue(device)).result(timeout=40)


def test_an_unread_argument_is_read_by_the_worker_that_can(client):
    array = usmq.arange(10)
    found = client.submit(lambda x: int(x.held.to_numpy().sum()), Box(array), pure=False)
    assert found.result(timeout=40) == 45


WITHOUT_DEVICE = """
import os, subprocess, sys, tempfile, time
import usmq
from distributed import Client

class Box:
    def __init__(self, held):
        self.held = held

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    file = f"{folder}/scheduler.json"
    options = ["--scheduler-file", file, "--dashboard-address", ":0"]
    hidden = os.environ | {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *words, *options],
            env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for words, env in (
            (["scheduler", "--port", "0"], hidden),
            (["usmq", "worker", "--nworkers", "1"], os.environ),
        )
    ]
    try:
        while not os.path.exists(file):
            time.sleep(0.1)
        with Client(scheduler_file=file) as client:
            array = usmq.arange(300_000)
            column = usmq.Column(array)
            table = usmq.Table({"a": array})
            queue = usmq.current_queue()
            for given in array, column, table, queue, queue.device:
                for argument in given, [given], Box(given):
                    task = client.submit(lambda x: type(getattr(x, "held", x)).__name__, argument)
                    print(task.result(timeout=40), end=" ")
            total = client.submit(lambda x: int(x[0].held.to_numpy().sum()), [Box(array)])
            print(total.result(timeout=40))
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)
"""


def test_arguments_pass_through_a_scheduler_without_a_device(run_python, tmp_path):
    script = tmp_path / "client.py"
    script.write_text(WITHOUT_DEVICE)
    done = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    words = [f"{name} list {name}" for name in ("Array", "Column", "Table", "Queue", "Device")]
    assert done.stdout.split() == [*" ".join(words).split(), str(sum(range(300_000)))]
