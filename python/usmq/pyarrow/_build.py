"""``python -m usmq pyarrow build``: compile the device mapper for the installed pyarrow."""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import usmq
from usmq._command import program

_SOURCE = Path(__file__).with_name("device_mapper.cc")
_INCLUDE = Path(__file__).resolve().parents[1] / "include"
_COMPILERS = ("c++", "g++", "clang++")
# The first lines of a compiler's messages; the rest repeats them.
_LINES = 20


def build(*, force: bool = False) -> Path:
    """Compile the device mapper of :func:`register` with the C++ compiler of this machine.

    The library goes to ``$XDG_CACHE_HOME/usmq/pyarrow``, else ``~/.cache/usmq/pyarrow``. Its name
    has the versions of pyarrow and usmq, so that each pair is built once. The compiler is ``CXX``,
    else ``c++``, ``g++`` or ``clang++``, and needs C++20.

    Parameters
    ----------
    force : bool
        Compile again, also if the library exists.

    Returns
    -------
    pathlib.Path
        The library.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    usmq.InteropError
        The compiler is missing or fails, pyarrow lacks headers or is too old, or another user
        may write to the folder.
    """
    path = _path()
    if path.is_file() and not force:
        _check_private(path)
        return path
    command = _compile_command()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(path.parent)
    # Another process may build the same file: each writes its own, and the last one stays.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        done = subprocess.run(
            [*command, "-o", str(made)], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            lines = "\n".join((done.stderr or done.stdout).splitlines()[:_LINES])
            raise usmq.InteropError(
                f"the compiler failed with status {done.returncode}:\n{shlex.join(command)}\n"
                f"{lines}\nSet CXX to a compiler with C++20, such as g++ 11 or newer"
            )
        made.chmod(0o700)
        made.replace(path)
    return path


def library() -> Path:
    """Return the library that `build` has made for these versions; raise InteropError without."""
    path = _path()
    if not path.is_file():
        raise usmq.InteropError(
            f"usmq {usmq.__version__} has no device mapper for pyarrow {_pyarrow().__version__} in "
            f"{path.parent}; build it once with `python -m usmq pyarrow build`"
        )
    _check_private(path)
    return path


def _pyarrow() -> Any:
    import pyarrow

    return pyarrow


def _path() -> Path:
    """Return the place of the library for this pyarrow, this usmq and these sources."""
    text = _SOURCE.read_bytes() + (_INCLUDE / "usmq.h").read_bytes()
    # An update in place may keep the version, as of a checkout.
    text += str(Path(_pyarrow().__file__).parent).encode()
    digest = hashlib.sha256(text).hexdigest()[:12]
    versions = f"pyarrow-{_pyarrow().__version__}-usmq-{usmq.__version__}"
    return _folder() / f"device_mapper-{versions}-{digest}.so"


def _folder() -> Path:
    for name, rest in (("XDG_CACHE_HOME", "usmq/pyarrow"), ("HOME", ".cache/usmq/pyarrow")):
        if os.path.isabs(base := os.environ.get(name, "")):
            return Path(base) / rest
    raise usmq.InteropError(
        "no folder for the device mapper: neither XDG_CACHE_HOME nor HOME is an absolute path; "
        "set one of them"
    )


def _check_private(path: Path) -> None:
    """Raise InteropError if another user could replace the code that register() loads."""
    for place in (real := path.resolve(), *real.parents):
        about = place.stat()
        if about.st_uid not in (0, os.geteuid()):
            raise usmq.InteropError(
                f"{path} is not used: {place} belongs to another user. Set XDG_CACHE_HOME to a "
                "folder of your own"
            )
        # A group with the user's own number has no other member.
        private = about.st_gid == os.getegid() == os.geteuid()
        writers = stat.S_IWOTH if private else stat.S_IWOTH | stat.S_IWGRP
        # In a sticky folder, as /tmp, others cannot replace a file of this user.
        guarded = place != real and about.st_mode & stat.S_ISVTX
        if about.st_mode & writers and not guarded:
            raise usmq.InteropError(
                f"{path} is not used: other users may write to {place}. Run `chmod go-w {place}`, "
                "or set XDG_CACHE_HOME to a folder of your own"
            )


def _compile_command() -> list[str]:
    """Return the command without its output file, or raise InteropError for a missing part."""
    pyarrow = _pyarrow()
    headers = Path(pyarrow.get_include())
    device = headers / "arrow" / "device.h"
    if not device.exists():
        raise usmq.InteropError(
            f"pyarrow {pyarrow.__version__} has no C++ headers: {device} does not exist. Install a "
            "wheel of pyarrow, or with conda also the package libarrow-all"
        )
    if "RegisterDeviceMapper" not in device.read_text(encoding="utf-8"):
        raise usmq.InteropError(
            f"pyarrow {pyarrow.__version__} cannot hold memory of other devices; install a newer "
            "version"
        )
    files = [
        found
        for folder in pyarrow.get_library_dirs()
        for found in sorted(Path(folder).glob("libarrow.so*"))
    ]
    if not files:
        raise usmq.InteropError(
            f"pyarrow {pyarrow.__version__} has no shared libarrow in "
            f"{', '.join(pyarrow.get_library_dirs())}; install a wheel of pyarrow"
        )
    command = [*_compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += [f"-isystem{headers}", f"-I{_INCLUDE}", str(_SOURCE)]
    return [*command, "-Wl,--no-undefined", str(files[0]), "-ldl"]


def _compiler() -> list[str]:
    if named := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(named[0]) is None:
            raise usmq.InteropError(
                f"CXX names the compiler {named[0]!r}, which was not found; install it or "
                "change CXX"
            )
        return named
    for name in _COMPILERS:
        if shutil.which(name) is not None:
            return [name]
    raise usmq.InteropError(
        f"there is no C++ compiler: none of {', '.join(_COMPILERS)} is in PATH. Install one, as "
        "with `apt install g++`, or set CXX"
    )


def main(argv: list[str]) -> int:
    """Run ``python -m usmq pyarrow`` and return its exit status."""
    parser = argparse.ArgumentParser(
        prog=f"{program()} pyarrow",
        description="Compile the device mapper with which pyarrow holds oneAPI memory. "
        "usmq.pyarrow.register() loads it.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    building = commands.add_parser("build", help="compile for this pyarrow; print the file")
    building.add_argument("--force", action="store_true", help="compile again")
    options = parser.parse_args(argv)
    try:
        print(build(force=options.force))
    except (usmq.InteropError, ImportError) as problem:
        print(f"usmq pyarrow: {problem}", file=sys.stderr)
        return 1
    return 0
