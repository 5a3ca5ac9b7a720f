"""The doctor on the runtime: missing or mixed parts, other packages, processes that use it."""

import ast
import re
import sys
import zipfile
from pathlib import Path

import pytest
import usmq
from doctor_environment import CLEAN, FOLDER, reinstalls, second_name, version

# The library folders of the system.
USUAL = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")

# --- the runtime and its adapters

UR = ("intel-cmplr-lib-ur", "umf", "tcmlib")
SYCL = ("intel-sycl-rt", "intel-cmplr-lib-rt", "intel-cmplr-lic-rt", *UR)
OPENCL = ("intel-opencl-rt", "intel-cmplr-lic-rt", "tbb", "tcmlib")


def test_a_runtime_without_adapters(doctor, fresh):
    if not list(FOLDER.glob("libur_adapter_opencl.so*")):
        pytest.skip("this runtime has its OpenCL adapter inside the loader")
    environment = fresh(*UR)
    environment.without("libur_adapter_opencl")
    found = doctor(environment=environment)
    fix = found.problem("opencl is missing", topic="adapters")
    assert fix == reinstalls("intel-cmplr-lib-ur")
    assert found.devices() == []
    environment.without("libur_adapter_")
    found = doctor(environment=environment)
    assert found.problem("no adapter is installed beside libsycl") == fix
    found.applied(fix)


def test_a_runtime_without_its_opencl_driver(doctor, fresh):
    environment = fresh(*OPENCL)
    environment.without("libintelocl")
    found = doctor(environment=environment)
    fix = found.problem("no driver is installed", topic="opencl")
    assert fix == reinstalls("intel-opencl-rt")
    # The loader of drivers is of the same wheel.
    environment.without("libOpenCL")
    found = doctor(environment=environment)
    found.problem("no driver is installed", topic="opencl")
    if not any(Path(folder, "libOpenCL.so.1").exists() for folder in USUAL):
        assert found.problem("libOpenCL.so.1, the OpenCL loader, was not found") == fix
    if list(FOLDER.glob("libur_adapter_opencl.so*")):
        assert (
            found.problem("opencl", "cannot be loaded", "libOpenCL.so.1", topic="adapters") == fix
        )
    found.applied(fix)


@pytest.mark.parametrize(
    ("gone", "words", "topic", "devices"),
    [
        ("libtbb", ("libintelocl.so cannot be loaded, added by usmq", "libtbb"), "opencl", []),
        # The builtin functions of the driver.
        ("clbltfn", ("no kernel runs on the default device",), "kernels", ["opencl:cpu:0"]),
    ],
)
def test_an_opencl_driver_without_a_library(doctor, fresh, gone, words, topic, devices):
    environment = fresh(*OPENCL)
    environment.without(gone)
    found = doctor(environment=environment)
    assert found.devices() == devices
    fix = found.problem(*words, topic=topic)
    assert fix == reinstalls("intel-opencl-rt")
    found.applied(fix)


def test_an_adapter_that_crashes(doctor, fresh, compiled):
    if not list(FOLDER.glob("libur_adapter_opencl.so*")):
        pytest.skip("this runtime has its OpenCL adapter inside the loader")
    environment = fresh(*UR)
    environment.without("libur_adapter_opencl")
    source = """
#include <stdlib.h>
__attribute__((constructor)) static void start(void) { abort(); }"""
    compiled("environment/lib/libur_adapter_opencl.so.0", source)
    found = doctor(environment=environment)
    fix = found.problem("opencl", "signal SIGABRT", topic="adapters")
    assert fix == reinstalls("intel-cmplr-lib-ur")
    found.problem("asking for the devices", "signal SIGABRT", topic="devices")
    found.applied(fix)


def test_an_adapter_loader_from_another_folder(doctor, pristine, tmp_path):
    second_name((FOLDER / "libur_loader.so.0").resolve(), tmp_path / "libur_loader.so.0")
    maps = pristine.shell("python -c 'import usmq; print(open(\"/proc/self/maps\").read())'", {})
    if "libur_loader" not in maps.stdout:
        pytest.skip("this runtime has its adapter loader inside libsycl")
    found = doctor(LD_LIBRARY_PATH=f"{tmp_path}:{pristine.lib}")
    fix = found.problem(
        "it uses an adapter loader from another folder", str(tmp_path / "libur_loader.so.0")
    )
    assert fix == f"export LD_LIBRARY_PATH='{pristine.lib}'"
    found.applied(fix, broken=False)


def answers_without_the_extension(environment, gone, fix):
    """Check that the command reports, also as text, and that the import error agrees."""
    done = environment.shell("python -m usmq doctor", {})
    assert (done.returncode, done.stderr) == (1, "")
    assert gone in done.stdout
    assert f"fix: {fix}" in done.stdout
    assert done.stdout.rstrip().endswith("1 problem; no device is visible.")
    done = environment.shell("python -c 'import usmq'", {})
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("ImportError: usmq cannot load the SYCL runtime")
    assert gone in last
    assert fix in last


@pytest.mark.parametrize(
    ("gone", "package", "wheels"),
    [
        ("libumf.so", "umf", ("umf", "tcmlib")),
        ("libur_loader.so", "intel-cmplr-lib-ur", UR),
        ("libsvml.so", "intel-cmplr-lib-rt", ("intel-cmplr-lib-rt",)),
    ],
)
def test_the_command_reports_even_if_part_of_the_runtime_is_missing(
    doctor, fresh, gone, package, wheels
):
    environment = fresh(*wheels)
    environment.without(gone)
    fix = reinstalls(package)
    if environment.shell("python -c 'import usmq'", {}).returncode == 0:
        pytest.skip(f"this runtime loads without {gone}")
    answers_without_the_extension(environment, gone, fix)
    found = doctor(environment=environment)
    assert found.problem(gone, f"though {package} {version(package)} is installed") == fix
    found.applied(fix)


def test_without_libsycl_or_its_compiler(doctor, fresh):
    fix = reinstalls("intel-sycl-rt")
    environment = fresh(*SYCL)
    environment.without("libsycl-jit.so")
    found = doctor(environment=environment)
    assert found.devices() == ["opencl:cpu:0"]
    assert found.problem("libsycl-jit.so is not beside libsycl", topic="runtime") == fix
    assert found.problem("libsycl finds no compiler", "OpenCL C work", topic="kernels") == fix
    found.applied(fix)
    environment.without("libsycl.so")
    answers_without_the_extension(environment, "libsycl.so", fix)
    found = doctor(environment=environment)
    assert found.problem("libsycl.so") == fix
    found.applied(fix)


def as_if_of_release(environment, package, other):
    """Give an installed wheel the metadata of another version."""
    (info,) = environment.site.glob(f"{package.replace('-', '_')}-*.dist-info")
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(re.sub(r"(?m)^Version: .*$", f"Version: {other}", metadata))
    stem = info.name.removesuffix(".dist-info")
    renamed = f"{stem.rsplit('-', 1)[0]}-{other}"
    record = (info / "RECORD").read_text().replace(f"{stem}.dist-info", f"{renamed}.dist-info")
    (info / "RECORD").write_text(record)
    info.rename(info.with_name(f"{renamed}.dist-info"))


@pytest.mark.parametrize("loads", [True, False])
def test_wheels_of_two_releases(doctor, fresh, compiled, loads):
    environment = fresh(*UR)
    as_if_of_release(environment, "intel-cmplr-lib-ur", "2026.9.0")
    if not loads:
        # A newer loader may lack functions that an older libsycl needs.
        environment.without("libur_loader.so")
        compiled("environment/lib/libur_loader.so.0", "int none;", "-Wl,-soname,libur_loader.so.0")
        if environment.shell("python -c 'import usmq'", {}).returncode == 0:
            pytest.skip("this runtime has its adapter loader inside libsycl")
    found = doctor(environment=environment)
    runtime = version("intel-sycl-rt")
    fix = found.problem(f"intel-cmplr-lib-ur 2026.9.0 is newer than intel-sycl-rt {runtime}")
    assert fix == f"pip install 'intel-cmplr-lib-ur=={runtime}'"
    assert "older" not in found.text
    found.applied(fix, broken=not loads)


def test_a_runtime_that_is_older_than_the_build(doctor, fresh):
    """No problem: the extension is loaded, so it has all functions that it needs."""
    environment = fresh(*SYCL)
    for package in ("intel-sycl-rt", "intel-cmplr-lib-ur"):
        as_if_of_release(environment, package, "2026.0.0")
    assert doctor(environment=environment).status == 0


# --- packages


def make_package(folder, code):
    """Make something that is installed as torch."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(code)
    info = folder / "torch-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    names = [path.relative_to(folder) for path in (*folder.glob("torch/*"), *info.iterdir())]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in (*names, info.name + "/RECORD")))


def index_of(environment):
    return Path(environment.variables["PIP_FIND_LINKS"])


@pytest.mark.parametrize("name", ["dpctl", "dpnp"])
def test_a_package_with_the_same_runtime(run_python, cpu_driver, name):
    pytest.importorskip(name)
    done = run_python(None, "-m", "usmq", "doctor", **CLEAN)
    assert re.search(rf"{name} \S+ shares the runtime of usmq", done.stdout)


def test_a_package_with_another_runtime(doctor, runtime_copy, tmp_path):
    other = runtime_copy()
    code = f"import ctypes; ctypes.CDLL('{other}/libsycl.so.9', ctypes.RTLD_GLOBAL)"
    make_package(tmp_path / "site", code)
    found = doctor(PYTHONPATH=str(tmp_path / "site"))
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
def test_a_package_that_cannot_be_imported(doctor, fresh, tmp_path, code, words):
    environment = fresh()
    make_package(environment.site, code)
    make_package(tmp_path / "good", "")
    with zipfile.ZipFile(index_of(environment) / "torch-9.9-py3-none-any.whl", "w") as wheel:
        for file in (tmp_path / "good").rglob("*"):
            wheel.write(file, file.relative_to(tmp_path / "good"))
    found = doctor(environment=environment)
    fix = found.problem("torch 9.9 cannot be imported", words, topic="packages")
    assert fix == "pip install --force-reinstall torch"
    found.applied(fix, broken=False)
    assert environment.shell("python -c 'import torch'", {}).returncode == 0


def test_a_package_whose_import_is_blocked_by_a_variable(doctor, tmp_path):
    make_package(tmp_path, "import os; assert 'ONEAPI_DEVICE_SELECTOR' not in os.environ, 'no'")
    found = doctor(PYTHONPATH=str(tmp_path), ONEAPI_DEVICE_SELECTOR="opencl:*")
    fix = found.problem("torch 9.9 cannot be imported: AssertionError: no", topic="packages")
    assert fix == "unset ONEAPI_DEVICE_SELECTOR"
    found.applied(f"{fix}\npython -c 'import torch'", broken=False)


# --- in the current process


IN_PROCESS = {
    "the report is available as an object": """
report = usmq.doctor()
assert type(report) is usmq.DoctorReport
assert report.ok == all(finding.state != "problem" for finding in report.findings)
assert report.to_dict()["verdict"] == report.verdict == str(report).splitlines()[-1]
assert len(report.to_dict()["findings"]) == len(report.findings)
finding = report.findings[0]
assert type(finding) is usmq.DoctorFinding
assert finding == report.findings[0] != report.findings[1]
assert repr(report).startswith("<usmq.DoctorReport: ")
assert "<usmq.DoctorFinding runtime: ok: libsycl" in repr(finding)
""",
    "the doctor starts no runtime in this process": """
before = dict(os.environ)
first = usmq.doctor()
maps = open("/proc/self/maps").read()
assert "libur_adapter" not in maps and "libintelocl" not in maps
assert os.environ == before
if (pid := os.fork()) == 0:  # nothing here forbids it
    os._exit(0 if usmq.devices() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert first.devices == len(usmq.devices()) == usmq.doctor().devices >= 1
""",
    "devices in use are queried in this process": """
x = usmq.zeros(3)
usmq.set_memory_limit(1 << 30)
text = str(usmq.doctor())
assert "python -m usmq doctor tests them" in text
assert "limit of device memory on each device: 1.0 GiB" in text
assert "opencl:cpu:0" in text
assert x.tolist() == [0.0, 0.0, 0.0]
""",
    "a forked child is reported": """
usmq.devices()
if (pid := os.fork()) == 0:
    report = usmq.doctor()
    text = str(report)
    os._exit(7 if not report.ok and "forked" in text and "python -m usmq doctor" in text else 8)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
""",
    "many threads may run the doctor concurrently": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    reports = list(pool.map(lambda _: usmq.doctor(), range(4)))
assert len({(report.ok, report.devices) for report in reports}) == 1, reports
""",
}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_the_doctor_runs_in_the_current_process(pristine, name):
    pristine.run(f"import os, usmq\n{IN_PROCESS[name]}")


def test_devices_used_by_another_library_are_queried_in_this_process(run_python):
    pytest.importorskip("dpctl")
    driver = str(FOLDER / "libintelocl.so")
    code = """
import dpctl
assert dpctl.get_devices()
import usmq
report = usmq.doctor()
print(report.devices, len(dpctl.get_devices()), "tests them" in str(report))
"""
    out = run_python(code, **(CLEAN | {"OCL_ICD_FILENAMES": driver})).stdout.split()
    assert out[0] == out[1]
    assert out[2] == "True"


def test_an_earlier_query_of_another_library_is_the_cause(pristine):
    pytest.importorskip("dpctl")
    code = """
import dpctl
print("dpctl sees", len(dpctl.get_devices()))
import usmq
report = usmq.doctor()
problems = [finding for finding in report.findings if finding.state == "problem"]
try:
    print("usmq has", usmq.Queue().device.filter_string)
except usmq.RuntimeNotFoundError as error:
    print("says", "another library asked" in str(error), "OCL_ICD_FILENAMES=" in str(error))
    assert not any("devices are in use" in finding.what for finding in report.findings)
    print("problem", problems[0].what)
    print(problems[0].fix)
"""
    program = pristine.root / "asks_first.py"
    program.write_text(code)
    # The environment that runs the tests has dpctl.
    done = pristine.shell(f"{sys.executable} {program}", {})
    lines = done.stdout.splitlines()
    assert lines[:2] == ["dpctl sees 0", "says True True"], done.stdout + done.stderr
    assert lines[2].startswith("problem another library asked the SYCL runtime for devices before")
    assert len(lines) == 4, "the fix is one line"
    done = pristine.shell(f"{lines[3]}\n{sys.executable} {program}", {})
    assert done.stdout.splitlines() == ["dpctl sees 1", "usmq has opencl:cpu:0"], done.stderr
    # And, as its comment suggests, usmq first.
    program.write_text(code.replace("import dpctl", "import usmq, dpctl"))
    done = pristine.shell(f"{sys.executable} {program}", {})
    assert done.stdout.splitlines() == ["dpctl sees 1", "usmq has opencl:cpu:0"], done.stderr


def test_an_earlier_query_of_another_library_with_a_selector(pristine):
    pytest.importorskip("dpctl")
    if list(FOLDER.glob("libur_adapter_opencl.so*")):
        pytest.skip("this runtime finds devices with selectors that name only the backend opencl")
    code = """
import dpctl
dpctl.get_devices()
import usmq
report = usmq.doctor()
print([finding.fix for finding in report.findings if "opencl alone" in finding.what])
print(report.devices)
"""
    program = pristine.root / "asks_first.py"
    program.write_text(code)
    variables = {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu"}
    done = pristine.shell(f"{sys.executable} {program}", variables)
    fixes, devices = done.stdout.splitlines()
    (fix,) = ast.literal_eval(fixes)
    assert devices == "0"
    done = pristine.shell(f"{fix}\n{sys.executable} {program}", variables)
    assert done.stdout.splitlines() == ["[]", "1"], done.stderr


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_must_be_positive(run_python, timeout):
    done = run_python(None, "-m", "usmq", "doctor", f"--timeout={timeout}", check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
    if timeout != "soon":
        with pytest.raises(ValueError, match="positive"):
            usmq.doctor(timeout=float(timeout))
