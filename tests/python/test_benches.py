"""The published figures of `make bench` agree with page and plot; rows are compared with them."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benches"))

import plot  # noqa: E402
import published  # noqa: E402
import run  # noqa: E402

DATA = published.load()
ROWS = run.rows()
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
FIX = "write it again with `benches/run.py --publish`"


def test_page_and_plot_have_the_published_figures():
    assert published.page(PAGE, DATA, ROWS) == PAGE, FIX
    assert plot.svg(DATA, ROWS) == run.PICTURE.read_text(encoding="utf-8"), FIX
    assert published.text(DATA) == published.FILE.read_text(encoding="utf-8"), FIX


def test_each_row_is_published_in_its_unit():
    figures = {row["name"]: row["unit"] for row in DATA["quiet"]["rows"]}
    assert figures == {row.name: row.unit for row in ROWS}
    for row in DATA["busy"]["rows"]:
        assert row["unit"] == figures[row["name"]]


def test_the_page_names_the_rows_that_are_not_compared():
    section = PAGE.partition("## Regressions")[2].partition("<!-- guard: ")[0]
    found = {
        name
        for line in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
        for name in re.findall("`([^`]+)`", line)
    }
    assert found == {row.name for row in ROWS if row.not_compared}
    for row in ROWS:
        assert row.not_compared in section


def test_a_plot_shows_each_row_with_its_ratio_and_target():
    picture = plot.svg(DATA, ROWS)
    for row in DATA["quiet"]["rows"]:
        assert f"<title>{row['name']}: {row['usmq'] / row['peer']:.3f}, " in picture
    table = PAGE.partition("<!-- quiet: ")[2].partition("<!-- end of quiet -->")[0]
    over = re.findall(r"^\| `[\w.]+` .* \(over(?:; C\+\+ [\d.]+)?\) \|", table, re.MULTILINE)
    # One more in the legend.
    assert picture.count('class="over"') == len(over) + 1
    assert picture.count('class="goal"') == sum(row.target is not None for row in ROWS) + 1


def results(**ratios):
    rows = {row.name: row for row in ROWS}
    return [run.Result(rows[name], ratio, 1.0) for name, ratio in ratios.items()]


def guard(ratios, reference=1.0):
    """Return the figures of the failed rows; all but the first of a row are its repeats."""
    left = {name: iter(values[1:]) for name, values in ratios.items()}
    failed = run.far_over(
        results(**{name: values[0] for name, values in ratios.items()}),
        dict.fromkeys(ratios, reference),
        lambda rows: [run.Result(row, next(left[row.name]), 1.0) for row in rows],
    )
    assert [list(values) for values in left.values() if list(values)] == [], "too few repeats"
    return [[result.ratio for result in figures] for figures in failed]


def test_a_row_fails_only_if_it_is_far_over_in_three_repeats():
    assert guard({"py.import": [1.51, 1.6, 1.7, 1.8], "rust.copy_64m": [1.49]}) == [
        [1.51, 1.6, 1.7, 1.8]
    ]
    assert guard({"py.import": [9.0, 9.0, 9.0, 1.5]}) == []
    assert guard({"py.import": [9.0, 1.0]}) == []
    assert guard({"py.import": [1.51]}, reference=1.1) == []


def test_rows_that_depend_on_the_machine_are_not_repeated():
    names = [row.name for row in ROWS if row.not_compared]
    assert "rust.threads" in names
    assert guard({name: [9.0] for name in names}) == []


def test_a_row_is_compared_with_its_larger_ratio_of_both_states():
    references = published.references(DATA, published.MEASURED)
    quiet, busy = (
        {row["name"]: row["usmq"] / row["peer"] for row in DATA[state]["rows"]}
        for state in ("quiet", "busy")
    )
    higher = {name for name, ratio in busy.items() if ratio > quiet[name]}
    assert set() < higher < set(busy), "the figures show no difference"
    for name, ratio in quiet.items():
        assert references[name] == (busy[name] if name in higher else ratio), name


def test_a_slower_row_is_marked():
    (result,) = results(**{"py.import": 1.16})
    assert " slower " in result.line(1.0)
    assert "slower" not in result.line(1.02)
    assert "slower" not in result.line(None)


def measured(names, load):
    rows = [{"name": name, "unit": "us", "usmq": 1.0, "peer": 2.0} for name in names]
    return DATA["quiet"] | {"load": load, "rows": rows, "commit": "new"}


def test_a_measurement_of_all_rows_replaces_the_quiet_one_and_one_beside_a_load_the_other():
    names = [row.name for row in ROWS]
    new = published.accept(DATA, [measured(names, None)], ROWS)
    assert new["quiet"]["commit"] == "new"
    assert new["busy"] == DATA["busy"]
    page = published.page(PAGE, new, ROWS)
    assert "commit new" in page
    assert re.search(r"^\| `py.import` \| us \| 1.00 \| 2.00 \| 0.500 \|", page, re.MULTILINE)
    new = published.accept(DATA, [measured(names[:2], "stress-ng")], ROWS)
    assert new["quiet"] == DATA["quiet"]
    assert "Beside `stress-ng`." in " ".join(published.page(PAGE, new, ROWS).split())
    with pytest.raises(ValueError, match=rf"lacks {re.escape(names[-1])}; .* all rows"):
        published.accept(DATA, [measured(names[:-1], None)], ROWS)


def test_figures_are_one_line_per_row_and_read_back():
    lines = published.text(DATA).splitlines()
    rows = sum(len(DATA[state]["rows"]) for state in published.GUARDED)
    assert sum(line.startswith('      {"name": ') for line in lines) == rows
    assert json.loads(published.text(DATA)) == DATA


def test_the_guard_state_has_the_largest_median_of_runs_with_each_load():
    names = [row.name for row in ROWS]
    runs = []
    for time, load in ((3.0, None), (9.0, None), (4.0, None), (2.0, "builds"), (6.0, "builds")):
        one = measured(names, load) | {"statistic": "fastest", "commit": str(time)}
        one["rows"][0] = one["rows"][0] | {"peer": 2.0 if load is None else 4.0}
        runs.append(one | {"rows": [row | {"usmq": time} for row in one["rows"]]})
    new = published.accept(DATA, runs, ROWS)
    assert new["quiet"] == DATA["quiet"]
    # The median is 4 without a load, and 6 beside one, where the first row has a slower peer.
    assert [row["usmq"] for row in new["guard"]["rows"]] == [4.0] + [6.0] * (len(names) - 1)
    page = published.page(PAGE, new, ROWS)
    assert "Runs: 3 beside no load, 2 beside builds;" in " ".join(page.split())
    quiet = published.references(DATA, ("quiet",))["py.import"]
    assert f"| `py.import` | {quiet:.3f} | 3.000 |" in page
    with pytest.raises(ValueError, match="all rows"):
        published.accept(DATA, [one | {"rows": one["rows"][1:]}], ROWS)
