"""Disturbs a pipeline of usmq.dask in every round; results must be exact and nothing may leak.

    .venv/bin/python tests/chaos [--rounds 100] [--seed 1] [--workers 4]

Four workers run the flights, group-bys, sums of arrays from two workers, and more arrays than the
device memory limit allows, each on its own emulated GPU. Meanwhile workers are killed, paused,
restarted and run out of host memory, and messages are delayed. The scheduler, the nannies and
usmq.dask are the real ones. A round that takes too long ends the program with the stacks of all
processes. The same seed repeats the faults and their times; the operating system decides what they
interrupt.
"""

import argparse
import contextlib
import faulthandler
import logging
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

# Before the import of usmq, which adds the emulator to the environment of all workers.
os.environ.setdefault("USMQ_EMULATE_GPUS", "4")
os.environ.setdefault("USMQ_EMULATE_GPU_MEMORY", "256MiB")

import dask
import slow

SETTINGS = {
    # The pipeline, not dask, decides how many deaths of its worker a task survives.
    "distributed.scheduler.allowed-failures": 50,
    "distributed.scheduler.worker-ttl": "5 s",
    "distributed.deploy.lost-worker-timeout": "120 s",
    "distributed.worker.profile.enabled": False,
}
# Bytes of results on a device, of pools on a device, and of host memory of a worker.
LIMITS = {"device_memory_limit": "5 MiB", "pool_limit": "192 MiB", "memory_limit": "1 GiB"}


class Watchdog:
    """Ends the program if a step takes longer than its limit."""

    def __init__(self, seconds):
        self._seconds, self._step = seconds, "start"
        self._since = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, step):
        """Name the step that begins now."""
        self._step, self._since = step, time.monotonic()

    def _watch(self):
        import leaks

        while time.monotonic() - self._since < self._seconds:
            time.sleep(1)
        print(f"chaos: {self._step} took longer than {self._seconds:.0f} s", file=sys.stderr)
        workers = leaks.descendants()
        for process in workers:
            with contextlib.suppress(Exception):
                process.send_signal(signal.SIGUSR1)  # `slow` registers it: the worker's stacks.
        time.sleep(2)
        faulthandler.dump_traceback(all_threads=True)
        for process in workers:
            with contextlib.suppress(Exception):
                process.kill()
        os._exit(3)


class Chaos:
    """A cluster, its pipeline, and the faults of its rounds."""

    def __init__(self, cluster, client, given, delay):
        from pipeline import Pipeline

        self.cluster, self.client, self.given, self.delay = cluster, client, given, delay
        self.watchdog = Watchdog(given.patience)
        self.pipeline = Pipeline(parts=8)
        # Rounds without faults begin: the median of all but the first is the usual time.
        self.calm_rounds = 3 if given.rounds >= 10 else 2
        self.calm = []
        self.disturbed = []
        self.counts = Counter()

    def run(self):
        """Run all rounds; return the first problem, or ""."""
        import leaks

        first = self.given.first
        numbers = [*range(-self.calm_rounds, 0), *range(first, first + self.given.rounds)]
        for number in numbers:
            name = f"round {number}" if number >= 0 else "calm round"
            self.watchdog.begin(name)
            start = time.monotonic()
            text = self.round(number)
            took = time.monotonic() - start
            (self.disturbed if number >= 0 else self.calm).append(took)
            print(f"{name}: exact in {took:.1f} s; {text}", flush=True)
            self.watchdog.begin(f"{name}, release")
            if problem := leaks.missing(self.cluster, self.client, self.given.workers):
                return f"{name} has lost workers: {problem}"
            if problem := leaks.between_rounds(self.client, self.given.workers):
                return f"{name} has left: {problem}"
        return ""

    def round(self, number):
        """Run the pipeline with the faults of this round; return what was disturbed."""
        from faults import Fault

        if number < 0:
            self.delay.set(0, 0)
            self.pipeline.run(self.client)
            return "no fault"
        chance = random.Random(f"{self.given.seed} {number}")
        horizon = statistics.median(self.calm[1:])
        faults = [
            Fault(chance, self.given.workers, horizon) for _ in range(chance.choice([1, 1, 2, 3]))
        ]
        probability, seconds = chance.choice([(0.0, 0.0), (0.05, 0.1), (0.02, 0.5), (0.3, 0.02)])
        ended, done = threading.Event(), Counter[str]()
        words = (self.cluster, self.client, ended, done)
        threads = [threading.Thread(target=fault.run, args=words) for fault in faults]
        self.delay.set(probability, seconds)
        for thread in threads:
            thread.start()
        try:
            self.pipeline.run(self.client)
        finally:
            ended.set()
            self.delay.set(0, 0)
            for thread in threads:
                thread.join()
        self.counts.update(done)
        self.counts["slow messages"] += probability > 0
        slowly = f"; {probability:.0%} of the messages slower" if probability else ""
        return ", ".join(map(str, faults)) + slowly

    def report(self):
        """Print the faults and the time that they have cost."""
        if not self.disturbed:
            return
        usual = statistics.median(self.calm[1:])
        lost = [took - usual for took in self.disturbed]
        print(f"faults: {', '.join(f'{number} {kind}' for kind, number in self.counts.items())}")
        print(
            f"{len(lost)} disturbed rounds: {usual:.2f} s without faults; lost {sum(lost):.0f} s "
            f"in all, median {statistics.median(lost):.1f} s, most {max(lost):.1f} s"
        )


def run(given, folder):
    """Run all rounds in a cluster with files in this folder; return the first problem, or ""."""
    import leaks
    from usmq.dask import LocalUsmCluster

    names = leaks.shared_names()
    delay = slow.Delay(folder / "delay")
    slow.install()  # The scheduler and the nannies are in this process.
    with (
        dask.config.set(SETTINGS),
        LocalUsmCluster(
            ["opencl:gpu"],
            n_workers=given.workers,
            dashboard_address=":0",
            local_directory=str(folder),
            preload=[slow.__file__],
            silence_logs=None if given.verbose else logging.CRITICAL,
            **LIMITS,
        ) as cluster,
        cluster.get_client() as client,
    ):
        chaos = Chaos(cluster, client, given, delay)
        problem = chaos.run()
        chaos.report()
        chaos.watchdog.begin("the end of the cluster")
        cluster.close()
        return problem or leaks.at_the_end(folder, names)


def main():
    """Run the rounds; the exit status says whether all were exact and nothing was left."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("--rounds", type=int, default=100)
    about.add_argument("--seed", type=int, default=1)
    about.add_argument("--first", type=int, default=0, help="number of the first round")
    about.add_argument("--workers", type=int, default=4, help="at most USMQ_EMULATE_GPUS, 4")
    about.add_argument("--patience", type=float, default=240, help="seconds for one round")
    about.add_argument("--verbose", action="store_true", help="dask's messages about lost workers")
    given = about.parse_args()
    if given.rounds < 1 or not 1 <= given.workers <= int(os.environ["USMQ_EMULATE_GPUS"]):
        about.error("--rounds must be 1 or more, and --workers 1 to USMQ_EMULATE_GPUS")
    # Locks and files of this run only.
    folder = Path(tempfile.mkdtemp(prefix="usmq-chaos-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    begin = time.monotonic()
    try:
        problem = run(given, folder)
    except AssertionError as wrong:
        problem = f"a wrong result: {wrong}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = f"seed {given.seed}, {given.rounds} rounds, {time.monotonic() - begin:.0f} s"
    print(f"chaos: FAILED: {problem}; {took}" if problem else f"chaos: nothing lost, {took}")
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main())
