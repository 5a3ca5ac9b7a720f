"""The doctor on usmq's OpenCL layer: why waits are not ordered or emulated GPUs not visible."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_it_counts_emulated_gpus_and_marks_them_as_emulated(doctor):
    found = doctor(USMQ_EMULATE_GPUS="2", USMQ_EMULATE_GPU_MEMORY="1GiB")
    assert found.status == 0, found.text
    found.finding("2 emulated GPUs (USMQ_EMULATE_GPUS=2)", "not real hardware", state="ok")
    found.finding("USMQ_EMULATE_GPU_MEMORY=1GiB", state="ok")
    assert found.devices() == ["opencl:gpu:0", "opencl:gpu:1", "opencl:cpu:0"]


def test_an_installation_without_the_emulator(doctor, fresh):
    environment = fresh()
    (environment.site / "usmq" / "lib" / "libusmq_layers.so").unlink()
    found = doctor(environment=environment, USMQ_EMULATE_GPUS="1")
    fix = found.problem("the emulated GPUs need", "libusmq_layers.so is not in", topic="settings")
    found.applied(fix)


def test_an_emulator_setting_without_emulated_gpus(doctor):
    found = doctor(USMQ_EMULATE_FAULTS="gpu:0=lost")
    fix = found.finding("USMQ_EMULATE_FAULTS=gpu:0=lost has no effect", state="note")
    assert fix.startswith("unset USMQ_EMULATE_FAULTS ")
    found.applied(fix, broken=False)


def test_emulated_gpus_requested_too_late(pristine, cpu_driver):
    pytest.importorskip("dpctl")
    code = """
import dpctl
print("dpctl sees", len(dpctl.get_devices()))
import usmq
problems = [finding for finding in usmq.doctor().findings if finding.state == "problem"]
print(*[finding.fix for finding in problems if "was set after" in finding.what])
print(len(problems))
"""
    program = Path(pristine.root, "asks_first_emulated.py")
    program.write_text(code)

    def lines(before):
        given = {"USMQ_EMULATE_GPUS": "2", "OCL_ICD_FILENAMES": cpu_driver}
        done: subprocess.CompletedProcess[str]
        done = pristine.shell(f"{before}\n{sys.executable} {program}", given)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    seen, fix, _ = lines("")
    assert seen == "dpctl sees 1"
    assert fix.startswith("export USMQ_EMULATE_GPUS='2' OPENCL_LAYERS='/")
    assert lines(fix) == ["dpctl sees 3", "", "0"]


def test_it_says_that_waits_are_ordered(doctor):
    found = doctor()
    assert found.status == 0, found.text
    found.finding("all its queues are in-order", state="ok")


def test_waits_that_are_not_ordered_by_request(doctor):
    found = doctor(USMQ_WAIT_LAYER="0")
    assert found.status == 0, found.text
    found.finding("USMQ_WAIT_LAYER=0: waits of several threads", state="note")


@pytest.mark.parametrize("gpus", [None, "2"])
@pytest.mark.parametrize("kind", ["text", "another library"])
def test_a_file_that_is_not_a_layer(doctor, cpu_driver, gpus, kind):
    path = __file__ if kind == "text" else cpu_driver
    found = doctor(USMQ_LAYERS_LIBRARY=path, USMQ_EMULATE_GPUS=gpus)
    fix = found.problem("the layer that prevents this is off", f"has not taken {path}")
    assert fix == "unset USMQ_LAYERS_LIBRARY"
    if gpus:
        assert found.problem("USMQ_EMULATE_GPUS=2, but no emulated GPU is visible") == fix
    assert "0 emulated GPUs" not in found.text
    found.applied(fix, broken=False)
    again = doctor(before=fix, USMQ_LAYERS_LIBRARY=path, USMQ_EMULATE_GPUS=gpus)
    assert again.status == 0, again.text


def test_a_selector_that_hides_the_emulated_gpus(doctor):
    variables = {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu", "USMQ_EMULATE_GPUS": "2"}
    found = doctor(**variables)
    fix = found.problem("but no emulated GPU is visible", 'ONEAPI_DEVICE_SELECTOR="opencl:cpu"')
    assert fix == "unset ONEAPI_DEVICE_SELECTOR"
    again = doctor(before=fix, **variables)
    assert again.status == 0, again.text
