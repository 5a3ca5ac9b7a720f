"""The doctor on kernels: headers, temporary files, memory limits, LD_LIBRARY_PATH."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_environment import FOLDER, Environment

# --- LD_LIBRARY_PATH

TEXT = "text, not a library\n"


@pytest.mark.parametrize(
    ("library", "content", "words"),
    [
        ("libsycl.so.9", TEXT, "file too short"),
        ("libsycl.so.9", "int nothing;", "undefined symbol"),
        ("libstdc++.so.6", TEXT, "file too short"),
        ("libOpenCL.so.1", TEXT, "puts other libraries before those of"),
        ("libOpenCL.so.1", "int nothing;", "puts other libraries before those of"),
        ("libur_adapter_opencl.so.0", "int nothing;", "puts other libraries before those of"),
    ],
    ids=lambda value: "text" if value == TEXT else "empty" if value == "int nothing;" else None,
)
def test_a_library_that_hides_a_runtime_library(
    doctor, compiled, tmp_path, library, content, words
):
    if not (library.startswith("libstdc++") or (FOLDER / library).exists()):
        pytest.skip(f"this runtime has no {library}")
    hiding, harmless = tmp_path / "hiding", tmp_path / "it's harmless"
    hiding.mkdir()
    harmless.mkdir()
    if content == TEXT:
        # Some runtimes then try the name without a version number.
        for name in (library, library.removesuffix(".1")):
            (hiding / name).write_text(content)
    else:
        compiled(f"hiding/{library}", content, f"-Wl,-soname,{library}")
    found = doctor(LD_LIBRARY_PATH=f"{harmless}:{hiding}")
    fix = found.problem(words, "LD_LIBRARY_PATH", str(hiding / library))
    assert fix == "export LD_LIBRARY_PATH='{}'".format(str(harmless).replace("'", "'\\''"))
    assert "pip install" not in found.text, "the runtime is not the cause"
    found.all_applied()
    if content != TEXT:
        found = doctor(LD_LIBRARY_PATH=str(hiding))
        assert found.problem(words) == "unset LD_LIBRARY_PATH"
        found.applied("unset LD_LIBRARY_PATH")


def test_a_library_that_hides_a_runtime_library_harmlessly(doctor, tmp_path):
    (tmp_path / "libsycl_ur_trace_collector.so").write_text(TEXT)
    found = doctor(LD_LIBRARY_PATH=str(tmp_path))
    assert found.status == 0, found.text
    assert "puts other libraries before those of" in found.text


def test_a_hiding_library_is_not_blamed_for_a_driver_that_does_not_exist(doctor, tmp_path):
    (tmp_path / "libsycl_ur_trace_collector.so").write_text(TEXT)
    found = doctor(LD_LIBRARY_PATH=str(tmp_path), OCL_ICD_FILENAMES="/nonexistent/libnone.so")
    fix = found.problem("libnone.so does not exist")
    assert "unset LD_LIBRARY_PATH" not in found.text
    found.applied(fix)


# --- another view of the machine


@pytest.fixture
def view(pristine, tmp_path):
    """Return a call that gives the environment a machine with other mounts."""
    unshare = shutil.which("unshare")
    tried = [unshare or "false", "--mount", "true"]
    if unshare is None or subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        pytest.skip("private mounts need unshare and the permission to use it")

    def view(*mounts):
        script = tmp_path / "view.sh"
        script.write_text("\n".join(["set -e", *mounts, 'exec "$@"', ""]))
        return replace(pristine, wrapper=(unshare, "--mount", "sh", str(script)))

    return view


def test_a_full_or_read_only_temporary_folder(doctor, view, tmp_path):
    for options, words in [("nr_inodes=1", "No space left"), ("ro", "Read-only file system")]:
        folder = tmp_path / options
        folder.mkdir()
        environment = view(f"mount -t tmpfs -o {options} none {folder}")
        found = doctor(environment=environment, TMPDIR=str(folder))
        fix = found.problem("no temporary file can be made", words)
        assert fix == "unset TMPDIR"
        found.applied(fix)


def test_a_full_default_temporary_folder(doctor, view, pristine):
    root = pristine.root
    if root.is_relative_to("/mnt"):
        pytest.skip("the tests run in /mnt, which this one needs")
    moved = Environment(Path("/mnt/environment"))
    mounts = [
        "mount -t tmpfs none /mnt",
        "mkdir /mnt/environment",
        f"mount --bind {root} /mnt/environment",
        "mount -t tmpfs -o nr_inodes=1 none /tmp",
    ]
    script = root / "view.sh"
    script.write_text("\n".join(["set -e", *mounts, 'exec "$@"', ""]))
    wrapper = (*view().wrapper[:-1], str(script))
    moved = replace(moved, wrapper=wrapper)
    found = doctor(environment=moved)
    fix = found.problem("no temporary file can be made in /tmp: No space left")
    assert fix in ("export TMPDIR='/var/tmp'", "export TMPDIR='/dev/shm'")
    found.applied(fix)


# Restores the headers here; elsewhere the command installs them.
INSTALLS = """case "$*" in
*install*g++*|*install*gcc*|-S*gcc*) umount /usr/include /usr/lib/gcc ;;
update) ;;
*) exit 1 ;;
esac"""
SOURCE = """
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>))
void f(int *x) { *x = 1; }"""
SHORT = """
#include <usmq/kernel.h>
USMQ_KERNEL(1) void f(int *x) { x[global_id(0)] = 1; }"""


def test_a_machine_without_the_cxx_headers(doctor, view, pristine, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    folders = [folder for folder in ("/usr/lib/gcc", "/usr/include") if os.path.isdir(folder)]
    environment = view(*(f"mount --bind {empty} {folder}" for folder in folders))
    found = doctor(environment=environment)
    assert found.devices() == ["opencl:cpu:0"]
    assert found.status == 0, found.text
    (note,) = [finding for finding in found.findings if finding["topic"] == "kernels"]
    assert note["state"] == "note"
    assert "a kernel in SYCL C++ compiled and ran on opencl:cpu:0" in note["what"]
    assert "kernels that include headers of SYCL or C++ do not compile" in note["what"]
    fix = note["fix"]
    # Kernels with usmq's own header, such as those of casts, need none.
    program = pristine.root / "without_headers.py"
    program.write_text(
        f"import usmq\nx = usmq.zeros(3, 'i4')\nusmq.Kernel.from_sycl('''{SHORT}''', 'f')(3, x)\n"
        "print(x.astype('f2').tolist())"
    )
    assert environment.shell(f"python {program}", {}).stdout.strip() == "[1.0, 1.0, 1.0]"
    if " install " not in fix and " -S " not in fix:
        pytest.skip(f"no command is known for this distribution: {fix}")
    # The error of a kernel has the same text.
    program = pristine.root / "includes_sycl.py"
    program.write_text(f"import usmq\nusmq.Kernel.from_sycl('''{SOURCE}''', 'f')")
    done = environment.shell(f"python {program}", {})
    assert "file not found" in done.stderr
    assert f"headers of a C++ standard library on this machine: {fix}" in done.stderr
    for command in ("apt-get", "dnf", "zypper", "pacman"):
        pristine.command(command, INSTALLS)
    pristine.command("sudo", 'exec "$@"')
    done = environment.shell(f"{fix}\npython {program}", {})
    assert done.returncode == 0, done.stderr


# --- limits


def test_a_memory_limit_that_this_user_cannot_raise(doctor):
    found = doctor(before="ulimit -c 0; ulimit -v 560000")
    if "ulimit -v unlimited" in found.text:
        pytest.skip("this user may raise every limit")
    fixes = {finding["fix"] for finding in found.findings if finding["state"] == "problem"}
    assert len(fixes) == 1
    assert "raise the limit where it is set" in fixes.pop()


def test_a_memory_limit_that_is_high_enough(doctor):
    found = doctor(before="ulimit -S -v 64000000")
    assert found.status == 0, found.text
    assert "ulimit -v is 61.0 GiB" in found.text
