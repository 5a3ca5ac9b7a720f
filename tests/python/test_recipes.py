"""The programs of docs/howto/ray-mpi.md, run by the page's commands; needs Ray and MPI."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import doc_blocks
import pytest
import usmq
from conftest import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "ray-mpi.md"


def program(name, folder):
    """Write a program of the page to a file."""
    [block] = [block for block in doc_blocks.blocks(PAGE) if block.word == name]
    file = folder / name
    file.write_text(block.code, encoding="utf-8")
    return file


def run(command, folder, timeout, **environment):
    """Return the output of a command; kill all its processes at the time limit."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as started:
        try:
            printed, errors = started.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)
            raise
    assert started.returncode == 0, f"{printed}\n{errors}"
    return printed


def mpiexec():
    """Return the launcher of the MPI that mpi4py loads: that of this environment, else of PATH."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install mpi4py mpich")
    beside = Path(sys.prefix, "bin", "mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec: pip install mpich, or the MPI of this machine")
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_have_one_device_each_and_exchange_host_usm(ranks, tmp_path):
    command = [mpiexec(), "-n", str(ranks), sys.executable, str(program("exchange.py", tmp_path))]
    lines = run(command, tmp_path, timeout=60).splitlines()
    seen = [re.fullmatch(r"rank (\d) on (\S+): (\d+\.\d+)", line) for line in lines]
    assert len(seen) == ranks
    assert all(seen), lines
    assert [found[3] for found in seen if found] == [str(float(sum(range(1, ranks + 1))))] * ranks
    devices = {found[2] for found in seen if found}
    assert len(devices) == min(ranks, len(usmq.devices()))


def test_ranks_have_one_emulated_gpu_each(tmp_path):
    ranks = 4
    command = [mpiexec(), "-n", str(ranks), sys.executable, str(program("exchange.py", tmp_path))]
    gpus = {"USMQ_EMULATE_GPUS": str(ranks), "ONEAPI_DEVICE_SELECTOR": "opencl:*"}
    lines = run(command, tmp_path, timeout=120, **gpus).splitlines()
    assert lines == [f"rank {rank} on opencl:gpu:{rank}: 10.0" for rank in range(ranks)]


def actors(folder, **environment):
    """Run the program for Ray; return what its actors report, and its last line."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install ray (80 MB)")
    command = [sys.executable, str(program("actors.py", folder))]
    where, total = run(command, folder, timeout=180, **environment).splitlines()[-2:]
    return ast.literal_eval(where), total


def test_actors_have_one_device_each_and_pass_arrays(tmp_path, two_devices):
    where, total = actors(tmp_path, SELECTORS="opencl:0 opencl:1")
    drivers = [device.driver_version for device in two_devices]
    assert [actor[1:] for actor in where] == [(driver, 1) for driver in drivers]
    assert total == f"2 actors: {sum(range(1_000_000)) * 4}"


def test_actors_have_one_emulated_gpu_each(tmp_path):
    selectors = " ".join(f"*:{number}" for number in range(4))
    where, total = actors(tmp_path, USMQ_EMULATE_GPUS="4", SELECTORS=selectors)
    assert [name[: len("Emulated GPU 0")] for name, _, _ in where] == [
        f"Emulated GPU {number}" for number in range(4)
    ]
    assert {seen for _, _, seen in where} == {1}
    assert total == f"4 actors: {sum(range(1_000_000)) * 16}"
