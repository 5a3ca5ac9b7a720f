"""Build the mock CUDA driver, and the environment in which it is found."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import usmq

FOLDER = Path(__file__).parent.parent / "cuda"


def build(folder, *flags):
    """Return the folder with the mock driver inside."""
    compiler = shutil.which("cc")
    assert compiler, "a C compiler is needed, as for building usmq"
    library = folder / "libcuda.so.1"
    source = FOLDER / "mock_driver.c"
    command = [compiler, "-shared", "-fPIC", "-O1", *flags, "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", library, source, "-lpthread"], check=True)
    return folder


def environment(driver, **extra):
    """Return this process's environment, with that driver in place of any other."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": f"{driver}:{path}" if path else str(driver)} | extra


def skip_if_installed() -> None:
    """Skip a test about machines without a CUDA driver."""
    try:
        usmq.asarray([0], device="cuda:0")
    except usmq.RuntimeNotFoundError:
        return
    pytest.skip("a CUDA driver is installed; see the tests in tests/cuda")
