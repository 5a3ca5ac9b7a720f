"""Shared code of the tests of usmq.dask: clusters, tasks, and how to name and kill workers."""

import contextlib
import os
import signal
import sys

import pytest

distributed = pytest.importorskip("distributed")

import cloudpickle  # noqa: E402
import usmq  # noqa: E402
from usmq.dask import LocalUsmCluster  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
UNCLOSED_SOCKETS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
QUIET = {"dashboard_address": ":0"}


def send_by_value(name):
    """Send the functions of a test module to the workers, which cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[name])


send_by_value(__name__)


@contextlib.contextmanager
def clients(devices=None, **options):
    """Start workers, and yield a client; `client.cluster` is their cluster."""
    with LocalUsmCluster(devices, **QUIET, **options) as cluster, cluster.get_client() as client:
        yield client


def workers(client):
    """Return what the scheduler knows of the workers, by their names."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    return {worker["name"]: worker | {"address": address} for address, worker in known.items()}


def addresses(client):
    return [worker["address"] for worker in workers(client).values()]


def part(number, size=1000):
    return usmq.arange(number * size, (number + 1) * size, dtype="i8")


def total(*parts):
    """Return the sum of arrays, which are on the queue of the worker."""
    assert all(part.queue == usmq.current_queue() for part in parts)
    return sum(int(part.to_numpy().sum()) for part in parts)


def sum_of_part(number, size=1000):
    return sum(range(number * size, (number + 1) * size))


def die(marker, text="there"):
    """Have this process kill itself, and leave a file that says so."""
    with open(marker, "w") as file:
        file.write(text)
    os.kill(os.getpid(), signal.SIGKILL)
