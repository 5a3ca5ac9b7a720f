"""Report which defects of other projects still exist: `tests/run upstream [NAME ...]`.

Builds the programs of this folder against the runtime of an environment (`.venv`, or `--prefix`),
runs each alone, with HOME, PATH and what it needs, and prints a table. The exit status is 1 when a
defect is fixed, so that its workaround can go, and when a program cannot be built or run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "upstream"
BUILD = ROOT / "target" / "upstream"
PACKAGES = (
    *("intel-sycl-rt", "intel-cmplr-lib-ur", "intel-opencl-rt", "umf"),
    *("dpctl", "dpnp", "nanoarrow", "pyarrow"),
)
# The status of a program, by what it says.
SEEN, FIXED, NOT_SEEN, NOT_TRIED = 0, 1, 2, 77
OUTCOMES = {SEEN: "seen", FIXED: "fixed", NOT_SEEN: "not seen", NOT_TRIED: "not tried"}
CARGO = """[package]
name = "upstream"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
arrow-array = { version = "*", features = ["ffi"] }
arrow-buffer = "*"
arrow-data = "*"
arrow-schema = "*"
"""


class Defect(NamedTuple):
    """A program, and what else than its own word shows the defect."""

    program: str
    # After the line "trying": "hang", "crash" or both.
    shows: tuple[str, ...] = ()


DEFECTS = [
    Defect("events_across_contexts.cpp", ("crash", "hang")),
    Defect("wait_blocks_submissions.cpp"),
    Defect("native_event_of_held_command.cpp", ("crash",)),
    Defect("state_of_held_command.cpp"),
    Defect("barrier_across_contexts.cpp", ("crash",)),
    Defect("group_local_memory.cpp", ("crash",)),
    Defect("graph_submissions.cpp"),
    Defect("barrier_before_copy.cpp"),
    Defect("barrier_after_host_task.cpp"),
    Defect("pointer_device.cpp"),
    Defect("copy_between_devices.cpp", ("hang",)),
    Defect("peer_access.cpp", ("crash",)),
    Defect("queue_empty.cpp", ("crash", "hang")),
    Defect("driver_vendor_file.py"),
    Defect("out_of_order_waits.cpp", ("hang",)),
    Defect("out_of_order_release.cpp", ("hang",)),
    Defect("copy_addresses.cpp"),
    Defect("fork_exit.cpp"),
    Defect("nanoarrow_views.py", ("crash",)),
    Defect("pyarrow_empty_views.py"),
    Defect("arrow_rs_run_ends.rs"),
    Defect("arrow_rs_empty_text.rs"),
    Defect("dpctl_memory_flag.py"),
    Defect("dpctl_owner_in_host_task.py", ("hang",)),
    Defect("dpnp_negative_strides.py"),
    Defect("dpnp_dlpack_error.py"),
    Defect("dpnp_add_out_of_order.py"),
]


class Failed(Exception):
    """A program that cannot be built."""


def title(program: str) -> str:
    """Return the defect, which is the first line of its program."""
    first = (HERE / program).read_text().splitlines()[0]
    return first.strip('/!" ')


def build_cpp(program: str, prefix: Path) -> list[str]:
    """Build a C++ program with the headers and libraries of the environment."""
    made = BUILD / Path(program).stem
    library = prefix / "lib"
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-pthread"]
    command += ["-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", "-DCL_TARGET_OPENCL_VERSION=300"]
    command += ["-isystem", f"{prefix / 'include'}", f"{HERE / program}", "-o", f"{made}"]
    # libOpenCL finds its own libraries by the old form of the path only.
    command += [f"-L{library}", f"-Wl,--disable-new-dtags,-rpath,{library}"]
    command += ["-lsycl", "-lOpenCL"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{program} does not build:\n{done.stderr}")
    return [f"{made}"]


def build_rust(program: str) -> list[str] | None:
    """Build a Rust program with the crates of Cargo.lock; None without cargo."""
    if not shutil.which("cargo"):
        return None
    folder = BUILD / "crate"
    name = Path(program).stem
    (folder / "src" / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(CARGO)
    shutil.copy(ROOT / "Cargo.lock", folder)
    for each in HERE.glob("*.rs"):
        shutil.copy(each, folder / "src" / "bin")
    command = ["cargo", "build", "--quiet", "--bin", name, "--target-dir", f"{folder / 'target'}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{program} does not build:\n{done.stderr}")
    return [f"{folder / 'target' / 'debug' / name}"]


def environment(prefix: Path) -> dict[str, str]:
    """Return what the programs need, and nothing else."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return kept | {"OCL_ICD_FILENAMES": f"{prefix / 'lib' / 'libintelocl.so'}"}


def run(defect: Defect, command: list[str], prefix: Path, limit: int) -> tuple[str, str]:
    """Run a program; return what came of it, and how that showed."""
    with subprocess.Popen(
        command,
        env=environment(prefix),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            # With the children of a program that forks.
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            ended, how = "hang", f"hang, ended after {limit} s"
        else:
            ended, how = "crash", f"signal {-process.returncode}"
    lines = said.splitlines()
    status = process.returncode
    if status < 0:
        expected = ended in defect.shows and "trying" in lines
        return ("seen", how) if expected else ("failed", how)
    found = next((line for line in lines if line.startswith(f"{OUTCOMES.get(status)}: ")), "")
    if not found:
        return "failed", f"status {status}: {said[-200:]!r}"
    return OUTCOMES[status], found.partition(": ")[2]


def one(defect: Defect, prefix: Path, limit: int) -> tuple[str, str]:
    """Build and run one program."""
    command: list[str] | None
    if defect.program.endswith(".py"):
        python = f"{prefix / 'bin' / 'python'}"
        if not Path(python).exists():
            return "not tried", "the environment has no Python"
        package = defect.program.split("_")[0]
        imports = package if package in PACKAGES else "sys"
        if subprocess.run([python, "-c", f"import {imports}"], capture_output=True).returncode:
            return "not tried", f"{imports} is not installed"
        command = [python, f"{HERE / defect.program}"]
    elif defect.program.endswith(".rs"):
        command = build_rust(defect.program)
        if command is None:
            return "not tried", "cargo is missing"
    else:
        command = build_cpp(defect.program, prefix)
    return run(defect, command, prefix, limit)


def versions(prefix: Path) -> dict[str, str]:
    """Return what is tested, by package."""
    folders = [str(folder) for folder in prefix.glob("lib/python3*/site-packages")]
    found = {}
    for each in importlib.metadata.distributions(path=folders):
        if each.name in PACKAGES:
            found[each.name] = each.version
    lock = (ROOT / "Cargo.lock").read_text()
    if match := re.search(r'name = "arrow-array"\nversion = "(.*)"', lock):
        found["arrow-rs"] = match[1]
    return found


def main() -> int:
    """Run everything, and say what is fixed."""
    about = argparse.ArgumentParser(prog="tests/run upstream", description=__doc__.splitlines()[0])
    about.add_argument("names", nargs="*", metavar="NAME", help="these programs only")
    about.add_argument("--prefix", type=Path, default=ROOT / ".venv", help="another environment")
    about.add_argument("--limit", type=int, default=30, help="seconds until a hang is one")
    about.add_argument("--list", action="store_true", help="the defects, without a run")
    given = about.parse_args()
    prefix = given.prefix.absolute()
    known = [Path(defect.program).stem for defect in DEFECTS]
    if unknown := set(given.names) - set(known):
        about.error(f"unknown: {', '.join(sorted(unknown))}. The programs are: {', '.join(known)}")
    chosen = [d for d in DEFECTS if not given.names or Path(d.program).stem in given.names]
    if given.list:
        for defect in chosen:
            print(f"{defect.program:<36}{title(defect.program)}")
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    print("upstream:", ", ".join(f"{name} {v}" for name, v in sorted(versions(prefix).items())))
    to_do = []
    for defect in chosen:
        try:
            outcome, how = one(defect, prefix, given.limit)
        except Failed as error:
            outcome, how = "failed", str(error)
        print(f"  {outcome:<10}{title(defect.program)}\n{'':12}{defect.program}: {how}", flush=True)
        if outcome == "fixed":
            to_do.append(f"{defect.program}: {how}, the program, and its part of docs/upstream.md")
        elif outcome == "failed":
            to_do.append(f"{defect.program}: correct the program, or what it needs")
    rest = f"{len(to_do)} to look at:" if to_do else "nothing to do"
    print(f"upstream: {len(chosen)} programs; {rest}")
    for line in to_do:
        print(f"  {line}")
    return bool(to_do)


if __name__ == "__main__":
    sys.exit(main())
