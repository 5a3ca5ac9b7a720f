"""The doctor on devices: broken drivers, variables and settings; line, status, applied fix."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import usmq
from doctor_environment import CLEAN, Checked, Environment

Run = Callable[..., subprocess.CompletedProcess[str]]

# --- a healthy environment


def test_a_healthy_environment_has_no_problem(
    doctor: Callable[..., Checked], cpu_driver: str
) -> None:
    found = doctor()
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    topics = {finding["topic"] for finding in found.findings}
    assert topics >= {"runtime", "adapters", "opencl", "variables", "settings", "packages"}
    assert topics >= {"devices", "kernels"}
    assert str(found.environment.lib) in found.text


def test_the_text_is_grouped_and_ends_with_a_verdict(
    pristine: Environment, cpu_driver: str
) -> None:
    done = pristine.shell("python -m usmq doctor", {})
    lines = done.stdout.rstrip("\n").splitlines()
    assert re.fullmatch(r"No problem found: 1 device is visible(, \d+ notes?)?\.", lines[-1])
    assert "\033" not in done.stdout, "colours outside a terminal"
    for line in lines[:-1]:
        assert re.match(r"(?!\s)|  (ok|note|problem) +\S| {11}\S|$", line), line
    assert done.stderr == ""


def test_two_drivers_are_two_devices_without_a_problem(
    doctor: Callable[..., Checked], two_devices: tuple[usmq.Device, usmq.Device]
) -> None:
    found = doctor(OCL_ICD_FILENAMES=os.environ["OCL_ICD_FILENAMES"])
    if ":" not in os.environ["OCL_ICD_FILENAMES"]:
        pytest.skip("the loader truncated OCL_ICD_FILENAMES of this process")
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0", "opencl:cpu:1"]


# --- drivers


@pytest.mark.parametrize("beside", [False, True])
def test_a_driver_that_does_not_exist(
    doctor: Callable[..., Checked], cpu_driver: str, beside: bool
) -> None:
    named = f"/nonexistent/libnone.so:{cpu_driver}" if beside else "/nonexistent/libnone.so"
    found = doctor(OCL_ICD_FILENAMES=named)
    fix = found.problem("/nonexistent/libnone.so does not exist", topic="opencl")
    if beside:
        assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
        assert found.devices() == ["opencl:cpu:0"]
    else:
        assert fix == "unset OCL_ICD_FILENAMES"
        assert found.devices() == []
    found.applied(fix, broken=not beside)


def test_a_driver_that_is_not_a_library(doctor: Callable[..., Checked], tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library at all\n")
    found = doctor(OCL_ICD_FILENAMES=str(text))
    fix = found.problem(f"{text} is not a library")
    assert fix == "unset OCL_ICD_FILENAMES"
    found.applied(fix)


def test_a_library_that_is_not_a_driver(
    doctor: Callable[..., Checked], pristine: Environment, cpu_driver: str
) -> None:
    library = str(pristine.lib / "libur_loader.so.0")
    found = doctor(OCL_ICD_FILENAMES=f"{cpu_driver}:{library}")
    fix = found.problem(f"{library} is a library, but not an OpenCL driver")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.applied(fix, broken=False)


def test_a_driver_whose_own_libraries_are_missing(
    doctor: Callable[..., Checked], compiled: Callable[..., str], tmp_path: Path
) -> None:
    base = compiled("libbase.so", "int base(void) { return 1; }")
    source = "int base(void); int uses(void) { return base(); }"
    broken = compiled("libbroken.so", source, "-Wl,--no-as-needed", f"-L{tmp_path}", "-lbase")
    Path(base).unlink()
    found = doctor(OCL_ICD_FILENAMES=broken)
    fix = found.problem(broken, "cannot be loaded", "libbase.so: cannot open shared object file")
    assert fix == "unset OCL_ICD_FILENAMES"
    found.applied(fix)


def test_two_copies_of_one_driver(
    doctor: Callable[..., Checked], cpu_driver: str, compiled: Callable[..., str], tmp_path: Path
) -> None:
    second = tmp_path / "libcopy.so"
    shutil.copy(cpu_driver, second)
    found = doctor(OCL_ICD_FILENAMES=f"{cpu_driver}:{second}")
    fix = found.problem(str(second), f"is a copy of {cpu_driver}")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.applied(fix, broken=False)
    # With a second fault each fix removes both drivers: no fix restores a removed driver.
    broken = compiled("libfails.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=1")
    found = doctor(OCL_ICD_FILENAMES=f"{cpu_driver}:{second}:{broken}")
    assert found.problem(str(second), "is a copy") == fix
    assert found.problem(broken, "refuses to start") == fix
    found.applied(fix, broken=False)


def test_a_link_to_a_driver_is_not_a_problem(
    doctor: Callable[..., Checked], cpu_driver: str, tmp_path: Path
) -> None:
    link = tmp_path / "liblink.so"
    link.symlink_to(cpu_driver)
    found = doctor(OCL_ICD_FILENAMES=f"{cpu_driver}:{link}")
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    assert "loaded once" in found.text


def test_a_bare_name_that_the_loader_does_not_find(
    doctor: Callable[..., Checked], cpu_driver: str
) -> None:
    found = doctor(OCL_ICD_FILENAMES="libintelocl.so")
    fix = found.problem("libintelocl.so", "does not search", topic="opencl")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.applied(fix)


@pytest.mark.parametrize(
    ("call", "signal"),
    [("abort()", "SIGABRT"), ("*(volatile int *)8 = 1", "SIGSEGV")],
    ids=["abort", "segfault"],
)
def test_a_driver_that_crashes_when_it_is_loaded(
    doctor: Callable[..., Checked],
    compiled: Callable[..., str],
    cpu_driver: str,
    call: str,
    signal: str,
) -> None:
    source = f"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void start(void) {{
  fputs("the last words\\n", stderr);
  {call};
}}"""
    broken = compiled("libcrash.so", source)
    found = doctor(OCL_ICD_FILENAMES=f"{cpu_driver}:{broken}")
    fix = found.problem(broken, f"signal {signal}", "the last words", topic="opencl")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.all_applied()
    found.problem("asking for the devices", f"signal {signal}", topic="devices")
    assert "with only the other drivers: opencl:cpu:0" in found.text
    assert found.devices() == []


# A driver that starts, and performs its compiled-in fault when its devices are listed.
ICD = """
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <stdlib.h>
#include <string.h>
struct _cl_platform_id { cl_icd_dispatch *dispatch; };
static cl_icd_dispatch functions;
static struct _cl_platform_id platform = {&functions};
static cl_int get_platform_info(cl_platform_id p, cl_platform_info what, size_t size, void *to,
                                size_t *needed) {
  const char *text = what == CL_PLATFORM_VERSION      ? "OpenCL 3.0 test"
                     : what == CL_PLATFORM_EXTENSIONS ? "cl_khr_icd"
                                                      : "Broken platform";
  if (needed) *needed = strlen(text) + 1;
  if (to) strncpy(to, text, size);
  return CL_SUCCESS;
}
static cl_int get_device_ids(cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *to,
                             cl_uint *found) {
  WHEN_LISTED;
  return CL_OUT_OF_HOST_MEMORY;
}
static cl_int get_platform_ids(cl_uint n, cl_platform_id *to, cl_uint *found) {
  functions.clGetPlatformInfo = get_platform_info;
  functions.clGetDeviceIDs = get_device_ids;
  if (to) *to = &platform;
  if (found) *found = 1;
  return REFUSES == 2 ? CL_PLATFORM_NOT_FOUND_KHR : REFUSES ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}
void *clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)get_platform_ids;
}
"""


def test_a_driver_that_crashes_when_its_devices_are_listed(
    doctor: Callable[..., Checked], compiled: Callable[..., str], cpu_driver: str
) -> None:
    broken = compiled("libcrash.so", ICD, "-DWHEN_LISTED=abort()", "-DREFUSES=0")
    found = doctor(OCL_ICD_FILENAMES=f"{broken}:{cpu_driver}")
    fix = found.problem(broken, "signal SIGABRT", "when its devices are listed")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.all_applied()
    found.problem("asking for the devices", "signal SIGABRT", topic="devices")
    assert "with only the other drivers: opencl:cpu:0" in found.text


def test_a_driver_that_makes_the_runtime_fail(
    doctor: Callable[..., Checked], compiled: Callable[..., str], cpu_driver: str
) -> None:
    broken = compiled("libfails.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=0")
    found = doctor(OCL_ICD_FILENAMES=f"{broken}:{cpu_driver}")
    fix = found.problem(broken, "OUT_OF_HOST_MEMORY", "when its devices are listed", topic="opencl")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    assert found.problem("no platform can be listed", topic="devices") == "fix what is shown above"
    found.all_applied()
    assert "with only the other drivers: opencl:cpu:0" in found.text


def test_a_driver_that_refuses_to_start(
    doctor: Callable[..., Checked], compiled: Callable[..., str]
) -> None:
    broken = compiled("librefuses.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=1")
    found = doctor(OCL_ICD_FILENAMES=broken)
    fix = found.problem(broken, "refuses to start: OpenCL error -5")
    assert fix == "unset OCL_ICD_FILENAMES"
    found.applied(fix)


def test_a_driver_without_a_device(
    doctor: Callable[..., Checked], compiled: Callable[..., str]
) -> None:
    idle = compiled("libidle.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=2")
    found = doctor(OCL_ICD_FILENAMES=idle)
    fix = found.problem(f"OCL_ICD_FILENAMES={idle} names no driver that has a device for arrays")
    assert fix == "unset OCL_ICD_FILENAMES"
    assert f"{idle}, named by OCL_ICD_FILENAMES: a driver, but it finds no device" in found.text
    found.applied(fix)


def test_a_driver_that_hangs_when_it_is_loaded(
    doctor: Callable[..., Checked], compiled: Callable[..., str], cpu_driver: str
) -> None:
    source = """
#include <unistd.h>
__attribute__((constructor)) static void start(void) { for (;;) sleep(100); }"""
    broken = compiled("libhang.so", source)
    found = doctor("--timeout", "5", OCL_ICD_FILENAMES=f"{cpu_driver}:{broken}")
    fix = found.problem(broken, "does not answer within 5 s")
    assert fix == f"export OCL_ICD_FILENAMES='{cpu_driver}'"
    found.problem("does not list its devices within 5 s", topic="devices")
    found.applied(fix, broken=False)  # Without it the program would hang.


INTERRUPTED = """
import os, signal, sys, threading, time
import usmq

def interrupt():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    usmq.doctor(timeout=1000)
except KeyboardInterrupt:
    print("interrupted")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""


def test_ctrl_c_ends_the_doctor_while_a_driver_hangs(
    run_python: Run, compiled: Callable[..., str], cpu_driver: str, tmp_path: Path
) -> None:
    loaded = tmp_path / "loaded"
    source = f"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void start(void) {{
  open("{loaded}", O_CREAT | O_WRONLY, 0600);
  for (;;) sleep(100);
}}"""
    broken = compiled("libhang.so", source)
    environment = CLEAN | {"OCL_ICD_FILENAMES": f"{cpu_driver}:{broken}"}
    done = run_python(INTERRUPTED, str(loaded), **environment)
    assert done.stdout.splitlines() == ["interrupted", "no child is left"]


def test_an_empty_variable(doctor: Callable[..., Checked]) -> None:
    found = doctor(OCL_ICD_FILENAMES="")
    fix = found.problem("OCL_ICD_FILENAMES is set but empty")
    assert fix == "unset OCL_ICD_FILENAMES"
    assert "pip install" not in found.text, "the driver is installed"
    found.applied(fix)


@pytest.mark.parametrize("exists", [True, False])
def test_a_vendor_folder_without_a_driver(
    doctor: Callable[..., Checked], tmp_path: Path, exists: bool
) -> None:
    folder = tmp_path if exists else tmp_path / "gone"
    found = doctor(OCL_ICD_VENDORS=str(folder))
    words = "holds no .icd file" if exists else "does not exist"
    fix = found.problem(f"OCL_ICD_VENDORS={folder} {words}")
    assert fix == "unset OCL_ICD_VENDORS"
    found.applied(fix, broken=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/opt/gone/libnone.so\n", "/opt/gone/libnone.so does not exist"),
        ("{driver} \n", "one line without blanks"),
        ("{driver}\n\n", "one line without blanks"),
        ("", "the file is empty"),
    ],
    ids=["gone", "blank", "two lines", "empty"],
)
def test_an_invalid_vendor_file(
    doctor: Callable[..., Checked], cpu_driver: str, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "some.icd"
    file.write_text(text.format(driver=cpu_driver))
    found = doctor(OCL_ICD_VENDORS=str(tmp_path))
    fix = found.problem(words, f"named by {file}", topic="opencl")
    assert fix.startswith(f"rm '{file}'")
    found.applied(fix, broken=False)
    assert not file.exists()


def test_a_device_without_usm(doctor: Callable[..., Checked], cpu_driver: str) -> None:
    places = [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64")]
    pocl = next((found for place in places for found in place.glob("libpocl.so.2*")), None)
    if pocl is None:
        pytest.skip("PoCL, whose device has no USM, is not installed")
    found = doctor(OCL_ICD_FILENAMES=str(pocl))
    found.problem("it has no USM", topic="devices")
    found.all_applied()
    found = doctor(OCL_ICD_FILENAMES=f"{pocl}:{cpu_driver}")
    assert found.status == 0, found.text
    notes = [finding for finding in found.findings if finding["state"] == "note"]
    assert any("it has no USM" in finding["what"] for finding in notes), found.text


# --- variables


@pytest.mark.parametrize("selector", ["level_zero:gpu", "!opencl:*", "opencl:7", ";"])
def test_a_selector_that_hides_everything(
    doctor: Callable[..., Checked], cpu_driver: str, selector: str
) -> None:
    found = doctor(ONEAPI_DEVICE_SELECTOR=selector)
    words = (f'ONEAPI_DEVICE_SELECTOR="{selector}" hides every device', "without it: opencl:cpu:0")
    fix = found.problem(*words)
    assert fix == "unset ONEAPI_DEVICE_SELECTOR"
    found.problem("no device is visible", topic="devices")
    found.applied(fix)


@pytest.mark.parametrize("selector", ["foo", "opencl:fpga", "opencl:cpu:0", "", "cpu"])
def test_an_invalid_selector(
    doctor: Callable[..., Checked], cpu_driver: str, selector: str
) -> None:
    found = doctor(ONEAPI_DEVICE_SELECTOR=selector)
    words = f'ONEAPI_DEVICE_SELECTOR="{selector}" is not understood: '
    fix = found.problem(words, "without it: opencl:cpu:0")
    assert fix == "unset ONEAPI_DEVICE_SELECTOR"
    problems = [finding for finding in found.findings if finding["state"] == "problem"]
    assert [finding["topic"] for finding in problems] == ["variables", "devices"], found.text
    found.applied(fix)


def test_a_selector_beside_a_driver_that_does_not_exist(doctor: Callable[..., Checked]) -> None:
    found = doctor(ONEAPI_DEVICE_SELECTOR="foo", OCL_ICD_FILENAMES="/nonexistent/libnone.so")
    assert found.problem("libnone.so does not exist") == "unset OCL_ICD_FILENAMES"
    assert found.problem('"foo" is not understood') == "unset ONEAPI_DEVICE_SELECTOR"
    found.all_applied()


def test_a_selector_that_shows_all_is_not_a_problem(
    doctor: Callable[..., Checked], cpu_driver: str
) -> None:
    found = doctor(ONEAPI_DEVICE_SELECTOR="opencl:*")
    assert found.status == 0, found.text
    assert "hides nothing" in found.text


def test_two_selectors_together(doctor: Callable[..., Checked]) -> None:
    found = doctor(ONEAPI_DEVICE_SELECTOR="*:*", ZE_AFFINITY_MASK="0")
    fix = found.problem("ONEAPI_DEVICE_SELECTOR", "are both set")
    assert fix == "unset ZE_AFFINITY_MASK"
    found.applied(fix, broken=False)


def test_two_variables_that_each_hide_everything(doctor: Callable[..., Checked]) -> None:
    nothing = "DeviceName:{{nosuch}}"
    found = doctor(ONEAPI_DEVICE_SELECTOR="level_zero:*", SYCL_DEVICE_ALLOWLIST=nothing)
    for name in ("ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_ALLOWLIST"):
        assert found.problem(f"{name}=", "hides every device") == f"unset {name}"
    found.all_applied()


def test_an_unknown_hierarchy(doctor: Callable[..., Checked]) -> None:
    found = doctor(ZE_FLAT_DEVICE_HIERARCHY="flat")
    fix = found.problem("FLAT, COMPOSITE and COMBINED")
    assert fix == "unset ZE_FLAT_DEVICE_HIERARCHY"
    found.applied(fix, broken=False)


# --- settings


def test_an_unwritable_cache(doctor: Callable[..., Checked], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    found = doctor(SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(folder))
    fix = found.problem(f"cannot be kept in {folder}", "is not a folder")
    assert fix.startswith("unset SYCL_CACHE_DIR")
    found.applied(fix, broken=False)
    # The default cache folder, in a home that is not a folder.
    found = doctor(HOME=str(tmp_path / "file"))
    fix = found.problem("cannot be kept in", "is not a folder")
    assert fix.startswith("export SYCL_CACHE_PERSISTENT=0")
    found.applied(fix, broken=False)


def test_a_cache_writable_by_others(doctor: Callable[..., Checked], tmp_path: Path) -> None:
    folder = tmp_path / "it's open"
    folder.mkdir()
    folder.chmod(0o777)
    found = doctor(SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(folder))
    fix = found.problem("kernels are not kept in", topic="settings")
    found.applied(fix, broken=False)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_notes_are_shown_without_a_problem(doctor: Callable[..., Checked]) -> None:
    found = doctor(USMQ_POOL="0", USMQ_POLL="1", SYCL_DEVICE_FILTER="gpu")
    assert found.status == 0, found.text
    fixes = [
        found.finding("USMQ_POOL=0", state="note"),
        found.finding("USMQ_POLL=1: usmq has no variable of this name", state="note"),
        found.finding("SYCL_DEVICE_FILTER is set", state="note"),
    ]
    assert [fix.split()[:2] for fix in fixes] == [
        ["unset", "USMQ_POOL"],
        ["unset", "USMQ_POLL"],
        ["unset", "SYCL_DEVICE_FILTER"],
    ]
    found.applied("\n".join(fixes), broken=False)


# --- the page about it

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
SAID = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_the_page_has_its_table() -> None:
    assert len(SAID) > 20


@pytest.mark.parametrize("words", SAID)
def test_the_page_explains_the_messages_of_the_doctor(words: str) -> None:
    sources = [*(ROOT / "src" / "doctor").glob("*.rs"), *(ROOT / "python" / "usmq").glob("_*.py")]
    runtime = ROOT / "src" / "runtime"
    sources += [runtime / "environment.rs", runtime / "emulator.rs"]
    sources += [ROOT / "src" / "device" / "layers.rs"]
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    # Long texts are broken across lines.
    text = re.sub(r"\\\n\s+", "", text)
    for part in words.removeprefix("libsycl…").split("…"):
        assert part in text, f"no message contains {part!r}"


def test_the_example_of_the_page_runs(run_python: Run) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert run_python(code, **CLEAN).stdout == ""
