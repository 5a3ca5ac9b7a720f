"""The CMake package: the examples build against this usmq, and work with and without Python."""

import ctypes
import re
import shutil
import subprocess
import sys
from ctypes import addressof, byref, c_char_p, c_int, c_int64, c_void_p, py_object
from pathlib import Path

import pytest
import usmq
from arrow_structs import DEVICE_ARRAY, SCHEMA, ArrowDeviceArray, ArrowSchema, capsule
from conftest import ENVIRONMENT

EXAMPLE = Path(__file__).parents[2] / "examples" / "cmake"
PACKAGE = Path(usmq.__file__).parent
LIBRARY = PACKAGE / "lib" / "libusmq.so.0"
MAKES_LIBRARY = "cargo rustc --release --lib --features c-library --crate-type cdylib"
CMAKE = shutil.which("cmake", path=Path(sys.executable).parent) or shutil.which("cmake")

pytestmark = pytest.mark.skipif(CMAKE is None, reason="needs cmake beside this Python or on PATH")
# A checkout on PYTHONPATH is not in the environment of the runtime, where the package looks.
INSTALLED = PACKAGE.is_relative_to(sys.prefix)
WHERE = [] if INSTALLED else [f"-DUSMQ_SYCL_ROOT={sys.prefix}"]


def cmake(*arguments, check=True):
    done = subprocess.run(
        [str(CMAKE), *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def usmq_dir(run_python):
    return run_python(None, "-m", "usmq", "--cmake-dir").stdout.strip()


@pytest.fixture(scope="module")
def build(tmp_path_factory, usmq_dir):
    """Return the folder where the examples are built."""
    if not LIBRARY.exists():
        pytest.skip(f"this usmq was built without {LIBRARY}")
    folder = tmp_path_factory.mktemp("cmake")
    cmake("-S", EXAMPLE, "-B", folder, f"-Dusmq_DIR={usmq_dir}", *WHERE)
    built = cmake("--build", folder)
    assert "warning" not in built.stdout + built.stderr
    return folder


def run(program, *arguments):
    environment = dict(ENVIRONMENT)
    if INSTALLED:
        # It starts by its run path alone.
        environment.pop("LD_LIBRARY_PATH", None)
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_the_program_runs_without_python(build, two_devices):
    for device in two_devices:
        done = run(build / "program", device.filter_string)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == f"usmq {usmq.__version__}"
        assert lines[1] == f"default: {usmq.current_queue().device.name}"
        assert lines[2] == f"{device.filter_string}: {device.name}"
        assert lines[3] == "sum: 7000"
        assert re.fullmatch(
            r'as expected: no device matches "gpu:99"; visible devices: .*', lines[4]
        )


def test_the_program_reports_errors(build):
    done = run(build / "program", "nosuch")
    assert done.returncode == 1
    assert 'invalid filter string "nosuch"' in done.stderr


@pytest.fixture(scope="module")
def zeros(build):
    """Return the example's library, which knows SYCL but no Python."""
    library = ctypes.CDLL(str(build / "libzeros.so"))
    library.which_queue.restype = c_void_p
    library.release_queue.argtypes = [c_void_p]
    library.what_is_wrong.restype = c_char_p
    library.zeros.argtypes = [c_int64, c_void_p, c_void_p]
    library.zeros.restype = c_int
    return library


def which(library):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
    address = library.which_queue()
    assert address, library.what_is_wrong()
    queue = usmq.Queue(new(address, b"SyclQueueRef", None))
    library.release_queue(address)
    return queue


def test_a_cpp_library_runs_on_the_queue_of_its_python_caller(zeros, two_devices):
    assert which(zeros) == usmq.current_queue()
    for device in two_devices:
        with usmq.use_queue(device) as queue:
            assert which(zeros) == queue == usmq.current_queue()
    usmq.set_default_queue(two_devices[1])
    assert which(zeros) == usmq.current_queue() == usmq.Queue(two_devices[1])


def test_allocations_of_a_cpp_library_are_on_that_queue(zeros, two_devices):
    class Column:
        def __init__(self, length):
            self.schema, self.device = ArrowSchema(), ArrowDeviceArray()
            self.status = zeros.zeros(length, addressof(self.schema), addressof(self.device))

        def __arrow_c_device_array__(self, requested=None, **_):
            return (
                capsule(addressof(self.schema), SCHEMA),
                capsule(addressof(self.device), DEVICE_ARRAY),
            )

    for device in two_devices:
        with usmq.use_queue(device):
            column = usmq.from_arrow(Column(1000))
        assert column.values().device == device
        assert column.values().to_numpy().tolist() == [0.0] * 1000
    failed = Column(-1)
    assert failed.status
    assert not failed.schema.release
    assert byref(failed.device)


def project(folder, lines):
    folder.mkdir()
    text = f"cmake_minimum_required(VERSION 3.18)\nproject(one CXX)\n{lines}\n"
    (folder / "CMakeLists.txt").write_text(text)
    (folder / "one.cpp").write_text("#include <usmq.h>\nint main() { return !USMQ_VERSION[0]; }\n")
    return folder


SHOW = """
find_package(usmq REQUIRED)
foreach(property INTERFACE_COMPILE_OPTIONS INTERFACE_LINK_OPTIONS INTERFACE_LINK_LIBRARIES
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES INTERFACE_COMPILE_DEFINITIONS)
  get_target_property(value usmq::headers ${property})
  message(STATUS "${property}=${value}")
endforeach()
"""


def configured(folder, usmq_dir, *options):
    source = project(folder, SHOW)
    command = ["-S", source, "-B", folder / "build", f"-Dusmq_DIR={usmq_dir}", *WHERE, *options]
    return dict(re.findall(r"^-- (INTERFACE_\w+)=(.*)$", cmake(*command).stdout, re.MULTILINE))


def test_a_compiler_gets_the_headers_of_the_environment_or_with_fsycl_its_own(tmp_path, usmq_dir):
    found = configured(tmp_path / "gcc", usmq_dir)
    assert "/libsycl.so" in found["INTERFACE_LINK_LIBRARIES"]
    include = Path(found["INTERFACE_SYSTEM_INCLUDE_DIRECTORIES"].split(";")[0])
    assert (include / "sycl" / "sycl.hpp").exists()
    assert found["INTERFACE_COMPILE_DEFINITIONS"] == "SYCL_DISABLE_FSYCL_SYCLHPP_WARNING"
    assert "-fsycl" not in "".join(found.values())
    # The settings that icpx gets by default; a script cannot imitate icpx's compiler name.
    found = configured(tmp_path / "icpx", usmq_dir, "-DUSMQ_FSYCL=ON")
    assert "-fsycl" in found["INTERFACE_COMPILE_OPTIONS"]
    assert "-fsycl" in found["INTERFACE_LINK_OPTIONS"]
    assert "libsycl" not in found["INTERFACE_LINK_LIBRARIES"]
    assert found["INTERFACE_SYSTEM_INCLUDE_DIRECTORIES"].endswith("NOTFOUND")


@pytest.mark.parametrize(
    ("version", "fits"), [("0.1", True), (usmq.__version__, True), ("0.2", False), ("1", False)]
)
def test_find_package_compares_versions(tmp_path, usmq_dir, version, fits):
    source = project(
        tmp_path / "p", f"find_package(usmq {version} QUIET)\nmessage(F=${{usmq_FOUND}})"
    )
    done = cmake("-S", source, "-B", tmp_path / "b", f"-Dusmq_DIR={usmq_dir}", *WHERE)
    assert f"F={1 if fits else 0}" in (done.stdout + done.stderr).replace("TRUE", "1")


SYCL_ROOT = f"-DUSMQ_SYCL_ROOT={sys.prefix}"


@pytest.mark.parametrize(
    ("parts", "options", "text"),
    [
        ("COMPONENTS nosuch", [SYCL_ROOT], "there is no component nosuch"),
        ("COMPONENTS library", [SYCL_ROOT], f"`{MAKES_LIBRARY}` builds it"),
        ("", [], "Install intel-sycl-rt there"),
    ],
    ids=["no component", "no library", "no SYCL"],
)
def test_missing_parts_are_named_with_the_fix(tmp_path, usmq_dir, parts, options, text):
    # A package without the library, as pip makes it from source.
    copy = tmp_path / "usmq"
    for part in ("include", "cmake"):
        shutil.copytree(Path(usmq_dir).parent / part, copy / part)
    source = project(tmp_path / "p", f"find_package(usmq REQUIRED {parts})")
    where = [f"-Dusmq_DIR={copy / 'cmake'}", *options]
    done = cmake("-S", source, "-B", tmp_path / "b", *where, check=False)
    assert done.returncode != 0
    assert text in " ".join(done.stderr.split())


def test_the_commands_print_folders(run_python):
    def folder(name):
        return Path(run_python(None, "-m", "usmq", f"--{name}-dir").stdout.strip())

    assert (folder("include") / "usmq.h").exists()
    assert (folder("include") / "usmq.hpp").exists()
    assert (folder("cmake") / "usmq-config.cmake").exists()
    both = run_python(None, "-m", "usmq", "--cmake-dir", "--include-dir").stdout.splitlines()
    assert both == [str(folder("cmake")), str(folder("include"))]
    done = run_python(None, "-m", "usmq", "--lib-dir", check=False)
    if LIBRARY.exists():
        assert (Path(done.stdout.strip()) / "libusmq.so.0").exists()
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert f"`{MAKES_LIBRARY}` builds it" in done.stderr
