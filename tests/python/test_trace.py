"""``python -m usmq trace``: a script runs unchanged, and the files describe its work."""

import json
import re

import pytest

SCRIPT = """
import sys
import numpy as np
import usmq
x = usmq.asarray(np.ones(1 << 17, "f4"))
total = x.to_numpy().sum()
print(__name__, sys.argv[1:], total)
"""


@pytest.fixture
def trace(run_python, tmp_path):
    """Return a call that runs the command in an empty folder."""
    return lambda *words, **options: run_python(
        None, "-m", "usmq", "trace", *words, cwd=tmp_path, **options
    )


@pytest.fixture
def traced(trace, tmp_path):
    """Return a call that traces a script; the result has its path, its events and the picture."""

    def traced(code, *arguments, **options):
        path = tmp_path / "script.py"
        path.write_text(code, encoding="utf-8")
        files = [tmp_path / "run.json", tmp_path / "run.svg"]
        words = [word for file in files for word in ("-o", str(file))]
        done = trace(*words, "--", str(path), *arguments, **options)
        assert all(str(file) in done.stderr for file in files)
        entries = json.loads(files[0].read_text(encoding="utf-8"))["traceEvents"]
        done.path, done.picture = path, files[1].read_text(encoding="utf-8")
        done.events = [entry for entry in entries if entry["ph"] == "X"]
        return done

    return traced


def of_kind(done, kind):
    return [entry for entry in done.events if entry["cat"] == kind]


def test_an_unmodified_script_is_profiled(traced):
    done = traced(SCRIPT, "-a", "--", "b c")
    assert done.stdout == "__main__ ['-a', '--', 'b c'] 131072.0\n"
    assert "host read" in done.stderr
    found = {entry["args"]["reason"]: entry["args"] for entry in of_kind(done, "copy")}
    assert found["import"]["source"] == f"{done.path}:5"
    assert found["host read"]["source"] == f"{done.path}:6"
    assert found["host read"]["bytes"] == 4 << 17
    assert {args["clock"] for args in found.values()} == {"device"}
    assert done.picture.startswith("<svg")


def test_layers_of_the_runtime_that_the_user_chose_stay(traced):
    layers = "UR_LAYER_PARAMETER_VALIDATION,UR_LAYER_LIFETIME_VALIDATION"
    code = "import os, usmq; usmq.zeros(3).wait(); print(os.environ['UR_ENABLE_LAYERS'])"
    assert traced(code, UR_ENABLE_LAYERS=layers).stdout == f"{layers},UR_LAYER_TRACING\n"


def test_files_have_default_names(trace, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    trace("script.py")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"script.py", "usmq-trace.json", "usmq-trace.svg"}


LOOP = """
import dpnp, numpy as np
host = np.ones((200, 300), "i4")
for _ in range(5):
    m = dpnp.asarray(host)
    total = int(dpnp.sum(m * m))
other = dpnp.asarray(np.ones(7, "f4"))
print(total)
"""


def test_a_script_without_usmq_is_profiled_by_device_and_line(traced):
    pytest.importorskip("dpnp")
    done = traced(LOOP)
    path, found = done.path, done.events
    assert done.stdout == "60000\n"
    (device,) = done.stderr.split("Devices\n")[1].split("\n\n")[0].splitlines()[1:]
    assert re.match(r"  (opencl|level_zero|cuda|hip):", device), device
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
    assert "other libraries" not in done.picture
    assert "array memory" in done.picture


def test_commands_of_a_queue_with_profiling_have_times_of_the_device(traced):
    pytest.importorskip("dpnp")
    done = traced("""
import dpctl, dpnp
q = dpctl.SyclQueue(property="enable_profiling")
x = dpnp.ones(100_000, dtype="i4", sycl_queue=q)
print(int((x + x).asnumpy().sum()))
""")
    assert done.stdout == "200000\n"
    kernels = of_kind(done, "kernel")
    assert {entry["args"]["clock"] for entry in kernels} == {"device"}
    assert all(entry["ts"] >= entry["args"]["submitted"] for entry in kernels)


def test_a_device_that_both_libraries_use_is_one_device(traced):
    pytest.importorskip("dpnp")
    done = traced("""
import dpctl, dpnp, usmq
x = usmq.full(1000, 2, "i4", queue=usmq.Queue(dpctl.SyclQueue()))
y = dpnp.ones(1000, dtype="i4")
print(int(dpnp.sum(y)), x[0])
""")
    assert done.stdout == "1000 2\n"
    assert len(done.stderr.split("Devices\n")[1].split("\n\n")[0].splitlines()) == 2


def test_a_child_of_a_traced_script_can_profile_and_end(traced):
    pytest.importorskip("dpnp")
    code = """
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
"""
    assert traced(code, timeout=60).stdout == "child 0 3\n"


def test_memory_of_dpnp_is_counted_until_it_is_freed(traced):
    pytest.importorskip("dpnp")
    done = traced("""
import dpnp
for _ in range(4):
    x = dpnp.zeros(1 << 20, dtype="i4")
    x.sycl_queue.wait()
    del x
""")
    assert re.search(r"  4\.0 MiB +0 of 4  ", done.stderr), done.stderr


def test_the_trace_shows_work_of_dpnp_beside_that_of_usmq(traced):
    pytest.importorskip("dpnp")
    done = traced("""import usmq
x = usmq.full(50_000, 1, "i4")
x.to_numpy()
import dpnp
y = dpnp.asarray(x)
print(int(dpnp.sum(dpnp.sort(y))))
""")
    assert done.stdout == "50000\n"
    names = [entry["name"].lower() for entry in of_kind(done, "kernel")]
    assert any("sort" in name for name in names), names
    assert any("sum" in name or "reduc" in name for name in names), names
    # Commands of usmq are not reported a second time by the runtime.
    ours = [(entry["cat"], entry["args"].get("source")) for entry in done.events[:3]]
    second, third = f"{done.path}:2", f"{done.path}:3"
    assert ours == [("fill", second), ("copy", third), ("wait", third)]
    # sum() of int32 gives int64, read by the host.
    copies = [entry["args"] for entry in of_kind(done, "copy")]
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
def test_the_exit_status_is_that_of_the_script(traced, code, status, told):
    done = traced(code, check=False)
    assert done.returncode == status
    assert told in done.stderr


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(3)", 3), ("raise SystemExit(3)", 3), ("1 / 0", 1), ("pass", 0)]
)
def test_a_forked_child_exits_with_its_own_status(traced, end, status):
    done = traced(f"""
import os, sys, usmq
usmq.zeros(3).wait()
child = os.fork()
if child == 0:
    {end}
else:
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.stdout.splitlines() == [f"child {status}"]
    assert done.stderr.count("written to") == 2, "once for each file, by the parent"
    assert "ValueError" not in done.stderr


def test_a_traceback_starts_at_the_script_and_the_profile_is_saved(traced):
    done = traced("import usmq\nusmq.zeros(3)\ndef fail():\n    1 / 0\nfail()\n", check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert f'File "{done.path}", line 5' in done.stderr
    assert "_trace.py" not in done.stderr
    assert of_kind(done, "fill")


def test_modules_run_and_import_neighbouring_modules(run_python, trace, tmp_path):
    job, elsewhere = tmp_path / "job.py", tmp_path / "elsewhere"
    job.write_text("import sys, neighbour\nprint(__name__, neighbour.VALUE, sys.argv[1:])\n")
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    for arguments in (["-m", "job", "x"], ["--", "-m", "job", "x"]):
        assert trace("-o", "run.txt", *arguments).stdout == "__main__ 7 ['x']\n"
    elsewhere.mkdir()
    done = run_python(None, "-m", "usmq", "trace", "-o", "run.txt", str(job), cwd=elsewhere)
    assert done.stdout == "__main__ 7 []\n"


def test_calls_need_the_tracing_support_of_the_runtime(run_python):
    code = """
import usmq._core
try:
    usmq._core.watch_calls()
except usmq.RuntimeNotFoundError as refused:
    print(refused)
"""
    done = run_python(code, XPTI_FRAMEWORK_DISPATCHER=None)
    assert "python -m usmq trace" in done.stdout
