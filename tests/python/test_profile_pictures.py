"""The timeline and the page in a browser: not blank, no errors, no overlapping text."""

import base64
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import usmq
from browser import open_browser

ROOT = Path(__file__).parents[2]

# The boxes of all texts, and that of the picture.
MEASURE = """(() => {
  const sides = box => [box.left, box.top, box.right, box.bottom];
  const boxes = [...document.querySelectorAll("svg text")].map(
    text => [text.textContent, ...sides(text.getBoundingClientRect())]);
  return [sides(document.querySelector("svg").getBoundingClientRect()), boxes];
})()"""
# The number of colours of a screenshot, and the colour of one pixel.
COLOURS = """new Promise(done => {
  const image = new Image();
  image.onload = () => {
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    const found = new Set();
    for (let at = 0; at < data.length; at += 4)
      found.add(data.slice(at, at + 3).join());
    done([found.size, [...context.getImageData(600, 20, 1, 1).data.slice(0, 3)]]);
  };
  image.src = "data:image/png;base64,PNG";
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    yield from open_browser(tmp_path_factory)


def profile_of_many_things(kernels):
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


def empty_profile(_):
    with usmq.profile() as profile:
        pass
    return profile


def short_profile(_):
    with usmq.profile() as profile:
        usmq.zeros(10)
    return profile


@pytest.fixture(scope="module", params=[profile_of_many_things, empty_profile, short_profile])
def svg(request, kernels, tmp_path_factory):
    path = tmp_path_factory.mktemp("svg") / "run.svg"
    request.param(kernels).save(path)
    return path


def overlapping(texts):
    return [
        (one[0], two[0])
        for one, two in combinations(texts, 2)
        if min(one[3], two[3]) - max(one[1], two[1]) > 0.5
        and min(one[4], two[4]) - max(one[2], two[2]) > 1.5
    ]


def check_texts(browser, folder, html):
    """Check that a page has no error, and no text outside of its picture or over another."""
    page = folder / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{html}", encoding="utf-8")
    browser.open(page.as_uri(), width=1240, height=1400)
    assert browser.problems == []
    (left, top, right, bottom), boxes = browser.evaluate(MEASURE)
    assert len(boxes) >= 2
    assert overlapping(boxes) == []
    for name, x, y, until, below in boxes:
        assert left <= x, name
        assert top <= y, name
        assert until <= right, name
        assert below <= bottom, name


def test_the_search_for_overlapping_text_finds_it():
    boxes = [["a", 0, 0, 50, 12], ["b", 40, 0, 90, 12], ["c", 90, 0, 120, 12], ["d", 0, 12, 50, 24]]
    assert overlapping(boxes) == [("a", "b")]


def test_texts_of_the_picture_do_not_overlap(svg, browser, tmp_path):
    check_texts(browser, tmp_path, svg.read_text(encoding="utf-8"))


def test_the_demo_picture_of_the_readme_is_valid(browser, tmp_path):
    shown = re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", (ROOT / "README.md").read_text("utf-8"))
    assert shown, "the README shows no timeline"
    check_texts(browser, tmp_path, (ROOT / shown[0]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_renders_the_picture(svg, browser, theme):
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    browser.open(svg.as_uri(), width=1200, height=400)
    assert browser.problems == []
    png = base64.b64encode(browser.picture()).decode()
    browser.open("about:blank")
    colours, corner = browser.evaluate(COLOURS.replace("PNG", png))
    assert colours > 20, "the picture is blank"
    assert (sum(corner) < 200) == (theme == "dark"), corner


def test_the_page_for_notebooks_shows_table_and_picture(kernels, browser, tmp_path):
    profile = profile_of_many_things(kernels)
    html = profile._repr_html_()
    assert html is not None
    check_texts(browser, tmp_path, html)
    profile.save(tmp_path / "run.html")
    browser.open((tmp_path / "run.html").as_uri())
    assert browser.problems == []
    assert browser.evaluate("document.querySelectorAll('table').length") == 3
    assert "Kernels" in browser.evaluate("document.body.innerHTML")
