"""The simulation of benches/scaling_model.py against what can be computed by hand."""

import math
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
sys.path.append(str(BENCHES))

import scaling_model as model  # noqa: E402

FREE = model.Costs(
    task=0.0, heartbeat=0.0, upload_byte=0.0, transfer=0.0, transfer_byte=0.0, row={"map": 1e-6}
)


def total(costs, workers, parts=64, **options):
    tasks = model.flights(costs, 64_000_000, parts, upload=False)
    return model.simulate(costs, tasks, workers, **options).total


def test_work_without_other_costs_is_divided_among_machines_only():
    for workers in (1, 2, 8, 64):
        assert total(FREE, workers) == pytest.approx(64 / workers)
        assert total(FREE, workers, per_machine=workers) == pytest.approx(64)
    # Partitions that do not divide evenly wait for the last one.
    assert total(FREE, 3, parts=4) == pytest.approx(2 * 64 / 4)
    times = [total(replace(FREE, task=0.001), workers) for workers in (1, 2, 4, 8, 16, 32, 64)]
    assert times == sorted(times, reverse=True), "more workers are never slower without transfers"
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="1 or more are needed"):
            model.simulate(FREE, [], *wrong)


def test_the_scheduler_handles_one_task_after_another():
    costs = replace(FREE, task=0.01, row={})
    tasks = model.flights(costs, 0, 64, upload=False)
    # 64 reads, maps, 63 checks and a schema, two times 64 partial results with their merges.
    assert len(tasks) == 64 * 2 + 64 + 2 * (64 + 8 + 1) + 1
    for workers in (1, 100):
        found = model.simulate(costs, tasks, workers)
        assert found.total == pytest.approx(0.01 * len(tasks), rel=0.01)
        assert found.bottleneck == "scheduler"


def test_heartbeats_slow_the_scheduler_until_it_fails():
    costs = replace(FREE, task=0.01, row={}, heartbeat=0.005)
    tasks = model.flights(costs, 0, 8, upload=False)
    assert model.heartbeat_interval(400) == 4.0
    idle = model.simulate(replace(costs, heartbeat=0.0), tasks, 400).total
    assert model.simulate(costs, tasks, 400).total == pytest.approx(2 * idle)
    with pytest.raises(ValueError, match=r"heartbeats alone take 1\.0 schedulers"):
        model.simulate(replace(costs, heartbeat=0.01), tasks, 400)


def test_uploads_pass_through_the_client_one_after_another():
    costs = replace(FREE, upload_byte=1e-9, row={})
    tasks = model.flights(costs, 1_000_000, 8, upload=True)
    found = model.simulate(costs, tasks, 4)
    assert found.phases["upload"] == pytest.approx(1_000_000 * costs.row_bytes * 1e-9)
    assert found.bottleneck == "client"


def test_merges_wait_for_one_transfer_after_another():
    costs = replace(FREE, transfer=1.0, row={})
    tasks = model.flights(costs, 64_000, 8, upload=False)
    alone = model.simulate(costs, tasks, 1)
    assert (alone.transfers, alone.total) == (0, 0)
    found = model.simulate(costs, tasks, 8)
    # A merge gets seven of eight results from others; the schema goes to seven workers at once.
    assert found.transfers == 7 + 7 + 7
    assert found.phases == {"upload": 0, "map": 1, "reduce": 7, "group": 7}


def test_the_page_shows_the_output_of_the_program(capsys):
    page = (BENCHES.parent / "docs" / "scaling.md").read_text(encoding="utf-8")
    program = runpy.run_path(str(BENCHES / "scaling.py"))
    assert program["main"](["--simulate"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() in page, printed
    assert all(math.isfinite(value) for value in program["PUBLISHED"].row.values())
