"""Implements `dask usmq worker`: a nanny and a worker per device, until a signal or their end."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Nanny, Worker
from distributed.diagnostics.plugin import WorkerPlugin

from usmq.dask._assignment import Assignment, causes, reason

logger = logging.getLogger("usmq.dask")

# Seconds before a worker is killed. A worker that runs a kernel may not end sooner.
PATIENCE = 10.0


def start(
    *,
    scheduler: str | None,
    scheduler_file: str | None,
    devices: Iterable[str] | None,
    nworkers: int | None,
    sub_devices: int | None,
    parts: int,
    pool_limit: str | None,
    device_memory_limit: str | None,
    nthreads: int,
    memory_limit: str,
    name: str | None,
    resources: str | None,
    tls_ca_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    pid_file: str | None,
    **others: Any,
) -> None:
    """Run workers until they end or this process gets a signal; ``others`` are Nanny options.

    Raises
    ------
    DeviceNotFoundError
        A requested device does not exist, or a worker does not see it.
    ValueError
        No scheduler is named, or an option is invalid.
    RuntimeError
        The scheduler does not answer in time, or a worker does not start.
    """
    if not (scheduler or scheduler_file or dask.config.get("scheduler-address", None)):
        raise ValueError(
            "no scheduler to connect to: give its address, as in dask usmq worker "
            "tcp://10.0.0.1:8786, or --scheduler-file"
        )
    for option in "death_timeout", "lifetime":
        if others[option] is not None:
            others[option] = seconds(option, others[option])
    assignment = Assignment(
        [term for value in devices for term in value.split(";")] if devices else None,
        nworkers,
        sub_devices,
        parts,
        pool_limit,
        device_memory_limit,
        nthreads,
        memory_limit,
    )
    if not assignment.count:
        raise ValueError("--nworkers must be 1 or more")
    tls = {"tls_ca_file": tls_ca_file, "tls_worker_cert": tls_cert, "tls_worker_key": tls_key}
    others |= {
        "scheduler_file": scheduler_file,
        "nthreads": nthreads,
        "memory_limit": assignment.memory_limit,
        "resources": quantities(resources),
        "security": {name: file for name, file in tls.items() if file},
        "preload": list(others["preload"]) or None,
    }
    if assignment.data is not None:
        others["data"] = assignment.data
    each = [
        others
        | {
            "name": name if name is None or assignment.count == 1 else f"{name}-{turn}",
            "env": assignment.environment(turn),
            "plugins": (assignment.plugin(turn), Deaf()),
        }
        for turn in range(assignment.count)
    ]
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()), encoding="utf-8")
    try:
        asyncio.run(serve(scheduler, each))
    finally:
        if pid_file:
            Path(pid_file).unlink(missing_ok=True)


class Deaf(WorkerPlugin):
    """Ignore Ctrl-C, which a terminal also sends to the workers: the nanny ends them."""

    name = "usmq-deaf"

    def setup(self, worker: Worker) -> None:
        """Ignore SIGINT, if this is the main thread of the worker's process."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def seconds(option: str, text: str) -> float:
    """Return ``"5 minutes"`` as seconds.

    Raises
    ------
    ValueError
        The text has another form.
    """
    try:
        return float(parse_timedelta(text))
    except (KeyError, ValueError):
        shown = option.replace("_", "-")
        raise ValueError(f"--{shown} {text!r} is not a time; use e.g. 60 or '5 minutes'") from None


def quantities(text: str | None) -> dict[str, float] | None:
    """Return ``"GPU=1 MEM=10e9"`` as a dict.

    Raises
    ------
    ValueError
        The text has another form.
    """
    if not text:
        return None
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    try:
        return {name: float(number) for name, _, number in pairs}
    except ValueError:
        raise ValueError(f"resources {text!r} are not names with numbers; use e.g. GPU=1") from None


async def serve(scheduler: str | None, each: list[dict[str, Any]]) -> None:
    """Start the nannies, and wait for a signal or for all of them to end."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(number: signal.Signals) -> None:
        # A second signal ends this process immediately; the workers detect that and end, too.
        loop.remove_signal_handler(number)
        told.set()

    for number in signal.SIGINT, signal.SIGTERM:
        loop.add_signal_handler(number, tell, number)
    nannies: list[Nanny] = []
    stop = asyncio.create_task(told.wait())
    work = asyncio.create_task(run(scheduler, each, nannies))
    try:
        await asyncio.wait([stop, work], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    except Exception as failed:
        said = reason(failed)
        if said is not failed:
            # Not from `failed`, whose causes include it.
            raise said from said.__cause__
        texts = dict.fromkeys(str(cause) for cause in causes(failed))
        words = ": ".join(filter(None, texts)) or f"{type(failed).__name__}: is it running?"
        where = scheduler or each[0]["scheduler_file"] or dask.config.get("scheduler-address")
        raise RuntimeError(f"no worker for the scheduler of {where}: {words}") from failed
    finally:
        await asyncio.gather(
            *(nanny.close(timeout=PATIENCE, reason="dask usmq worker ends") for nanny in nannies),
            return_exceptions=True,
        )
        for task in stop, work:
            task.cancel()
        await asyncio.gather(stop, work, return_exceptions=True)


async def run(scheduler: str | None, each: list[dict[str, Any]], nannies: list[Nanny]) -> None:
    """Start all nannies, add them to the list, and wait until the last one has ended."""
    file, patience = each[0]["scheduler_file"], each[0]["death_timeout"]
    begin = time.monotonic()
    # A nanny would also wait for the file, but would ignore signals.
    while file is not None and not Path(file).exists():
        if time.monotonic() - begin > patience:
            raise TimeoutError(f"no scheduler file {file} after {patience:.0f} s")
        await asyncio.sleep(0.1)
    nannies += [Nanny(scheduler, **options) for options in each]
    await asyncio.gather(*nannies)
    await asyncio.gather(*(nanny.finished() for nanny in nannies))
