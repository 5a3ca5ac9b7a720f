"""OpenCL C on Level Zero, whose compiler is a package of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import usmq

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(
    usmq.current_queue().device.backend != "level_zero",
    reason="needs a device of Level Zero: tests/run level-zero",
)

BUILD = """
import usmq
usmq.Kernel.from_opencl("kernel void f(global int *x) { x[get_global_id(0)] = 3; }", "f")
"""


@pytest.fixture
def without_compiler(tmp_path: Path) -> dict[str, str]:
    """A folder before the others with an empty file in the compiler's place."""
    (tmp_path / "libocloc.so").touch()
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def test_the_error_names_the_package(run_python: Run, without_compiler: dict[str, str]) -> None:
    done = run_python(BUILD, check=False, **without_compiler)
    assert done.returncode == 1
    assert "needs the library libocloc.so" in done.stderr
    assert "install the package intel-ocloc, or use SYCL source" in done.stderr
    assert run_python(BUILD).stderr == ""


def test_the_doctor_names_the_package(run_python: Run, without_compiler: dict[str, str]) -> None:
    done = run_python(None, "-m", "usmq", "doctor", **without_compiler)
    assert "libocloc.so was not found, so kernels in OpenCL C do not compile" in done.stdout
    assert "sudo apt install intel-ocloc" in done.stdout
    assert "libocloc" not in run_python(None, "-m", "usmq", "doctor").stdout


def test_the_doctor_names_the_adapter(run_python: Run) -> None:
    for value, name in (("0", "level_zero"), ("1", "level_zero_v2")):
        done = run_python(None, "-m", "usmq", "doctor", SYCL_UR_USE_LEVEL_ZERO_V2=value)
        assert f"the adapter is {name}, by SYCL_UR_USE_LEVEL_ZERO_V2={value}" in done.stdout
