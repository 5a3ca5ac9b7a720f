"""Finds misspelled names in expressions of C++ before a worker compiles them. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# Text, characters and numbers with their suffixes.
LITERAL = re.compile(r"\"[^\"]*\"|'(?:\\.|[^'\\])'|(?<![\w.])\.?\d(?:[eEpP][+-]|[\w.'])*")
# A name that is neither a member nor in a namespace, and what follows it.
NAME = re.compile(r"(?<![\w.])(?<!->)(?<!::)([^\W\d]\w*)\s*(\(|::)?")
KEYWORDS = {
    *re.findall(
        r"\w+",
        "alignof and auto bitand bitor bool char char8_t char16_t char32_t compl const const_cast "
        "constexpr decltype double dynamic_cast false float half int long not not_eq nullptr or "
        "reinterpret_cast short signed sizeof static_cast true typename unsigned void volatile "
        "wchar_t xor ",
    )
}


def check_names(text: str, known: Iterable[str], listed: Iterable[str]) -> None:
    """Check that an expression uses only known names, functions, types and macros.

    Functions are not checked, nor is an expression with statements or a lambda, which may have
    names of its own.

    Raises
    ------
    ValueError
        A name is unknown; the text lists the names in `listed`.
    """
    bare = LITERAL.sub("0", text)
    if "{" in bare:
        return
    names = set(known)
    for name, follows in NAME.findall(bare):
        # Macros, as M_PI, and types, as uint32_t.
        if follows or name in names or name in KEYWORDS or name.isupper() or name.endswith("_t"):
            continue
        close = difflib.get_close_matches(name, [*names, *listed], 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        shown = ", ".join(listed) or "none"
        raise ValueError(f"{name!r} in the expression {text!r} is unknown{meant} (names: {shown})")
