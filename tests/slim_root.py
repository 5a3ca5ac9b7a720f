"""A small Debian in a folder, without compilers and C++ headers, as slim container images."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

# With Python, as the image python:slim; `minbase` has nothing else that a program needs.
DEBOOTSTRAP = "debootstrap --variant=minbase --include=python3,python3-venv"
SUITE = "bookworm"


def missing() -> str | None:
    """Return why no such folder can be made here, and the fix."""
    if os.geteuid():
        return "debootstrap and chroot need root; run it with sudo"
    if not shutil.which("debootstrap"):
        return "debootstrap is missing; apt-get install debootstrap"
    return None


class Root:
    """The root folder of the system; its commands see no other file of this machine."""

    python = "3.11"  # of the suite

    def __init__(self, folder: Path, run: Callable[[list[object]], None]) -> None:
        self.folder = folder
        self._run = run
        run([*DEBOOTSTRAP.split(), SUITE, folder])
        shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")

    def run(self, command: str) -> None:
        """Run a command inside, with an empty environment; its mounts end with it."""
        root = self.folder
        inside = (
            f"mount -t proc proc {root}/proc && mount -t sysfs sysfs {root}/sys && "
            f"exec chroot {root} /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin {command}"
        )
        self._run(["unshare", "--mount", "sh", "-c", inside])
