"""Findings for the doctor that need Python: packages of this environment that use SYCL too."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from usmq._core import runtime_libraries
from usmq._import_error import limited, mismatch, version_of

Fact = tuple[str, str, str | None]

# These packages load libsycl into the process themselves.
_USERS = ("dpctl", "dpnp", "torch")
_RUNTIME = ("intel-sycl-rt", "intel-cmplr-lib-ur", "intel-opencl-rt", "umf")
# A package that queries devices at import reads these through the runtime, too.
_MAY_BREAK = (
    "ONEAPI_DEVICE_SELECTOR",
    "SYCL_DEVICE_ALLOWLIST",
    "LD_LIBRARY_PATH",
)
_LACKS = "before dpnp uses memory of usmq, call wait() on it, and use dpnp in one thread"
_KNOWN = "pip install 'dpctl==0.22.*'"
_SAME_SOURCE = "install usmq, {name} and intel-sycl-rt into one environment by one pip command"

# Prints the libraries of SYCL that are mapped once the package is imported.
_LOOK = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
paths = {line[line.find("/"):].rstrip() for line in open("/proc/self/maps") if "/" in line}
names = ("libsycl.so", "libur_loader.so")
found = sorted(path for path in paths if os.path.basename(path).startswith(names))
lacks = []
if sys.argv[1] == "dpctl":
    try:
        from usmq import _dpctl_order
    except ImportError:
        pass
    else:
        lacks = _dpctl_order.lacks()
print("\\0".join(found), ", ".join(lacks), sep="\\n", end="", flush=True)
os._exit(0)
"""


def facts(timeout: float) -> list[Fact]:
    """Return the state, fact and fix of each package."""
    found = list(_wheels())
    versions = {name: version for name in _USERS if (version := version_of(name))}
    deadline = time.monotonic() + timeout
    ours = {os.path.realpath(path) for path in runtime_libraries("libsycl.so")}
    with contextlib.ExitStack() as children:
        asked = {name: children.enter_context(_ask(name)) for name in versions}
        for name, child in asked.items():
            found.append(_judge(f"{name} {versions[name]}", name, child, deadline, ours))
    return found


def _wheels() -> list[Fact]:
    versions = {name: version for name in _RUNTIME if (version := version_of(name))}
    if not versions:
        return [("ok", "the runtime does not come from wheels of this environment", None)]
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    found: list[Fact] = [("ok", text, None)]
    if odd := mismatch():
        found.append(("problem", *odd))
    return found


def _ask(name: str, before: str = ":") -> subprocess.Popen[bytes]:
    shell = ["sh", "-c", f'{before}; exec "$@"', "sh"]
    command = [*shell, sys.executable, "-c", _LOOK, name]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=_folder()
    )


def _folder() -> str | None:
    """Return another folder for the children if the current one was deleted, a finding itself."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "/"
    return None


def _answer(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    try:
        return child.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=5)
        raise


def _suspects() -> Iterator[str]:
    """Yield commands that undo settings which may break the import of a SYCL package."""
    yield from (f"unset {name}" for name in _MAY_BREAK if name in os.environ)
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        yield "ulimit -v unlimited"


def _judge(
    title: str, name: str, child: subprocess.Popen[bytes], deadline: float, ours: set[str]
) -> Fact:
    try:
        output, errors = _answer(child, deadline)
    except subprocess.TimeoutExpired:
        return (
            "note",
            f"{title}: its import does not finish",
            f"python -X faulthandler -c 'import {name}'",
        )
    if child.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit {child.returncode}"]
        limit = limited(lines[-1])
        fix = limit[1] if limit else f"pip install --force-reinstall {name}"
        for suspect in _suspects():
            with contextlib.suppress(subprocess.TimeoutExpired), _ask(name, suspect) as again:
                _answer(again, deadline)
                if again.returncode == 0:
                    fix = suspect
                    break
        return "problem", f"{title} cannot be imported: {lines[-1].strip()}", fix
    loaded, _, lacks = os.fsdecode(output).partition("\n")
    paths = {os.path.realpath(path) for path in loaded.split("\0") if path}
    theirs = {path for path in paths if os.path.basename(path).startswith("libsycl.so")}
    if not theirs:
        return "ok", f"{title} loads no SYCL runtime", None
    if theirs <= ours and lacks:
        return "note", f"{title} has other {lacks} than usmq knows: {_LACKS}", _KNOWN
    if theirs <= ours:
        return "ok", f"{title} shares the runtime of usmq", None
    what = f"{title} loads another SYCL runtime: {', '.join(sorted(theirs - ours))}"
    return "problem", what, _SAME_SOURCE.format(name=name)
