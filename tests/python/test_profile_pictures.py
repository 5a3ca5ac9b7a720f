"""The timeline and the page in a browser: not blank, no errors, no overlapping text."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import usmq

ROOT = Path(__file__).parents[2]

# Writes the boxes of all texts into the page, where --dump-dom shows them.
MEASURE = """
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg text")].map(text => {
    const box = text.getBoundingClientRect();
    return [text.textContent, box.left, box.top, box.right, box.bottom];
  });
  const svg = document.querySelector("svg").getBoundingClientRect();
  const place = document.createElement("pre");
  place.id = "measured";
  place.textContent = JSON.stringify({boxes, svg: [svg.left, svg.top, svg.right, svg.bottom]});
  document.body.append(place);
});
"""


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[str, str]]:
    """Return a call that opens a file in a headless browser and gives its output and complaints."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs chromium, and there is none")

    def run(page: Path, *options: str) -> tuple[str, str]:
        folder = tmp_path_factory.mktemp("browser")
        command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}", "--virtual-time-budget=3000"]
        command += ["--enable-logging=stderr", "--log-level=0", *options, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def profile_of_many_things(kernels: SimpleNamespace) -> usmq.Profile:
    queues = [usmq.Queue(), usmq.Queue(profiling=True), usmq.Queue(in_order=False, profiling=True)]
    with usmq.profile() as profile:
        arrays = [usmq.asarray(np.ones(100_000, "f4"), queue=queue) for queue in queues]
        for _ in range(3):
            for x, y in zip(arrays, arrays[1:] + arrays[:1], strict=True):
                kernels.axpy(x.size, 0.5, x, y, x.size, queue=y.queue)
        for round_ in range(300):
            arrays[0][:100].fill(round_)
        arrays[1].reshape(100, 1000).T.to_numpy()
        arrays[2].astype("f8").to_numpy()
        usmq.asarray(np.ones(1000, "f4"), queue=queues[1])[::2].copy().wait()
        for device in usmq.devices():
            if device.has_usm("device"):
                usmq.collocate(arrays[0], queue=device).to_numpy()
    return profile


def empty_profile(_: SimpleNamespace) -> usmq.Profile:
    with usmq.profile() as profile:
        pass
    return profile


def short_profile(_: SimpleNamespace) -> usmq.Profile:
    with usmq.profile() as profile:
        usmq.zeros(10)
    return profile


@pytest.fixture(scope="module", params=[profile_of_many_things, empty_profile, short_profile])
def svg(
    request: pytest.FixtureRequest,
    kernels: SimpleNamespace,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("svg") / "run.svg"
    request.param(kernels).save(path)
    return path


def console(complaints: str) -> list[str]:
    return [line for line in complaints.splitlines() if "CONSOLE" in line]


def overlapping(measured: dict[str, list[list[float]]]) -> list[tuple[str, str]]:
    texts = [(str(name), *map(float, box)) for name, *box in measured["boxes"]]
    return [
        (one[0], two[0])
        for one, two in combinations(texts, 2)
        if min(one[3], two[3]) - max(one[1], two[1]) > 0.5
        and min(one[4], two[4]) - max(one[2], two[2]) > 1.5
    ]


def measure(page: Path, chromium: Callable[..., tuple[str, str]]) -> dict[str, list[list[float]]]:
    dom, complaints = chromium(page, "--dump-dom", "--window-size=1240,1400")
    assert console(complaints) == []
    found = re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-2000:]
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    measured: dict[str, list[list[float]]] = json.loads(text)
    return measured


def check_boxes(measured: dict[str, list[list[float]]]) -> None:
    assert len(measured["boxes"]) >= 2
    assert overlapping(measured) == []
    left, top, right, bottom = measured["svg"]  # type: ignore[misc]
    for name, x, y, until, below in measured["boxes"]:
        assert left <= x, name
        assert top <= y, name
        assert until <= right, name
        assert below <= bottom, name


def test_the_search_for_overlapping_text_finds_it() -> None:
    boxes = [["a", 0, 0, 50, 12], ["b", 40, 0, 90, 12], ["c", 90, 0, 120, 12], ["d", 0, 12, 50, 24]]
    assert overlapping({"boxes": boxes}) == [("a", "b")]  # type: ignore[dict-item]


def test_texts_of_the_picture_do_not_overlap(
    svg: Path, chromium: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    page = tmp_path / "measure.html"
    text = svg.read_text(encoding="utf-8")
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{text}<script>{MEASURE}</script>")
    check_boxes(measure(page, chromium))


def test_the_demo_picture_of_the_readme_is_valid(
    chromium: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", (ROOT / "README.md").read_text("utf-8"))
    assert shown, "the README shows no timeline"
    page = tmp_path / "measure.html"
    text = (ROOT / shown[0]).read_text(encoding="utf-8")
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{text}<script>{MEASURE}</script>")
    check_boxes(measure(page, chromium))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_renders_the_picture(
    svg: Path, chromium: Callable[..., tuple[str, str]], tmp_path: Path, theme: str
) -> None:
    shot = tmp_path / "shot.png"
    options = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    _, complaints = chromium(
        svg, f"--screenshot={shot}", "--window-size=1200,400", *(options if theme == "dark" else [])
    )
    assert console(complaints) == []
    rows = pixels(shot)
    colours = {pixel for row in rows for pixel in zip(*[iter(row)] * 3, strict=True)}
    assert len(colours) > 20, "the picture is blank"
    corner = rows[20][3 * 600 : 3 * 600 + 3]
    assert (sum(corner) < 200) == (theme == "dark"), corner


def test_the_page_for_notebooks_shows_table_and_picture(
    kernels: SimpleNamespace, chromium: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    profile = profile_of_many_things(kernels)
    html = profile._repr_html_()
    assert html is not None
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><body>{html}<script>{MEASURE}</script>", "utf-8"
    )
    check_boxes(measure(page, chromium))
    profile.save(tmp_path / "run.html")
    dom, complaints = chromium(tmp_path / "run.html", "--dump-dom")
    assert console(complaints) == []
    assert dom.count("<table>") == 3
    assert "Kernels" in dom


def pixels(png: Path) -> list[bytes]:
    """The rows of a picture as bytes of red, green and blue."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, body, header = 8, b"", b""
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, chunk = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        header = chunk if kind == b"IHDR" else header
        body += chunk if kind == b"IDAT" else b""
        place += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    assert depth == 8
    step = {2: 3, 6: 4}[colour]
    raw, rows, before = zlib.decompress(body), [], bytearray(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        row = bytearray(raw[start + 1 : start + 1 + width * step])
        unfilter(raw[start], row, before, step)
        before = row
        rows.append(bytes(value for at, value in enumerate(row) if at % step < 3))
    return rows


def unfilter(method: int, row: bytearray, above: bytearray, step: int) -> None:
    for at in range(len(row)):
        left = row[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        up = above[at]
        nearest = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
        guess = (0, left, up, (left + up) // 2, nearest)[method]
        row[at] = (row[at] + guess) & 255
