"""The site of `make docs`: complete, no dead links, no network access, no overflow."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import usmq
from browser import open_browser
from conftest import ENVIRONMENT

ROOT = Path(__file__).parents[2]
TOOLS = ("sphinx", "furo", "myst_parser")
RUSTDOC = Path(os.environ.get("USMQ_RUSTDOC", ROOT / "target" / "docs" / "rustdoc"))


@dataclass
class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        found = {name: value for name, value in attrs if value is not None}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        loaded = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
        if (name := loaded.get(tag)) in found and name is not None:
            self.loads.append(found[name])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site like `make docs`, with the Rust reference from the last `cargo doc`."""
    if missing := [tool for tool in TOOLS if importlib.util.find_spec(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}: requirements/test.txt")
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", folder / "doctrees"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "html"],
        env=ENVIRONMENT | {"PYTHONDONTWRITEBYTECODE": "1"},
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    own = [path for path in sorted(site.rglob("*.html")) if not path.is_relative_to(site / "rust")]
    assert len(own) > 25
    return {path: Page(path.read_text(encoding="utf-8")) for path in own}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    yield from open_browser(tmp_path_factory)


def inventory(site):
    """Return the Python names of objects.inv: four plain lines, the rest compressed."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split(" ")[0] for line in lines if line.split(" ")[1].startswith("py:")}


def test_every_public_name_and_member_is_in_the_reference(site):
    classes = {name: cls for name in usmq.__all__ if isinstance(cls := getattr(usmq, name), type)}
    members = {
        f"usmq.{name}.{member}"
        for name, cls in classes.items()
        if not issubclass(cls, BaseException)
        for member in vars(cls)
        if not member.startswith("_")
    }
    names = {f"usmq.{name}" for name in usmq.__all__}
    assert (names | members) - inventory(site) == set(), "name them in docs/reference/"


def test_every_name_in_a_signature_is_documented(site):
    page = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    terms = {
        term for line in re.findall(r"^(.+)\n: ", page, re.MULTILINE) for term in line.split(", ")
    }
    used = set[str]()
    for stub in (ROOT / "python" / "usmq").glob("*.pyi"):
        for function in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                used |= {name.id for name in ast.walk(function) if isinstance(name, ast.Name)}
    private = {name.lstrip("_") for name in used if name.startswith("_")}
    assert {"Target", "ArrayLike"} <= private
    assert private - terms == {"Bound"}, "explain them in docs/reference/index.md"


def test_signatures_have_types(site):
    arrays = (site / "reference" / "arrays.html").read_text(encoding="utf-8")
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", arrays))
    assert "asarray( obj: ArrayLike, dtype: DTypeLike | None = None, *, usm_type:" in plain
    assert "to_numpy() &#x2192; numpy.ndarray" in plain.replace("→", "&#x2192;")
    assert "tuple[int, ...]: Extents" in plain


def test_links_have_existing_targets_or_are_well_formed(site, pages):
    wrong = []
    has_rust = (site / "rust").is_dir()
    for path, page in pages.items():
        name = path.relative_to(site)
        wrong += [f"{name}: {link} is loaded from elsewhere" for link in page.loads if "//" in link]
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme and (parts.scheme != "https" or "." not in parts.netloc):
                    wrong.append(f"{name}: {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_relative_to(site.resolve() / "rust") and not has_rust:
                continue
            place = unquote(parts.fragment)
            if not target.is_file():
                wrong.append(f"{name}: {link}")
            elif place and target in pages and place not in pages[target].anchors:
                wrong.append(f"{name}: {link} has no such place")
    assert wrong == []


def test_every_page_is_reachable_from_the_front_page(site, pages):
    seen, todo = set[Path](), [site / "index.html"]
    while todo:
        path = todo.pop()
        if path in seen or path not in pages:
            continue
        seen.add(path)
        links = (urlsplit(link) for link in pages[path].links)
        todo += [(path.parent / unquote(link.path)).resolve() for link in links if not link.scheme]
    assert {path.name for path in pages.keys() - seen} <= {"search.html"}


@pytest.mark.skipif(not (RUSTDOC / "rust").is_dir(), reason="no Rust reference: make docs")
def test_the_rust_reference_is_part_of_the_site(site):
    crate = (site / "rust" / "usmq" / "index.html").read_text(encoding="utf-8")
    for name in ("with_queue", "Array", "Kernel", "interop"):
        assert name in crate


def test_the_front_page_is_rendered(site, browser):
    browser.open((site / "index.html").as_uri())
    picture = browser.picture()
    assert browser.problems == []
    assert browser.evaluate("document.querySelector('h1').innerText.trim()").startswith("usmq")
    # A blank picture of this size is a few thousand bytes; text does not compress so well.
    assert len(picture) > 30_000


WIDER_THAN_THE_WINDOW = """
[...document.querySelectorAll("article *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (box.width === 0 || box.right <= innerWidth + 1) return false;
  for (let outer = element.parentElement; outer.tagName !== "ARTICLE"; outer = outer.parentElement)
    if (getComputedStyle(outer).overflowX !== "visible") return false;
  return true;
}).map(element => element.outerHTML.slice(0, 200))
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_overflows_its_window(site, pages, browser, width):
    for path in pages:
        browser.open(path.as_uri(), width=width)
        assert browser.problems == [], path
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, path
        assert browser.evaluate(WIDER_THAN_THE_WINDOW) == [], path
        loaded = "performance.getEntriesByType('resource').map(entry => entry.name)"
        assert all(name.startswith("file:") for name in browser.evaluate(loaded)), path


def test_the_search_finds_a_word(site, browser):
    browser.open((site / "search.html").as_uri() + "?q=collocate")
    found = "document.querySelectorAll('#search-results li a').length"
    look = f"const look = () => {found} ? done({found}) : setTimeout(look, 50);"
    assert browser.evaluate(f"new Promise(done => {{ {look} look() }})") > 0
