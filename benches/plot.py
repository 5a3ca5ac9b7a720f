"""The plot of docs/performance.md: the ratio and the target of each row, on a log scale. Pure."""

from __future__ import annotations

import math
from html import escape

from published import Data, Row, ratio

LABELS, PLOT, FIGURES = 200, 560, 60  # widths of the three columns
STEP, TOP, BOTTOM = 18, 64, 34
WIDTH = LABELS + PLOT + FIGURES
STYLE = """
.b{fill:#ffffff}.t{fill:#1f2328}.s{fill:#59636e}.g{stroke:#d1d9e0}.one{stroke:#59636e}
.ok{fill:#0072b2}.over{fill:#d55e00}.stem{stroke:#59636e;stroke-width:1}
.goal{stroke:#1f2328;stroke-width:2}.stripe{fill:#59636e;opacity:.07}
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Arial,'DejaVu Sans',sans-serif}
.head{font-size:14px;font-weight:650}.end{text-anchor:end}.mid{text-anchor:middle}
@media(prefers-color-scheme:dark){
.b{fill:#131416}.t{fill:#e6edf3}.s{fill:#9198a1}.g{stroke:#3d444d}.one,.stem{stroke:#9198a1}
.ok{fill:#56b4e9}.over{fill:#e69f00}.goal{stroke:#e6edf3}.stripe{fill:#9198a1}}
"""
DIVISIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def svg(data: Data, rows: list[Row]) -> str:
    """Return the picture. It has a background of its own, so it is readable on every page."""
    quiet = {row["name"]: row for row in data["quiet"]["rows"]}
    shown = [row for row in rows if row.name in quiet]
    ratios = [ratio(quiet[row.name]) for row in shown]
    values = [*ratios, *(row.target for row in shown if row.target is not None)]
    low = max((mark for mark in DIVISIONS if mark <= min(values)), default=min(values))
    high = min((mark for mark in DIVISIONS if mark >= max(values)), default=max(values))

    def x(value: float) -> str:
        share = math.log(value / low) / math.log(high / low)
        return f"{LABELS + 8 + share * (PLOT - 16):.1f}"

    bottom = TOP + STEP * len(shown)
    height = bottom + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" style="max-width:100%;height:auto">',
        f"<title>Time of usmq divided by the time of its peer, {len(shown)} rows</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        '<text class="t head" x="12" y="22">usmq / peer, log scale; lower is better</text>',
        f'<text class="s end" x="{WIDTH - 8}" y="22">{escape(data["quiet"]["date"])}, commit '
        f"{escape(data['quiet']['commit'])}</text>",
        *legend(),
    ]
    for mark in DIVISIONS:
        if low <= mark <= high:
            kind = "one" if mark == 1 else "g"
            parts.append(f'<path class="{kind}" d="M{x(mark)} {TOP}V{bottom}"/>')
            parts.append(f'<text class="s mid" x="{x(mark)}" y="{bottom + 16}">{mark:g}</text>')
    for number, (row, value) in enumerate(zip(shown, ratios, strict=True)):
        y = TOP + STEP * number
        middle = y + STEP / 2
        is_over = row.target is not None and value > row.target
        goal = "no target" if row.target is None else f"target {row.target:g}"
        parts.append(f"<g><title>{escape(f'{row.name}: {value:.3f}, {goal}')}</title>")
        if number % 2:
            parts.append(f'<rect class="stripe" y="{y}" width="{WIDTH}" height="{STEP}"/>')
        parts.append(f'<text class="t end" x="{LABELS}" y="{y + 13}">{escape(row.name)}</text>')
        parts.append(f'<path class="stem" d="M{x(1)} {middle:g}H{x(value)}"/>')
        if row.target is not None:
            parts.append(f'<path class="goal" d="M{x(row.target)} {y + 3}v{STEP - 6}"/>')
        parts.append(over(x(value), middle) if is_over else met(x(value), middle))
        parts.append(f'<text class="t end" x="{WIDTH - 8}" y="{y + 13}">{value:.3f}</text></g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def legend() -> list[str]:
    """Return the three signs with their meaning."""
    return [
        met("18", 41),
        '<text class="t" x="28" y="45">within its target</text>',
        over("148", 41),
        '<text class="t" x="158" y="45">over its target</text>',
        '<path class="goal" d="M268 35v12"/>',
        '<text class="t" x="276" y="45">target</text>',
    ]


def met(x: str, y: float) -> str:
    """Return the sign of a row within its target."""
    return f'<circle class="ok" cx="{x}" cy="{y:g}" r="4.5"/>'


def over(x: str, y: float) -> str:
    """Return the sign of a row over its target; the shape differs, too."""
    return f'<path class="over" d="M{x} {y - 6:g}l6 6l-6 6l-6 -6z"/>'
