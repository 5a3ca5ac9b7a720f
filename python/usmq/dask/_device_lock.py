"""Detects another worker on the same device: a file lock that ends with its process."""

import fcntl
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import IO


class DeviceLock:
    """A lock on a device. ``holder`` names another worker that holds it, else it is None.

    No device name is the same under every ``ONEAPI_DEVICE_SELECTOR``, so the lock only detects
    workers started with the same variables. ``fault`` is the reason why the check failed.
    """

    def __init__(self, device: str, worker: str):
        selection = [
            os.environ.get(name, "") for name in ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK")
        ]
        name = hashlib.sha256("\n".join([device, *selection]).encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir(), f"usmq-{os.getuid()}")
        self.holder: str | None = None
        self.fault: str | None = None
        self._file: IO[str] | None = None
        try:
            file = _open(folder, f"{name}.lock")
        except OSError as error:
            # Without a lock file the check is skipped; the worker still runs.
            self.fault = str(error)
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
        """Release the lock, so that the next worker gets it without a warning."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _open(folder: Path, name: str) -> IO[str]:
    """Open our file in our folder; another user may have created a folder of this name."""
    folder.mkdir(mode=0o700, exist_ok=True)
    # Do not follow links: a link to a folder or file of ours would redirect the write.
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(inside)
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
            raise PermissionError(f"{folder} belongs to another user, or others may write to it")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(name, flags, 0o600, dir_fd=inside), "a+", encoding="utf-8")
    finally:
        os.close(inside)
