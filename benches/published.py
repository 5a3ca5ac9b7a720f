"""The published results of `run.py`: figures as data, and the tables of docs/performance.md.

`published.json` has three measurements: `quiet`, `busy` (beside a load), and `guard` (runs of
`run.py --guard`). Names of peers and targets are those of `run.py`, so a new target needs no new
measurement. Pure, except `load` and `save`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol

FILE = Path(__file__).resolve().parent / "published.json"
Data = dict[str, Any]
# A ratio is compared with the largest published one of these states, times the factor.
MEASURED = ("quiet", "busy")
GUARDED = ("quiet", "busy", "guard")
SLOWER = 1.15
FAILED = 1.5


class Row(Protocol):
    """What the tables need of a row of `run.py`."""

    name: str
    unit: str
    target: float | None
    peer_name: str
    not_compared: str

    @property
    def compared_with(self) -> tuple[str, str]:
        """The peer: rows with the same one were measured in the same rounds."""


def load() -> Data:
    """Read the published results."""
    data: Data = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def save(data: Data) -> None:
    """Write the published results."""
    FILE.write_text(text(data), encoding="utf-8")


def text(data: Data) -> str:
    """Return the results as JSON, with one line per row, so that differences are short."""
    whole = json.dumps(data, indent=2)
    lines = re.sub(r'\{\s+("name": [^}]*?)\s+\}', lambda row: "{" + row[1] + "}", whole)
    return re.sub(r"(?<=,)\n +(?=\"(?:unit|usmq|peer)\")", " ", lines) + "\n"


def ratio(row: Data) -> float:
    """Return the ratio of a measured row; lower is better for usmq."""
    return float(row["usmq"] / row["peer"])


def references(data: Data, states: tuple[str, ...]) -> dict[str, float]:
    """Return for each row the largest of its published ratios in these states."""
    found: dict[str, float] = {}
    for state in states:
        for row in data[state]["rows"]:
            found[row["name"]] = max(ratio(row), found.get(row["name"], 0.0))
    return found


def accept(data: Data, measured: list[Data], rows: list[Row]) -> Data:
    """Return the published results after new measurements."""
    guards = [one for one in measured if one["statistic"] == "fastest"]
    for one in measured:
        missing = [row.name for row in rows if row.name not in {row["name"] for row in one["rows"]}]
        if missing and (one["load"] is None or one in guards):
            raise ValueError(
                f"the measurement lacks {', '.join(missing)}; the table needs all rows of one "
                "commit: measure without the names of rows"
            )
        if one not in guards:
            data = data | {"quiet" if one["load"] is None else "busy": one}
    if guards:
        loads: dict[str | None, list[list[Data]]] = {one["load"]: [] for one in guards}
        for one in guards:
            loads[one["load"]].append(one["rows"])
        middles = (
            [sorted(same, key=ratio)[len(runs) // 2] for same in zip(*runs, strict=True)]
            for runs in loads.values()
        )
        largest = [max(same, key=ratio) for same in zip(*middles, strict=True)]
        runs = {load or "no load": len(runs) for load, runs in loads.items()}
        data = data | {"guard": guards[-1] | {"load": None, "runs": runs, "rows": largest}}
    return data


def page(old: str, data: Data, rows: list[Row]) -> str:
    """Return the text of the page with the tables of these results."""
    tables = {"quiet": quiet_table, "busy": busy_table, "guard": guard_table}
    for state, table in tables.items():
        begin, end = f"<!-- {state}: written by benches/run.py -->", f"<!-- end of {state} -->"
        before, found, rest = old.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"docs/performance.md needs the lines {begin!r} and {end!r}")
        old = f"{before}{begin}\n\n{heading(data[state])}\n\n"
        old += f"{table(data, rows)}\n{end}{after}"
    return old


def heading(measured: Data) -> str:
    """Say when, where and how a measurement was made."""
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    words = f"{measured['date']}, commit {measured['commit']}, {measured['machine']}: {versions}. "
    if measured["load"] is not None:
        words += f"Beside `{measured['load']}`. "
    if measured["statistic"] == "median":
        words += f"Medians of {measured['rounds']} rounds, fewer for slow rows."
    else:
        runs = ", ".join(f"{count} beside {load}" for load, count in measured["runs"].items())
        words += (
            f"The fastest of up to {measured['rounds']} rounds. Runs: {runs}; for each row the "
        )
        words += "largest of the median ratios of each load."
    return wrapped(" ".join([words, *measured["notes"]]))


def wrapped(words: str, width: int = 120) -> str:
    """Break text into lines at spaces."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a number with three or more digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def target(row: Row, *ratios: float, reason: str = "") -> str:
    """Return the target, and whether a ratio is over it, with a reason."""
    if row.target is None:
        return ""
    return f"{row.target:g}" + (f" (over{reason})" if max(ratios) > row.target else "")


def plain(row: Row, measured: dict[str, Data], rows: list[Row]) -> str:
    """Return the ratio of plain C++ in the same rounds, if it was measured."""
    for other in rows:
        of_cpp = other.name.startswith("cpp.") and other.name in measured
        if of_cpp and other is not row and other.compared_with == row.compared_with:
            return f"; C++ {ratio(measured[other.name]):.3f}"
    return ""


def quiet_table(data: Data, rows: list[Row]) -> str:
    """Return the table of all rows."""
    measured = {row["name"]: row for row in data["quiet"]["rows"]}
    lines = ["| row | unit | usmq | peer | ratio | target | peer |", "|---" * 7 + "|"]
    for row in rows:
        if row.name not in measured:
            continue
        found = measured[row.name]
        over = target(row, ratio(found), reason=plain(row, measured, rows))
        lines.append(
            f"| `{row.name}` | {found['unit']} | {number(found['usmq'])} | {number(found['peer'])} "
            f"| {ratio(found):.3f} | {over} | {row.peer_name} |"
        )
    return "\n".join(lines) + "\n"


def busy_table(data: Data, rows: list[Row]) -> str:
    """Return the table of the rows that were also measured beside a load."""
    quiet = {row["name"]: row for row in data["quiet"]["rows"]}
    busy = {row["name"]: row for row in data["busy"]["rows"]}
    lines = [
        "| row | unit | usmq | peer | ratio | busy: usmq | peer | ratio | target |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        if row.name not in busy or row.name not in quiet:
            continue
        first, second = quiet[row.name], busy[row.name]
        figures = " | ".join(
            f"{number(found['usmq'])} | {number(found['peer'])} | {ratio(found):.3f}"
            for found in (first, second)
        )
        over = target(row, ratio(first), ratio(second))
        lines.append(f"| `{row.name}` | {first['unit']} | {figures} | {over} |")
    return "\n".join(lines) + "\n"


def guard_table(data: Data, rows: list[Row]) -> str:
    """Return the table of the rows that are slower in the build and the rounds of CI."""
    usual, guard = references(data, MEASURED), references(data, ("guard",))
    lines = ["| row | ratio above | ratio in CI's round |", "|---|---|---|"]
    for row in rows:
        name = row.name
        if not row.not_compared and name in usual and guard[name] > SLOWER * usual[name]:
            lines.append(f"| `{name}` | {usual[name]:.3f} | {guard[name]:.3f} |")
    return "\n".join(lines) + "\n"
