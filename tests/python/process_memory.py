"""The resident memory of this process."""

import os
from pathlib import Path


def resident_bytes():
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
