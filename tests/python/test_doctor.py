"""The doctor in real environments, broken on purpose: the line, its fix, the exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import usmq
from usmq._core import runtime_libraries

Run = Callable[..., subprocess.CompletedProcess[str]]

CLEAN = {
    name: None
    for name in os.environ
    if name.startswith(
        ("ONEAPI_DEVICE_", "SYCL_", "ZE_", "UR_", "OCL_ICD_", "USMQ_", "CUDA_VISIBLE")
    )
}
FOLDER = Path(runtime_libraries("libsycl.so")[0]).parent


@dataclass
class Checked:
    """What the command said and how it ended."""

    status: int
    text: str
    findings: list[dict[str, Any]]

    def problem(self, *words: str, topic: str | None = None) -> str:
        """Return the fix of the one problem that has these words."""
        hits = [
            finding
            for finding in self.findings
            if finding["state"] == "problem"
            and all(word in finding["what"] for word in words)
            and topic in (None, finding["topic"])
        ]
        assert len(hits) == 1, f"{words}: {self.text}"
        assert self.status == 1
        assert hits[0]["fix"], "a problem without a fix"
        return str(hits[0]["fix"])

    def devices(self) -> list[str]:
        return [
            finding["what"].split()[0]
            for finding in self.findings
            if finding["topic"] == "devices" and finding["state"] == "ok"
        ]


@pytest.fixture(scope="session")
def check(run_python: Run) -> Callable[..., Checked]:
    """Return a call of ``python -m usmq doctor`` with variables changed; no others are set."""

    def check(*arguments: str, **environment: str | None) -> Checked:
        command = ("-m", "usmq", "doctor", "--json", *arguments)
        done = run_python(None, *command, check=False, **(CLEAN | environment))
        assert "Traceback" not in done.stderr, done.stderr
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0)
        for finding in report["findings"]:
            assert finding["state"] in ("ok", "note", "problem")
            assert finding["what"].strip()
            assert (finding["state"] == "problem") <= bool(finding["fix"])
        return Checked(done.returncode, done.stdout, report["findings"])

    return check


@pytest.fixture(scope="session")
def driver() -> str:
    path = FOLDER / "libintelocl.so"
    if not path.exists():
        pytest.skip(f"no OpenCL driver for CPUs beside libsycl in {FOLDER}")
    return str(path)


@pytest.fixture
def farm(tmp_path: Path) -> Callable[..., Path]:
    """Return a call that makes another folder of the runtime, without some of its libraries."""

    def farm(*without: str) -> Path:
        folder = tmp_path / "farm" / "lib"
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        for library in FOLDER.glob("lib*.so*"):
            if library.name.startswith(without or "none"):
                continue
            if library.name.startswith(("libsycl.so", "libur_")):
                second_name(library.resolve(), folder / library.name)
            else:
                (folder / library.name).symlink_to(library.resolve())
        for other in (*FOLDER.glob("*.rtl"), *FOLDER.glob("*.o"), *FOLDER.glob("cl.cfg")):
            (folder / other.name).symlink_to(other.resolve())
        return folder

    return farm


@pytest.fixture
def installed(farm: Callable[..., Path]) -> Callable[..., dict[str, str | None]]:
    """Return a call that makes an environment with usmq, without some libraries, and its variables.

    The run path of the extension leads to the runtime there, as in an environment that pip made.
    """

    def installed(*without: str) -> dict[str, str | None]:
        site = farm(*without) / "python3" / "site-packages"
        if not site.exists():
            site.mkdir(parents=True)
            package = Path(usmq.__file__).parent
            shutil.copytree(package, site / "usmq", copy_function=second_name)
        return {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": None}

    return installed


def second_name(source: str | Path, target: str | Path) -> None:
    """A link would be followed back to where the rest is."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., str]:
    """Return a call that makes a library of some C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")

    def compiled(name: str, source: str, *options: str) -> str:
        path = tmp_path / name
        headers = f"-I{FOLDER.parent / 'include'}"
        command = [compiler, "-shared", "-fPIC", headers, *options, "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        return str(path)

    return compiled


# --- a healthy environment


def test_a_healthy_environment_is_well(check: Callable[..., Checked], driver: str) -> None:
    found = check()
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    topics = {finding["topic"] for finding in found.findings}
    assert topics >= {"runtime", "adapters", "opencl", "variables", "settings", "packages"}
    assert str(FOLDER) in found.text


def test_the_text_is_grouped_and_ends_with_a_verdict(run_python: Run, driver: str) -> None:
    done = run_python(None, "-m", "usmq", "doctor", **CLEAN)
    lines = done.stdout.rstrip("\n").splitlines()
    assert re.fullmatch(r"All is well: 1 device is visible(, \d+ notes?)?\.", lines[-1])
    assert "\033" not in done.stdout, "colours in what is no terminal"
    for line in lines[:-1]:
        assert re.match(r"(?!\s)|  (ok|note|problem) +\S| {11}\S|$", line), line
    assert done.stderr == ""


def test_two_drivers_are_two_devices_and_no_problem(
    check: Callable[..., Checked], two_devices: tuple[usmq.Device, usmq.Device]
) -> None:
    found = check(OCL_ICD_FILENAMES=os.environ["OCL_ICD_FILENAMES"])
    if ":" not in os.environ["OCL_ICD_FILENAMES"]:
        pytest.skip("the loader has cut OCL_ICD_FILENAMES of this process")
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0", "opencl:cpu:1"]


# --- drivers


@pytest.mark.parametrize("beside", [False, True])
def test_a_driver_that_does_not_exist(
    check: Callable[..., Checked], driver: str, beside: bool
) -> None:
    named = f"/nonexistent/libnone.so:{driver}" if beside else "/nonexistent/libnone.so"
    found = check(OCL_ICD_FILENAMES=named)
    fix = found.problem("/nonexistent/libnone.so does not exist", topic="opencl")
    if beside:
        assert fix == f"export OCL_ICD_FILENAMES='{driver}'"
        assert found.devices() == ["opencl:cpu:0"]
    else:
        assert fix == "unset OCL_ICD_FILENAMES"
        assert found.devices() == []


def test_a_driver_that_is_no_library(check: Callable[..., Checked], tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library at all\n")
    found = check(OCL_ICD_FILENAMES=str(text))
    assert found.problem(f"{text} is not a library") == "unset OCL_ICD_FILENAMES"


def test_a_library_that_is_no_driver(check: Callable[..., Checked], driver: str) -> None:
    library = str(FOLDER / "libur_loader.so.0")
    found = check(OCL_ICD_FILENAMES=f"{driver}:{library}")
    fix = found.problem(f"{library} is a library, but not an OpenCL driver")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"


def test_a_driver_whose_own_libraries_are_missing(
    check: Callable[..., Checked], compiled: Callable[..., str], tmp_path: Path
) -> None:
    base = compiled("libbase.so", "int base(void) { return 1; }")
    source = "int base(void); int uses(void) { return base(); }"
    broken = compiled("libbroken.so", source, "-Wl,--no-as-needed", f"-L{tmp_path}", "-lbase")
    Path(base).unlink()
    found = check(OCL_ICD_FILENAMES=broken)
    fix = found.problem(broken, "cannot be loaded", "libbase.so: cannot open shared object file")
    assert fix == "unset OCL_ICD_FILENAMES"


def test_one_driver_by_two_copies(
    check: Callable[..., Checked], driver: str, farm: Callable[..., Path]
) -> None:
    second = farm() / "libintelocl.so"
    second.unlink()
    shutil.copy(driver, second)
    found = check(OCL_ICD_FILENAMES=f"{driver}:{second}")
    fix = found.problem(str(second), f"is a copy of {driver}")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"


def test_one_driver_by_a_link_is_no_problem(
    check: Callable[..., Checked], driver: str, tmp_path: Path
) -> None:
    link = tmp_path / "liblink.so"
    link.symlink_to(driver)
    found = check(OCL_ICD_FILENAMES=f"{driver}:{link}")
    assert found.status == 0, found.text
    assert found.devices() == ["opencl:cpu:0"]
    assert "taken once" in found.text


def test_a_bare_name_that_the_loader_does_not_find(
    check: Callable[..., Checked], driver: str, installed: Callable[..., dict[str, str | None]]
) -> None:
    found = check(**installed(), OCL_ICD_FILENAMES="libintelocl.so")
    fix = found.problem("libintelocl.so", "does not search", topic="opencl")
    there = re.fullmatch("export OCL_ICD_FILENAMES='(.*)'", fix)
    assert there
    assert os.path.samefile(there[1], driver)
    # The other packages have the runtime of their own environment, which is told of too.
    assert check(**installed(), OCL_ICD_FILENAMES=there[1]).devices() == ["opencl:cpu:0"]


@pytest.mark.parametrize(
    ("call", "signal"),
    [("abort()", "SIGABRT"), ("*(volatile int *)8 = 1", "SIGSEGV")],
    ids=["abort", "segfault"],
)
def test_a_driver_that_crashes_when_it_is_loaded(
    check: Callable[..., Checked],
    compiled: Callable[..., str],
    driver: str,
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
    found = check(OCL_ICD_FILENAMES=f"{driver}:{broken}")
    fix = found.problem(broken, f"signal {signal}", "the last words", topic="opencl")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"
    found.problem("asking for the devices", f"signal {signal}", topic="devices")
    assert "with the other drivers alone: opencl:cpu:0" in found.text
    assert found.devices() == []


# A driver that starts, and then does what it is compiled for when its devices are listed.
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
  return REFUSES ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}
void *clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)get_platform_ids;
}
"""


def test_a_driver_that_crashes_when_its_devices_are_listed(
    check: Callable[..., Checked], compiled: Callable[..., str], driver: str
) -> None:
    broken = compiled("libcrash.so", ICD, "-DWHEN_LISTED=abort()", "-DREFUSES=0")
    found = check(OCL_ICD_FILENAMES=f"{broken}:{driver}")
    fix = found.problem(broken, "signal SIGABRT", "when its devices are listed")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"
    found.problem("asking for the devices", "signal SIGABRT", topic="devices")
    assert "with the other drivers alone: opencl:cpu:0" in found.text


def test_a_driver_that_lets_the_runtime_fail(
    check: Callable[..., Checked], compiled: Callable[..., str], driver: str
) -> None:
    broken = compiled("libfails.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=0")
    found = check(OCL_ICD_FILENAMES=f"{broken}:{driver}")
    fix = found.problem(broken, "OUT_OF_HOST_MEMORY", "when its devices are listed", topic="opencl")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"
    assert "mend what is shown above" in found.problem("no platform can be listed", topic="devices")
    assert "with the other drivers alone: opencl:cpu:0" in found.text


def test_a_driver_that_refuses_to_start(
    check: Callable[..., Checked], compiled: Callable[..., str]
) -> None:
    broken = compiled("librefuses.so", ICD, "-DWHEN_LISTED=(void)0", "-DREFUSES=1")
    found = check(OCL_ICD_FILENAMES=broken)
    fix = found.problem(broken, "refuses to start: OpenCL error -5")
    assert fix == "unset OCL_ICD_FILENAMES"


def test_a_driver_that_hangs_when_it_is_loaded(
    check: Callable[..., Checked], compiled: Callable[..., str], driver: str
) -> None:
    source = """
#include <unistd.h>
__attribute__((constructor)) static void start(void) { for (;;) sleep(100); }"""
    broken = compiled("libhang.so", source)
    found = check("--timeout", "8", OCL_ICD_FILENAMES=f"{driver}:{broken}")
    fix = found.problem(broken, "does not answer within 8 s")
    assert fix == f"export OCL_ICD_FILENAMES='{driver}'"
    found.problem("does not tell its devices within 8 s", topic="devices")


def test_a_variable_that_is_set_to_nothing(check: Callable[..., Checked]) -> None:
    found = check(OCL_ICD_FILENAMES="")
    assert found.problem("OCL_ICD_FILENAMES is set but empty") == "unset OCL_ICD_FILENAMES"


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_of_vendors_without_a_driver(
    check: Callable[..., Checked], tmp_path: Path, exists: bool
) -> None:
    folder = tmp_path if exists else tmp_path / "gone"
    found = check(OCL_ICD_VENDORS=str(folder))
    words = "holds no .icd file" if exists else "does not exist"
    assert found.problem(f"OCL_ICD_VENDORS={folder} {words}") == "unset OCL_ICD_VENDORS"


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
def test_a_file_of_a_vendor_that_is_wrong(
    check: Callable[..., Checked], driver: str, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "some.icd"
    file.write_text(text.format(driver=driver))
    found = check(OCL_ICD_VENDORS=str(tmp_path))
    fix = found.problem(words, f"named by {file}", topic="opencl")
    assert fix.startswith(f"sudo rm {file}")


def test_a_device_without_usm(check: Callable[..., Checked], driver: str) -> None:
    places = [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64")]
    pocl = next((found for place in places for found in place.glob("libpocl.so.2*")), None)
    if pocl is None:
        pytest.skip("PoCL, whose device has no USM, is not installed")
    found = check(OCL_ICD_FILENAMES=str(pocl))
    assert "intel-opencl-rt" in found.problem("it has no USM", topic="devices")
    found = check(OCL_ICD_FILENAMES=f"{pocl}:{driver}")
    assert found.status == 0, found.text
    notes = [finding for finding in found.findings if finding["state"] == "note"]
    assert any("it has no USM" in finding["what"] for finding in notes), found.text


# --- the runtime and its adapters


def test_a_runtime_without_the_opencl_adapter(
    check: Callable[..., Checked], farm: Callable[..., Path]
) -> None:
    found = check(LD_LIBRARY_PATH=str(farm("libur_adapter_opencl")))
    fix = found.problem("opencl is missing", "2026.2", topic="adapters")
    assert "pip install 'intel-sycl-rt>=2026.0,<2026.2'" in fix
    assert found.devices() == []


def test_a_runtime_without_any_adapter(
    check: Callable[..., Checked], farm: Callable[..., Path]
) -> None:
    found = check(LD_LIBRARY_PATH=str(farm("libur_adapter_")))
    assert "pip install" in found.problem("no adapter is beside libsycl")


def test_an_adapter_whose_loader_is_missing(
    check: Callable[..., Checked], farm: Callable[..., Path]
) -> None:
    folder = farm("libOpenCL", "libur_adapter_opencl")
    adapter = (FOLDER / "libur_adapter_opencl.so.0").resolve().read_bytes()
    # The run path of the adapter, not LD_LIBRARY_PATH, may lead to the loader of the real folder.
    gone = adapter.replace(b"libOpenCL.so.1\0", b"libOpenCL.so.7\0")
    (folder / "libur_adapter_opencl.so.0").write_bytes(gone)
    found = check(LD_LIBRARY_PATH=str(folder))
    fix = found.problem("opencl", "cannot be loaded", "libOpenCL.so.7", topic="adapters")
    assert "intel-opencl-rt" in fix


def test_a_loader_of_adapters_from_elsewhere(check: Callable[..., Checked], tmp_path: Path) -> None:
    second_name((FOLDER / "libur_loader.so.0").resolve(), tmp_path / "libur_loader.so.0")
    found = check(LD_LIBRARY_PATH=f"{tmp_path}:{FOLDER}")
    fix = found.problem("not the one beside it", str(tmp_path / "libur_loader.so.0"))
    assert f"take {tmp_path} out of LD_LIBRARY_PATH" in fix


def test_an_adapter_that_is_forced_but_not_there(check: Callable[..., Checked]) -> None:
    found = check(UR_ADAPTERS_FORCE_LOAD="/nonexistent/libur_adapter_opencl.so.0")
    assert found.problem("UR_ADAPTERS_FORCE_LOAD names") == "unset UR_ADAPTERS_FORCE_LOAD"


@pytest.mark.parametrize(
    ("gone", "package"), [("libsycl.so", "intel-sycl-rt"), ("libumf.so", "umf")]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_without_the_runtime_the_command_still_answers(
    run_python: Run,
    installed: Callable[..., dict[str, str | None]],
    gone: str,
    package: str,
    as_json: bool,
) -> None:
    arguments = ["-m", "usmq", "doctor", *(["--json"] if as_json else [])]
    environment = installed(gone)
    done = run_python(None, *arguments, check=False, **environment)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr, done.stderr
    assert gone in done.stdout
    assert "pip install" in done.stdout
    assert package in done.stdout
    if as_json:
        assert json.loads(done.stdout)["findings"][0]["state"] == "problem"
    else:
        assert done.stdout.rstrip().endswith("1 problem; no device is visible.")
    # Without the command it is an error that says the same.
    done = run_python("import usmq", check=False, **environment)
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("ImportError: usmq cannot load the SYCL runtime")
    assert gone in last
    assert "pip install" in last


def test_two_runtimes_in_one_process(run_python: Run, farm: Callable[..., Path]) -> None:
    real = (FOLDER / "libsycl.so.9").resolve().read_bytes()
    second = farm("libsycl.so") / "libsycl.so.8"
    second.write_bytes(real.replace(b"libsycl.so.9\0", b"libsycl.so.8\0"))
    code = """
import ctypes, sys
import usmq
loaded = ctypes.CDLL(sys.argv[1])
report = usmq.doctor()
print(report)
sys.exit(not report.ok)
"""
    done = run_python(code, str(second), check=False, LD_LIBRARY_PATH=str(FOLDER))
    assert done.returncode == 1
    assert "2 SYCL runtimes are loaded in this process" in done.stdout
    assert str(second) in done.stdout
    assert "from one source (PyPI or a oneAPI toolkit, not both)" in done.stdout


# --- variables


@pytest.mark.parametrize("selector", ["level_zero:gpu", "!opencl:*", "opencl:7", ";"])
def test_a_selector_that_hides_everything(
    check: Callable[..., Checked], driver: str, selector: str
) -> None:
    found = check(ONEAPI_DEVICE_SELECTOR=selector)
    words = (f'ONEAPI_DEVICE_SELECTOR="{selector}" hides every device', "without it: opencl:cpu:0")
    assert found.problem(*words) == "unset ONEAPI_DEVICE_SELECTOR"
    found.problem("no device is visible", topic="devices")


@pytest.mark.parametrize("selector", ["nosuch", "opencl:fpga", "opencl:cpu:0", "", "cpu"])
def test_a_selector_that_is_not_understood(
    check: Callable[..., Checked], driver: str, selector: str
) -> None:
    found = check(ONEAPI_DEVICE_SELECTOR=selector)
    words = f'ONEAPI_DEVICE_SELECTOR="{selector}" is not understood: '
    assert found.problem(words, "without it: opencl:cpu:0") == "unset ONEAPI_DEVICE_SELECTOR"


def test_a_selector_that_shows_all_is_no_problem(
    check: Callable[..., Checked], driver: str
) -> None:
    found = check(ONEAPI_DEVICE_SELECTOR="opencl:*")
    assert found.status == 0, found.text
    assert "hides nothing" in found.text


def test_two_selectors_at_once(check: Callable[..., Checked]) -> None:
    found = check(ONEAPI_DEVICE_SELECTOR="*:*", ZE_AFFINITY_MASK="0")
    assert found.problem("ONEAPI_DEVICE_SELECTOR", "are both set") == "unset ZE_AFFINITY_MASK"


def test_a_hierarchy_of_no_such_name(check: Callable[..., Checked]) -> None:
    found = check(ZE_FLAT_DEVICE_HIERARCHY="flat")
    assert found.problem("FLAT, COMPOSITE and COMBINED") == "unset ZE_FLAT_DEVICE_HIERARCHY"


# --- settings


def test_a_cache_that_cannot_be_written(check: Callable[..., Checked], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    found = check(SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(folder))
    assert "SYCL_CACHE_DIR" in found.problem(f"cannot be kept in {folder}", "is no folder")


def test_a_pool_that_is_off_is_noted(check: Callable[..., Checked]) -> None:
    found = check(USMQ_POOL="0")
    assert found.status == 0, found.text
    notes = [finding for finding in found.findings if finding["state"] == "note"]
    assert any(finding["fix"] == "unset USMQ_POOL" for finding in notes)


# --- packages


def make_package(folder: Path, code: str) -> None:
    """Make something that is installed as torch."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(code)
    info = folder / "torch-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")


def before(folder: Path) -> dict[str, str]:
    own = str(Path(usmq.__file__).parents[1])
    return {"PYTHONPATH": f"{folder}:{own}"}


@pytest.mark.parametrize("name", ["dpctl", "dpnp"])
def test_a_package_that_shares_the_runtime(
    check: Callable[..., Checked], driver: str, name: str
) -> None:
    pytest.importorskip(name)
    assert re.search(rf"{name} \S+ shares the runtime of usmq", check().text)


def test_a_package_that_brings_another_runtime(
    check: Callable[..., Checked], farm: Callable[..., Path], tmp_path: Path
) -> None:
    other = farm()
    code = f"import ctypes; ctypes.CDLL('{other}/libsycl.so.9', ctypes.RTLD_GLOBAL)"
    make_package(tmp_path / "site", code)
    found = check(**before(tmp_path / "site"))
    fix = found.problem("torch 9.9 loads another SYCL runtime", str(other), topic="packages")
    assert "one environment" in fix


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('a symbol is missing')", "a symbol is missing"),
        ("import os; os.abort()", "exit -6"),
    ],
    ids=["error", "abort"],
)
def test_a_package_that_cannot_be_imported(
    check: Callable[..., Checked], tmp_path: Path, code: str, words: str
) -> None:
    make_package(tmp_path / "site", code)
    found = check(**before(tmp_path / "site"))
    fix = found.problem("torch 9.9 cannot be imported", words, topic="packages")
    assert fix == "pip install --force-reinstall torch"


# --- in a process of one's own


def test_the_report_is_an_object(run_python: Run) -> None:
    code = """
import usmq
report = usmq.doctor()
assert type(report) is usmq.DoctorReport
assert report.ok == all(finding.state != "problem" for finding in report.findings)
assert report.to_dict()["verdict"] == report.verdict == str(report).splitlines()[-1]
assert len(report.to_dict()["findings"]) == len(report.findings)
finding = report.findings[0]
assert type(finding) is usmq.DoctorFinding
assert finding == report.findings[0] != report.findings[1]
print(repr(report), repr(finding))
"""
    out = run_python(code, **CLEAN).stdout
    assert out.startswith("<usmq.DoctorReport: ")
    assert "<usmq.DoctorFinding runtime: ok: libsycl" in out


def test_asking_starts_nothing_in_this_process(run_python: Run) -> None:
    code = """
import os, usmq
before = dict(os.environ)
first = usmq.doctor()
maps = open("/proc/self/maps").read()
assert "libur_adapter" not in maps and "libintelocl" not in maps
assert os.environ == before
if (pid := os.fork()) == 0:  # nothing here forbids it
    os._exit(0 if usmq.devices() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(first.devices, len(usmq.devices()), usmq.doctor().devices)
"""
    out = run_python(code, **CLEAN).stdout.split()
    assert len(set(out)) == 1
    assert int(out[0]) >= 1


def test_where_devices_are_in_use_they_are_asked_here(run_python: Run) -> None:
    code = """
import usmq
x = usmq.zeros(3)
usmq.set_memory_limit(1 << 30)
print(usmq.doctor())
print(x.to_numpy().tolist())
"""
    out = run_python(code, **CLEAN).stdout
    assert "python -m usmq doctor tries them" in out
    assert "limit of device memory on each device: 1.0 GiB" in out
    assert "opencl:cpu:0" in out
    assert out.rstrip().endswith("[0.0, 0.0, 0.0]")


def test_where_another_library_uses_devices_they_are_asked_here(run_python: Run) -> None:
    pytest.importorskip("dpctl")
    driver = str(FOLDER / "libintelocl.so")
    code = """
import dpctl
assert dpctl.get_devices()
import usmq
report = usmq.doctor()
print(report.devices, len(dpctl.get_devices()), "tries them" in str(report))
"""
    out = run_python(code, **(CLEAN | {"OCL_ICD_FILENAMES": driver})).stdout.split()
    assert out[0] == out[1]
    assert out[2] == "True"


def test_in_a_forked_child_it_says_so(run_python: Run) -> None:
    code = """
import os, usmq
usmq.devices()
if (pid := os.fork()) == 0:
    report = usmq.doctor()
    os.write(1, str(report).encode())
    os._exit(report.ok)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    out = run_python(code, **CLEAN).stdout
    assert "forked" in out
    assert "python -m usmq doctor" in out


def test_many_threads_may_ask_at_once(run_python: Run) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
import usmq
with ThreadPoolExecutor(4) as pool:
    reports = list(pool.map(lambda _: usmq.doctor(), range(4)))
print(*[(report.ok, report.devices) for report in reports], sep="\\n")
"""
    lines = run_python(code, **CLEAN).stdout.splitlines()
    assert len(lines) == 4
    assert len(set(lines)) == 1, lines


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_positive_number(run_python: Run, timeout: str) -> None:
    done = run_python(None, "-m", "usmq", "doctor", f"--timeout={timeout}", check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
    if timeout != "soon":
        with pytest.raises(ValueError, match="positive"):
            usmq.doctor(timeout=float(timeout))
