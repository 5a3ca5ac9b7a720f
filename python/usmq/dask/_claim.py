"""Whether another worker of this machine has the same device: a lock, gone with its process."""

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO


class Claim:
    """A claim to a device. ``holder`` says who else has it; None when nobody does.

    Devices have no name that is the same under every ``ONEAPI_DEVICE_SELECTOR``, so only workers
    that were started with the same variables find each other.
    """

    def __init__(self, device: str, worker: str):
        selection = [
            os.environ.get(name, "") for name in ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK")
        ]
        name = hashlib.sha256("\n".join([device, *selection]).encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir(), f"usmq-{os.getuid()}")
        self.holder: str | None = None
        self._file: IO[str] | None = None
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            file = (folder / f"{name}.lock").open("a+", encoding="utf-8")
        except OSError:
            # Without a place for the file nobody is warned; the worker runs all the same.
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            self.holder = file.read() or "another worker"
            file.close()
            return
        file.truncate(0)
        file.write(f"{worker} (process {os.getpid()})")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let the next worker have it without a warning."""
        if self._file is not None:
            self._file.close()
            self._file = None
