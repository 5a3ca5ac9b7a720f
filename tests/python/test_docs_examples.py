"""Python examples of the pages give the shown output; for docstrings see test_docstrings.py."""

import os
import subprocess
import sys
from pathlib import Path

import doc_blocks
import pytest
from conftest import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
BLOCKS = {page.relative_to(ROOT).as_posix(): doc_blocks.blocks(page) for page in PAGES}
# The valid fence languages, so that a misspelt one does not hide a block. Braces are MyST's.
LANGUAGES = {"python", "rust", "cpp", "c", "cmake", "sh", "text", "toml", "yaml", "json"}


def runnable(page):
    return [
        block
        for block in BLOCKS[page]
        if block.mark == "file" or (block.language == "python" and block.mark != "not run")
    ]


def with_python():
    return [page for page in BLOCKS if any(block.language == "python" for block in runnable(page))]


def not_run():
    return [
        pytest.param(block.word, id=f"{page}:{block.line}")
        for page, found in BLOCKS.items()
        for block in found
        if block.mark == "not run"
    ]


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_names_its_language(page):
    for block in BLOCKS[page]:
        known = block.language in LANGUAGES or block.language.startswith("{")
        assert known, f"{page}:{block.line}: {block.language!r}"


NOT_EMULATED = {"docs/tutorial-python.md": "prints the devices of a machine with a CPU alone"}
# With the driver of tests/level_zero.
NOT_ON_LEVEL_ZERO = NOT_EMULATED | {
    "docs/howto/kernels.md": "has a kernel that reads pointers from memory"
}


@pytest.mark.parametrize("page", with_python())
def test_the_examples_of_the_page_give_the_shown_output(page, tmp_path):
    if page in NOT_EMULATED and os.environ.get("USMQ_EMULATE_GPUS"):
        pytest.skip(f"{page} {NOT_EMULATED[page]}, and this run has emulated GPUs")
    if page in NOT_ON_LEVEL_ZERO and os.environ.get("USMQ_LEVEL_ZERO_REPORTS"):
        pytest.skip(f"{page} {NOT_ON_LEVEL_ZERO[page]}")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", doc_blocks.__file__],
        input=doc_blocks.as_input(ROOT / page, runnable(page)),
        # A separate lock folder, so that other clusters on this machine do not interfere.
        env=ENVIRONMENT | {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": os.fspath(tmp_path)},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert os.fspath(tmp_path) not in done.stdout


@pytest.mark.parametrize("reason", not_run())
def test_blocks_that_cannot_run_here_are_listed(reason):
    pytest.skip(reason)


def test_rust_examples_are_doctests_of_the_crate():
    crate = (ROOT / "src" / "lib.rs").read_text(encoding="utf-8")
    pages = [
        page
        for page, found in BLOCKS.items()
        if any(block.language.startswith("rust") and block.mark != "not run" for block in found)
    ]
    assert pages, "no page has Rust"
    for page in pages:
        assert f'include_str!("../{page}")' in crate, f"src/lib.rs does not run the Rust of {page}"


def test_the_runner_detects_a_wrong_output(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    [code, text] = doc_blocks.blocks(page)
    assert (code.output, text.language) == ("2\n", "text")
    with pytest.raises(SystemExit, match=r"page.md:2 prints\n1\nand not\n2"):
        doc_blocks.run(page.name, [vars(code)])
