"""``python -m usmq emulate``: run a command with emulated GPUs, and errors of wrong options."""

import shlex
import sys

import pytest
from emulated import start

PYTHON = sys.executable
DEVICES = "import dpctl; print(*[d.filter_string for d in dpctl.get_devices()])"
GPUS = [f"opencl:gpu:{number}" for number in range(3)]
OPTIONS = ["-n", "2", "--memory", "1GiB", "--system-usm", "--faults", "gpu:0=lost@9"]
VARIABLES = """
import os
print(*sorted("=".join(pair) for pair in os.environ.items() if pair[0][:12] == "USMQ_EMULATE"))
"""


def emulate(*arguments, **variables):
    return start(PYTHON, "-m", "usmq", "emulate", *arguments, **variables)


@pytest.mark.parametrize(
    ("arguments", "printed", "status"),
    [
        # A command that does not import usmq.
        (["-n", "3", "--", PYTHON, "-c", DEVICES], [*GPUS, "opencl:cpu:0"], 0),
        # Two GPUs are the default, and the dashes are optional.
        ([PYTHON, "-m", "usmq", "list", "-s"], [*GPUS[:2], "opencl:cpu:0"], 0),
        (
            [*OPTIONS, "--", PYTHON, "-c", VARIABLES],
            [
                "USMQ_EMULATE_FAULTS=gpu:0=lost@9",
                "USMQ_EMULATE_GPUS=2",
                "USMQ_EMULATE_GPU_MEMORY=1GiB",
                "USMQ_EMULATE_SYSTEM_USM=1",
            ],
            0,
        ),
        (["--", "sh", "-c", "exit 0"], [], 0),
        (["--", "sh", "-c", "exit 3"], [], 3),
        (["--", "sh", "-c", "exit 127"], [], 127),
        (["--", PYTHON, "-c", "import os; os.kill(os.getpid(), 15)"], [], -15),
    ],
)
def test_a_command_runs_with_emulated_gpus_and_its_own_status(arguments, printed, status):
    done = emulate(*arguments)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.split() == printed


def test_list_marks_gpus_as_emulated():
    done = emulate("--memory", "512MiB", "--", PYTHON, "-m", "usmq", "list")
    first, second, cpu = done.stdout.splitlines()
    assert "Emulated GPU 0" in first
    assert "Emulated GPU 1" in second
    assert first.endswith("512.0 MiB")
    assert "Emulated" not in cpu


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "no command given"),
        ("-n 2 --", "no command given"),
        ("-n 0 -- true", 'USMQ_EMULATE_GPUS="0": expected a number'),
        ("-n 65 -- true", 'USMQ_EMULATE_GPUS="65": expected a number'),
        ("-n two -- true", 'USMQ_EMULATE_GPUS="two": expected a number'),
        ("--memory '4 GiB' -- true", 'USMQ_EMULATE_GPU_MEMORY="4 GiB": expected bytes'),
        ("--faults gpu:0=odd -- true", '"gpu:0=odd": expected faults separated by'),
        ("--faults gpu:2=lost -- true", "gpu:2 does not exist with USMQ_EMULATE_GPUS=2"),
        ("--nosuch -- true", ""),
    ],
)
def test_wrong_options_show_the_usage_and_one_line(arguments, expected):
    done = emulate(*shlex.split(arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m usmq emulate ")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m usmq emulate: error: ") or not expected
    assert expected in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "variables", "status", "text"),
    [
        ("no-such-command", {}, 127, "cannot run no-such-command: No such file or directory"),
        ("/etc/passwd", {}, 126, "cannot run /etc/passwd: Permission denied"),
        (
            "true",
            {"USMQ_LAYERS_LIBRARY": "/nonexistent.so"},
            1,
            "the emulated GPUs need the OpenCL layer of usmq: "
            "USMQ_LAYERS_LIBRARY names /nonexistent.so, which does not exist",
        ),
    ],
)
def test_a_command_that_cannot_run_is_a_one_line_error(command, variables, status, text):
    done = emulate("--", command, **variables)
    assert (done.returncode, done.stderr) == (status, f"usmq emulate: {text}\n")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("ONEAPI_DEVICE_SELECTOR", "opencl:cpu", 'SELECTOR="opencl:cpu" hides them'),
        ("USMQ_LAYERS_LIBRARY", "libc", "has not taken"),
        ("OCL_ICD_FILENAMES", "/nonexistent.so", ""),
    ],
)
def test_it_ends_with_an_error_if_no_emulated_gpu_appears(name, value, reason):
    if value == "libc":  # a library that no loader takes as a layer
        with open("/proc/self/maps") as maps:
            value = next(line.split()[-1] for line in maps if "/libc." in line or "/libc-" in line)
    done = emulate("--", "echo", "runs", **{name: value})
    assert (done.returncode, done.stdout) == (1, ""), done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("usmq emulate: ")
    assert reason in last


def test_the_help_lists_it():
    assert "emulate" in start(PYTHON, "-m", "usmq", "--help").stdout
    done = emulate("--help")
    assert done.returncode == 0
    assert "--faults" in done.stdout
