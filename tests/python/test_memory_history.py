"""Sizes as text, and the source lines of allocations in errors and traces."""

import gc
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import usmq
from conftest import in_threads


@pytest.fixture(autouse=True)
def clean():
    usmq.trim_memory()
    yield
    usmq.record_allocations(False)
    usmq.set_memory_limit(None)
    usmq.set_kernel_cache_limit(None)


def limit_beyond_present_use(size):
    """Limit the memory of devices; other tests of the process may hold some."""
    gc.collect()
    usmq.trim_memory()
    usmq.set_memory_limit(usmq.memory_stats()["device"]["reserved"] + size)


def line_of(mark):
    """Return ``file:line`` of the line with this mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    assert len(found) == 1
    return f"{__file__}:{found[0]}"


def test_a_failed_allocation_lists_the_lines_that_hold_memory():
    limit_beyond_present_use(8 << 20)
    usmq.record_allocations()
    large = usmq.empty(1 << 20, "f4")  # large
    small = [usmq.empty(1 << 18, "u1") for _ in range(3)]  # small
    shared = usmq.zeros(1 << 18, "u1", usm_type="shared")  # shared
    with pytest.raises(usmq.AllocationError) as caught:
        usmq.empty(1 << 21, "f4")
    text = str(caught.value)
    expected = [
        f"4.0 MiB of device USM in 1 allocation at {line_of('large')}",
        f"768.0 KiB of device USM in 3 allocations at {line_of('small')}",
        f"256.0 KiB of shared USM in 1 allocation at {line_of('shared')}",
    ]
    assert [line.strip() for line in text.splitlines()[1:]] == expected
    del large, small, shared
    with pytest.raises(usmq.AllocationError, match="no allocation is alive"):
        usmq.empty(1 << 22, "f4")


def test_nothing_is_recorded_unless_requested():
    limit_beyond_present_use(1 << 20)
    x = usmq.empty(1 << 19, "u1")
    with pytest.raises(usmq.AllocationError) as caught:
        usmq.empty(1 << 20)
    assert "since recording" not in str(caught.value)
    assert usmq.live_allocations() == []
    usmq.record_allocations()
    assert usmq.live_allocations() == []
    del x
    z = usmq.zeros(10)
    assert len(usmq.live_allocations()) == 1
    usmq.record_allocations(False)
    assert usmq.live_allocations() == []
    del z


def test_live_allocations_are_sorted_and_named():
    usmq.record_allocations()
    x = usmq.empty(10, "u1", usm_type="host")
    y = usmq.asarray(np.zeros(1000, "u1"))  # copied
    first, second = usmq.live_allocations()
    assert (first["bytes"], first["usm_type"], first["device"]) == (1000, "device", y.device)
    assert first["source"] == line_of("copied")
    assert (second["bytes"], second["usm_type"]) == (10, "host")
    assert 0 <= first["seconds"] < second["seconds"] < 60
    view = y[:10]
    del y
    assert len(usmq.live_allocations()) == 2, "a view keeps the allocation"
    del view, x
    assert usmq.live_allocations() == []


def limit():
    return usmq.memory_stats()["device"]["limit"]


def test_a_limit_is_a_number_or_a_size_as_text():
    for text, expected in {
        "1GiB": 1 << 30,
        "512MiB": 512 << 20,
        "2 GB": 2 * 10**9,
        "1.5GiB": 3 << 29,
        "10 kb": 10_000,
        " 7 B ": 7,
        "4096": 4096,
        "0.5 tib": 1 << 39,
        "0": 0,
    }.items():
        usmq.set_memory_limit(text)
        assert limit() == expected
        usmq.set_kernel_cache_limit(text)
        assert usmq.run_task(lambda task: task.memory.limit, memory_limit=text) == expected


def test_other_text_is_a_value_error_that_lists_the_units():
    texts = ["", "GiB", "1 G", "-1", "-1 GiB", "1e9", "1.2.3 MB", "nan", "99999 PiB", "1 B x", "ö"]
    for text in [*texts, "1\0B"]:
        for call in (usmq.set_memory_limit, usmq.set_kernel_cache_limit):
            with pytest.raises(
                ValueError, match=r"is not a size .*units B, KiB, MiB, GiB, TiB, PiB, kB, MB"
            ):
                call(text)
    assert limit() is None
    with pytest.raises(ValueError, match="…") as caught:
        usmq.set_memory_limit("1" * 100_000 + " MiB")
    assert len(str(caught.value)) < 400


def test_threads_record_and_free_at_once():
    usmq.record_allocations()

    def work():
        for _ in range(200):
            usmq.zeros(100)

    in_threads(*[work] * 4)
    usmq.current_queue().wait()
    assert usmq.live_allocations() == []


def test_a_trace_has_the_history_of_allocations(tmp_path):
    with usmq.profile() as recorded:
        x = usmq.empty(1 << 16, "u1", usm_type="shared")  # traced
        y = usmq.empty(1 << 15, "u1")
        del x
    recorded.save(tmp_path / "run.json")
    entries = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    made = [entry for entry in entries if entry.get("cat") == "allocate"]
    assert [entry["args"]["bytes"] for entry in made] == [1 << 16, 1 << 15]
    assert made[0]["name"] == "allocate shared USM"
    assert made[0]["args"]["source"] == line_of("traced")
    assert made[0]["ts"] < made[1]["ts"]
    counted = [entry["args"] for entry in entries if entry.get("ph") == "C"]
    assert [list(series) for series in counted] == [["device", "host", "shared"]] * 3
    for kind, expected in {
        "device": [1 << 15, 0],
        "shared": [0, -(1 << 16)],
        "host": [0, 0],
    }.items():
        levels = [series[kind] for series in counted]
        steps = [after - before for before, after in itertools.pairwise(levels)]
        assert steps == expected, kind
    names = [entry["args"]["name"] for entry in entries if entry.get("name") == "process_name"]
    assert any(re.match(str(y.device.filter_string), name) for name in names)
