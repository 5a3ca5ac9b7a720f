"""Shared by the commands: the name that usmq was called by, and checks of paths they write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def program() -> str:
    """Return ``usmq`` for the command of this name, else ``python -m usmq``."""
    return "usmq" if os.path.basename(sys.argv[0]) == "usmq" else "python -m usmq"


def cannot_write(path: str | os.PathLike[str], problem: OSError) -> str:
    """Return the one line for a file that cannot be written."""
    return f"cannot write {os.fspath(path)}: {problem.strerror or problem}"


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise the OSError that writing this file would; leave the file as it is."""
    path = Path(path)
    there = path.exists()
    # Opening a pipe waits for its reader.
    if there and not path.is_file() and not path.is_dir():
        return
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    if not there:
        path.resolve().unlink()


def check_folder(path: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Make the folder, and raise the OSError that writing files of these names into it would."""
    Path(path).mkdir(parents=True, exist_ok=True)
    for name in names:
        check_file(Path(path) / name)
