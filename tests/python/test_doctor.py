"""The doctor on devices: broken drivers, variables and settings; line, status, applied fix."""

import os
import re
import shutil
from pathlib import Path

import pytest
from doctor_environment import ABOVE, CLEAN, Case

# --- a healthy environment


@pytest.mark.usefixtures("cpu_driver")
def test_a_healthy_environment_has_no_problem(doctor):
    found = doctor()
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    topics = {finding["topic"] for finding in found.findings}
    assert topics >= {"runtime", "adapters", "opencl", "variables", "settings", "packages"}
    assert topics >= {"devices", "kernels"}
    assert str(found.environment.lib) in found.text


@pytest.mark.usefixtures("cpu_driver")
def test_the_text_is_grouped_and_ends_with_a_verdict(pristine):
    done = pristine.shell("python -m usmq doctor", {})
    lines = done.stdout.rstrip("\n").splitlines()
    assert re.fullmatch(r"No problem found: 1 device is visible(, \d+ notes?)?\.", lines[-1])
    assert "\033" not in done.stdout, "colours outside a terminal"
    for line in lines[:-1]:
        assert re.match(r"(?!\s)|  (ok|note|problem) +\S| {11}\S|$", line), line
    assert done.stderr == ""


@pytest.mark.usefixtures("two_devices")
def test_two_drivers_are_two_devices_without_a_problem(doctor):
    found = doctor(OCL_ICD_FILENAMES=os.environ["OCL_ICD_FILENAMES"])
    if ":" not in os.environ["OCL_ICD_FILENAMES"]:
        pytest.skip("the loader truncated OCL_ICD_FILENAMES of this process")
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0", "opencl:cpu:1"]


# --- problems and their fixes

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
STARTS = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void start(void) {{
  fputs("the last words\\n", stderr);
  {};
}}"""
NOTHING = "-DWHEN_LISTED=(void)0"
LIBRARIES = {
    "aborts": [STARTS.format("abort()")],
    "segfaults": [STARTS.format("*(volatile int *)8 = 1")],
    "hangs": [STARTS.format("for (;;) sleep(100)")],
    "crashes_later": [ICD, "-DWHEN_LISTED=abort()", "-DREFUSES=0"],
    "fails": [ICD, NOTHING, "-DREFUSES=0"],
    "refuses": [ICD, NOTHING, "-DREFUSES=1"],
    "idle": [ICD, NOTHING, "-DREFUSES=2"],
    "base": ["int base(void) { return 1; }"],
}


class Paths(dict):
    """Paths of drivers and folders; a library is compiled when its name is used."""

    def __init__(self, fixture, folder):
        super().__init__(folder=folder)
        self.fixture, self.folder = fixture, folder

    def __missing__(self, name):
        path = self[name] = str(self.made(name))
        return path

    def made(self, name):
        if name == "driver":
            return self.fixture("cpu_driver")
        if name == "loader":
            return self.fixture("pristine").lib / "libur_loader.so.0"
        if name == "copy":
            return shutil.copy(self["driver"], self.folder / "libcopy.so")
        if name == "text":
            (self.folder / "libtext.so").write_text("no library at all\n")
            return self.folder / "libtext.so"
        compiled = self.fixture("compiled")
        if name != "incomplete":
            return compiled(f"lib{name}.so", *LIBRARIES[name])
        base, source = self["base"], "int base(void); int uses(void) { return base(); }"
        options = "-Wl,--no-as-needed", f"-L{self.folder}", "-lbase"
        path = compiled("libincomplete.so", source, *options)
        Path(base).unlink()
        return path


@pytest.fixture
def paths(request, tmp_path):
    return Paths(request.getfixturevalue, tmp_path)


FILES, SELECTOR = "OCL_ICD_FILENAMES", "ONEAPI_DEVICE_SELECTOR"
NONE = "/nonexistent/libnone.so"
NO_FILE, COMPILE = "kernels: no temporary file can be made", "SYCL_PROGRAM_COMPILE_OPTIONS"
ONLY_DRIVER = "export OCL_ICD_FILENAMES='{driver}'"
UNSET = "unset OCL_ICD_FILENAMES"


def crashes(name, files, how, words):
    """Return the case of a driver that ends the process that asks it."""
    told = {f"opencl: {name} … {how} … {words}": ONLY_DRIVER}
    told[f"devices: asking for the devices … {how}"] = ABOVE
    return Case(told, {FILES: files}, says="with only the other drivers: opencl:cpu:0", devices=[])


def selects(selector, words, **options):
    told = f'variables: ONEAPI_DEVICE_SELECTOR="{selector}" {words} … without it: opencl:cpu:0'
    return Case({told: "unset ONEAPI_DEVICE_SELECTOR"}, {SELECTOR: selector}, **options)


CASES = {
    "a driver that does not exist": Case(
        {f"opencl: {NONE} does not exist": UNSET}, {FILES: NONE}, devices=[]
    ),
    "a driver that does not exist beside another": Case(
        {f"opencl: {NONE} does not exist": ONLY_DRIVER},
        {FILES: f"{NONE}:{{driver}}"},
        devices=["opencl:cpu:0"],
        broken=False,
    ),
    "a driver that is not a library": Case(
        {"opencl: {text} is not a library": UNSET}, {FILES: "{text}"}
    ),
    "a library that is not a driver": Case(
        {"opencl: {loader} is a library, but not an OpenCL driver": ONLY_DRIVER},
        {FILES: "{driver}:{loader}"},
        broken=False,
    ),
    "a driver whose own libraries are missing": Case(
        {
            "opencl: {incomplete} … cannot be loaded … "
            "libbase.so: cannot open shared object file": UNSET
        },
        {FILES: "{incomplete}"},
    ),
    "two copies of one driver": Case(
        {"opencl: {copy} … is a copy of {driver}": ONLY_DRIVER},
        {FILES: "{driver}:{copy}"},
        broken=False,
    ),
    # Each fix removes both drivers: no fix restores a removed driver.
    "two copies of one driver beside a third": Case(
        {
            "opencl: {copy} … is a copy": ONLY_DRIVER,
            "opencl: {refuses} … refuses to start": ONLY_DRIVER,
        },
        {FILES: "{driver}:{copy}:{refuses}"},
        broken=False,
    ),
    "a bare name that the loader does not find": Case(
        {"opencl: libintelocl.so … does not search": ONLY_DRIVER}, {FILES: "libintelocl.so"}
    ),
    "a driver that aborts when it is loaded": crashes(
        "{aborts}", "{driver}:{aborts}", "signal SIGABRT", "the last words"
    ),
    "a driver that crashes when it is loaded": crashes(
        "{segfaults}", "{driver}:{segfaults}", "signal SIGSEGV", "the last words"
    ),
    "a driver that crashes when its devices are listed": crashes(
        "{crashes_later}",
        "{crashes_later}:{driver}",
        "signal SIGABRT",
        "when its devices are listed",
    ),
    "a driver that makes the runtime fail": Case(
        {
            "opencl: {fails} … OUT_OF_HOST_MEMORY … when its devices are listed": ONLY_DRIVER,
            "devices: no platform can be listed": ABOVE,
        },
        {FILES: "{fails}:{driver}"},
        says="with only the other drivers: opencl:cpu:0",
    ),
    "a driver that refuses to start": Case(
        {"opencl: {refuses} … refuses to start: OpenCL error -5": UNSET}, {FILES: "{refuses}"}
    ),
    "a driver without a device": Case(
        {f"opencl: {FILES}={{idle}} names no driver that has a device for arrays": UNSET},
        {FILES: "{idle}"},
        says="{idle}, named by OCL_ICD_FILENAMES: a driver, but it finds no device",
    ),
    "a driver that hangs when it is loaded": Case(
        {
            "opencl: {hangs} … does not answer within 5 s": ONLY_DRIVER,
            "devices: does not list its devices within 5 s": ABOVE,
        },
        {FILES: "{driver}:{hangs}"},
        arguments="--timeout 5",
        broken=False,  # Without the fix the program would hang.
    ),
    "an empty variable": Case(
        {"opencl: OCL_ICD_FILENAMES is set but empty": UNSET},
        {FILES: ""},
        not_said="pip install",  # The driver is installed.
    ),
    "a vendor folder without a driver": Case(
        {"opencl: OCL_ICD_VENDORS={folder} holds no .icd file": "unset OCL_ICD_VENDORS"},
        {"OCL_ICD_VENDORS": "{folder}"},
        broken=False,
    ),
    "a vendor folder that does not exist": Case(
        {"opencl: OCL_ICD_VENDORS={folder}/gone does not exist": "unset OCL_ICD_VENDORS"},
        {"OCL_ICD_VENDORS": "{folder}/gone"},
        broken=False,
    ),
    **{
        f"a selector that hides everything: {selector}": selects(selector, "hides every device")
        for selector in ("level_zero:gpu", "!opencl:*", "opencl:7", ";")
    },
    **{
        f"an invalid selector: {selector}": selects(selector, "is not understood: ")
        for selector in ("foo", "opencl:fpga", "opencl:cpu:0", "", "cpu")
    },
    "a selector beside a driver that does not exist": Case(
        {
            "opencl: libnone.so does not exist": UNSET,
            'variables: "foo" is not understood': "unset ONEAPI_DEVICE_SELECTOR",
        },
        {SELECTOR: "foo", FILES: NONE},
    ),
    "two selectors together": Case(
        {"variables: ONEAPI_DEVICE_SELECTOR … are both set": "unset ZE_AFFINITY_MASK"},
        {SELECTOR: "*:*", "ZE_AFFINITY_MASK": "0"},
        broken=False,
    ),
    "two variables that each hide everything": Case(
        {
            f"variables: {name}= … hides every device": f"unset {name}"
            for name in (SELECTOR, "SYCL_DEVICE_ALLOWLIST")
        },
        {SELECTOR: "level_zero:*", "SYCL_DEVICE_ALLOWLIST": "DeviceName:{{{{nosuch}}}}"},
    ),
    "an unknown hierarchy": Case(
        {"variables: FLAT, COMPOSITE and COMBINED": "unset ZE_FLAT_DEVICE_HIERARCHY"},
        {"ZE_FLAT_DEVICE_HIERARCHY": "flat"},
        broken=False,
    ),
    "an unwritable cache": Case(
        {"settings: cannot be kept in {text}/cache … is not a folder": "unset SYCL_CACHE_DIR…"},
        {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": "{text}/cache"},
        broken=False,
    ),
    # The default cache folder, in a home that is not a folder.
    "an unwritable home": Case(
        {"settings: cannot be kept in … is not a folder": "export SYCL_CACHE_PERSISTENT=0…"},
        {"HOME": "{text}"},
        broken=False,
    ),
    "a deleted current folder": Case(
        {"runtime: needs the current folder of the process": "cd / …"},
        before='folder=$(mktemp -d); cd "$folder"; rmdir "$folder"',
    ),
    **{
        f"adapters named by {name}": Case(
            {f"adapters: {name} names": f"unset {name}"},
            {name: "/nonexistent/libur_adapter_opencl.so.0"},
            broken=name == "UR_ADAPTERS_FORCE_LOAD",
        )
        for name in ("UR_ADAPTERS_FORCE_LOAD", "UR_ADAPTERS_SEARCH_PATH")
    },
    "a temporary folder that is gone": Case(
        {f"{NO_FILE} … TMPDIR={{folder}}/gone: No such file … OpenCL C work": "unset TMPDIR"},
        {"TMPDIR": "{folder}/gone"},
        devices=["opencl:cpu:0"],
    ),
    "a temporary folder that is a file": Case(
        {f"{NO_FILE} … TMPDIR={{text}}: Not a directory … OpenCL C work": "unset TMPDIR"},
        {"TMPDIR": "{text}"},
        devices=["opencl:cpu:0"],
    ),
    "other variables with a temporary folder that is gone": Case(
        {f"{NO_FILE} … TMP={{folder}}/gone: No such … OpenCL C work": "unset TMP TEMP"},
        {"TMP": "{folder}/gone", "TEMP": "{folder}/gone"},
        devices=["opencl:cpu:0"],
    ),
    "a variable that breaks the compiler": Case(
        {f"kernels: {COMPILE} is set, and without it they do": f"unset {COMPILE}"},
        {COMPILE: "--nonsense"},
    ),
    # Too little for the runtime itself, for the drivers, and for the compiler; no package is wrong.
    **{
        f"a memory limit of {limit}": Case(
            {f"{topic}: ulimit -v is … too little": "ulimit -v unlimited"},
            before=f"ulimit -c 0; ulimit -S -v {limit}",
            not_said="pip install",
        )
        for limit, topic in ((60_000, "runtime"), (300_000, "settings"), (560_000, "settings"))
    },
    **{
        f"a wrong setting: {name}={value}": Case(
            {f'settings: {name}="{value}": ': f"unset {name} …"},
            {"USMQ_EMULATE_GPUS": "2", name: value},
        )
        for name, value in (
            ("USMQ_EMULATE_GPUS", "none"),
            ("USMQ_EMULATE_GPUS", "65"),
            ("USMQ_EMULATE_GPU_MEMORY", "1 GiB"),
            ("USMQ_EMULATE_SYSTEM_USM", "yes"),
            ("USMQ_EMULATE_FAULTS", "gpu:2=lost"),
        )
    },
    "a missing emulator library": Case(
        {"settings: USMQ_LAYERS_LIBRARY names /nonexistent/lib.so": "unset USMQ_LAYERS_LIBRARY"},
        {"USMQ_EMULATE_GPUS": "1", "USMQ_LAYERS_LIBRARY": "/nonexistent/lib.so"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_problem_has_a_fix_that_works(doctor, paths, name):
    found = CASES[name].check(doctor, paths)
    if name == "an empty variable":
        assert "pip install" not in found.text, "the driver is installed"
    if name.startswith("an invalid selector"):
        problems = [finding for finding in found.findings if finding["state"] == "problem"]
        assert [finding["topic"] for finding in problems] == ["variables", "devices"], found.text


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
def test_an_invalid_vendor_file(doctor, cpu_driver, tmp_path, text, words):
    file = tmp_path / "some.icd"
    file.write_text(text.format(driver=cpu_driver))
    found = doctor(OCL_ICD_VENDORS=str(tmp_path))
    fix = found.problem(words, f"named by {file}", topic="opencl")
    assert fix.startswith(f"rm '{file}'")
    found.applied(fix, broken=False)
    assert not file.exists()


def test_a_cache_writable_by_others(doctor, tmp_path):
    folder = tmp_path / "it's open"
    folder.mkdir()
    folder.chmod(0o777)
    found = doctor(SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(folder))
    found.applied(found.problem("kernels are not kept in", topic="settings"), broken=False)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_device_without_usm(doctor, cpu_driver):
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


# --- no problem


@pytest.mark.parametrize(
    ("given", "says"),
    [
        # A link to a driver.
        ({FILES: "{driver}:{folder}/liblink.so"}, "loaded once"),
        ({SELECTOR: "opencl:*"}, "hides nothing"),
    ],
)
def test_a_harmless_variable_is_not_a_problem(doctor, paths, tmp_path, given, says):
    (tmp_path / "liblink.so").symlink_to(paths["driver"])
    found = doctor(**{name: value.format_map(paths) for name, value in given.items()})
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    assert says in found.text


def test_notes_are_shown_without_a_problem(doctor):
    found = doctor(USMQ_POOL="0", USMQ_POLL="1", SYCL_DEVICE_FILTER="gpu")
    assert found.status == 0, found.text
    fixes = []
    for name, words in (
        ("USMQ_POOL", "USMQ_POOL=0"),
        ("USMQ_POLL", "USMQ_POLL=1: usmq has no variable of this name"),
        ("SYCL_DEVICE_FILTER", "SYCL_DEVICE_FILTER is set"),
    ):
        fixes.append(found.finding(words, state="note"))
        assert fixes[-1].split()[:2] == ["unset", name]
    found.applied("\n".join(fixes), broken=False)


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


def test_ctrl_c_ends_the_doctor_while_a_driver_hangs(run_python, compiled, cpu_driver, tmp_path):
    loaded = tmp_path / "loaded"
    hangs = f'open("{loaded}", O_CREAT | O_WRONLY, 0600); for (;;) sleep(100)'
    broken = compiled("libhangs.so", STARTS.format(hangs))
    environment = CLEAN | {"OCL_ICD_FILENAMES": f"{cpu_driver}:{broken}"}
    done = run_python(INTERRUPTED, str(loaded), **environment)
    assert done.stdout.splitlines() == ["interrupted", "no child is left"]


# --- the page about it

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
SAID = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("words", SAID)
def test_the_page_explains_the_messages_of_the_doctor(words):
    assert len(SAID) > 20
    sources = [*(ROOT / "src" / "doctor").glob("*.rs"), *(ROOT / "python" / "usmq").glob("_*.py")]
    runtime = ROOT / "src" / "runtime"
    sources += [runtime / "environment.rs", runtime / "emulator.rs"]
    sources += [ROOT / "src" / "device" / "layers.rs"]
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    # Long texts are broken across lines.
    text = re.sub(r"\\\n\s+", "", text)
    for part in words.removeprefix("libsycl…").split("…"):
        assert part in text, f"no message contains {part!r}"


def test_the_example_of_the_page_runs(run_python):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert run_python(code, **CLEAN).stdout == ""
