"""Shared reporting of the Python programs in this folder."""

from __future__ import annotations

import sys
from typing import NoReturn


def seen(how: str) -> NoReturn:
    """The defect is there."""
    print(f"seen: {how}", flush=True)
    sys.exit(0)


def fixed(how: str, place: str) -> NoReturn:
    """The defect is gone; `place` is the workaround."""
    print(f"fixed: {how}; remove the workaround in {place}", flush=True)
    sys.exit(1)


def not_seen(how: str) -> NoReturn:
    """A defect that shows only at times did not."""
    print(f"not seen: {how}", flush=True)
    sys.exit(2)


def not_tried(reason: str) -> NoReturn:
    """What the program needs is not here."""
    print(f"not tried: {reason}", flush=True)
    sys.exit(77)


def trying() -> None:
    """After this line a hang or a crash is the defect."""
    print("trying", flush=True)
