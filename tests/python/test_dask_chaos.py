"""A few rounds of `tests/run chaos`: exact results and no leak while workers are lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

CHAOS = Path(__file__).parents[1] / "chaos"


def test_a_pipeline_is_exact_and_leaks_nothing_while_workers_are_lost(tmp_path):
    # In these two rounds a worker is killed, one runs out of memory, and messages are slow.
    command = [sys.executable, str(CHAOS), "--rounds", "2", "--seed", "9", "--patience", "120"]
    done = subprocess.run(
        command,
        env=os.environ | {"USMQ_EMULATE_GPUS": "4", "TMPDIR": str(tmp_path)},
        text=True,
        capture_output=True,
        timeout=400,
    )
    printed = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, printed
    last = done.stdout.splitlines()[-1]
    assert last.startswith("chaos: nothing lost, seed 9, 2 rounds"), printed
    assert not list(tmp_path.iterdir()), printed


def test_unknown_sizes_are_refused():
    for option, value in (("--rounds", "0"), ("--workers", "0"), ("--workers", "9")):
        done = subprocess.run(
            [sys.executable, str(CHAOS), option, value], text=True, capture_output=True, timeout=60
        )
        assert done.returncode == 2
        assert "--rounds must be 1 or more" in done.stderr
