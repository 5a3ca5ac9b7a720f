"""Measure usmq against plain C++, dpctl and dpnp, side by side; write `target/bench.json`.

The programs that do the work (`rust.rs`, `peer.cc`, `rows.py`) are started once and run one round
of one row at a time, usmq and peer in turn, so that the drift of a noisy machine affects both.
The numbers of a row are the medians of its rounds; a lower ratio is better for usmq.

    .venv/bin/python benches/run.py [--quick] [--rounds N] [ROW ...]

A missed target is not a failure: the exit status reports whether every row was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ROOT / "benches"
TARGET = ROOT / "target"
# The environment of the interpreter: all programs use its libsycl.
PREFIX = Path(sys.prefix)
SECOND_RUNTIME = ROOT / ".venv-ocl2" / "lib" / "libintelocl.so"
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "B": 1}


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

    def dask(name: str, unit: str, count: int, target: float | None, peer_name: str) -> Row:
        most = 5 if name.startswith("flights") else 1000
        return Row(f"dask.{name}", unit, count, target, peer_name, "dask", "dask", most)

    def kernel(name: str, target: float, peer_name: str) -> Row:
        return Row(f"kernel.{name}", "ms", 1, target, peer_name, "kernel", "kernel", 20)

    def replay(name: str, count: int, target: float, peer_name: str, side: str) -> Row:
        return Row(f"replay.{name}", "us", count, target, peer_name, side, "cpp")

    def task(name: str, unit: str, count: int, target: float, peer_name: str) -> Row:
        return Row(name, unit, count, target, peer_name, "task", "task")

    free = "C++ malloc_device + free"
    memory = "dpctl MemoryUSMDevice"
    far = "dpctl MemoryUSMDevice + copy_from_device"
    return [
        rust("current_queue", "ns", 200_000, 5, "a thread-local read"),
        py("current_queue", "ns", 20_000, 0.5, "dpctl.get_device_cached_queue((ctx, dev))"),
        py("use_queue", "ns", 1000, 0.05, "dpctl.SyclQueue(filter string)"),
        rust("alloc_free.64", "ns", 5000, 0.15, free),
        rust("alloc_free.4096", "ns", 5000, 0.15, free),
        rust("alloc_free.1048576", "ns", 1000, 0.03, free),
        rust("alloc_free.67108864", "ns", 1000, 0.03, free),
        py("alloc_free.64", "ns", 2000, 0.35, memory),
        py("alloc_free.4096", "ns", 2000, 0.35, memory),
        py("alloc_free.1048576", "ns", 1000, 0.1, memory),
        py("alloc_free.67108864", "ns", 1000, 0.1, memory),
        rust("launch_wait", "us", 500, 1.05, "C++ submit + wait"),
        rust("long_kernel", "ms", 1, 1.02, "C++ submit + wait, 0.3 s on all cores"),
        rust("launch_throughput", "us", 2000, 1.15, "C++ submit, one wait for 1000"),
        py("launch_wait", "us", 500, 1.0, "dpctl submit, in-order"),
        py("launch_contended", "us", 200, 1.0, "the same, beside a thread of pure Python"),
        py("long_kernel", "ms", 1, 1.02, "dpctl submit, 0.3 s on all cores"),
        py("launch_throughput", "us", 2000, 0.7, "dpctl submit_async, in-order"),
        rust("copy_4k_wait", "us", 500, 1.1, "C++ memcpy + wait"),
        rust("copy_64m", "ms", 4, 1.02, "C++ memcpy + wait"),
        rust("two_queue_chain", "us", 1000, 1.15, "C++ with hand-written events"),
        py("follow2", "ns", 10_000, 0.7, "dpnp.tensor.get_execution_queue of two queues"),
        py("asarray_suai", "us", 1000, 0.8, "dpctl.memory.as_usm_memory of the same object"),
        dlpack("round_trip", "us", 1000, 0.5, "dpnp.tensor.from_dlpack of its own array"),
        dlpack("c_exchange", "us", 1000, 1.0, "tvm_ffi.from_dlpack of a capsule of ours"),
        py("collocate_rebind", "ns", 5000, 1.1, "1 GiB against 1 KiB"),
        Row("py.collocate_cross_context", "ms", 1, 0.6, far, "collocate", "collocate"),
        Row("rust.threads", "us", 500, 1.3, "2 threads against 1", "rust", "rust"),
        py("import", "ms", 1, 0.6, "import dpctl"),
        kernel("build", 0.15, "with sycl.hpp, without a cache on disk"),
        kernel("new_process", 0.2, "with sycl.hpp: import, devices, build, run, read; empty cache"),
        kernel("new_process_cached", 1.0, "the same; the cache has the kernel"),
        profile("off_wait", 500, 1.1, "C++ submit + wait", "cpp"),
        profile("off_throughput", 2000, 1.15, "C++ submit, one wait for 1000", "cpp"),
        profile("on_wait", 500, 1.25, "without a profile", "rust"),
        profile("on_throughput", 2000, 1.25, "without a profile", "rust"),
        replay("py_chain10", 500, 0.75, "C++ submit of the 10 launches, one wait", "python"),
        replay("py_chain100", 100, 1.0, "C++ submit of the 100 launches, one wait", "python"),
        replay("rust_chain10", 500, 0.7, "C++ submit of the 10 launches, one wait", "rust"),
        replay("graph", 500, 1.05, "a SYCL graph of the 10 launches in C++ + wait", "rust"),
        arrow("exchange_rows", "us", 100, 1.2, "1e7 rows against 1e3, 10 columns"),
        arrow("exchange", "us", 100, 1.0, "nanoarrow c_device_array of 10 host columns"),
        arrow("host_to_usm", "ms", 1, 1.11, "numpy.copyto into warm USM, 1 GiB"),
        arrow("usm_to_host", "ms", 1, 1.11, "numpy.copyto into warm USM, 1 GiB"),
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
        Row("import.cold", "ms", 1, 1.0, "import dpctl, files not in memory", "task", "task", 7),
        dask("transfer", "ms", 1, 0.2, "256 MiB of numpy between two workers"),
        dask("task", "us", 500, 1.02, "a task of the same graph on numpy"),
        dask("flights", "ms", 1, None, "1 worker, 2 here"),
        dask("flights_large2", "ms", 3, 0.9, "1 worker of one core, 2 here; 16 times the rows"),
        dask("flights_large4", "ms", 3, None, "1 worker of one core, 4 here; 16 times the rows"),
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
        print(row.name, side, row.count, file=self.child.stdin, flush=True)
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
    """A row of `bench.json`."""

    name: str
    unit: str
    usmq: float
    peer: float
    peer_name: str
    ratio: float
    target: float | None

    @property
    def met(self) -> bool:
        """Whether the target is met; true without a target."""
        return self.target is None or self.ratio <= self.target


def measure(row: Row, rounds: int, started: dict[str, Program]) -> Result:
    """Run both sides in alternating order, and compare their medians."""
    sides = {"usmq": started[row.usmq], "peer": started[row.peer]}
    times: dict[str, list[float]] = {"usmq": [], "peer": []}
    for turn in range(min(rounds, row.rounds)):
        for side in ("usmq", "peer") if turn % 2 == 0 else ("peer", "usmq"):
            times[side].append(sides[side].ask(row, side) / NANOSECONDS[row.unit])
    usmq, peer = statistics.median(times["usmq"]), statistics.median(times["peer"])
    return Result(row.name, row.unit, usmq, peer, row.peer_name, usmq / peer, row.target)


def main() -> None:
    """Measure the requested rows."""
    parser = argparse.ArgumentParser(description="Measure usmq against plain C++, dpctl and dpnp.")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of each row (default: 31)")
    parser.add_argument("--quick", action="store_true", help="5 rounds: a look, not a measurement")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="only these, as 'rust.alloc_free.*'; writes no file"
    )
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    chosen = [row for row in rows() if any(fnmatch(row.name, p) for p in options.rows or ["*"])]
    if not chosen:
        parser.error(f"no row matches {' '.join(options.rows)}")
    TARGET.mkdir(exist_ok=True)

    begin = time.monotonic()
    print("bench: building and starting the programs", flush=True)
    started = programs({name for row in chosen for name in (row.usmq, row.peer)})
    print(f"bench: medians of {rounds} rounds each, usmq and peer in turn\n")
    print(f"{'row':27}{'unit':>5}{'usmq':>9}{'peer':>9}{'ratio':>7}{'target':>7}       peer")
    results = []
    for row in chosen:
        result = measure(row, rounds, started)
        results.append(result)
        verdict = "" if row.target is None else "ok" if result.met else "over"
        print(
            f"{row.name:27}{row.unit:>5}{result.usmq:>9.2f}{result.peer:>9.2f}{result.ratio:>7.3f}"
            f"{row.target or '-':>7}  {verdict:4} {row.peer_name}",
            flush=True,
        )
    for program in started.values():
        program.stop()
    met = sum(result.met for result in results)
    took = time.monotonic() - begin
    print(f"\nbench: {met} of {len(results)} rows within their target; {took:.0f} s")
    if not options.rows:
        file = TARGET / "bench.json"
        file.write_text(
            json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8"
        )
        print(f"bench: written to {file}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as problem:
        sys.exit(f"bench: {problem}")
