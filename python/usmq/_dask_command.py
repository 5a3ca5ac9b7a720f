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
BYTES = 'Bytes, also as "2 GiB".'

# In the order of the help: the workers, their resources, their addresses.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (
        "--devices",
        {
            "multiple": True,
            "help": 'A value of ONEAPI_DEVICE_SELECTOR, as "level_zero:0,1" or "opencl:*"; may be '
            "given several times. Default: this process's own, else all GPUs, else all CPUs.",
        },
    ),
    (
        "--nworkers",
        {"type": int, "help": "Workers; more than devices share them. Default: one each"},
    ),
    ("--sub-devices", {"type": int, "help": "Divide each device into parts of N compute units."}),
    ("--parts", {"type": int, "default": 2, "help": "Workers per device that is divided."}),
    ("--nthreads", {"type": int, "default": 1, "help": "Tasks that a worker runs at once."}),
    ("--name", {"help": "The workers' name; -0, -1, ... is appended when there are several."}),
    ("--pool-limit", {"help": f"Most device memory of a worker's pools. {BYTES}"}),
    (
        "--device-memory-limit",
        {"help": f"Most device memory of a worker's results; the rest waits on the host. {BYTES}"},
    ),
    (
        "--memory-limit",
        {
            "default": "auto",
            "help": f"Host memory of a worker. {BYTES} Or a part of all, as 0.5; 0: no limit.",
        },
    ),
    ("--local-directory", {"help": "Where workers put files."}),
    ("--resources", {"help": 'What tasks may ask for, as "GPU=1 MEM=10e9".'}),
    ("--preload", {"multiple": True, "help": "A module or file that each worker loads first."}),
    ("--scheduler-file", {"help": "The file that dask scheduler --scheduler-file has written."}),
    ("--host", {"help": "The address that workers serve at."}),
    ("--interface", {"help": 'Or the network interface, as "ib0".'}),
    ("--protocol", {"help": 'How workers are reached, as "tcp" or "tls".'}),
    ("--tls-ca-file", {"type": FILE, "help": "Certificates of authorities, in PEM."}),
    ("--tls-cert", {"type": FILE, "help": "The workers' certificate, in PEM."}),
    ("--tls-key", {"type": FILE, "help": "Its private key, in PEM."}),
    ("--dashboard-address", {"default": ":0", "help": "Where a worker shows its dashboard."}),
    ("--dashboard/--no-dashboard", {"default": True, "help": "Show it at all."}),
    (
        "--death-timeout",
        {"default": "60", "help": "How long to wait for the scheduler before giving up."},
    ),
    ("--lifetime", {"help": 'End the workers after this time, as "55 minutes".'}),
    ("--pid-file", {"type": click.Path(dir_okay=False), "help": "A file for this process's id."}),
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
    """Start a worker for each device of this machine, and end them with it.

    Each sees its own device only. SCHEDULER is an address, as tcp://10.0.0.1:8786; without it,
    --scheduler-file or dask's configuration says where the scheduler is.
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
