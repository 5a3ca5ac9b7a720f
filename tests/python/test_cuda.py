"""CUDA memory without an NVIDIA GPU: errors name what is missing; the rest uses a mock driver."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_driver
import numpy as np
import pytest
import usmq
from cuda_driver import FOLDER


@pytest.fixture(scope="module")
def mock_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a libcuda.so.1 without a GPU."""
    return cuda_driver.build(tmp_path_factory.mktemp("driver"))


def run(
    driver: Path, *arguments: Any, timeout: float = 120, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a new Python process that finds this driver."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=cuda_driver.environment(driver, **extra),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_the_device_tests_pass_with_the_mock_driver(mock_driver: Path) -> None:
    pytest_ = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    done = run(mock_driver, *pytest_, FOLDER / "test_cuda_device.py", timeout=600)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout
    print(done.stdout.splitlines()[-1])


ASKS = """
import sys, usmq
try:
    usmq.asarray([1.0], device=sys.argv[1])
except usmq.Error as error:
    print(type(error).__name__, error)
print("usable:", usmq.arange(3).to_numpy().sum())
"""
MISSING = "RuntimeNotFoundError the CUDA driver"
# The mock driver's behaviour, the requested device, and texts of the error.
FAULTS: dict[str, tuple[str, list[str]]] = {
    "old": ("cuda:0", [f"{MISSING} is for CUDA 11.4"]),
    "broken": ("cuda:0", [f"{MISSING} does not start: CUDA_ERROR_UNKNOWN"]),
    "none": ("cuda:0", ["RuntimeNotFoundError", "finds no device"]),
    "full": ("cuda:0", ["AllocationError usm allocation of 8 B (CUDA)"]),
    "": ("cuda:3", ['DeviceNotFoundError no device matches "cuda:3"; visible devices: cuda:0']),
    "without a function": ("cuda:0", [f"{MISSING} library has no function cuStreamWaitValue32_v2"]),
    "no library": ("cuda:0", ["RuntimeNotFoundError"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_driver_is_reported_and_usmq_stays_usable(
    mock_driver: Path, tmp_path: Path, fault: str
) -> None:
    device, texts = FAULTS[fault]
    driver = mock_driver
    if fault == "without a function":
        driver = cuda_driver.build(tmp_path, "-DWITHOUT_STREAM_WAITS")
    elif fault == "no library":
        (tmp_path / "libcuda.so.1").write_text("not a library")
        driver = tmp_path
    done = run(driver, "-c", ASKS, device, MOCK_DRIVER=fault)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(("usable: 3.0\n", "usable: 3\n"))
    assert [text for text in texts if text not in done.stdout] == [], done.stdout


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
    done = run(mock_driver, "-c", LEAVES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaves\n", "")


class Foreign:
    """An object with a `__cuda_array_interface__`."""

    def __init__(self, **entries: Any) -> None:
        sound = {"shape": (2,), "typestr": "<f4", "data": (64, False), "version": 3}
        self.__cuda_array_interface__ = sound | entries


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
    cuda_driver.skip_if_installed()
    with pytest.raises(usmq.RuntimeNotFoundError, match=r"libcuda\.so\.1"):
        call()


def test_usm_has_no_cuda_interface() -> None:
    assert not hasattr(usmq.zeros(3), "__cuda_array_interface__")
    assert not hasattr(usmq.zeros(3, usm_type="host"), "__cuda_array_interface__")


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        *[({"stream": 0}, usmq.InteropError), ({"mask": 1}, usmq.InteropError)],
        *[({"version": 4}, usmq.InteropError), ({"strides": (3,)}, usmq.InteropError)],
        *[({"shape": (-1,)}, ValueError), ({"typestr": "|V4"}, TypeError)],
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
