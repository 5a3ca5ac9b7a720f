"""CUDA memory without an NVIDIA GPU: errors name what is missing; the rest uses a mock driver."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import usmq
from cuda_driver import FOLDER, build, environment


@pytest.fixture(scope="module")
def mock_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a libcuda.so.1 without a GPU."""
    return build(tmp_path_factory.mktemp("driver"))


def outcome(driver: Path, **extra: str) -> str:
    """Return the error of a new process that requests CUDA memory."""
    code = """
import usmq
try:
    usmq.asarray([1.0], device="cuda:0")
except usmq.Error as error:
    print(type(error).__name__, error)
print("usable:", usmq.arange(3).to_numpy().sum())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(driver, **extra),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("usable: 3.0\n") or done.stdout.endswith("usable: 3\n")
    return done.stdout


def test_the_device_tests_pass_with_the_mock_driver(mock_driver: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-p",
            "no:cacheprovider",
            str(FOLDER / "test_cuda_device.py"),
        ],
        env=environment(mock_driver),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout
    print(done.stdout.splitlines()[-1])


def test_a_driver_that_is_too_old_is_reported(mock_driver: Path) -> None:
    assert "RuntimeNotFoundError the CUDA driver is for CUDA 11.4" in outcome(
        mock_driver, MOCK_DRIVER="old"
    )


def test_a_driver_that_does_not_start_is_reported(mock_driver: Path) -> None:
    said = outcome(mock_driver, MOCK_DRIVER="broken")
    assert "RuntimeNotFoundError the CUDA driver does not start: CUDA_ERROR_UNKNOWN" in said


def test_a_driver_without_a_device_is_reported(mock_driver: Path) -> None:
    said = outcome(mock_driver, MOCK_DRIVER="none")
    assert "RuntimeNotFoundError" in said
    assert "finds no device" in said


def test_a_driver_without_a_function_is_reported(tmp_path: Path) -> None:
    said = outcome(build(tmp_path, "-DWITHOUT_STREAM_WAITS"))
    assert (
        "RuntimeNotFoundError the CUDA driver library has no function cuStreamWaitValue32_v2"
        in said
    )


def test_a_file_that_is_not_a_library_is_reported(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    assert "RuntimeNotFoundError" in outcome(tmp_path)


def test_a_shortage_of_device_memory_is_an_allocation_error(mock_driver: Path) -> None:
    said = outcome(mock_driver, MOCK_DRIVER="full")
    assert "AllocationError usm allocation of 8 B (CUDA)" in said


def test_an_absent_device_is_refused(mock_driver: Path) -> None:
    code = "import usmq; usmq.asarray([1], device='cuda:3')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(mock_driver),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert 'DeviceNotFoundError: no device matches "cuda:3"; visible devices: cuda:0' in done.stderr


LEAVES = """
import numpy as np, usmq
spin = usmq.Kernel.from_opencl(
    "__kernel void spin(__global float *x, int n) { while (n-- > 0) x[0] = x[0] * 0.5f + 1.0f; }",
    "spin",
)
x = usmq.zeros(1 << 20, dtype="f4")
there = usmq.asarray(x, device="cuda:0")
there.to_numpy()
spin(1, x, np.int32(100_000_000))
there = usmq.asarray(x, device="cuda:0")
back = usmq.asarray(there)
print("leaves")
"""


def test_a_process_exits_with_transfers_in_flight(mock_driver: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES],
        env=environment(mock_driver),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaves\n", "")


class Foreign:
    """An object with a `__cuda_array_interface__`."""

    def __init__(self, **entries: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (2,),
            "typestr": "<f4",
            "data": (64, False),
            "version": 3,
        } | entries


def has_driver() -> bool:
    try:
        usmq.asarray([0], device="cuda:0")
    except usmq.RuntimeNotFoundError:
        return False
    return True


@pytest.mark.parametrize(
    "call",
    [
        lambda: usmq.asarray([1.0], device="cuda:0"),
        lambda: usmq.asarray(usmq.zeros(3), device="cuda"),
        lambda: usmq.asarray(Foreign()),
        lambda: usmq.asarray(Foreign(shape=(0,), data=(0, False))),
        lambda: usmq.collocate(Foreign(), like=usmq.zeros(3)),
        lambda: usmq.collocate(usmq.zeros(3), like=Foreign()),
        lambda: usmq.explain(Foreign(), like=usmq.zeros(3)),
    ],
)
def test_without_a_driver_every_entry_point_names_what_is_missing(call: Any) -> None:
    if has_driver():
        pytest.skip("a CUDA driver is installed")
    with pytest.raises(usmq.RuntimeNotFoundError, match=r"libcuda\.so\.1"):
        call()


def test_usm_has_no_cuda_interface() -> None:
    assert not hasattr(usmq.zeros(3), "__cuda_array_interface__")
    assert not hasattr(usmq.zeros(3, usm_type="host"), "__cuda_array_interface__")


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"stream": 0}, usmq.InteropError),
        ({"mask": 1}, usmq.InteropError),
        ({"version": 4}, usmq.InteropError),
        ({"shape": (-1,)}, ValueError),
        ({"strides": (3,)}, usmq.InteropError),
        ({"typestr": "|V4"}, TypeError),
    ],
)
def test_invalid_descriptions_are_refused_before_any_driver_call(
    entries: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        usmq.asarray(Foreign(**entries))
    assert not isinstance(caught.value, usmq.RuntimeNotFoundError)


@pytest.mark.parametrize("device", ["cuda:", "cuda:-1", "cuda:x", "cuda0", ""])
def test_a_device_that_names_no_number_is_read_as_a_filter_string(device: str) -> None:
    with pytest.raises((usmq.SelectorError, usmq.DeviceNotFoundError)):
        usmq.asarray([1.0], device=device)


def test_device_and_queue_exclude_each_other() -> None:
    with pytest.raises(TypeError, match="cannot be combined with queue= or usm_type="):
        usmq.asarray([1.0], device="cuda:0", queue="cpu")
    with pytest.raises(TypeError, match="cannot be combined with queue= or usm_type="):
        usmq.asarray(np.zeros(3), device="cuda:0", usm_type="host")
