"""docs/coming-from.md names a counterpart, or a reason, for every public name of dpctl."""

import os
import re
from pathlib import Path

import dpctl
import dpctl.memory
import dpctl.program
import dpctl.utils
import pytest
import usmq

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
HOLDERS = [
    dpctl,
    dpctl.SyclContext,
    dpctl.SyclDevice,
    dpctl.SyclEvent,
    dpctl.SyclPlatform,
    dpctl.SyclQueue,
    dpctl.SyclTimer,
    dpctl.memory,
    dpctl.memory.MemoryUSMDevice,
    dpctl.program,
    dpctl.utils,
]


def public(holder):
    """Return the public names, without modules of Python that it imports."""
    return {
        name for name in dir(holder) if name[0] != "_" and getattr(holder, name, None) is not os
    }


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
def test_the_page_names_every_public_member(holder):
    named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert public(holder) - named == set(), "add them to 'Every public name of dpctl'"


def test_names_that_the_page_calls_the_same_exist_in_usmq():
    rows = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.endswith("| the same names in `usmq.Device` |")
    ]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(names) > 40
    assert names - {"SyclDevice"} - set(dir(usmq.Device)) == set()
