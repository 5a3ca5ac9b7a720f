"""The tests under the validation layers of Unified Runtime: `tests/run validation [--quick]`.

A parameter error makes a call fail, and with it a test. A use of a handle that is gone and a handle
that is left over are lines of the layers' log, which this program reads:

    There are no valid references to handle 0x1234
    Attempting to release nonexistent handle 0x1234
    Retained 1 reference(s) to handle 0x1234
    Handle 0x1234 was recorded for first time here: (with the stack)

The stack names the call of the runtime that made the handle, and so its type.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Names with commas between; with semicolons the loader ends the process.
LAYERS = "UR_LAYER_PARAMETER_VALIDATION,UR_LAYER_LIFETIME_VALIDATION,UR_LAYER_LEAK_CHECKING"

# Handles allowed at process exit, by the call that created them, with the reason.
KEPT = {
    "urQueueCreate": "queues are cached for the process: the same device, context and properties "
    "give the same queue; one to which another library has a pointer may not go",
    "urContextCreate": "the default context of a platform or sub-device lives as long as the "
    "runtime, and the cached queues hold theirs",
    "urKernelCreateWithNativeHandle": "built kernels stay with their context, for the next launch",
    "urDeviceGet": "a reference of the runtime to a root device whose OpenCL handle was read",
}
# A cached queue keeps the event of its last command.
EVENTS_OF_A_QUEUE = 1
# What a session of tests may leave besides: kernels from SYCL source and those of dpnp, which
# libsycl keeps with their programs; and events of the last use of arrays that the interpreter does
# not release at its end, a few. One lost per launch would be thousands.
KEPT_BY_TESTS = KEPT | {
    "urKernelCreate": "kernels that libsycl caches, ours from SYCL source and those of dpnp",
    "urProgramCreateWithBinary": "their programs, from the runtime's cache on disk",
    "urProgramCreateWithIL": "their programs, built",
}
FEW_EVENTS = 100
# As urDevicePartition is not among the calls that the leak layer counts, sub-devices are first seen
# when they are retained or released, and their counts are negative.
UNCOUNTED = {"urDeviceRelease", "urDeviceRetain"}

# Drops everything before its exit, so only handles kept on purpose may remain.
STRICT = """
import gc
import usmq
x = usmq.arange(10, dtype="u4")
y = x.copy()
assert int(y.to_numpy().sum()) == 45
kernel = usmq.Kernel.from_opencl(
    "kernel void add(global uint *x) { x[get_global_id(0)] += 1; }", "add"
)
kernel(10, x).wait()
loose = usmq.Queue(in_order=False, context=usmq.Context(usmq.devices()))
z = usmq.collocate(x, queue=loose)
assert int(z.to_numpy().sum()) == 55
part = usmq.Queue(usmq.devices()[0].sub_devices(1)[0])
w = usmq.collocate(x, queue=part)
assert int(w.to_numpy().sum()) == 55
with usmq.profile():
    usmq.zeros(3).wait()
del x, y, z, w, kernel, loose, part
gc.collect()
usmq.trim_memory()
"""

# Files of tests that together reach every call of the runtime that usmq makes. Those left out start
# processes of their own, whose logs would be mixed, or look at what stderr says.
FILES = [
    "array_copies",
    "array_views",
    "arrays",
    "arrow_batches",
    "arrow_columns",
    "arrow_device_streams",
    "arrow_export",
    "arrow_import",
    "arrow_kernels",
    "arrow_streams",
    "arrow_tables",
    "buffers",
    "contexts",
    "current_queue",
    "devices",
    "dlpack_exchange",
    "dlpack_export",
    "dlpack_import",
    "dlpack_peers",
    "kernel_arguments",
    "kernels",
    "memory",
    "opencl_kernels",
    "order",
    "placement",
    "profile",
    "queue_manager",
    "queues",
    "suai",
    "suai_refused",
    "tasks",
    "threads",
]
QUICK = ["arrays", "kernels", "order", "placement", "suai", "dlpack_peers", "queues"]
RUST = ["arrow_order", "contexts", "kernels", "order", "placement", "pool", "threads"]


@dataclass
class Log:
    """What the layers found in one process."""

    gone: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    left: dict[str, tuple[int, str]] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)

    def problems(self, lenient: bool) -> list[str]:
        """Return what may not be, in a session of tests or in the strict program."""
        kept = KEPT_BY_TESTS if lenient else KEPT
        uncounted = {handle for handle, (_, by) in self.left.items() if by in UNCOUNTED}
        # NULL where a handle is optional, and sub-devices, which the layer has never counted.
        fine = {"0", *uncounted, *self.unknown}
        found = [
            f"use of a handle that is gone: {handle}, {count} times"
            for handle, count in self.gone.items()
            if handle not in fine
        ]
        found += [
            f"left over: {count} reference(s) to a handle of {by}"
            for handle, (count, by) in self.left.items()
            if handle not in uncounted and by not in kept and not is_event(by)
        ]
        events = sum(is_event(by) for _, by in self.left.values())
        queues = sum(by == "urQueueCreate" for _, by in self.left.values())
        if events > (FEW_EVENTS if lenient else EVENTS_OF_A_QUEUE * queues):
            found.append(f"left over: {events} events")
        return found + self.other


def is_event(by: str) -> bool:
    """Say whether a call of the runtime makes an event."""
    return by.startswith(("urEnqueue", "urEvent"))


def read(text: str) -> Log:
    """Read the log of one process."""
    log, pending = Log(), ""
    for line in text.splitlines():
        if not line.startswith("<VALIDATION>"):
            continue
        said = line.partition(": ")[2]
        if match := re.match(r"There are no valid references to handle (\w+)", said):
            log.gone[match[1]] += 1
        elif match := re.match(r"Attempting to \w+ nonexistent handle (\w+)", said):
            log.unknown[match[1]] += 1
        elif match := re.match(r"Retained (-?\d+) reference\(s\) to handle (\w+)", said):
            pending = match[2]
            log.left[pending] = (int(match[1]), "?")
        elif match := re.match(r"#\d+ .*\((ur[A-Z]\w+)\+", said):
            if pending:  # the first call of the runtime in the stack
                log.left[pending] = (log.left[pending][0], match[1])
                pending = ""
        elif not said.startswith(("Handle ", "#")) and "[ERROR]" in line:
            log.other.append(said)
    return log


def run(name: str, command: list[str], folder: Path, lenient: bool = True) -> list[str]:
    """Run one process under the layers, and return what is wrong."""
    begun = time.monotonic()
    env = os.environ | {
        "UR_ENABLE_LAYERS": LAYERS,
        "UR_LOG_VALIDATION": "level:info;output:stderr",
        "RUST_TEST_THREADS": "1",
        # As `cargo test` does; test binaries have no run path.
        "LD_LIBRARY_PATH": str(Path(sys.prefix) / "lib"),
    }
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    (folder / f"{name}.log").write_text(done.stdout + done.stderr)
    log = read(done.stderr)
    problems = log.problems(lenient)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        problems.append(f"exit status {done.returncode}\n{tail}")
    if "<VALIDATION>" not in done.stderr:
        problems.append("the layers said nothing: were they loaded?")
    left = Counter(by for _, by in log.left.values())
    took = time.monotonic() - begun
    print(f"  {name:<22}{took:6.1f} s  {'FAILED' if problems else 'ok'}  left: {dict(left)}")
    for problem in problems:
        print(f"    {problem}")
    sys.stdout.flush()
    return problems


def rust(name: str) -> list[str]:
    """Return the command of a Rust suite, which `cargo test --no-run` has built."""
    alone = (ROOT / "tests" / f"{name}.rs").exists()
    binary = name if alone else "suite"
    built = subprocess.run(
        ["cargo", "test", "--features", "arrow", "--no-run", "--test", binary],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    found = re.search(r"Executable .*\((.*)\)", built.stderr)
    assert found, built.stderr
    # It starts processes whose output, full of the layers' lines, it reads at their end only.
    skipped = ["--skip", "a_process_with_work_in_flight"]
    return [str(ROOT / found[1]), *([] if alone else [f"{name}::"]), *skipped]


def main() -> int:
    """Run everything, and say what may not be."""
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about.add_argument("--quick", action="store_true", help="the program and seven files")
    about.add_argument("--only", nargs="*", help="these files of tests/python")
    given = about.parse_args()
    folder = ROOT / "target" / "validation"
    folder.mkdir(parents=True, exist_ok=True)
    print("validation: what may be left at the end, by the call that made it")
    for call, reason in KEPT_BY_TESTS.items():
        print(f"  {call}: {reason}")
    failed = []
    if run("program", [sys.executable, "-c", STRICT], folder, lenient=False):
        failed.append("program")
    for name in given.only or (QUICK if given.quick else FILES):
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
        if run(name, [*command, f"tests/python/test_{name}.py"], folder):
            failed.append(name)
    for name in [] if given.quick or given.only else RUST:
        if run(f"{name}.rs", rust(name), folder):
            failed.append(name)
    print(f"validation: {'FAILED: ' + ', '.join(failed) if failed else 'no error, no other leak'}")
    print(f"  logs: {folder}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
