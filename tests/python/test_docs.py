"""The files and tests that the pages under docs/ name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_each_rule_of_the_interop_page_names_an_existing_test():
    page = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([DSAY]\d+) \|.*\| `([\w.]+)`: `(\w+)` \|$", page, re.MULTILINE)
    assert len(rows) > 40, "the table was not found"
    for rule, file, test in rows:
        folder = "arrow_async" if file.endswith(".rs") else "python"
        text = (ROOT / "tests" / folder / file).read_text(encoding="utf-8")
        assert re.search(rf"\b(def|fn) {test}\(", text), f"{rule}: {file} has no {test}"
        assert rule.lower() in test.split("_"), f"{test} does not name {rule}"


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        (r"`(test_dlpack_\w+\.py)`: `(\w+)`", 12),
        (r"`(?:\.\./cuda/)?(test_cuda_device\.py|test_cuda\.py)`: `(\w+)`", 8),
    ],
)
def test_the_tests_named_by_the_interop_page_exist(pattern, least):
    named = re.findall(pattern, (ROOT / "docs" / "interop.md").read_text(encoding="utf-8"))
    assert len(named) > least, "the table was not found"
    for file, test in named:
        folder = "cuda" if file == "test_cuda_device.py" else "python"
        text = (ROOT / "tests" / folder / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text, f"{file} has no {test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_existing_targets(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    for link in links:
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_source_files_named_by_a_page_exist(page):
    names = re.findall(
        r"`((?:src|cpp|tests|benches)/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8")
    )
    # `NAME` stands for a name that the reader chooses; an application has its own src/main.rs.
    files = [name for name in names if "NAME" not in name and name != "src/main.rs"]
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_comparison_matches_the_benchmark_rows_it_names():
    performance = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = re.findall(
        r"^\| `([\w.]+)` \|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|", performance, re.MULTILINE
    )
    ratio = {name: float(value) for name, value in found}
    comparison = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    adds, better, slower = set[str](), set[str](), set[str]()
    side = better
    for line in comparison.splitlines():
        side = {"usmq adds:": adds, "## Where usmq is slower": slower}.get(line, side)
        if line.startswith("Advantages of "):
            side = better
        side.update(re.findall(r"`((?:py|rust|arrow)\.\w+(?:\.\d+)?)`", line))
    assert len(adds) > 4
    # No row is in these lists at present; one that is added must be true.
    assert "\nAdvantages of dpctl:\n" in comparison
    assert slower
    assert [row for row in adds if not ratio[row] < 1] == []
    assert [row for row in better | slower if not ratio[row] > 1] == []
