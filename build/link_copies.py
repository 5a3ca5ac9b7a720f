"""Keep one copy of each library of an environment: `python build/link_copies.py .venv/lib`.

A wheel holds no links: libsycl-jit.so and libsycl-jit.so.22.1 are two files of 178 MB. Equal files
of a folder become names of one file. pip replaces and removes names, as before.
"""

from __future__ import annotations

import filecmp
import os
import sys
from pathlib import Path


def link_copies(folder: Path) -> int:
    """Link files of the same content and return the bytes that this frees."""
    saved = 0
    by_size: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("*.so*")):
        if not path.is_file() or path.is_symlink():
            continue
        alike = by_size.setdefault(path.stat().st_size, [])
        same = next((each for each in alike if filecmp.cmp(each, path, shallow=False)), None)
        if same is None:
            alike.append(path)
        elif not same.samefile(path):
            spare = path.with_name(path.name + ".new")
            os.link(same, spare)
            saved += path.stat().st_size
            spare.replace(path)
    return saved


if __name__ == "__main__":
    print(f"{link_copies(Path(sys.argv[1])) / 1e6:.0f} MB less: equal libraries are one file now")
