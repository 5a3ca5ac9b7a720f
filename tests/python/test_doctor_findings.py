"""Every finding of the doctor has a test that applies its fix, or a reason why it has none."""

import re
from pathlib import Path

import pytest
from test_doctor import CASES
from test_doctor_runtime import IN_PROCESS

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "doctor"

NO_GPU = (
    "no: this machine has no such GPU, and the fix is a command of the system or of a container"
)
ABOVE = "no: it points to another finding, whose fix is applied"
PROSE = "no: the fix depends on what else is installed, so it is a sentence"

# By file: text of each problem and note, and its test, or its case in test_doctor.py.
FINDINGS = {
    "adapters": {
        "{name}: {} {how}": "test_an_adapter_that_crashes",
        ", cannot be loaded: ": "test_a_runtime_without_its_opencl_driver",
        "opencl is missing, so there is no CPU device": "test_a_runtime_without_adapters",
        "no adapter is installed beside libsycl": "test_a_runtime_without_adapters",
        "{name} names {}, which does not exist": "adapters named by UR_ADAPTERS_FORCE_LOAD",
    },
    "devices": {
        "the platform {platform} cannot be listed": "no: no driver here does that",
        "asking for the devices {}": ABOVE,
        "the runtime does not list its devices within": ABOVE,
        "the SYCL runtime has started in this process": "devices in use are queried",
        "it has no USM, so usmq cannot allocate arrays on it": "test_a_device_without_usm",
        "use another device": "test_a_device_without_usm",
        "no device is visible": ABOVE,
    },
    "layers": {
        "Fault::Setting(text) => {": "a wrong setting: USMQ_EMULATE_GPUS=none",
        "Fault::NoLibrary(text) if": "a missing emulator library",
        "or install usmq again": "test_an_installation_without_the_emulator",
        "Fault::TooLate { text, layers }": "test_emulated_gpus_requested_too_late",
        "has no effect without": "test_an_emulator_setting_without_emulated_gpus",
        "but no emulated GPU is visible": "test_a_selector_that_hides_the_emulated_gpus",
        "seen.layer_problems.iter()": "test_a_file_that_is_not_a_layer",
        "can lock up the OpenCL driver for CPUs": "test_waits_that_are_not_ordered_by_request",
    },
    "intel": {
        "this user may not open it": NO_GPU,
        "container was started without the GPU": NO_GPU,
        "the kernel has no driver for the GPU": NO_GPU,
        "was not found: no GPU through Level Zero": NO_GPU,
    },
    "level_zero": {
        "the Level Zero driver lists no GPU": NO_GPU,
        "kernels in OpenCL C do not compile for": "no: test_level_zero.py sees it on Level Zero",
    },
    "kernels": {
        "no kernel runs on the default device": "test_an_opencl_driver_without_a_library",
        "kernels in SYCL C++ do not compile": "a temporary folder that is gone",
        "was not found: kernels that include": "test_a_machine_without_the_cxx_headers",
        "no temporary file can be made in": "test_a_full_or_read_only_temporary_folder",
        "{name} is set, and without it they do": "a variable that breaks the compiler",
        "libsycl finds no compiler for them": "test_without_libsycl_or_its_compiler",
    },
    "limits": {
        "too little memory for the drivers": "a memory limit of 60000",
        "raise the limit where it is set": "no: this user may not raise it, in no shell",
    },
    "nvidia": {
        "on the bus, but no /dev/nvidia": NO_GPU,
        "{seen}, but {line}": NO_GPU,
        "{seen}, but libcuda.so.1 {how}": NO_GPU,
        "this runtime has no adapter for CUDA": NO_GPU,
    },
    "opencl": {
        "OCL_ICD_FILENAMES is set but empty": "an empty variable",
        "names no driver that has a device for arrays": "a driver without a device",
        ", is a copy of {}": "two copies of one driver",
        "the file is empty": "test_an_invalid_vendor_file",
        "{library} does not exist": "a driver that does not exist",
        "{library} is not a library": "a driver that is not a library",
        "the file must contain one line without blanks": "test_an_invalid_vendor_file",
        "finds no device in this machine": "a driver without a device",
        "refuses to start: OpenCL error": "a driver that refuses to start",
        "is a library, but not an OpenCL driver": "a library that is not a driver",
        "{library} cannot be loaded, ": "a driver whose own libraries are missing",
        "{library}, {origin}, {how}": "a driver that crashes when it is loaded",
        "where the OpenCL loader does not search": "a bare name that the loader does not find",
        "the OpenCL loader, was not found": "test_a_runtime_without_its_opencl_driver",
        "the drivers of the system are hidden": "a vendor folder without a driver",
        "no driver is installed": "test_a_runtime_without_its_opencl_driver",
        "{how}, when its devices are listed": "a driver that makes the runtime fail",
        "does not answer within": "a driver that hangs when it is loaded",
    },
    "installation": {
        "no libsycl is loaded": "no: a build without a runtime, as `tests/run test-stub` makes",
        "are loaded in this process; usmq refuses": PROSE,
        "it uses an adapter loader from another folder": "test_an_adapter_loader_from_another",
        "runtime::folder_fault()": "a deleted current folder",
        "libsycl-jit.so is not beside": "test_without_libsycl_or_its_compiler",
        "runtime::TOO_EARLY": "test_an_earlier_query_of_another_library_is",
        "error.to_string()": "no: a forked child; the fix is to ask in another process",
    },
    "search_path": {
        "puts other libraries before those of": "test_a_library_that_hides_a_runtime_library"
    },
    "settings": {
        "compiled kernels are not kept in": "test_a_cache_writable_by_others",
        "compiled kernels cannot be kept in": "an unwritable cache",
        "USMQ_POOL=0: memory is not reused": "test_notes_are_shown_without_a_problem",
        "usmq has no variable of this name": "test_notes_are_shown_without_a_problem",
    },
    "variables": {
        "is not understood: ": "an invalid selector: foo",
        "hides every device\\n": "a selector that hides everything: !opencl:*",
        "{set}: {error}": "no: where the runtime has started in this process, to be shown in one",
        "may hide every device": "no: as the line before",
        "hide every device together": "no: it takes several devices and two variables",
        "are both set": "two selectors together",
        "names the backend opencl alone": "test_an_earlier_query_of_another_library_with",
        "is none of FLAT, COMPOSITE and COMBINED": "an unknown hierarchy",
        "is set, but current runtimes ignore it": "test_notes_are_shown_without_a_problem",
    },
}
# How often each file makes a problem or a note: a new one needs a line above.
PLACES = {
    "adapters": 5,
    "devices": 7,
    "installation": 8,
    "intel": 4,
    "kernels": 3,
    "layers": 8,
    "level_zero": 2,
    "limits": 1,
    "mod": 1,
    "nvidia": 4,
    "opencl": 18,
    "settings": 4,
    "variables": 8,
}


def code_of(path):
    """Return the code of a file without its tests and comments, long texts in one line."""
    code = path.read_text(encoding="utf-8").split("#[cfg(test)]\nmod tests")[0]
    code = re.sub(r"^\s*//.*$", "", code, flags=re.MULTILINE)
    return re.sub(r"\\\n\s+", "", code)


CODE = {path.stem: code_of(path) for path in SOURCES.glob("*.rs")}
MADE = re.compile(r"Finding::(?:problem|note)\(|\bbroken\(|state: State::Problem, \.\.")
FILES = Path(__file__).parent.glob("test_doctor*")
TESTS = re.findall(
    r"^def (test_\w+)", "\n".join(path.read_text(encoding="utf-8") for path in FILES), re.MULTILINE
)
TESTS += [*CASES, *IN_PROCESS]


def test_every_finding_is_listed_here():
    made = {name: len(MADE.findall(code)) for name, code in CODE.items() if name != "report"}
    assert {name: count for name, count in made.items() if count} == PLACES
    # A suspect that search_path finds becomes a problem in mod.
    assert set(PLACES) - {"mod"} | {"search_path"} == set(FINDINGS)


@pytest.mark.parametrize(
    ("file", "words"), [(file, words) for file in FINDINGS for words in FINDINGS[file]]
)
def test_every_finding_has_a_test_or_a_reason(file, words):
    # Texts of several files are defined in one of them.
    shared = {"does not answer within", "cannot be loaded"}
    assert words in CODE[file] or words in shared, f"src/doctor/{file}.rs does not say {words!r}"
    test = FINDINGS[file][words]
    if not test.startswith("no: "):
        assert any(name.startswith(test) for name in TESTS), test
