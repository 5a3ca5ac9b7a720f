"""The fenced code blocks of Markdown pages, and a runner for the Python ones of a page.

Marks, as HTML comments in the line before a block:
    <!-- not run: reason -->    the block is shown only
    <!-- file: name -->         the block is the content of a file that later blocks read
The Python blocks of a page share their names. A ``text`` block right after one is what it prints;
``...`` in it stands for anything.
"""

from __future__ import annotations

import doctest
import io
import json
import os
import re
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)$")
MARK = re.compile(r"^ *<!-- (not run|file): (.+?) -->$")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Block:
    """One fenced block."""

    line: int  # of its first line of code
    language: str
    code: str
    mark: str = ""  # "not run" or "file"
    word: str = ""  # the reason, or the file's name
    output: str | None = None  # of the text block that follows


def blocks(page):
    """Return every fenced block of a page, in order."""
    found = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at, before = 0, ""
    follows = False  # nothing but blank lines since the last block
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            if lines[at].strip():
                before, follows = lines[at], False
            at += 1
            continue
        indent, fence, language = opening.groups()
        first = at + 1
        at = first
        while at < len(lines) and lines[at].strip() != fence:
            at += 1
        assert at < len(lines), f"{page.name}:{first}: the block has no end"
        code = "".join(f"{line.removeprefix(indent)}\n" for line in lines[first:at])
        at += 1
        block = Block(first + 1, language.strip(), code)
        if mark := MARK.match(before):
            block.mark, block.word = mark.groups()
        if follows and block.language == "text" and found[-1].language == "python":
            found[-1].output = code
        found.append(block)
        before, follows = "", True
    return found


@dataclass
class Example:
    """The first Python block of a page, and the text before it."""

    commands: str  # of the blocks of the shell
    files: dict[str, str]
    code: str
    output: str  # the output shown on the page


def first_example(page):
    """Return the first Python block of a page, with its shown output."""
    found = blocks(page)
    first = next(at for at, block in enumerate(found) if block.language == "python")
    output = found[first].output
    assert output is not None, f"{page.name}:{found[first].line}: the page does not show the output"
    before = found[:first]
    return Example(
        "".join(block.code for block in before if block.language == "sh"),
        {block.word: block.code for block in before if block.mark == "file"},
        found[first].code,
        output,
    )


def run(page, pieces):
    """Run the Python blocks of a page in order; exit with a report at the first that differs."""
    names = {"__name__": "__main__"}
    for piece in pieces:
        block = Block(**piece)
        if block.mark == "file":
            Path(block.word).write_text(block.code, encoding="utf-8")
            continue
        where = f"{page}:{block.line}"
        if re.search(r"^>>> ", block.code, re.MULTILINE):
            test = doctest.DocTestParser().get_doctest(
                block.code, names, where, page, block.line - 1
            )
            report = []
            if (
                doctest.DocTestRunner(optionflags=FLAGS)
                .run(test, out=report.append, clear_globs=False)
                .failed
            ):
                sys.exit("".join(report))
            names.update(test.globs)
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), names)
        if block.output is not None and not doctest.OutputChecker().check_output(
            block.output, printed.getvalue(), FLAGS
        ):
            sys.exit(f"{where} prints\n{printed.getvalue()}and not\n{block.output}")


def as_input(page, wanted):
    """Return the input of the program below."""
    return json.dumps([page.name, [asdict(block) for block in wanted]])


if __name__ == "__main__":
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    run(*json.load(sys.stdin))
