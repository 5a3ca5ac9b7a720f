"""usmq beside other libraries, in every pair of conditions: `python tests/coexistence`.

    python tests/coexistence                 every pair of values, one process per case
    python tests/coexistence --full          every combination, hours; --shard 3/8 a part of them
    python tests/coexistence --list          the cases, and what is left out and why
    python tests/coexistence --only 17       one case, or several: 17,18
    python tests/coexistence --case 'peer=dpnp; next=fill'    those with these values

    python -m usmq emulate -n 2 -- python tests/coexistence       the same on emulated GPUs

A process that exceeds its time is killed; its Python stacks, the native threads with their stacks
(where gdb is installed) and what each of its threads had begun are printed. The environment of a
case is empty but for HOME, PATH and the variables of emulated GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from dimensions import NOT_TRIED, Case, every_case, missing_pairs, pairwise

HERE = Path(__file__).parent
# A driver of this machine, registered in cases in which a peer queries before usmq is imported.
DRIVER = Path(sys.prefix, "lib", "libintelocl.so")


@dataclass
class Outcome:
    """The results of the cases of one process."""

    rounds: dict[int, int] = field(default_factory=dict)
    failed: int | None = None
    report: str = ""


def environment(case, vendors):
    """Return a user's environment: HOME and PATH of this process, and its emulated GPUs."""
    names = ["HOME", "PATH"]
    if os.environ.get("USMQ_EMULATE_GPUS"):
        names += ["USMQ_EMULATE_GPUS", "OPENCL_LAYERS"]
    kept = {name: os.environ[name] for name in names if name in os.environ}
    if case["order"] == "peer asks first":
        kept["OCL_ICD_VENDORS"] = vendors
    return kept


def native_threads(pid):
    """Return the name, state and wait channel of each thread of a process."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        try:
            name = (task / "comm").read_text().strip()
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(f"    {task.name} {name:<16} {state} {(task / 'wchan').read_text()}")
        except OSError:  # it has ended meanwhile
            continue
    return "\n".join(lines)


def native_stacks(pid):
    """Return the stack of each native thread of a process, or why there is none."""
    if shutil.which("gdb") is None:
        return "    not shown: gdb is not installed"
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 80"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "    not shown: gdb took more than 120 s"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("Thread ", "#"))]
    return "\n".join(f"    {line}" for line in lines or done.stderr.splitlines()[-3:])


def run_process(cases, seconds, limit, folder):
    """Run cases in one process until all are done or one fails."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        progress, out, err = (Path(place, name) for name in ("progress", "out", "err"))
        given = json.dumps(
            {"cases": cases, "seconds": seconds, "limit": limit, "progress": str(progress)}
        )
        command = [sys.executable, "-W", "ignore", str(HERE / "case.py"), given]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                env=environment(cases[0], str(folder / "vendors")),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=place,
            )
            status, threads = wait(process, out, limit)
        outcome = Outcome()
        for line in out.read_text().splitlines():
            done = json.loads(line)
            outcome.rounds[done["case"]] = done["rounds"]
        errors = err.read_text(errors="replace")
        if cases[0]["order"] == "peer asks first":
            # usmq says that its layer is off, as the loader has read its list before.
            lines = errors.splitlines(keepends=True)
            errors = "".join(
                line for line in lines if not line.startswith("usmq: waits of several")
            )
        if status == 0 and not errors and len(outcome.rounds) == len(cases):
            return outcome
        # A case that ends by exiting the process has finished its rounds before.
        outcome.failed = min(len(outcome.rounds), len(cases) - 1)
        how = f"exceeded {limit:.0f} s" if status is None else f"exit status {status}"
        last = progress.read_text().splitlines() if progress.exists() else []
        outcome.report = "\n".join(
            [f"  {how}. Last begun:", *(f"    {line.strip()}" for line in last if line.strip())]
            + (["  Native threads:", threads] if threads else [])
            + ["  stderr:", *(f"    {line}" for line in errors.splitlines()[-60:])]
        )
        return outcome


def wait(process, out, limit):
    """Wait for a process while it makes progress; else kill it and report its state."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        time.sleep(0.02)
        if (now := out.stat().st_size) != size:
            size, since = now, time.monotonic()
        # Its own watchdog prints the stacks at the limit.
        if time.monotonic() - since > limit + 1:
            threads = native_threads(process.pid) + "\n" + native_stacks(process.pid)
            process.kill()
            process.wait()
            return None, threads
    return process.returncode, ""


def batches(cases):
    """Return cases in groups that may share a process; cases that exit it stay alone."""
    groups = {}
    for number, case in enumerate(cases):
        alone = str(number) if case["next"] == "exit" else ""
        key = ("order", "peer", "threads", "device", "context", "protocol")
        groups.setdefault((*(case[name] for name in key), alone), []).append(case)
    return list(groups.values())


class Run:
    """A pool of concurrent processes, and their results."""

    def __init__(self, given, total, folder):
        self.given, self.total, self.folder = given, total, folder
        self.done, self.rounds, self.failed = 0, 0, list[Case]()
        self.lock, self.begun = threading.Lock(), time.monotonic()
        self.shown = self.begun

    def __call__(self, cases):
        """Run a batch; after a case that fails, the others in a new process."""
        while cases and not self.stopped():
            outcome = run_process(cases, self.given.seconds, self.given.limit, self.folder)
            count = len(cases) if outcome.failed is None else outcome.failed + 1
            with self.lock:
                self.done += count
                self.rounds += sum(outcome.rounds.values())
                if outcome.failed is not None:
                    self.failed.append(cases[outcome.failed])
                    print(f"FAILED: {text(cases[outcome.failed])}\n{outcome.report}", flush=True)
                if self.given.verbose:
                    verdict = "ok" if outcome.failed is None else "FAILED"
                    print(f"  {verdict} {text(cases[count - 1])}", flush=True)
                self.show()
            cases = cases[count:]

    def stopped(self):
        """Return whether enough cases failed to stop."""
        return len(self.failed) >= self.given.failures

    def show(self):
        """Print the progress every ten seconds."""
        now = time.monotonic()
        if now - self.shown < 10:
            return
        self.shown = now
        left = (now - self.begun) / self.done * (self.total - self.done) / 60
        print(
            f"  {self.done:,} of {self.total:,} cases, {len(self.failed)} failed, "
            f"{left:.0f} min left",
            flush=True,
        )


def text(case):
    """Return a case as `--case` takes it."""
    return "; ".join(f"{name}={value}" for name, value in case.items())


def wanted(cases, given):
    """Return the cases selected by the options."""
    if given.only:
        return [cases[int(number)] for number in given.only.split(",")]
    if given.case:
        parts = (part.split("=", 1) for part in given.case.split(";"))
        asked = {name.strip(): value.strip() for name, value in parts}
        return [case for case in cases if asked.items() <= case.items()]
    return cases


def part(groups, given):
    """Return the groups of the selected shard. A process costs as much as a case."""
    if given.shard:
        number, count = map(int, given.shard.split("/"))
        return groups[number - 1 :: count]
    return groups


def show_list(cases):
    """Print the cases, and the excluded combinations with the reason."""
    for number, case in enumerate(cases):
        print(f"{number:5} {text(case)}")
    print("Pairs that no case has:")
    for reason, group in itertools.groupby(missing_pairs(), key=lambda found: found[1]):
        pairs = ", ".join(
            " + ".join(f"{name}={value}" for name, value in pair) for pair, _ in group
        )
        print(f"  {pairs}: {reason}")
    print_not_tried()


def print_not_tried():
    """Print the excluded cases by name."""
    for reason in NOT_TRIED:
        print(f"  left out: {reason}")


def main():
    """Run the selected cases."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("--full", action="store_true", help="every combination")
    about.add_argument("--list", action="store_true")
    about.add_argument("--only", help="numbers of --list")
    about.add_argument("--case", help="values of dimensions, with semicolons between")
    about.add_argument("--shard", help="NUMBER/COUNT: a part of the cases")
    about.add_argument("--seconds", type=float, help="of rounds per case (2; with --full 0.1)")
    about.add_argument("--limit", type=float, default=30, help="seconds without an end of a case")
    about.add_argument("--jobs", type=int, default=2, help="processes at a time")
    about.add_argument("--failures", type=int, default=10**9, help="stop after so many")
    about.add_argument("--verbose", action="store_true", help="a line for each process")
    given = about.parse_args()
    if given.seconds is None:
        given.seconds = 0.1 if given.full else 2.0
    every = list(every_case()) if given.full or given.case else pairwise()
    if given.list:
        show_list(every)
        return 0
    cases = wanted(every, given)
    groups = batches(cases) if given.full or given.case else [[case] for case in cases]
    groups = part(groups, given)
    cases = [case for group in groups for case in group]
    gpus = os.environ.get("USMQ_EMULATE_GPUS")
    where = f", {gpus} emulated GPUs" if gpus else ""
    print(f"coexistence: {len(cases):,} cases in {len(groups):,} processes{where}", flush=True)
    print_not_tried()
    with tempfile.TemporaryDirectory(prefix="usmq-coexistence-") as folder:
        (vendors := Path(folder, "vendors")).mkdir()
        (vendors / "intel-cpu.icd").write_text(f"{DRIVER}\n")
        run = Run(given, len(cases), Path(folder))
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(run, groups))
    minutes = (time.monotonic() - run.begun) / 60
    verdict = f"{len(run.failed)} FAILED" if run.failed else "all well"
    print(f"coexistence: {run.done:,} cases, {run.rounds:,} rounds, {minutes:.1f} min: {verdict}")
    for case in run.failed:
        print(f"  FAILED: {text(case)}")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
