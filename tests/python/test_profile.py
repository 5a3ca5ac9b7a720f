"""Profiles: events, reasons and lines match the executed work; the saved files are valid."""

import inspect
import itertools
import json
import re
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter

import numpy as np
import pytest
import usmq


def here(offset=0):
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + offset}"


def copies(profile):
    return [(event.reason, event.bytes) for event in profile.events if event.kind == "copy"]


@pytest.fixture(scope="module")
def busy(kernels):
    """A profile with kernels, copies of many reasons, and a second queue."""
    timed, plain = usmq.Queue(profiling=True), usmq.Queue()
    host = np.arange(200_000, dtype="f4").reshape(400, 500)
    with usmq.profile() as profile:
        x = usmq.asarray(host, queue=timed)
        y = usmq.full(1000, 1.5, "f4", queue=plain)
        z = usmq.zeros(1000, "f4", queue=timed)
        for _ in range(20):
            kernels.axpy(1000, 2.0, y, z, 1000, queue=timed)
            kernels.axpy(1000, 0.5, z, y, 1000, queue=plain)
        x.T.to_numpy()
        x.astype("f8").wait()
        usmq.collocate([1.0, 2.0], like=y).wait()
        y.copy_from(np.ones(1000, "f4"))
    return profile


def test_each_kind_of_copy_records_reason_and_bytes(queue):
    x = usmq.asarray(np.arange(12, dtype="i4").reshape(3, 4))
    x.T.copy()  # builds the kernel for strided copies
    x.astype("f8").wait()
    cases = [
        (lambda: usmq.asarray(np.zeros(10, "u1")), [("import", 10)]),
        (lambda: usmq.asarray([1.0, 2.0]), [("import", 16)]),
        (lambda: usmq.from_dlpack(np.zeros(7, "u1")), [("import", 7)]),
        (lambda: x.to_numpy(), [("host read", 48)]),
        (lambda: x.T.to_numpy(), [("contiguity", 48), ("host read", 48)]),
        (lambda: x.copy_from(np.ones((3, 4), "i4")), [("host write", 48)]),
        (lambda: x.copy().wait(), [("explicit", 48)]),
        (lambda: x.astype("f8").wait(), [("conversion", 96)]),
        (lambda: usmq.asarray(x, usm_type="host").wait(), [("conversion", 48)]),
        (lambda: usmq.collocate([1, 2], queue=queue), [("collocate", 16)]),
        (lambda: usmq.collocate(x, queue=queue), []),
        (lambda: usmq.collocate(x, queue=usmq.Queue(queue, profiling=True)), []),
        (lambda: usmq.follow(x, x), []),
    ]
    for act, expected in cases:
        with usmq.profile() as profile:
            act()
        assert copies(profile) == expected, inspect.getsource(act)


def test_arrow_imports_and_exports_are_recorded_as_import_and_read():
    pa = pytest.importorskip("pyarrow")
    with usmq.profile() as profile:
        column = usmq.from_arrow(pa.array([1, None, 3]))
        column.to_arrow()
    reasons = [event.reason for event in profile.events if event.kind == "copy"]
    assert reasons == ["import", "import", "host read", "host read"]


def test_a_copy_to_another_context_records_its_reason(queue_of_other_context):
    x = usmq.zeros(1000, "u1")
    with usmq.profile() as profile:
        usmq.collocate(x, queue=queue_of_other_context).wait()
    moved = copies(profile)
    assert {reason for reason, _ in moved} == {"context mismatch"}
    step = usmq.explain(x, queue=queue_of_other_context).steps[0]
    hops = {"copy_staged": 2, "copy_direct": 1}[step.action]
    assert sum(nbytes for _, nbytes in moved) == hops * step.bytes
    assert any("context mismatch" in text and __file__ in text for text in profile.warnings)


def test_each_event_has_the_line_of_its_caller(kernels):
    def helper():
        return usmq.zeros(3, "f4")

    inside = f"{__file__}:{helper.__code__.co_firstlineno + 1}"
    with usmq.profile() as profile:
        x = usmq.asarray(np.ones(3, "f4"))
        y = helper()
        kernels.axpy(3, 1.0, x, y, 3)
        y.to_numpy()
    lines = {(event.kind, event.reason): event.source for event in profile.events}
    assert lines["copy", "import"] == here(-5)
    assert lines["fill", "explicit"] == inside
    assert lines["kernel", "explicit"] == here(-5)
    assert lines["copy", "host read"] == here(-5)


def test_the_caller_is_the_python_library_not_its_own_caller(run_python, tmp_path):
    (tmp_path / "their_library.py").write_text("import usmq\ndef work():\n    usmq.zeros(3)\n")
    code = """
import sys, usmq
sys.path.insert(0, sys.argv[1])
import their_library
with usmq.profile() as p:
    their_library.work()
print({event.source for event in p.events if event.kind == "fill"})
"""
    done = run_python(code, str(tmp_path))
    assert "their_library.py:3" in done.stdout


def test_threads_and_nested_profiles_record_their_own_part():
    with usmq.profile() as outer:
        usmq.zeros(1, "u1")
        with usmq.profile() as inner:
            thread = threading.Thread(target=lambda: usmq.zeros(2, "u1"))
            thread.start()
            thread.join()
        usmq.zeros(3, "u1")

    def fills(profile):
        return [event.bytes for event in profile.events if event.kind == "fill"]

    assert fills(outer) == [1, 2, 3]
    assert fills(inner) == [2]
    threads = {event.bytes: event.thread for event in outer.events if event.kind == "fill"}
    assert threads[1] == threads[3] != threads[2]


def test_a_profile_is_entered_once_and_read_after_exit():
    profile = usmq.profile()
    with pytest.raises(ValueError, match="complete only after"):
        _ = profile.events
    assert "not complete" in repr(profile)
    assert profile._repr_html_() is None
    with pytest.raises(RuntimeError):
        profile.__exit__(None, None, None)
    with profile, pytest.raises(RuntimeError), profile:
        pass
    with pytest.raises(RuntimeError):
        profile.__enter__()
    assert profile.dropped == 0
    assert profile.duration > 0
    # An exception in the block propagates.
    with pytest.raises(ZeroDivisionError), usmq.profile() as profile:  # noqa: PT012
        usmq.zeros(1, "u1")
        raise ZeroDivisionError
    assert [event.bytes for event in profile.events if event.kind == "fill"] == [1]


def test_unknown_extensions_and_unwritable_paths_are_errors(busy, tmp_path):
    for name in ("run.png", "run", ".json"):
        with pytest.raises(ValueError, match=r"use \.json"):
            busy.save(tmp_path / name)
    with pytest.raises(FileNotFoundError) as missing:
        busy.save(tmp_path / "nowhere" / "run.svg")
    assert missing.value.filename == str(tmp_path / "nowhere" / "run.svg")
    with pytest.raises(TypeError):
        busy.save(3)
    assert not list(tmp_path.iterdir())


def test_the_table_lists_devices_reasons_kernels_and_advice(busy):
    text = str(busy)
    for word in ("Devices", "Copies", "Kernels", "axpy", "import", "contiguity", "peak memory"):
        assert word in text
    for device in {event.device for event in busy.events}:
        assert device is None or device in text
    axpy = next(line.split() for line in text.splitlines() if line.split()[:1] == ["axpy"])
    assert axpy[1] == "40"
    assert "contiguous copy()" in text


def test_times_use_the_clock_named_by_the_event(kernels):
    timed = usmq.Queue(profiling=True)
    x = usmq.zeros(1000, "f4", queue=timed)
    with usmq.profile() as profile:
        event = kernels.axpy(1000, 1.0, x, x.copy(), 1000)
    _, start, end = event.timestamps
    (kernel,) = (found for found in profile.events if found.kind == "kernel")
    assert (kernel.clock, kernel.duration) == ("device", end - start)
    assert kernel.submit <= kernel.start <= kernel.end <= profile.duration


def test_a_queue_without_timestamps_stays_without_them(run_python):
    code = """
import usmq
queue = usmq.Queue()
kernel = usmq.Kernel.from_opencl("kernel void nothing() {}", "nothing", queue=queue)
with usmq.profile() as p:
    event = kernel(1, queue=queue)
print(queue.profiling, [e.clock for e in p.events if e.kind == "kernel"])
try:
    event.timestamps
except ValueError as refused:
    print("refused:", refused)
"""
    plain = run_python(code, USMQ_PROFILING=None).stdout
    timed = run_python(code, USMQ_PROFILING="1").stdout
    assert plain.splitlines()[0] == "False ['host']"
    assert timed.splitlines()[0] == "False ['device']"
    assert "refused:" in plain
    assert "refused:" in timed


# --- the trace


@pytest.fixture(scope="module")
def entries(busy, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.json"
    busy.save(path)
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def test_the_trace_is_valid_for_perfetto(busy, entries):
    phases = Counter(entry["ph"] for entry in entries)
    shown = [event for event in busy.events if event.kind not in ("allocate", "free")]
    assert phases["X"] == len(shown)
    assert phases["i"] == len(busy.events) - len(shown)
    named = {(entry["pid"], entry["tid"]) for entry in entries if entry["name"] == "thread_name"}
    processes = {entry["pid"] for entry in entries if entry["name"] == "process_name"}
    for entry in entries:
        if entry["ph"] == "X":
            assert (entry["pid"], entry["tid"]) in named
            assert entry["pid"] in processes
            assert entry["dur"] >= 0
            event = busy.events[entry["args"]["event"]]
            assert (entry["name"], entry["cat"]) == (event.name, event.kind)
            assert entry["ts"] == pytest.approx(event.start / 1e3)
            assert entry["args"].get("source") == event.source
            assert entry["args"].get("bytes", 0) == event.bytes


def test_commands_of_an_in_order_queue_do_not_overlap(entries):
    lanes = {}
    for entry in entries:
        if entry["ph"] == "X" and entry["cat"] in ("kernel", "copy", "fill", "barrier"):
            span = (entry["ts"], entry["ts"] + entry["dur"])
            lanes.setdefault((entry["pid"], entry["tid"]), []).append(span)
    assert len(lanes) == 2
    for spans in lanes.values():
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert start >= end - 0.002


def test_flows_connect_each_dependency_with_its_waiter(busy, entries):
    starts = {entry["id"]: entry for entry in entries if entry["ph"] == "s"}
    ends = {entry["id"]: entry for entry in entries if entry["ph"] == "f"}
    waits = sum(len(event.waited_for) for event in busy.events)
    assert starts.keys() == ends.keys()
    assert len(starts) == waits > 0
    spans = [entry for entry in entries if entry["ph"] == "X"]
    for one in (*starts.values(), *ends.values()):
        assert any(
            (span["pid"], span["tid"]) == (one["pid"], one["tid"])
            and span["ts"] - 0.001 <= one["ts"] <= span["ts"] + span["dur"] + 0.001
            for span in spans
        )
    for event in busy.events:
        if event.kind in ("kernel", "copy", "fill", "barrier"):
            assert all(busy.events[before].end <= event.end for before in event.waited_for)


# --- the picture


def test_the_picture_is_valid_self_contained_xml(busy, tmp_path):
    busy.save(tmp_path / "run.svg")
    text = (tmp_path / "run.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "<script" not in text
    assert "axpy" in text
    assert "@media (prefers-color-scheme:dark)" in text


def test_special_characters_in_names_are_escaped_in_picture_and_page():
    hostile = "k_lt_amp"
    code = f"kernel void {hostile}(global int *x) {{ x[0] = 1; }}"
    kernel = usmq.Kernel.from_opencl(code, hostile)
    with usmq.profile() as profile:
        exec(
            compile("kernel(1, usmq.zeros(1, 'i4'))", '<a & "b"> \x01.py', "exec"),
            globals() | locals(),
        )
    html = profile._repr_html_()
    assert html is not None
    assert "&lt;a &amp; &quot;b&quot;&gt;" in html
    assert '<a & "b">' not in html
    ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def test_a_copy_or_fill_that_is_submitted_in_pieces_counts_once():
    with usmq.profile() as p:
        x = usmq.zeros(300_001, "u1")
        usmq.full(300_001, 7, "i2")
        x.copy()
        x.to_numpy()
    work = [event for event in p.events if event.kind in ("copy", "fill")]
    found = [(event.kind, event.bytes) for event in work]
    assert found == [("fill", 300_001), ("fill", 600_002), ("copy", 300_001), ("copy", 300_001)]
    assert all(event.end > event.start for event in work)
