"""The runtime in a process: forks, missing devices, duplicate drivers, two runtimes, and exit."""

import importlib.metadata
import os
import re
from pathlib import Path

import pytest
import usmq
from children import KERNEL

FORK = (
    KERNEL
    + '''
import os, sys
event = spin(1, x, 1)
def child(call):
    """Fork, run the call in the child, and return what it printed and how it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        text = "nothing"
        try:
            call()
        except usmq.ForkError as error:
            text = f"ForkError {error}"
        except BaseException as error:
            text = f"{type(error).__name__} {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = os.fdopen(read).read()
    return text.replace("\\n", " "), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
'''
)

USES = {
    "devices": "usmq.devices()",
    "Device": "usmq.Device('cpu')",
    "Queue": "usmq.Queue()",
    "current_queue": "usmq.current_queue()",
    "zeros": "usmq.zeros(3)",
    "asarray": "usmq.asarray([1, 2])",
    "to_numpy": "x.to_numpy()",
    "copy": "x.copy()",
    "wait": "x.wait()",
    "queue.wait": "x.queue.wait()",
    "event.wait": "event.wait()",
    "launch": "spin(1, x, 1)",
    "build": "usmq.Kernel.from_sycl(SOURCE, 'spin')",
    "interface": "x.__sycl_usm_array_interface__",
    "dlpack": "x.__dlpack__(stream=-1)",
    "dlpack of the host": "h.__dlpack__(dl_device=(1, 0))",
}


def runtime_files(package):
    """Return the installed files of a runtime package by name, or skip."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the runtime does not come from the package {package}")
    return {file.name: Path(str(file.locate())).resolve() for file in files}


def test_a_forked_child_gets_an_error_from_every_call(run_python):
    calls = ", ".join(f"{name!r}: lambda: {code}" for name, code in USES.items())
    code = f"""{FORK}
for name, call in {{{calls}}}.items():
    print(name, *child(call), sep="|")
spin(1, x, 1)
print("parent", x.to_numpy().shape, usmq.zeros(2).to_numpy())
"""
    lines = run_python(code, timeout=60).stdout.splitlines()
    assert len(lines) == len(USES) + 1
    for line in lines[:-1]:
        name, rest = line.split("|", 1)
        text, status = rest.rsplit("|", 1)
        assert text.startswith("ForkError "), line
        assert "spawn" in text, f"{name} does not name an alternative"
        assert status == "0", line
    assert lines[-1] == "parent (1,) [0. 0.]"


# With work in flight at the fork, the tear-down of the driver itself waits in the child for threads
# that it does not have, with or without usmq. multiprocessing ends its children by os._exit.
@pytest.mark.parametrize(
    ("before", "end"), [("x.wait()", "sys.exit(7)"), ("spin(1, x, 50_000_000)", "os._exit(7)")]
)
def test_a_forked_child_may_drop_everything_and_exit(run_python, before, end):
    code = f"""{FORK}
import gc
{before}
pid = os.fork()
if pid == 0:
    del x, event, spin
    gc.collect()
    {end}
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), x.to_numpy().size)
"""
    assert run_python(code, timeout=60).stdout.split() == ["7", "1"]


DEVICES = """
import ctypes
import usmq
found = [device for device in usmq.devices() if device.backend == "opencl"]
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print((getenv(b"OCL_ICD_FILENAMES") or b"unset").decode())
print(*[(d.name, d.driver_version, d.device_type) for d in found], sep="\\n")
for device in found:
    if device.has_usm("device"):
        assert usmq.zeros(3, queue=device).to_numpy().tolist() == [0, 0, 0]
"""


def test_the_device_of_the_wheel_is_found_once_without_setup(run_python):
    runtime_files("intel-opencl-rt")
    _, *devices = run_python(DEVICES, OCL_ICD_FILENAMES=None).stdout.splitlines()
    assert len([line for line in devices if "'cpu'" in line]) >= 1
    assert len(set(devices)) == len(devices), "one driver was loaded twice"


@pytest.mark.parametrize("spelling", ["{}", "{}:", "{dir}/./{name}", "/nonexistent.so:{}"])
def test_a_driver_configured_by_the_user_is_not_added_again(run_python, spelling):
    driver = runtime_files("intel-opencl-rt")["libintelocl.so"]
    given = spelling.format(driver, dir=driver.parent, name=driver.name)
    value, *devices = run_python(DEVICES, OCL_ICD_FILENAMES=given).stdout.splitlines()
    # The OpenCL loader cuts the text at its colons, in place.
    assert value in (given, given.partition(":")[0])
    assert len(devices) >= 1
    assert len(set(devices)) == len(devices)


def test_a_second_driver_beside_the_first_is_kept(run_python, two_devices):
    code = "import usmq; print(*[d.driver_version for d in usmq.devices()])"
    versions = run_python(code).stdout.split()
    assert versions == [device.driver_version for device in usmq.devices()]
    assert two_devices[0].driver_version in versions


def test_broken_drivers_do_not_hide_the_others(run_python, tmp_path):
    """Not a library, an empty one, one without OpenCL, one that is not there; before and after."""
    driver = runtime_files("intel-opencl-rt")["libintelocl.so"]
    text, empty = tmp_path / "text.so", tmp_path / "empty.so"
    text.write_text("no library at all\n")
    empty.write_bytes(b"")
    other = runtime_files("intel-cmplr-lib-ur")["libur_loader.so.0"]
    broken = [text, empty, other, tmp_path / "none.so"]
    for drivers in ([*broken, driver], [driver, *broken]):
        given = ":".join(map(str, drivers))
        _, *devices = run_python(DEVICES, OCL_ICD_FILENAMES=given).stdout.splitlines()
        assert len(devices) == 1 + int(os.environ.get("USMQ_EMULATE_GPUS", "0"))


@pytest.mark.parametrize(
    "selector", ["!opencl:*;!level_zero:*", "hip:gpu", "opencl:fpga", "nosuch"]
)
def test_without_a_visible_device_the_error_names_the_reason(run_python, selector):
    code = """
import usmq
try:
    print("found", len(usmq.devices()))
except usmq.Error as error:
    print("found error")
for use in (usmq.current_queue, usmq.Queue, lambda: usmq.zeros(2), lambda: usmq.Device("cpu")):
    try:
        use()
    except usmq.Error as error:
        print(type(error).__name__, str(error).replace("\\n", " "))
"""
    first, *lines = run_python(code, ONEAPI_DEVICE_SELECTOR=selector).stdout.splitlines()
    assert first in ("found 0", "found error")
    assert len(lines) == 4
    malformed = selector in ("opencl:fpga", "nosuch")
    for line in lines:
        if malformed:
            assert "ONEAPI_DEVICE_SELECTOR" in line
        else:
            assert line.startswith(("DeviceNotFoundError ", "RuntimeNotFoundError "))
            assert "ONEAPI_DEVICE_SELECTOR" in line or "doctor" in line


TWICE = """
import ctypes, sys
if sys.argv[2] == "before":
    loaded = ctypes.CDLL(sys.argv[1])
import usmq
loaded = ctypes.CDLL(sys.argv[1])
for use in (usmq.devices, usmq.current_queue, lambda: usmq.zeros(2)):
    try:
        use()
    except usmq.RuntimeNotFoundError as error:
        print(type(error).__name__, str(error).replace("\\n", " "))
report = usmq.doctor()
assert not report.ok
print(str(report).replace("\\n", " "))
"""


@pytest.mark.parametrize(
    ("package", "name", "copy", "when"),
    [
        ("intel-sycl-rt", "libsycl.so.9", "libsycl.so.8", "before"),
        ("intel-sycl-rt", "libsycl.so.9", "libsycl.so.8", "after"),
        ("intel-cmplr-lib-ur", "libur_loader.so.0", "libur_loader.so.0", "after"),
    ],
)
def test_two_runtimes_in_one_process_are_refused_by_name(
    run_python, tmp_path, package, name, copy, when
):
    real = runtime_files(package)[name]
    for library in real.parent.glob("lib*.so*"):
        (tmp_path / library.name).symlink_to(library)
    second = tmp_path / copy
    second.unlink(missing_ok=True)
    # Another version tells its name in itself too.
    content = real.read_bytes()
    second.write_bytes(content.replace(name.encode() + b"\0", copy.encode() + b"\0"))
    done = run_python(TWICE, str(second), when, LD_LIBRARY_PATH=str(real.parent))
    *lines, report = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert str(second) in report
    if "libsycl" in name:
        assert "2 SYCL runtimes are loaded in this process" in report
        assert "from one source (PyPI or a oneAPI toolkit, not both)" in " ".join(report.split())
    for line in lines:
        assert line.startswith("RuntimeConflictError 2 SYCL runtimes") or "libur" in name, line
        assert str(second) in line
        assert re.search(rf"\S*{re.escape(name)}", line.replace(str(second), ""))


EXITS = {
    "array alive": "spin(1, x, STEPS)",
    "array dropped": "spin(1, x, STEPS); del x",
    "everything dropped": "spin(1, x, STEPS); del x, spin",
    "event alive": "event = spin(1, x, STEPS)",
    "other queue": "q = usmq.Queue(in_order=False); spin(1, x, STEPS, queue=q)",
    "foreign queue": "import dpctl; q = dpctl.SyclQueue(); spin(1, x, STEPS, queue=q); del q",
    "copy in flight": "spin(1, x, STEPS); y = x.copy(); z = y.astype('f8')",
    "thread waits": """
spin(1, x, STEPS)
import threading
threading.Thread(target=x.wait, daemon=True).start()""",
    "scope open": "s = usmq.use_queue('cpu'); s.__enter__(); spin(1, x, STEPS)",
    "default set": "usmq.set_default_queue(x.queue); spin(1, x, STEPS)",
    "sys.exit": "spin(1, x, STEPS); import sys; sys.exit(0)",
    "lent to dpnp": "import dpnp; a = dpnp.asarray(x); spin(1, x, STEPS); b = a + a",
    "buffer": "y = usmq.zeros(4, usm_type='shared'); m = memoryview(y); spin(1, x, STEPS)",
    "profile": "q = usmq.Queue(profiling=True); e = spin(1, x, STEPS, queue=q)",
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_exits_cleanly_with_work_in_flight(run_python, name):
    done = run_python(f"{KERNEL}\nSTEPS = 60_000_000\n{EXITS[name]}\n", timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_exception_with_work_in_flight_keeps_its_exit_status(run_python):
    done = run_python(f"{KERNEL}\nspin(1, x, 60_000_000)\nraise SystemExit(5)", check=False)
    assert (done.returncode, done.stderr) == (5, "")


def test_children_inherit_only_the_documented_variables(run_python):
    code = """
import os, subprocess, sys
def inherited():
    return set(subprocess.run(["env", "-0"], stdout=subprocess.PIPE).stdout.decode().split("\\0"))
before = inherited()
import usmq
usmq.ones(1).wait()
print(*sorted(entry.partition("=")[0] for entry in inherited() - before))
"""
    names = ("OCL_ICD_FILENAMES", "OPENCL_LAYERS", "SYCL_CACHE_PERSISTENT", "SYCL_CACHE_DIR")
    unset = dict.fromkeys((*names, "ZES_ENABLE_SYSMAN", "USMQ_EMULATE_GPUS"))
    found = run_python(code, **unset).stdout.split()
    page = (Path(__file__).parents[2] / "docs" / "building.md").read_text(encoding="utf-8")
    section = page.partition("## Variables at run time")[2].partition("\n## ")[0]
    assert [name for name in found if f"`{name}" not in section] == []
    assert {"SYCL_CACHE_PERSISTENT", "SYCL_CACHE_DIR"} <= set(found)
