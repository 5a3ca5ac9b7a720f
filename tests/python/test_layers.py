"""A part of the OpenCL layer that the process needs and does not use is reported."""

import sys

import pytest
from emulated import result, start

# Files that no OpenCL loader takes as a layer.
NOT_LAYERS = ("another library", "no library")


def not_a_layer(kind):
    """Return the path of such a file."""
    if kind == "no library":
        return __file__
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-2" in line)


def python(code, **variables):
    done = start(sys.executable, "-X", "faulthandler", "-c", code, **variables)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done


WARNED = """
import warnings, usmq
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    usmq.devices()
print(*[f"{type(one.message).__name__}: {one.message}" for one in found], sep="\\n")
"""


@pytest.mark.parametrize("gpus", ["", "2"])
@pytest.mark.parametrize("wait_layer", ["", "0"])
def test_the_parts_in_use_are_reported_without_a_warning(gpus, wait_layer):
    variables = {"USMQ_WAIT_LAYER": wait_layer} if wait_layer else {}
    parts = {"waits": not wait_layer, "emulator": bool(gpus)}
    assert result(WARNED + "print(usmq.layers())", gpus, **variables) == ["", str(parts)]


@pytest.mark.parametrize("kind", NOT_LAYERS)
def test_a_refused_layer_is_a_warning_of_devices(kind):
    path = not_a_layer(kind)
    done = python(WARNED, USMQ_LAYERS_LIBRARY=path)
    [line] = done.stdout.splitlines()
    assert line.startswith("RuntimeWarning: waits of several threads may lock up")
    assert f"has not taken {path}" in line
    assert done.stderr.startswith("usmq: waits of several threads may lock up"), done.stderr
    done = python(WARNED, USMQ_LAYERS_LIBRARY=path, USMQ_EMULATE_GPUS="2")
    waits, gpus = done.stdout.splitlines()
    assert "waits of several threads" in waits
    assert gpus.startswith("RuntimeWarning: USMQ_EMULATE_GPUS=2, but no emulated GPU is visible")
    assert f"has not taken {path}" in gpus


def test_a_refused_layer_is_not_blamed_on_a_query_of_another_library():
    pytest.importorskip("dpctl")
    path = not_a_layer("no library")
    code = "import usmq, dpctl; dpctl.get_devices()" + WARNED
    done = python(code, USMQ_LAYERS_LIBRARY=path, USMQ_EMULATE_GPUS="2")
    for line in done.stdout.splitlines():
        assert f"has not taken {path}" in line, line


def test_a_missing_layer_is_a_warning():
    done = python(WARNED, USMQ_LAYERS_LIBRARY="/nonexistent.so")
    [line] = done.stdout.splitlines()
    assert "USMQ_LAYERS_LIBRARY names /nonexistent.so, which does not exist" in line


@pytest.mark.parametrize(
    "use", ["usmq.zeros(2)", "usmq.current_queue()", "usmq.Device('cpu')", "usmq.layers()"]
)
def test_each_first_query_reports_it_on_standard_error(use):
    done = python(f"import usmq; {use}; {use}", USMQ_LAYERS_LIBRARY=not_a_layer("no library"))
    assert done.stderr.count("usmq: waits of several threads may lock up") == 1


def test_a_query_of_another_library_before_usmq_is_a_warning():
    pytest.importorskip("dpctl")
    code = "import usmq, os; print(os.environ.get('OCL_ICD_FILENAMES', ''))"
    driver = python(code).stdout.strip()
    variables = {"OCL_ICD_FILENAMES": driver} if driver else {}
    code = "import dpctl; dpctl.get_devices()" + WARNED
    done = python(code, **variables)
    [line] = done.stdout.splitlines()
    assert "another library asked the SYCL runtime for devices before usmq" in line
    # The setting that the warning names.
    value = line.partition("set OPENCL_LAYERS=")[2].split()[0]
    assert python(code, OPENCL_LAYERS=value, **variables).stdout == "\n"


@pytest.mark.parametrize("selector", ["opencl:cpu", "*:cpu"])
def test_a_selector_that_hides_the_emulated_gpus_is_named(selector):
    variables = {"ONEAPI_DEVICE_SELECTOR": selector, "USMQ_EMULATE_GPUS": "2"}
    [line] = python(WARNED, **variables).stdout.splitlines()
    assert f'no emulated GPU is visible: ONEAPI_DEVICE_SELECTOR="{selector}" hides them' in line
