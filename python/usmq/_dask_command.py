"""``dask usmq``: the plugin of dask's command line; ``usmq.dask._worker_cli`` implements it.

dask loads the commands of every package each time it starts, so this module must not import
slow or optional packages. click is always installed with dask's command line.
"""

from collections.abc import Callable
from typing import Any

import click

import usmq
from usmq._command import cannot_write, check_file, check_folder

FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)
BYTES = 'In bytes, or e.g. "2 GiB".'
FRACTION = "Or a fraction of the device's memory, e.g. 0.8."

# In the order of the help: the workers, their resources, their addresses.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (
        "--devices",
        {
            "multiple": True,
            "help": 'A value of ONEAPI_DEVICE_SELECTOR, e.g. "level_zero:0,1" or "opencl:*"; '
            "repeatable. Default: that of this process, else all GPUs, else all CPUs.",
        },
    ),
    (
        "--nworkers",
        {
            "type": int,
            "help": "Number of workers; if there are fewer devices, workers share them. "
            "Default: one per device.",
        },
    ),
    (
        "--sub-devices",
        {"type": int, "help": "Split each device into sub-devices of N compute units."},
    ),
    (
        "--parts",
        {
            "type": int,
            "default": 2,
            "help": "Number of sub-devices, and workers, per split device.",
        },
    ),
    (
        "--nthreads",
        {"type": int, "default": 1, "help": "Number of tasks that a worker runs concurrently."},
    ),
    ("--name", {"help": "Name of the worker; several workers get the suffixes -0, -1, ..."}),
    (
        "--pool-limit",
        {"help": f"Limit of a worker's memory pools on the device. {BYTES} {FRACTION}"},
    ),
    (
        "--device-memory-limit",
        {
            "default": "0.8",
            "help": "Limit of a worker's results on the device; others are spilled to the host. "
            f"{BYTES} {FRACTION} none: no limit.",
        },
    ),
    (
        "--memory-limit",
        {
            "default": "auto",
            "help": f"Limit of a worker's host memory. {BYTES} Or a fraction of all, e.g. 0.5; "
            "0: no limit.",
        },
    ),
    ("--local-directory", {"help": "Folder for the files of workers."}),
    ("--resources", {"help": 'Resources that tasks may request, e.g. "GPU=1 MEM=10e9".'}),
    (
        "--preload",
        {"multiple": True, "help": "Module or file that each worker loads first; repeatable."},
    ),
    ("--scheduler-file", {"help": "File written by dask scheduler --scheduler-file."}),
    ("--host", {"help": "Address on which workers listen."}),
    ("--interface", {"help": 'Network interface instead of the address, e.g. "ib0".'}),
    ("--protocol", {"help": 'Protocol of the workers, e.g. "tcp" or "tls".'}),
    ("--tls-ca-file", {"type": FILE, "help": "Certificates of the authorities, in PEM."}),
    ("--tls-cert", {"type": FILE, "help": "Certificate of the workers, in PEM."}),
    ("--tls-key", {"type": FILE, "help": "Private key of the certificate, in PEM."}),
    ("--dashboard-address", {"default": ":0", "help": "Address of a worker's dashboard."}),
    ("--dashboard/--no-dashboard", {"default": True, "help": "Serve the dashboard or not."}),
    (
        "--death-timeout",
        {"default": "60", "help": "Time limit for the connection to the scheduler."},
    ),
    ("--lifetime", {"help": 'End the workers after this time, e.g. "55 minutes".'}),
    (
        "--pid-file",
        {"type": click.Path(dir_okay=False), "help": "File for the id of this process."},
    ),
]


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options above to a command."""
    for name, about in reversed(OPTIONS):
        shown = about.get("default") is not None and "/" not in name
        function = click.option(name, show_default=shown, **about)(function)
    return function


@click.group(name="usmq")
def group() -> None:
    """Workers with one SYCL device each."""


@group.command(name="worker")
@click.argument("scheduler", required=False)
@with_options
def worker(**given: Any) -> None:
    """Start a worker for each device of this machine; the workers end with this command.

    Each worker sees only its own device. SCHEDULER is an address, e.g. tcp://10.0.0.1:8786; the
    default is the address from --scheduler-file or dask's configuration.
    """
    try:
        from usmq.dask._worker_cli import start
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing
    given["devices"] = list(given["devices"]) or None
    for option, check in {"pid_file": check_file, "local_directory": check_folder}.items():
        try:
            if given[option]:
                check(given[option])
        except OSError as problem:
            raise click.UsageError(cannot_write(given[option], problem)) from problem
    try:
        start(**given)
    except (TypeError, ValueError) as wrong:  # an option of this command line
        raise click.UsageError(str(wrong)) from wrong
    except (usmq.Error, OSError, RuntimeError) as failed:
        raise click.ClickException(str(failed) or type(failed).__name__) from failed


if __name__ == "__main__":
    group(prog_name="dask usmq")
