"""The page on upstream defects, its programs and the workarounds in usmq are consistent."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "upstream"
PAGE = (ROOT / "docs" / "upstream.md").read_text()
HELPERS = {"__main__.py", "outcome.py", "upstream.h", "parts.h"}
PROGRAMS = {path.name for path in FOLDER.iterdir() if path.is_file()} - HELPERS


def test_each_program_is_run_and_listed_on_the_page():
    listed = subprocess.run(
        [sys.executable, str(FOLDER), "--list"], capture_output=True, text=True, check=True
    )
    assert {line.split()[0] for line in listed.stdout.splitlines()} == PROGRAMS
    assert set(re.findall(r"`(\w+\.(?:cpp|py|rs))`", PAGE)) == PROGRAMS


def test_each_workaround_is_at_the_place_named_by_page_and_program():
    named = set(re.findall(r"`((?:src|cpp)/[\w/.]+)`(?: \(`(?:\w+::)?(\w+)`\))?", PAGE))
    for name in PROGRAMS:
        text = (FOLDER / name).read_text()
        named |= {(path, "") for path in re.findall(r"\b((?:src|cpp|tests)/[\w/.]+\.\w+)", text)}
    assert named
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or function in (ROOT / path).read_text(), (path, function)
