"""``python -m usmq --include-dir`` and similar options: the folders for builds in C and C++."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_LIBRARY = "libusmq.so.0"

FOLDERS = {
    "include": "the folder of usmq.h and usmq.hpp",
    "cmake": "the folder of usmq-config.cmake, for usmq_DIR or CMAKE_PREFIX_PATH",
    "lib": f"the folder of {_LIBRARY}, for programs without Python",
}


def show(names: list[str]) -> int:
    """Print the folders, one per line; return 1 if the library is missing."""
    for name in names:
        folder = _PACKAGE / name
        if name == "lib" and not (folder / _LIBRARY).exists():
            print(
                f"this usmq was built from source and has no {_LIBRARY}, which programs without "
                "Python need. In the checkout, `cargo rustc --release --lib --features c-library "
                "--crate-type cdylib` builds it: target/release/libusmq.so",
                file=sys.stderr,
            )
            return 1
        print(folder)
    return 0
