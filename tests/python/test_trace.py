"""``python -m usmq trace``: a script runs unchanged, and the files describe its work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

SCRIPT = """
import sys
import numpy as np
import usmq
x = usmq.asarray(np.ones(1 << 17, "f4"))
total = x.to_numpy().sum()
print(__name__, sys.argv[1:], total)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(code: str, name: str = "script.py") -> Path:
        (tmp_path / name).write_text(code, encoding="utf-8")
        return tmp_path / name

    return write


def trace(run_python: Run, *arguments: object, **keywords: Any) -> Any:
    return run_python(None, "-m", "usmq", "trace", *map(str, arguments), **keywords)


def events(path: Path) -> list[dict[str, Any]]:
    entries = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [entry for entry in entries if entry["ph"] == "X"]


def test_an_unmodified_script_is_profiled(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(SCRIPT)
    out = [tmp_path / "run.json", tmp_path / "run.svg"]
    done = trace(run_python, "-o", out[0], "-o", out[1], "--", path, "-a", "--", "b c")
    assert done.stdout == "__main__ ['-a', '--', 'b c'] 131072.0\n"
    assert "host read" in done.stderr
    assert str(out[0]) in done.stderr
    found = {
        (entry["cat"], entry["args"]["reason"]): entry["args"]
        for entry in events(out[0])
        if entry["cat"] == "copy"
    }
    assert found["copy", "import"]["source"] == f"{path}:5"
    assert found["copy", "host read"]["source"] == f"{path}:6"
    assert found["copy", "host read"]["bytes"] == 4 << 17
    assert {args["clock"] for args in found.values()} == {"device"}
    assert out[1].read_text(encoding="utf-8").startswith("<svg")


def test_layers_of_the_runtime_that_the_user_chose_stay(
    run_python: Run, script: Callable[[str], Path]
) -> None:
    layers = "UR_LAYER_PARAMETER_VALIDATION,UR_LAYER_LIFETIME_VALIDATION"
    path = script("import os, usmq; usmq.zeros(3).wait(); print(os.environ['UR_ENABLE_LAYERS'])")
    done = trace(run_python, "--", path, cwd=path.parent, UR_ENABLE_LAYERS=layers)
    assert done.stdout == f"{layers},UR_LAYER_TRACING\n"


def test_files_have_default_names(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    trace(run_python, script(SCRIPT), cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "script.py",
        "usmq-trace.json",
        "usmq-trace.svg",
    }


def test_the_trace_shows_calls_of_dpnp_but_not_of_usmq(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path = script(
        "import usmq\nx = usmq.full(50_000, 1, 'i4')\nx.to_numpy()\n"
        "import dpnp\ny = dpnp.asarray(x)\nprint(int(dpnp.sum(dpnp.sort(y))))\n"
    )
    out = tmp_path / "run.json"
    done = trace(run_python, "-o", out, path)
    assert done.stdout == "50000\n"
    calls = [entry for entry in events(out) if entry["cat"] == "call"]
    names = {entry["name"] for entry in calls}
    assert any("sort" in name.lower() for name in names), names
    assert any("sum" in name.lower() or "reduc" in name.lower() for name in names), names
    assert any(name.startswith("allocate") for name in names), names
    # Ours is done before dpnp is imported, and is shown as commands, not as calls; but the runtime
    # has threads of its own, which wait for them.
    calls = [call for call in calls if not call["name"].startswith("wait")]
    ours = [entry for entry in events(out) if entry["cat"] in ("copy", "fill")]
    assert ours
    assert min(call["ts"] for call in calls) > max(entry["ts"] for entry in ours)
    # sum() of int32 gives int64, read by the host.
    assert any(call["args"].get("bytes") == 8 for call in calls if call["name"] == "copy")


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('the end')", 1, "the end\n"),
        ("raise SystemExit", 0, ""),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    ],
)
def test_the_exit_status_is_that_of_the_script(
    run_python: Run,
    script: Callable[[str], Path],
    tmp_path: Path,
    code: str,
    status: int,
    told: str,
) -> None:
    out = tmp_path / "run.json"
    done = trace(run_python, "-o", out, script(code), check=False)
    assert done.returncode == status
    assert told in done.stderr
    assert out.exists()


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise SystemExit(3)", "1 / 0", "pass"])
def test_a_forked_child_exits_with_its_own_status(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path, end: str
) -> None:
    path = script(f"""
import os, sys, usmq
usmq.zeros(3).wait()
child = os.fork()
if child == 0:
    {end}
else:
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    done = trace(run_python, "-o", tmp_path / "run.json", path)
    status = 1 if end == "1 / 0" else 0 if end == "pass" else 3
    assert done.stdout.splitlines() == [f"child {status}"]
    assert done.stderr.count("written to") == 1
    assert "ValueError" not in done.stderr


def test_a_traceback_starts_at_the_script_and_the_profile_is_saved(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script("import usmq\nusmq.zeros(3)\ndef fail():\n    1 / 0\nfail()\n")
    out = tmp_path / "run.json"
    done = trace(run_python, "-o", out, path, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert f'File "{path}", line 5' in done.stderr
    assert "_trace.py" not in done.stderr
    assert any(entry["cat"] == "fill" for entry in events(out))


def test_modules_run_and_import_neighbouring_modules(
    run_python: Run, script: Callable[..., Path], tmp_path: Path
) -> None:
    script("VALUE = 7\n", "neighbour.py")
    script("import sys, neighbour\nprint(__name__, neighbour.VALUE, sys.argv[1:])\n", "job.py")
    for arguments in (["-m", "job", "x"], ["--", "-m", "job", "x"]):
        done = trace(run_python, "-o", "run.txt", *arguments, cwd=tmp_path)
        assert done.stdout == "__main__ 7 ['x']\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = trace(run_python, "-o", "run.txt", tmp_path / "job.py", cwd=elsewhere)
    assert done.stdout == "__main__ 7 []\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no script given"),
        (["--"], "no script given"),
        (["-o", "run.png", "x.py"], "run.png"),
        (["--nosuch", "x.py"], "--nosuch"),
    ],
)
def test_wrong_arguments_show_the_usage(
    run_python: Run, tmp_path: Path, arguments: list[str], told: str
) -> None:
    done = trace(run_python, *arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr.lower()
    assert told in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_script_is_a_one_line_error(run_python: Run, tmp_path: Path) -> None:
    done = trace(run_python, "-o", "run.txt", "nosuch.py", check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot open nosuch.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_the_options(run_python: Run) -> None:
    done = trace(run_python, "--help")
    assert "SCRIPT" in done.stdout
    assert "trace" in run_python(None, "-m", "usmq", "--help").stdout


def test_calls_need_the_tracing_support_of_the_runtime(run_python: Run) -> None:
    code = """
import usmq._core
try:
    usmq._core.watch_calls()
except usmq.RuntimeNotFoundError as refused:
    print(refused)
"""
    done = run_python(code, XPTI_FRAMEWORK_DISPATCHER=None)
    assert "python -m usmq trace" in done.stdout
