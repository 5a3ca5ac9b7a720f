"""The commands python -m usmq list and doctor, and their errors for wrong arguments."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import usmq

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_list_names_every_device(run_python: Run) -> None:
    text = run_python(None, "-m", "usmq", "list").stdout
    for device in usmq.devices():
        assert device.filter_string in text
        assert device.name in text


def test_long_lists_show_more_than_the_short_one(run_python: Run) -> None:
    short, long, full = (
        run_python(None, "-m", "usmq", "list", option).stdout for option in ("-s", "-l", "-f")
    )
    assert 0 < len(short) <= len(long) <= len(full)
    assert len(short) < len(full)
    for device in usmq.devices():
        assert device.driver_version in long
        for text in (long, full):
            assert device.filter_string in text
            assert device.name in text
        assert str(device.max_compute_units) in full
        assert all(aspect in full for aspect in device.aspects)
    for device in usmq.devices():
        assert device.backend in short.lower()


def test_list_respects_the_selector(run_python: Run) -> None:
    done = run_python(None, "-m", "usmq", "list", check=False, ONEAPI_DEVICE_SELECTOR="!opencl:*")
    assert "opencl:cpu" not in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stdout or "device" in done.stderr


def test_doctor_shows_runtime_and_devices_without_problems(run_python: Run) -> None:
    done = run_python(None, "-m", "usmq", "doctor")
    assert "libsycl.so" in done.stdout
    for device in usmq.devices():
        assert device.filter_string in done.stdout
        assert device.name in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("selector", ["!*:cpu;!*:gpu", "hip:gpu", "nosuch"])
def test_doctor_explains_why_no_device_is_visible_and_the_fix(
    run_python: Run, selector: str
) -> None:
    done = run_python(None, "-m", "usmq", "doctor", check=False, ONEAPI_DEVICE_SELECTOR=selector)
    assert done.returncode == 1
    assert "ONEAPI_DEVICE_SELECTOR" in done.stdout
    assert selector in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_reports_a_driver_that_cannot_be_loaded(run_python: Run) -> None:
    done = run_python(
        None, "-m", "usmq", "doctor", check=False, OCL_ICD_FILENAMES="/nonexistent/libnone.so"
    )
    assert "/nonexistent/libnone.so" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["list", "-x"], ["list", "extra"], ["doctor", "-l"], ["--nosuch"]]
)
def test_wrong_arguments_show_the_usage_and_exit_with_2(
    run_python: Run, arguments: list[str]
) -> None:
    done = run_python(None, "-m", "usmq", *arguments, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_two_list_formats_together_are_refused(run_python: Run) -> None:
    done = run_python(None, "-m", "usmq", "list", "-s", "-l", check=False)
    assert done.returncode == 2


def test_without_a_command_the_usage_is_shown(run_python: Run) -> None:
    done = run_python(None, "-m", "usmq", check=False)
    assert done.returncode in (0, 2)
    assert "usage" in (done.stdout + done.stderr).lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["list"], ["doctor"], ["demo"]])
def test_help_exits_with_0_and_loads_no_driver(run_python: Run, arguments: list[str]) -> None:
    done = run_python(None, "-m", "usmq", *arguments, "--help", ONEAPI_DEVICE_SELECTOR="nosuch")
    assert "usage" in done.stdout.lower()


def test_a_closed_pipe_prints_no_traceback(run_python: Run) -> None:
    code = """
import subprocess, sys
list_ = [sys.executable, "-m", "usmq", "list", "-f"]
first = subprocess.Popen(list_, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
first.stdout.close()
print(b"Traceback" in first.stderr.read())
"""
    assert run_python(code).stdout.split() == ["False"]
