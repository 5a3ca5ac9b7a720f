"""``python -m usmq emulate``: run a command with emulated GPUs, and errors of wrong options."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from emulated import start

DEVICES = "import dpctl; print([d.filter_string for d in dpctl.get_devices()])"


def emulate(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return start(sys.executable, "-m", "usmq", "emulate", *arguments, **variables)


def test_the_command_sees_the_gpus_without_importing_usmq() -> None:
    done = emulate("-n", "3", "--", sys.executable, "-c", DEVICES)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['opencl:gpu:0', 'opencl:gpu:1', 'opencl:gpu:2', 'opencl:cpu:0']\n"


def test_two_gpus_are_the_default_and_the_dashes_are_optional() -> None:
    done = emulate(sys.executable, "-m", "usmq", "list", "-s")
    assert done.stdout.split() == ["opencl:gpu:0", "opencl:gpu:1", "opencl:cpu:0"]


def test_list_marks_gpus_as_emulated() -> None:
    done = emulate("--memory", "512MiB", "--", sys.executable, "-m", "usmq", "list")
    first, second, cpu = done.stdout.splitlines()
    assert "Emulated GPU 0" in first
    assert "Emulated GPU 1" in second
    assert first.endswith("512.0 MiB")
    assert "Emulated" not in cpu


def test_options_become_variables() -> None:
    code = "import os; print(sorted(v for v in os.environ.items() if v[0][:12] == 'USMQ_EMULATE'))"
    options = ("--memory", "1GiB", "--system-usm", "--faults", "gpu:0=lost@9")
    done = emulate("-n", "2", *options, "--", sys.executable, "-c", code)
    assert eval(done.stdout) == [
        ("USMQ_EMULATE_FAULTS", "gpu:0=lost@9"),
        ("USMQ_EMULATE_GPUS", "2"),
        ("USMQ_EMULATE_GPU_MEMORY", "1GiB"),
        ("USMQ_EMULATE_SYSTEM_USM", "1"),
    ]


@pytest.mark.parametrize("status", [0, 3, 127])
def test_it_exits_with_the_status_of_the_command(status: int) -> None:
    done = emulate("--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_signals_reach_the_command() -> None:
    done = emulate("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 15)")
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "no command given"),
        (("-n", "2", "--"), "no command given"),
        (("-n", "0", "--", "true"), 'USMQ_EMULATE_GPUS="0": expected a number'),
        (("-n", "65", "--", "true"), 'USMQ_EMULATE_GPUS="65": expected a number'),
        (("-n", "two", "--", "true"), 'USMQ_EMULATE_GPUS="two": expected a number'),
        (("--memory", "4 GiB", "--", "true"), 'USMQ_EMULATE_GPU_MEMORY="4 GiB": expected bytes'),
        (("--faults", "gpu:0=odd", "--", "true"), '"gpu:0=odd": expected faults separated by'),
        (("--faults", "gpu:2=lost", "--", "true"), "gpu:2 does not exist with USMQ_EMULATE_GPUS=2"),
        (("--nosuch", "--", "true"), ""),
    ],
)
def test_wrong_options_show_the_usage_and_one_line(
    arguments: tuple[str, ...], expected: str
) -> None:
    done = emulate(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m usmq emulate ")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m usmq emulate: error: ") or not expected
    assert expected in last
    assert "Traceback" not in done.stderr


def test_a_missing_command_is_a_one_line_error() -> None:
    done = emulate("--", "no-such-command-here")
    assert done.returncode == 127
    assert done.stderr == (
        "usmq emulate: cannot run no-such-command-here: No such file or directory\n"
    )


def test_a_file_that_is_not_executable_is_a_one_line_error() -> None:
    done = emulate("--", "/etc/passwd")
    assert (done.returncode, done.stderr) == (
        126,
        "usmq emulate: cannot run /etc/passwd: Permission denied\n",
    )


def test_without_the_layer_it_lists_the_searched_folders() -> None:
    done = emulate("--", "true", USMQ_LAYERS_LIBRARY="/nonexistent.so")
    assert done.returncode == 1
    assert done.stderr == (
        "usmq emulate: the emulated GPUs need the OpenCL layer of usmq: "
        "USMQ_LAYERS_LIBRARY names /nonexistent.so, which does not exist\n"
    )


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        (
            {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu"},
            'ONEAPI_DEVICE_SELECTOR="opencl:cpu" hides them',
        ),
        ({"USMQ_LAYERS_LIBRARY": "libc"}, "has not taken"),
        ({"OCL_ICD_FILENAMES": "/nonexistent.so"}, ""),
    ],
)
def test_it_ends_with_an_error_if_no_emulated_gpu_appears(
    variables: dict[str, str], reason: str
) -> None:
    if variables.get("USMQ_LAYERS_LIBRARY") == "libc":  # a library that no loader takes as a layer
        with open("/proc/self/maps") as maps:
            libc = next(line.split()[-1] for line in maps if "/libc." in line or "/libc-" in line)
        variables = {"USMQ_LAYERS_LIBRARY": libc}
    done = emulate("--", "echo", "runs", **variables)
    assert (done.returncode, done.stdout) == (1, ""), done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("usmq emulate: ")
    assert reason in last


def test_the_help_lists_it() -> None:
    done = start(sys.executable, "-m", "usmq", "--help")
    assert "emulate" in done.stdout
    done = emulate("--help")
    assert done.returncode == 0
    assert "--faults" in done.stdout
