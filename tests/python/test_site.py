"""The site of `make docs`: complete, no dead links, no network access, no overflow."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import usmq
from browser import CHROMIUM, Browser
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

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        loaded = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
        if (name := loaded.get(tag)) in found and name is not None:
            self.loads.append(found[name])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def pages(site: Path) -> dict[Path, Page]:
    own = [path for path in sorted(site.rglob("*.html")) if not path.is_relative_to(site / "rust")]
    assert len(own) > 25
    return {path: Page(path.read_text(encoding="utf-8")) for path in own}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def inventory(site: Path) -> set[str]:
    """Return the Python names of objects.inv: four plain lines, the rest compressed."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split(" ")[0] for line in lines if line.split(" ")[1].startswith("py:")}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    documented = inventory(site)
    names = {f"usmq.{name}" for name in usmq.__all__}
    assert names - documented == set(), "name them on a page of docs/reference/"


def test_every_public_member_is_in_the_reference(site: Path) -> None:
    documented = inventory(site)
    classes = {name: cls for name in usmq.__all__ if isinstance(cls := getattr(usmq, name), type)}
    members = {
        f"usmq.{name}.{member}"
        for name, cls in classes.items()
        if not issubclass(cls, BaseException)
        for member in vars(cls)
        if not member.startswith("_")
    }
    assert members - documented == set()


def test_every_name_in_a_signature_is_documented(site: Path) -> None:
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


def test_signatures_have_types(site: Path) -> None:
    arrays = (site / "reference" / "arrays.html").read_text(encoding="utf-8")
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", arrays))
    assert "asarray( obj: ArrayLike, dtype: DTypeLike | None = None, *, usm_type:" in plain
    assert "to_numpy() &#x2192; numpy.ndarray" in plain.replace("→", "&#x2192;")
    assert "tuple[int, ...]: Extents" in plain


def test_internal_links_have_existing_targets(site: Path, pages: dict[Path, Page]) -> None:
    dead = []
    has_rust = (site / "rust").is_dir()
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_relative_to(site.resolve() / "rust") and not has_rust:
                continue
            if not target.is_file():
                dead.append(f"{path.relative_to(site)}: {link}")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                dead.append(f"{path.relative_to(site)}: {link} has no such place")
    assert dead == []


def test_external_links_are_well_formed(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme and (parts.scheme != "https" or "." not in parts.netloc):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


def test_pages_load_no_external_resources(pages: dict[Path, Page]) -> None:
    foreign = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in page.loads
        if "//" in link
    ]
    assert foreign == []


def test_every_page_is_reachable_from_the_front_page(site: Path, pages: dict[Path, Page]) -> None:
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
def test_the_rust_reference_is_part_of_the_site(site: Path) -> None:
    crate = (site / "rust" / "usmq" / "index.html").read_text(encoding="utf-8")
    for name in ("with_queue", "Array", "Kernel", "interop"):
        assert name in crate


def test_the_front_page_is_rendered(site: Path, browser: Browser) -> None:
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
def test_no_page_overflows_its_window(
    site: Path, pages: dict[Path, Page], browser: Browser, width: int
) -> None:
    for path in pages:
        browser.open(path.as_uri(), width=width)
        assert browser.problems == [], path
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, path
        assert browser.evaluate(WIDER_THAN_THE_WINDOW) == [], path
        loaded = "performance.getEntriesByType('resource').map(entry => entry.name)"
        assert all(name.startswith("file:") for name in browser.evaluate(loaded)), path


def test_the_search_finds_a_word(site: Path, browser: Browser) -> None:
    browser.open((site / "search.html").as_uri() + "?q=collocate")
    found = "document.querySelectorAll('#search-results li a').length"
    look = f"const look = () => {found} ? done({found}) : setTimeout(look, 50);"
    assert browser.evaluate(f"new Promise(done => {{ {look} look() }})") > 0
