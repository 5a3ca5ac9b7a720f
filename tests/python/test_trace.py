"""``python -m usmq trace``: a script runs unchanged, and the files describe its work."""

from __future__ import annotations

import json
import re
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


LOOP = """
import dpnp, numpy as np
host = np.ones((200, 300), "i4")
for _ in range(5):
    m = dpnp.asarray(host)
    total = int(dpnp.sum(m * m))
other = dpnp.asarray(np.ones(7, "f4"))
print(total)
"""


def test_a_script_without_usmq_is_profiled_by_device_and_line(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path, out = script(LOOP), tmp_path / "run.json"
    done = trace(run_python, "-o", out, "-o", tmp_path / "run.svg", path)
    assert done.stdout == "60000\n"
    (device,) = done.stderr.split("Devices\n")[1].split("\n\n")[0].splitlines()[1:]
    assert re.match(r"  (opencl|level_zero|cuda|hip):", device), device
    found = events(out)
    kernels = [entry for entry in found if entry["cat"] == "kernel"]
    multiplied = [entry for entry in kernels if "multiply" in entry["name"]]
    assert [entry["args"]["source"] for entry in multiplied] == [f"{path}:6"] * 5
    assert all(entry["dur"] > 0 and entry["args"]["queue"] for entry in kernels)
    copies = [entry["args"] for entry in found if entry["cat"] == "copy"]
    written = [(args["bytes"], args["source"]) for args in copies if args["reason"] == "host write"]
    assert written == [(240_000, f"{path}:5")] * 5 + [(28, f"{path}:7")]
    read = [(args["bytes"], args["source"]) for args in copies if args["reason"] == "host read"]
    assert read == [(8, f"{path}:6")] * 5
    assert f"5 copies from the same host memory moved 1.1 MiB ({path}:5)" in done.stderr
    assert f"warning: 5 copies for host read moved 40 B ({path}:6)" in done.stderr
    built = [entry for entry in found if entry["cat"] == "build"]
    assert built
    assert {entry["args"]["source"] for entry in built} <= {f"{path}:{line}" for line in (5, 6, 7)}
    assert re.search(r"the host waited for [1-9].* and built kernels for [1-9]", done.stderr)
    # A row for the device and one for the host; none for threads of the runtime.
    picture = (tmp_path / "run.svg").read_text(encoding="utf-8")
    assert "other libraries" not in picture
    assert "array memory" in picture


def test_commands_of_a_queue_with_profiling_have_times_of_the_device(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path = script(
        "import dpctl, dpnp\n"
        "q = dpctl.SyclQueue(property='enable_profiling')\n"
        "x = dpnp.ones(100_000, dtype='i4', sycl_queue=q)\n"
        "print(int((x + x).asnumpy().sum()))\n"
    )
    out = tmp_path / "run.json"
    assert trace(run_python, "-o", out, path).stdout == "200000\n"
    kernels = [entry for entry in events(out) if entry["cat"] == "kernel"]
    assert {entry["args"]["clock"] for entry in kernels} == {"device"}
    assert all(entry["ts"] >= entry["args"]["submitted"] for entry in kernels)


def test_a_device_that_both_libraries_use_is_one_device(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path = script(
        "import dpctl, dpnp, usmq\n"
        "x = usmq.full(1000, 2, 'i4', queue=usmq.Queue(dpctl.SyclQueue()))\n"
        "y = dpnp.ones(1000, dtype='i4')\n"
        "print(int(dpnp.sum(y)), x[0])\n"
    )
    done = trace(run_python, "-o", tmp_path / "run.json", path)
    assert done.stdout == "1000 2\n"
    assert len(done.stderr.split("Devices\n")[1].split("\n\n")[0].splitlines()) == 2


def test_a_child_of_a_traced_script_can_profile_and_end(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path = script("""
import os, sys
import dpctl, dpnp, usmq
q = dpctl.SyclQueue()
x = dpnp.ones(1_000_000, dtype="i4", sycl_queue=q)
y = x * 2 + x
child = os.fork()
if child == 0:
    with usmq.profile() as p:
        pass
    del q
    os._exit(len(p.events))
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(y[7]))
""")
    done = trace(run_python, "-o", tmp_path / "run.json", path, timeout=60)
    assert done.stdout == "child 0 3\n"


def test_memory_of_dpnp_is_counted_until_it_is_freed(
    run_python: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("dpnp")
    path = script("""
import dpnp
for _ in range(4):
    x = dpnp.zeros(1 << 20, dtype="i4")
    x.sycl_queue.wait()
    del x
""")
    done = trace(run_python, "-o", tmp_path / "run.json", path)
    assert re.search(r"  4\.0 MiB +0 of 4  ", done.stderr), done.stderr


def test_the_trace_shows_work_of_dpnp_beside_that_of_usmq(
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
    found = events(out)
    names = [entry["name"].lower() for entry in found if entry["cat"] == "kernel"]
    assert any("sort" in name for name in names), names
    assert any("sum" in name or "reduc" in name for name in names), names
    # Commands of usmq are not reported a second time by the runtime.
    ours = [(entry["cat"], entry["args"].get("source")) for entry in found]
    assert ours[:3] == [("fill", f"{path}:2"), ("copy", f"{path}:3"), ("wait", f"{path}:3")]
    # sum() of int32 gives int64, read by the host.
    copies = [entry["args"] for entry in found if entry["cat"] == "copy"]
    assert [args["reason"] for args in copies if args["bytes"] == 8] == ["host read"]


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
