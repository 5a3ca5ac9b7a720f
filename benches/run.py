"""Measure usmq against plain C++, dpctl and dpnp, side by side; write `target/bench.json`.

The programs that do the work (`rust.rs`, `peer.cc`, `rows.py`) are started once and run one round
of one row at a time, usmq and peer in turn, so that the drift of a noisy machine affects both.
The numbers of a row are the medians of its rounds; a lower ratio is better for usmq.

    .venv/bin/python benches/run.py [--quick] [--rounds N] [ROW ...]
    .venv/bin/python benches/run.py --guard
    .venv/bin/python benches/run.py --publish [FILE ...]

A missed target is not a failure: the exit status reports whether every row was measured. With
`--guard` it also reports whether each row is near its published ratio.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatch
from pathlib import Path

import plot
import published

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ROOT / "benches"
TARGET = ROOT / "target"
# The environment of the interpreter: all programs use its libsycl.
PREFIX = Path(sys.prefix)
SECOND_RUNTIME = ROOT / ".venv-ocl2" / "lib" / "libintelocl.so"
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "B": 1}
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.svg"
PACKAGES = ("intel-sycl-rt", "umf", "dpctl", "dpnp", "nanoarrow")
# Of `--guard`: repeats of a row that is too slow, rounds, and seconds after which no round begins.
REPEATS = 3
GUARD_ROUNDS, GUARD_SECONDS = 15, 1.0


@dataclass
class Row:
    """A line of the table: the measurement, its operations per round, and the target ratio."""

    name: str
    unit: str
    count: int
    target: float | None
    peer_name: str
    usmq: str = "python"
    peer: str = "python"
    rounds: int = 1000  # at most
    not_compared: str = ""  # the reason why `--guard` does not compare the ratio
    peer_row: str = ""  # the row whose peer it is compared with, if that is another one

    @property
    def compared_with(self) -> tuple[str, str]:
        """The peer: its program and row. Rows with the same one share their rounds."""
        return self.peer, self.peer_row or self.name


def rows() -> list[Row]:
    """Return the table's lines in order."""

    def rust(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(f"rust.{name}", unit, count, target, peer_name, "rust", "cpp")

    def py(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(f"py.{name}", unit, count, target, peer_name)

    def dlpack(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(f"dlpack.{name}", unit, count, target, peer_name)

    def arrow(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(f"arrow.{name}", unit, count, target, peer_name, "arrow", "arrow")

    def host(name: str, target: float, peer_name: str) -> Row:
        return Row(f"host.{name}", "ms", 1, target, peer_name, "host", "host")

    def profile(name: str, count: int, target: float, peer_name: str, peer: str) -> Row:
        return Row(f"profile.{name}", "us", count, target, peer_name, "rust", peer)

    def dask(
        name: str, unit: str, count: int, target: float | None, peer_name: str, peer_row: str = ""
    ) -> Row:
        most = 5 if name.startswith("flights") else 1000
        sides = ("dask", "dask", most, processes, peer_row)
        return Row(f"dask.{name}", unit, count, target, peer_name, *sides)

    def kernel(name: str, target: float, peer_name: str) -> Row:
        return Row(f"kernel.{name}", "ms", 1, target, peer_name, "kernel", "kernel", 20)

    def replay(
        name: str, count: int, target: float, peer_name: str, side: str, peer_row: str = ""
    ) -> Row:
        sides = (side, "cpp", 1000, "", peer_row)
        return Row(f"replay.{name}", "us", count, target, peer_name, *sides)

    def task(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(name, unit, count, target, peer_name, "task", "task")

    def cpp(name: str, unit: str, count: int, peer_name: str, peer: str, peer_row: str) -> Row:
        """Return a row in which plain C++ takes the place of usmq, in the same rounds."""
        most, of = 1000, "no code of usmq"
        return Row(f"cpp.{name}", unit, count, None, peer_name, "cpp", peer, most, of, peer_row)

    processes = "several processes share the cores"
    free = "C++ malloc_device + free"
    memory = "dpctl MemoryUSMDevice"
    far = "dpctl MemoryUSMDevice + copy_from_device"
    chain = "C++ submit of the 10 launches, one wait"
    graph = "a SYCL graph of the 10 launches in C++ + wait"
    return [
        rust("current_queue", "ns", 200_000, 5, "a thread-local read"),
        py("current_queue", "ns", 20_000, 0.5, "dpctl.get_device_cached_queue((ctx, dev))"),
        py("use_queue", "ns", 1000, 0.03, "dpctl.SyclQueue(filter string)"),
        rust("alloc_free.64", "ns", 5000, 0.15, free),
        rust("alloc_free.4096", "ns", 5000, 0.15, free),
        rust("alloc_free.1048576", "ns", 1000, 0.03, free),
        rust("alloc_free.67108864", "ns", 1000, 0.03, free),
        cpp("pool", "ns", 1000, free, "cpp", "rust.alloc_free.67108864"),
        py("alloc_free.64", "ns", 2000, 0.35, memory),
        py("alloc_free.4096", "ns", 2000, 0.35, memory),
        py("alloc_free.1048576", "ns", 1000, 0.1, memory),
        py("alloc_free.67108864", "ns", 1000, 0.1, memory),
        rust("launch_wait", "us", 500, 1.1, "C++ submit + wait"),
        rust("long_kernel", "ms", 1, 1.02, "C++ submit + wait, a long kernel on all cores"),
        rust("launch_throughput", "us", 2000, 1.03, "C++ submit, one wait for 1000"),
        py("launch_wait", "us", 500, 0.6, "dpctl submit, in-order"),
        cpp("launch_wait", "us", 500, "dpctl submit, in-order", "python", "py.launch_wait"),
        Row(
            *("py.launch_contended", "us", 200, 1.0, "the same, beside a thread of pure Python"),
            not_compared="depends on how often a thread loses the GIL",
        ),
        py("long_kernel", "ms", 1, 1.02, "dpctl submit, a long kernel on all cores"),
        py("launch_throughput", "us", 2000, 0.6, "dpctl submit_async, in-order"),
        cpp("launch_async", "us", 2000, "dpctl submit_async", "python", "py.launch_throughput"),
        rust("copy_4k_wait", "us", 500, 1.1, "C++ memcpy + wait"),
        rust("copy_64m", "ms", 4, 1.02, "C++ memcpy + wait"),
        rust("two_queue_chain", "us", 1000, 0.97, "C++ with hand-written events"),
        py("follow2", "ns", 10_000, 0.7, "dpnp.tensor.get_execution_queue of two queues"),
        py("asarray_suai", "us", 1000, 0.8, "dpctl.memory.as_usm_memory of the same object"),
        dlpack("round_trip", "us", 1000, 0.5, "dpnp.tensor.from_dlpack of its own array"),
        dlpack("c_exchange", "us", 1000, 1.0, "tvm_ffi.from_dlpack of a capsule of ours"),
        py("collocate_rebind", "ns", 5000, 1.05, "1 GiB against 1 KiB"),
        Row("py.collocate_cross_context", "ms", 1, 0.35, far, "collocate", "collocate"),
        Row(
            *("rust.threads", "us", 500, 1.1, "2 threads against 1", "rust", "rust"),
            not_compared="depends on the number of free cores",
        ),
        cpp("threads", "us", 500, "2 threads against 1", "cpp", "cpp.thread"),
        py("import", "ms", 1, 0.2, "import dpctl"),
        kernel("build", 0.15, "with sycl.hpp, without a cache on disk"),
        kernel("new_process", 0.2, "with sycl.hpp: import, devices, build, run, read; empty cache"),
        kernel("new_process_cached", 1.0, "the same; the cache has the kernel"),
        profile("off_wait", 500, 1.1, "C++ submit + wait", "cpp"),
        profile("off_throughput", 2000, 1.15, "C++ submit, one wait for 1000", "cpp"),
        profile("on_wait", 500, 1.25, "without a profile", "rust"),
        profile("on_throughput", 2000, 1.15, "without a profile", "rust"),
        replay("py_chain10", 500, 1.05, chain, "python", "replay.chain10"),
        replay("rust_chain10", 500, 1.05, chain, "rust", "replay.chain10"),
        replay("py_chain100", 100, 1.05, "C++ submit of the 100 launches, one wait", "python"),
        replay("graph", 500, 1.05, graph, "rust"),
        arrow("exchange_rows", "us", 100, 1.2, "1e7 rows against 1e3, 10 columns"),
        arrow("exchange", "us", 100, 0.9, "nanoarrow c_device_array of 10 host columns"),
        arrow("host_to_usm", "ms", 1, 1.0, "numpy.copyto into warm USM, 1 GiB"),
        cpp("host_copy", "ms", 1, "numpy.copyto, 1 GiB", "arrow", "arrow.host_to_usm"),
        arrow("usm_to_host", "ms", 1, 1.0, "numpy.copyto into warm USM, 1 GiB"),
        host("in_place", 0.5, "asarray + the same kernel, 256 MiB of numpy"),
        host("from_arrow_chunks", 1.3, "one chunk instead of 40, 256 MiB"),
        task("py.asarray_list", "us", 200, 1.0, "dpnp.asarray of 1000 numbers"),
        task("py.to_numpy_4k", "us", 1000, 1.0, "dpnp.asnumpy of 4 KiB"),
        task("py.small_program", "us", 500, 1.0, "dpnp: allocate, fill, two kernels, read"),
        Row(
            "py.small_program_cpp", "us", 500, 1.5, "the same in C++, without pools", "task", "cpp"
        ),
        task("py.many_arrays", "ns", 20_000, 1.1, "10 live arrays, 100,000 here"),
        Row("order.many_queues", "us", 6400, 1.2, "launches on 2 queues, 64 here", "rust", "rust"),
        task("py.foreign_queues", "us", 1000, 1.2, "2 foreign queues, 2,000 here"),
        task("from_arrow.strings", "ms", 1, 1.3, "numpy.copyto of the same bytes into warm USM"),
        Row("memory.overhead", "B", 1, 1.0, "bytes per live dpnp.tensor array", "task", "task", 3),
        Row(
            *("import.cold", "ms", 1, 1.0, "import dpctl, files not in memory", "task", "task", 7),
            not_compared="depends on the disk",
        ),
        dask("transfer", "ms", 1, 0.2, "256 MiB of numpy between two workers"),
        dask(
            "transfer_1k", "ms", 1, None, "256 MiB of numpy, 1 KiB of numpy here", "dask.transfer"
        ),
        dask("transfer_1g", "ms", 1, 0.2, "1 GiB of numpy between two workers"),
        dask("task", "us", 500, 1.02, "a task of the same graph on numpy"),
        dask("flights", "ms", 1, None, "1 worker, 2 here"),
        dask("flights_large2", "ms", 3, 0.9, "1 worker on 1 core, 2 on 2 here; 32 times the rows"),
        dask("flights_large4", "ms", 3, None, "1 worker on 1 core, 4 on 2; 32 times the rows"),
    ]


class Program:
    """A child that answers "row side count" with nanoseconds per operation."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.name = shlex.join(command)
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if self.read() != "ready":
            raise RuntimeError(f"{self.name} does not start")

    def read(self) -> str:
        """Return the next line of the child."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.child.wait()}")
        return line.strip()

    def ask(self, row: Row, side: str) -> float:
        """Return nanoseconds per operation of one round."""
        assert self.child.stdin is not None
        name = row.peer_row if side == "peer" and row.peer_row else row.name
        print(name, side, row.count, file=self.child.stdin, flush=True)
        return float(self.read())

    def stop(self) -> None:
        """Wait for the child to exit."""
        self.child.communicate()


def build_peer() -> Path:
    """Compile the C++ program."""
    program = TARGET / "bench-peer"
    command = [
        *shlex.split(os.environ.get("CXX", "c++")),
        *("-std=c++17", "-O2", "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING"),
        *("-isystem", f"{PREFIX / 'include'}", f"{BENCHES / 'peer.cc'}", "-o", f"{program}"),
        *(f"-L{PREFIX / 'lib'}", "-lsycl", f"-Wl,-rpath,{PREFIX / 'lib'}"),
    ]
    subprocess.run(command, check=True)
    return program


def build_rust() -> Path:
    """Compile the Rust program, and return where Cargo put it."""
    command = ["cargo", "build", "--release", "--bench", "rust"]
    command += ["--message-format=json-render-diagnostics"]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("kind") == ["bench"] and message.get("executable"):
            return Path(message["executable"])
    raise RuntimeError("cargo built no benchmark")


def programs(wanted: set[str]) -> dict[str, Program]:
    """Build and start the programs that the rows need."""
    runtime = PREFIX / "lib" / "libintelocl.so"
    base = os.environ | {"LD_LIBRARY_PATH": str(PREFIX / "lib")}
    if runtime.exists():
        # usmq finds the CPU device by itself; plain C++ does not.
        base.setdefault("OCL_ICD_FILENAMES", str(runtime))
    two = base
    if SECOND_RUNTIME.exists():
        two = base | {"OCL_ICD_FILENAMES": f"{runtime}:{SECOND_RUNTIME}"}
    python = [sys.executable, str(BENCHES / "rows.py")]
    started = {}
    if "rust" in wanted:
        started["rust"] = Program([str(build_rust())], base)
    if "cpp" in wanted:
        started["cpp"] = Program([str(build_peer()), str(BENCHES / "axpy.cpp")], base)
    if "python" in wanted:
        started["python"] = Program(python, base)
    if "arrow" in wanted:
        started["arrow"] = Program([*python, "arrow"], base)
    if "kernel" in wanted:
        command = [sys.executable, str(BENCHES / "kernel_rows.py")]
        started["kernel"] = Program(command, base | {"SYCL_CACHE_PERSISTENT": "0"})
    if "host" in wanted:
        started["host"] = Program([*python, "host"], base)
    if "collocate" in wanted:
        started["collocate"] = Program([*python, "collocate"], two)
    if "task" in wanted:
        started["task"] = Program([sys.executable, str(BENCHES / "program_rows.py")], base)
    if "dask" in wanted:
        started["dask"] = Program([sys.executable, str(BENCHES / "dask_rows.py")], two)
    return started


@dataclass
class Result:
    """Medians of a row."""

    row: Row
    usmq: float
    peer: float

    @property
    def ratio(self) -> float:
        """The ratio of the medians."""
        return self.usmq / self.peer

    @property
    def met(self) -> bool:
        """Whether the target is met; true without a target."""
        return self.row.target is None or self.ratio <= self.row.target

    def line(self, reference: float | None) -> str:
        """Return the line of the table; `reference` is the published ratio."""
        verdict = "" if self.row.target is None else "ok" if self.met else "over"
        is_slower = reference is not None and self.ratio > published.SLOWER * reference
        against = "" if reference is None else f"{reference:.3f}"
        return (
            f"{self.row.name:27}{self.row.unit:>5}{self.usmq:>9.2f}{self.peer:>9.2f}"
            f"{self.ratio:>8.3f}{against:>10}{self.row.target or '-':>7}  "
            f"{'slower' if is_slower else '':7}{verdict:5}{self.row.peer_name}"
        )


def measure(
    rows: list[Row],
    statistic: Callable[[list[float]], float],
    rounds: int,
    started: dict[str, Program],
    seconds: float = math.inf,
) -> list[Result]:
    """Run rows of the same peer and the peer in turn, in alternating order.

    No round begins after the given time.
    """
    first = rows[0]
    sides = [(started[row.usmq], row, "usmq") for row in rows]
    sides.append((started[first.peer], first, "peer"))
    times: list[list[float]] = [[] for _ in sides]
    begin = time.monotonic()
    for turn in range(min(rounds, first.rounds)):
        for number in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            program, row, side = sides[number]
            times[number].append(program.ask(row, side) / NANOSECONDS[row.unit])
        if time.monotonic() - begin > seconds:
            break
    *usmq, peer = map(statistic, times)
    return [Result(row, took, peer) for row, took in zip(rows, usmq, strict=True)]


def groups(rows: list[Row]) -> list[list[Row]]:
    """Return the rows of each peer."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(row.compared_with, []).append(row)
    return list(found.values())


def fastest(row: Row, started: dict[str, Program]) -> Result:
    """Return the fastest rounds of a row: other load on the machine only adds time to a round."""
    rounds = 1 if row.not_compared else GUARD_ROUNDS
    return measure([row], min, rounds, started, GUARD_SECONDS)[0]


def far_over(
    results: list[Result],
    references: dict[str, float],
    repeat: Callable[[list[Row]], list[Result]],
) -> list[list[Result]]:
    """Return all figures of the rows that exceed the published ratio in each repeat, too.

    All rows are repeated before one is repeated again, so that a short load affects one repeat.
    """

    def is_over(result: Result) -> bool:
        name = result.row.name
        return name in references and result.ratio > published.FAILED * references[name]

    suspects = [[result] for result in results if is_over(result) and not result.row.not_compared]
    for _ in range(REPEATS):
        again = repeat([figures[0].row for figures in suspects])
        for figures, result in zip(suspects, again, strict=True):
            figures.append(result)
            print(f"bench: repeated: {described(figures, references)}", flush=True)
        suspects = [figures for figures in suspects if is_over(figures[-1])]
    return suspects


def described(figures: list[Result], references: dict[str, float]) -> str:
    """Return all figures of a row."""
    row = figures[0].row
    ratios = ", ".join(f"{result.ratio:.3f}" for result in figures)
    usmq = ", ".join(f"{result.usmq:.2f}" for result in figures)
    peer = ", ".join(f"{result.peer:.2f}" for result in figures)
    return (
        f"{row.name}: ratio {ratios}, published {references[row.name]:.3f}; "
        f"usmq {usmq} {row.unit}, peer {peer} {row.unit}"
    )


def again(chosen: list[Row]) -> list[Result]:
    """Measure rows in new programs: those of earlier rows may still release their objects."""
    started = programs({name for row in chosen for name in (row.usmq, row.peer)})
    results = [fastest(row, started) for row in chosen]
    for program in started.values():
        program.stop()
    return results


def output(command: list[str]) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def machine() -> str:
    """Describe the processor and the memory."""
    processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next(
        (line.partition(": ")[2] for line in processor.splitlines() if "model name" in line),
        os.uname().machine,
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    virtual = ", a virtual machine" if " hypervisor" in processor else ""
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB{virtual}"


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on."""
    import usmq

    device = usmq.current_queue().device
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    return {
        f"{device.backend} {device.device_type}, driver": device.driver_version,
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        compiler[0]: output([*compiler, "-dumpfullversion", "-dumpversion"]).splitlines()[0],
    }


def measurement(
    results: list[Result], statistic: str, rounds: int, load: str | None
) -> published.Data:
    """Return the results as data."""
    return {
        "date": date.today().isoformat(),
        "commit": output(["git", "describe", "--always", "--dirty", "--exclude=*"]),
        "machine": machine(),
        "versions": versions(),
        "statistic": statistic,
        "rounds": rounds,
        "load": load,
        "notes": [],
        "rows": [
            {
                "name": result.row.name,
                "unit": result.row.unit,
                "usmq": float(f"{result.usmq:.6g}"),
                "peer": float(f"{result.peer:.6g}"),
            }
            for result in results
        ],
    }


def publish(files: list[str]) -> None:
    """Make measurements the published ones, and write the tables and the plot."""
    measured = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    data = published.accept(published.load(), measured, rows())
    text = published.page(PAGE.read_text(encoding="utf-8"), data, rows())
    published.save(data)
    PAGE.write_text(text, encoding="utf-8")
    PICTURE.write_text(plot.svg(data, rows()), encoding="utf-8")
    names = ", ".join(str(path.relative_to(ROOT)) for path in (published.FILE, PAGE, PICTURE))
    print(f"bench: written {names}")


def arguments() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description="Measure usmq against plain C++, dpctl and dpnp.")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of each row (default: 31)")
    parser.add_argument("--quick", action="store_true", help="5 rounds: a look, not a measurement")
    parser.add_argument(
        "--guard",
        action="store_true",
        help="the fastest of a few rounds; fail if a row takes 1.5 times its published ratio in "
        "each repeat",
    )
    parser.add_argument("--load", help="the command of a load that you run beside the benchmarks")
    parser.add_argument("--output", help="the file for the results, also of some rows")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="measure nothing; publish the measurements in the files (default: only write the "
        "tables and the plot again)",
    )
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="only these, as 'rust.alloc_free.*'; writes no file"
    )
    return parser


def main() -> None:
    """Measure the requested rows."""
    parser = arguments()
    options = parser.parse_args()
    if options.publish:
        publish(options.rows)
        return
    rounds = GUARD_ROUNDS if options.guard else 5 if options.quick else options.rounds
    statistic = "fastest" if options.guard else "median"
    chosen = [row for row in rows() if any(fnmatch(row.name, p) for p in options.rows or ["*"])]
    if not chosen:
        parser.error(f"no row matches {' '.join(options.rows)}")
    TARGET.mkdir(exist_ok=True)
    states = published.GUARDED if options.guard else published.MEASURED
    references = published.references(published.load(), states)

    begin = time.monotonic()
    print("bench: building and starting the programs", flush=True)
    started = programs({name for row in chosen for name in (row.usmq, row.peer)})
    print(f"bench: the {statistic} of up to {rounds} rounds each, usmq and peer in turn\n")
    print(
        f"{'row':27}{'unit':>5}{'usmq':>9}{'peer':>9}{'ratio':>8}{'published':>10}{'target':>7}"
        f"{'peer':>18}"
    )
    results: list[Result] = []
    for group in groups(chosen):
        if options.guard:
            found = [fastest(row, started) for row in group]
        else:
            found = measure(group, statistics.median, rounds, started)
        for result in found:
            print(result.line(references.get(result.row.name)), flush=True)
        results += found
    for program in started.values():
        program.stop()
    failed = far_over(results, references, again) if options.guard else []
    met = sum(result.met for result in results)
    took = time.monotonic() - begin
    print(f"\nbench: {met} of {len(results)} rows within their target; {took:.0f} s")
    file = options.output or (None if options.rows or options.guard else TARGET / "bench.json")
    if file is not None:
        measured = measurement(results, statistic, rounds, options.load)
        Path(file).write_text(published.text(measured), encoding="utf-8")
        print(f"bench: written to {file}")
    if failed:
        lines = "\n".join(described(figures, references) for figures in failed)
        raise RuntimeError(
            f"{len(failed)} rows took more than {published.FAILED} times their published ratio, "
            f"also in {REPEATS} repeats:\n{lines}\nMeasure them with `benches/run.py ROW`, and "
            "find the cause; publish new figures only if the change is intended"
        )


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, ValueError, subprocess.CalledProcessError) as problem:
        sys.exit(f"bench: {problem}")
