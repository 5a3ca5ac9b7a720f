"""Run tests on Intel's Level Zero driver, without a GPU.

    tests/run level-zero [PART [ARGUMENT …]] [OPTIONS]

    checks          the driver in front itself
    python [FILE …] the Python tests but those of left_out.txt, or these files
    rust [FILTER …] the Rust suites
    programs        random programs
    quick           the checks and the tests of quick.txt, as in the workflow `test`
    shell COMMAND … any command
    clean           removes the root

Without a part: checks, python, rust and programs, on v1 with pvc and v2 with bmg. A report of the
driver in front, or a call that it does not carry out, fails the run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import products
import root
import runtimes

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
TARGET = CHECKOUT / "target" / "level-zero"
LIBRARY = TARGET / "libusmq_level_zero.so"
VENV = CHECKOUT / ".venv"
TESTS = CHECKOUT / "tests" / "python"
SWITCHES = (
    "TRUE_ADDRESSES",
    "PEERS",
    "BLOCKING_COPIES",
    "RANDOM_ORDER",
    "DELAY",
    "SEED",
    "FAIL",
    "LOST_AFTER",
    "TRACE",
)


def build() -> None:
    """Compile the driver in front, outside of the root, which has no compiler."""
    TARGET.mkdir(parents=True, exist_ok=True)
    headers = sorted((HERE / "driver").glob("*.h"))
    newest = max(header.stat().st_mtime for header in headers)
    flags = [
        "-std=c++17",
        "-O1",
        "-g",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    # Not /usr/include of the root itself, whose C library is another one.
    flags += [
        "-isystem",
        str(root.folder() / "usr" / "include" / "level_zero"),
        "-isystem",
        str(VENV / "include"),
    ]
    compilers: list[subprocess.Popen[bytes]] = []
    objects = []
    for source in sorted((HERE / "driver").glob("*.cc")):
        made = TARGET / f"{source.stem}.o"
        objects.append(made)
        if not made.exists() or made.stat().st_mtime < max(newest, source.stat().st_mtime):
            compilers.append(subprocess.Popen(["c++", *flags, "-c", source, "-o", made]))
        if len(compilers) >= (os.cpu_count() or 1):
            finish(compilers)
    finish(compilers)
    # Not unloaded before the process ends: its threads use it.
    unfinished = LIBRARY.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [
            "c++",
            "-shared",
            "-o",
            unfinished,
            *objects,
            "-ldl",
            "-pthread",
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",
        ],
        check=True,
    )
    unfinished.rename(LIBRARY)  # another run may use the old one


def finish(compilers: list[subprocess.Popen[bytes]]) -> None:
    """Wait for compilers; any failure ends the run."""
    statuses = [compiler.wait() for compiler in compilers]
    if any(statuses):
        raise SystemExit("level-zero: the driver in front does not compile")
    compilers.clear()


def names(file: str) -> list[str]:
    """Return the first words of the lines of a list beside this file."""
    lines = (HERE / file).read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


class Run:
    """One configuration: its environment and the file of its reports."""

    def __init__(self, options: argparse.Namespace, product: str, adapter: str, venv: Path) -> None:
        self.name = f"{adapter} {product} {options.runtime}"
        self.venv = venv
        self.python = str(venv / "bin" / "python")
        self.pytest = [self.python, "-m", "pytest", "-o", "faulthandler_timeout=300"]
        self.timeout = options.timeout
        self.reports = Path(tempfile.mkstemp(prefix="usmq-level-zero-", suffix=".reports")[1])
        switches = {name: getattr(options, name.lower()) for name in SWITCHES}
        # As on emulated GPUs: two devices of one context, without access to each other's memory.
        switches["PEERS"] = switches["PEERS"] or "0"
        self.env = products.environment(
            product,
            adapter,
            LIBRARY,
            venv / "lib" / "libintelocl.so",
            devices=options.devices,
            tiles=options.tiles,
            switches={name: value for name, value in switches.items() if value is not None}
            | {"REPORTS": str(self.reports)},
        )
        self.env |= {
            "HOME": "/root",
            "PATH": f"{venv}/bin:{Path.home()}/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "USMQ_CHECKS": "1",
            # One driver for OpenCL CPU devices beside the GPUs.
            "OCL_ICD_FILENAMES": str(venv / "lib" / "libintelocl.so"),
        }

    def each(self, files: Iterable[Path]) -> list[str]:
        """Return a command that runs each file in a process, two at a time."""
        # So a crash ends one file. Status 5: the file is skipped as a whole.
        pytest = shlex.join([*self.pytest, "-q", "--no-header", "-rfE"])
        one = f"{pytest} {{}}; status=$?; [ $status -eq 5 ] || exit $status"
        listed = shlex.join(str(path.relative_to(CHECKOUT)) for path in sorted(files))
        each = f"xargs -P 2 -I {{}} sh -c {shlex.quote(one)}"
        return ["sh", "-c", f"printf '%s\\n' {listed} | {each}"]

    def __call__(self, what: str, command: list[str], env: dict[str, str] | None = None) -> bool:
        """Run a command in the root; return whether it passed without a report."""
        print(f"==> level-zero {self.name}: {what}", flush=True)
        places = [CHECKOUT, self.venv, Path("/tmp"), *root.python_places()]
        places += [
            place for name in (".cargo", ".rustup") if (place := Path.home() / name).is_dir()
        ]
        started = time.monotonic()
        line = root.enter(command, self.env | (env or {}), places)
        process = subprocess.Popen(line, cwd=CHECKOUT, start_new_session=True)
        try:
            status = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = 124
        reports = self.reports.read_text().splitlines()
        self.reports.unlink(missing_ok=True)
        self.reports.touch()
        for report in sorted(set(reports))[:20]:
            print(f"    {report}")
        passed = status == 0 and not reports
        verdict = "passed" if passed else "FAILED"
        seconds = time.monotonic() - started
        print(
            f"    {verdict}: status {status}, {len(reports)} reports, {seconds:.0f} s", flush=True
        )
        return passed


def part(run: Run, name: str, arguments: list[str]) -> bool:
    """Run one part in one configuration."""
    if name == "python":
        if arguments:
            return run("Python tests", [*run.pytest, *arguments])
        elsewhere = [*names("left_out.txt"), *names("host_addresses.txt")]
        files = [path for path in TESTS.glob("test_*.py") if path.stem not in elsewhere]
        passed = run("Python tests", run.each(files))
        files = [TESTS / f"{test}.py" for test in names("host_addresses.txt")]
        switch = {"USMQ_LEVEL_ZERO_TRUE_ADDRESSES": "0"}
        what = "Python tests with addresses that the host reads"
        return run(what, run.each(files), switch) and passed
    if name == "checks":
        return run("checks of the driver in front", [run.python, "tests/level_zero/checks.py"])
    if name == "quick":
        checked = part(run, "checks", [])
        return (
            run("the selected tests", [*run.pytest, "-q", *names("quick.txt"), *arguments])
            and checked
        )
    if name == "rust":
        build_tests = ["cargo", "test", "--features", "arrow", "--no-run"]
        subprocess.run(build_tests, cwd=CHECKOUT, check=True)
        command = ["cargo", "test", "--offline", "--features", "arrow", *(arguments or [])]
        return run("Rust tests", command, {"RUST_TEST_THREADS": "1"})
    if name == "programs":
        return run(
            "random programs", [run.python, "tests/programs.py", "--target", "gpu", *arguments]
        )
    return run(" ".join(arguments), arguments)


def main() -> int:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(
        prog="tests/run level-zero",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=["checks", "python", "rust", "programs", "quick", "shell", "clean"],
    )
    parser.add_argument(
        "--product", choices=list(products.PRODUCTS), help="default: pvc on v1, bmg on v2"
    )
    parser.add_argument("--adapter", choices=list(products.ADAPTERS), help="default: both")
    parser.add_argument("--runtime", choices=list(runtimes.RUNTIMES), default="2026.1")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--tiles", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of a part")
    for switch in SWITCHES:
        parser.add_argument(
            "--" + switch.lower().replace("_", "-"),
            metavar="VALUE",
            help=f"USMQ_LEVEL_ZERO_{switch}",
        )
    options, arguments = parser.parse_known_args()
    if options.part == "clean":
        root.clean()
        return 0
    root.make()
    build()
    venv = runtimes.environment(options.runtime)
    passed = True
    for adapter, product in (("v1", "pvc"), ("v2", "bmg")):
        if options.adapter in (None, adapter):
            run = Run(options, options.product or product, adapter, venv)
            for name in (
                [options.part] if options.part else ["checks", "python", "rust", "programs"]
            ):
                passed &= part(run, name, arguments)
            run.reports.unlink(missing_ok=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
