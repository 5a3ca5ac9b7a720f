"""The commands in a shell: version, wrong options, closed output, unwritable files."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import usmq
from conftest import ENVIRONMENT
from doctor_environment import second_name

SCRIPT = Path(sysconfig.get_path("scripts")) / "usmq"
COMMANDS = {"usmq": [str(SCRIPT)], "python -m usmq": [sys.executable, "-m", "usmq"]}
# With a buffer, printing fails late, in the flush at exit; without one, at once.
BUFFERED = {"PYTHONUNBUFFERED": None}
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


@pytest.fixture(params=COMMANDS)
def program(request):
    """Return the name of the command."""
    return str(request.param)


def run(program, *arguments, shell="", cwd=None, **environment):
    """Run a command; ``shell`` follows it in bash, whose status is then the command's."""
    env = {name: value for name, value in (ENVIRONMENT | environment).items() if value is not None}
    script = f'"$@" {shell}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *COMMANDS[program], *arguments],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=120,
    )


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed(program, option):
    done = run(program, option)
    assert (done.returncode, done.stdout) == (0, f"usmq {usmq.__version__}\n")


def test_lists_show_each_device_and_longer_ones_show_more():
    default, short, long, full = (
        run("usmq", "list", *options).stdout for options in ([], ["-s"], ["-l"], ["-f"])
    )
    assert 0 < len(short) <= len(long) <= len(full)
    assert len(short) < len(full)
    for device in usmq.devices():
        assert device.backend in short.lower()
        for text in (default, long, full):
            assert device.filter_string in text
            assert device.name in text
        assert device.driver_version in long
        assert str(device.max_compute_units) in full
        assert all(aspect in full for aspect in device.aspects)


def test_list_respects_the_selector(program):
    done = run(program, "list", ONEAPI_DEVICE_SELECTOR="!opencl:*")
    assert "opencl:cpu" not in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stdout or "device" in done.stderr


def test_without_a_command_the_usage_is_shown(program):
    done = run(program)
    assert done.returncode in (0, 2)
    assert "usage" in (done.stdout + done.stderr).lower()
    assert "Traceback" not in done.stderr


def test_both_commands_print_the_same_list():
    lists = [run(program, "list").stdout for program in COMMANDS]
    assert lists[0] == lists[1] != ""


@pytest.mark.parametrize(
    ("arguments", "who", "message"),
    [
        (["nosuch"], "", "invalid choice: 'nosuch'"),
        (["--nosuch"], "", "unrecognized arguments: --nosuch"),
        (["--include-dir", "list"], "", "put options after the command"),
        (["list", "-x"], " list", "unrecognized arguments: -x"),
        (["list", "extra"], " list", "unrecognized arguments: extra"),
        (["list", "-s", "-l"], " list", "not allowed with"),
        (["doctor", "-x"], " doctor", "unrecognized arguments: -x"),
        (["doctor", "--timeout"], " doctor", "expected one argument"),
        (["doctor", "--timeout", "1e300"], " doctor", "'1e300' is not a positive number"),
        (["demo", "-x"], " demo", "unrecognized arguments: -x"),
        (["demo", "--dtype", "f2"], " demo", "invalid choice: 'f2'"),
        (["trace", "-x", "script.py"], " trace", "unrecognized arguments: -x"),
        (["trace"], " trace", "no script given"),
        (["trace", "--"], " trace", "no script given"),
        (["trace", "-o", "x.png", "script.py"], " trace", "x.png"),
    ],
    ids=" ".join,
)
def test_a_wrong_option_prints_the_usage_and_one_line(program, arguments, who, message, tmp_path):
    done = run(program, *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
    assert (done.returncode, done.stdout) == (2, "")
    *usage, last = done.stderr.splitlines()
    assert usage[0].startswith(f"usage: {program}{who} ")
    assert last.startswith(f"{program}{who}: error: ")
    assert message in last


@pytest.mark.parametrize("arguments", [[], ["list"], ["doctor"], ["demo"], ["trace"]], ids=str)
def test_every_command_has_help(program, arguments):
    done = run(program, *arguments, "--help", ONEAPI_DEVICE_SELECTOR="nosuch")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {' '.join([program, *arguments])} ")


# argparse ignores that it cannot print, so the options are tried with a buffer only.
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(words, BUFFERED) for words in ("--help", "--version", "--include-dir")]
    + [
        (words, environment)
        for words in ("list", "list -f", "doctor", "doctor --json")
        for environment in (BUFFERED, UNBUFFERED)
    ],
)
def test_a_closed_pipe_ends_the_command_without_output(program, arguments, environment):
    done = run(program, *arguments.split(), shell="| true", **environment)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("environment", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("shell", "why"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")],
)
@pytest.mark.parametrize("arguments", [["list"], ["doctor"], ["--include-dir"], ["demo"]])
def test_unwritable_output_is_a_one_line_error(program, arguments, shell, why, environment):
    done = run(program, *arguments, shell=shell, **environment)
    assert done.returncode == 1
    assert done.stderr == f"usmq: cannot write the output: {why}\n"


@pytest.mark.parametrize("shell", ["2>&-", ">&- 2>&-", "<&-"])
def test_other_closed_streams_are_harmless(program, shell):
    done = run(program, "list", "-s", shell=shell)
    if ">&- " in shell:
        assert (done.returncode, done.stdout) == (1, "")
    else:
        assert done.returncode == 0
        assert done.stdout.split() == [device.filter_string for device in usmq.devices()]
    done = run(program, "nosuch", shell=shell)
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_prints_no_traceback(run_python):
    code = """
import os, signal, sys
import usmq._list
usmq._list.show = lambda detail: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["usmq", "list"]
from usmq.__main__ import run
sys.exit(run())
"""
    done = run_python(code, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.fixture
def script(tmp_path):
    """Return a script that leaves a file when it runs, and prints."""
    path = tmp_path / "script.py"
    path.write_text("from pathlib import Path\nPath('ran').touch()\nprint('hello')\n")
    return path


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("nowhere/x.svg", "No such file or directory"),
        ("script.py/x.svg", "Not a directory"),
        ("folder.svg", "Is a directory"),
        ("/proc/x.json", "No such file or directory"),
        (f"{'x' * 300}.txt", "File name too long"),
    ],
    ids=["no folder", "a file for a folder", "a folder", "proc", "too long"],
)
def test_an_unwritable_profile_is_refused_before_the_script_runs(program, script, output, why):
    (script.parent / "folder.svg").mkdir()
    arguments = ["trace", "-o", "good.json", "-o", output, "--", str(script)]
    done = run(program, *arguments, cwd=script.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"usmq trace: cannot write {output}: {why}\n"
    assert {path.name for path in script.parent.iterdir()} == {"script.py", "folder.svg"}


def test_existing_files_are_replaced_only_by_a_complete_profile(program, script):
    there = script.parent / "run.txt"
    there.write_text("before")
    (script.parent / "link.txt").symlink_to("later.txt")
    arguments = ["trace", "-o", "run.txt", "-o", "link.txt"]
    done = run(program, *arguments, "-o", "nowhere/x.txt", str(script), cwd=script.parent)
    assert done.returncode == 2
    assert there.read_text() == "before"
    assert not (script.parent / "later.txt").exists()
    done = run(program, *arguments, str(script), cwd=script.parent)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert there.read_text() == (script.parent / "later.txt").read_text() != "before"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nosuch.py"], "cannot open nosuch.py: No such file or directory"),
        (["."], "cannot open .: Is a directory"),
        (["-m", "nosuch.part"], "no module named nosuch.part"),
    ],
)
def test_a_script_that_cannot_be_opened_creates_no_files(program, tmp_path, arguments, why):
    done = run(program, "trace", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"usmq trace: {why}\n")
    assert not list(tmp_path.iterdir())


def test_modules_are_imported_from_the_current_folder(program, script):
    done = run(program, "trace", "-o", "run.txt", "-m", "script", cwd=script.parent)
    assert (done.returncode, done.stdout) == (0, "hello\n")


@pytest.mark.parametrize("shell", ["| true", ">&-", ">/dev/full"])
def test_a_profile_is_saved_if_the_scripts_output_pipe_is_closed(program, script, shell):
    arguments = ["trace", "-o", "run.txt", str(script)]
    done = run(program, *arguments, shell=shell, cwd=script.parent, **BUFFERED)
    assert done.returncode == (0 if "&" in shell else 1)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (script.parent / "run.txt").exists()


@pytest.mark.parametrize("folder", ["/proc/nowhere", "file/profile"])
def test_a_demo_with_an_unwritable_profile_path_is_refused_at_once(program, tmp_path, folder):
    (tmp_path / "file").touch()
    done = run(program, "demo", "--profile", folder, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"usmq demo: cannot write {folder}")


@pytest.mark.parametrize("arguments", [["list"], ["demo"], ["trace", "x.py"]], ids=str)
def test_without_the_runtime_each_command_prints_a_one_line_error(program, arguments, runtime_copy):
    # The run path of the extension leads to the runtime, as in an environment created by pip.
    site = runtime_copy("libsycl.so") / "python3" / "site-packages"
    shutil.copytree(Path(usmq.__file__).parent, site / "usmq", copy_function=second_name)
    variables = {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": None}
    done = run(program, *arguments, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("usmq: usmq cannot load the SYCL runtime: libsycl.so")
    assert "pip install" in line
    assert run(program, "--version", **variables).stdout.startswith("usmq ")
