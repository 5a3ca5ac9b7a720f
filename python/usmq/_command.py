"""Helpers of the commands: the program name, and checks of output paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def program() -> str:
    """Return ``usmq`` for the command of this name, else ``python -m usmq``."""
    return "usmq" if os.path.basename(sys.argv[0]) == "usmq" else "python -m usmq"


def cannot_write(path: str | os.PathLike[str], problem: OSError) -> str:
    """Return the error line for a file that cannot be written."""
    return f"cannot write {os.fspath(path)}: {problem.strerror or problem}"


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise the OSError that writing this file would raise; do not change the file."""
    path = Path(path)
    there = path.exists()
    # Opening a pipe would wait for its reader.
    if there and not path.is_file() and not path.is_dir():
        return
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    if not there:
        path.resolve().unlink()


def check_folder(path: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Create the folder, and raise the OSError that writing these files into it would raise."""
    Path(path).mkdir(parents=True, exist_ok=True)
    for name in names:
        check_file(Path(path) / name)
