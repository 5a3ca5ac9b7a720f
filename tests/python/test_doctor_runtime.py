"""The doctor and the runtime: parts missing or mixed, other packages, processes that use it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import usmq
from doctor_environment import CLEAN, FOLDER, Checked, second_name

Run = Callable[..., subprocess.CompletedProcess[str]]

# --- the runtime and its adapters


def test_a_runtime_without_the_opencl_adapter(
    doctor: Callable[..., Checked], runtime_copy: Callable[..., Path]
) -> None:
    found = doctor(LD_LIBRARY_PATH=str(runtime_copy("libur_adapter_opencl")))
    fix = found.problem("opencl is missing", topic="adapters")
    assert "pip install 'intel-sycl-rt>=2026.1,<2027'" in fix
    assert found.devices() == []


def test_a_runtime_without_any_adapter(
    doctor: Callable[..., Checked], runtime_copy: Callable[..., Path]
) -> None:
    found = doctor(LD_LIBRARY_PATH=str(runtime_copy("libur_adapter_")))
    assert "pip install" in found.problem("no adapter is beside libsycl")


def test_an_adapter_whose_loader_is_missing(
    doctor: Callable[..., Checked], runtime_copy: Callable[..., Path]
) -> None:
    folder = runtime_copy("libOpenCL", "libur_adapter_opencl")
    adapter = (FOLDER / "libur_adapter_opencl.so.0").resolve().read_bytes()
    # The run path of the adapter, not LD_LIBRARY_PATH, may lead to the loader of the real folder.
    gone = adapter.replace(b"libOpenCL.so.1\0", b"libOpenCL.so.7\0")
    (folder / "libur_adapter_opencl.so.0").write_bytes(gone)
    found = doctor(LD_LIBRARY_PATH=str(folder))
    fix = found.problem("opencl", "cannot be loaded", "libOpenCL.so.7", topic="adapters")
    assert "intel-opencl-rt" in fix


def test_a_loader_of_adapters_from_elsewhere(
    doctor: Callable[..., Checked], tmp_path: Path
) -> None:
    second_name((FOLDER / "libur_loader.so.0").resolve(), tmp_path / "libur_loader.so.0")
    found = doctor(LD_LIBRARY_PATH=f"{tmp_path}:{FOLDER}")
    fix = found.problem("not the one beside it", str(tmp_path / "libur_loader.so.0"))
    assert f"take {tmp_path} out of LD_LIBRARY_PATH" in fix


def test_an_adapter_that_is_forced_but_not_there(doctor: Callable[..., Checked]) -> None:
    found = doctor(UR_ADAPTERS_FORCE_LOAD="/nonexistent/libur_adapter_opencl.so.0")
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


def test_two_runtimes_in_one_process(run_python: Run, runtime_copy: Callable[..., Path]) -> None:
    real = (FOLDER / "libsycl.so.9").resolve().read_bytes()
    second = runtime_copy("libsycl.so") / "libsycl.so.8"
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
    doctor: Callable[..., Checked], cpu_driver: str, name: str
) -> None:
    pytest.importorskip(name)
    assert re.search(rf"{name} \S+ shares the runtime of usmq", doctor().text)


def test_a_package_that_brings_another_runtime(
    doctor: Callable[..., Checked], runtime_copy: Callable[..., Path], tmp_path: Path
) -> None:
    other = runtime_copy()
    code = f"import ctypes; ctypes.CDLL('{other}/libsycl.so.9', ctypes.RTLD_GLOBAL)"
    make_package(tmp_path / "site", code)
    found = doctor(**before(tmp_path / "site"))
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
    doctor: Callable[..., Checked], tmp_path: Path, code: str, words: str
) -> None:
    make_package(tmp_path / "site", code)
    found = doctor(**before(tmp_path / "site"))
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
