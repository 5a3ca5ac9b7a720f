"""What a round, and then the cluster, must leave behind: nothing."""

import fcntl
import os
import time
from pathlib import Path

import psutil

# Seconds until released memory is gone: dask and usmq release it in other threads.
PATIENCE = 90.0


def left_in_worker(dask_worker):
    """Return what a worker still holds; called on the worker when no future exists."""
    import gc

    import usmq
    from usmq.dask._shm_transport import HERE

    gc.collect()
    HERE.sweep(idle=0)
    device = usmq.current_queue().device
    live = [f"{each['bytes']} B at {each['source']}" for each in usmq.live_allocations()]
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # The directory itself.
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return {
        "results": len(dask_worker.data),
        "bytes of device memory": usmq.memory_stats(device)["device"]["used"],
        "allocations": live,
        "holders": holders() if live else [],
        "segments": [
            f"{segment.room} B, {time.monotonic() - segment.since:.0f} s old, for {segment.reader}"
            for segment in HERE.outbox._segments
        ],
        "tasks": [f"{key} {task.state}" for key, task in dask_worker.state.tasks.items()],
        "shared segments": sum("memfd:usmq" in link for link in links),
        "mapped segments": maps.count("memfd:usmq"),
        "shared devices": int(
            "shared_with" in dask_worker.startup_information["usmq"](dask_worker)
        ),
    }


def holders():
    """Return which Python objects hold usmq's, and what holds those."""
    import gc

    import usmq

    kinds = (usmq.Array, usmq.Column, usmq.Table)
    found = []
    for holder in gc.get_objects():
        held = [type(each).__name__ for each in gc.get_referents(holder) if isinstance(each, kinds)]
        if held and not isinstance(holder, kinds):
            above = [type(each).__name__ for each in gc.get_referrers(holder)]
            found.append(f"{held} in {type(holder).__name__} {holder!r:.300} in {above}")
    return found


def until(problem, patience=PATIENCE):
    """Return "" once there is no problem, else the last one after a time."""
    end = time.monotonic() + patience
    while (found := problem()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def missing(cluster, client, workers):
    """Return the state of each nanny, unless all workers have come back."""

    def problem():
        alive = client.run(os.getpid, on_error="ignore")
        if len(alive) == workers:
            return ""
        states = [
            f"{name}: nanny {nanny.status.name}, process {nanny.pid}, "
            f"{nanny.process and nanny.process.status.name}"
            for name, nanny in cluster.workers.items()
        ]
        return f"{sorted(alive)} answer; {'; '.join(states)}"

    return until(problem)


def between_rounds(client, workers):
    """Return what the workers still hold between two rounds, or which are missing."""

    def problem():
        found = client.run(left_in_worker, on_error="return")
        if len(found) != workers:
            return f"{len(found)} workers of {workers}"
        held = [
            f"{address}: {number} {name}"
            for address, report in found.items()
            for name, number in (report.items() if isinstance(report, dict) else [])
            if number
        ]
        held += [
            f"{where}: {each!r}" for where, each in found.items() if not isinstance(each, dict)
        ]
        return "; ".join(held)

    return until(problem)


def descendants():
    """Return the processes of workers that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "spawn_main" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def shared_names():
    """Return the names of POSIX shared memory; dask's own semaphores come and go."""
    return {name for name in os.listdir("/dev/shm") if "usmq" in name}


def free_locks(folder):
    """Return the device locks in a folder that a process still holds."""
    held = []
    for path in folder.rglob("*.lock"):
        if not path.parent.name.startswith("usmq-"):
            continue
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                held.append(path.name)
    return held


def at_the_end(folder, names):
    """Return what the closed cluster has left in its folder, in /dev/shm, or as a process."""

    def problem():
        found = [f"process {process.pid}" for process in descendants()]
        found += [f"device lock {name}" for name in free_locks(folder)]
        found += [f"/dev/shm/{name}" for name in shared_names() - names]
        found += [f"spilled file {path}" for path in folder.rglob("storage/*") if path.is_file()]
        return "; ".join(found)

    return until(problem)
