"""Finds misspelled names in expressions of C++ before a worker compiles them."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from pathlib import Path

import usmq

# Text, characters and numbers with their suffixes.
LITERAL = re.compile(r"\"[^\"]*\"|'(?:\\.|[^'\\])'|(?<![\w.])\.?\d(?:[eEpP][+-]|[\w.'])*")
# The global namespace and that of the functions, which kernels need not write.
OURS = re.compile(r"(?<![\w:>])(?:usmq\s*)?::\s*")
# A name that is neither a member nor in a namespace, and what follows it.
NAME = re.compile(r"(?<![\w.])(?<!->)(?<!::)([^\W\d]\w*)\s*(\(|::)?")
OPERATORS = {"and", "bitand", "bitor", "compl", "not", "not_eq", "or", "xor"}
KEYWORDS = OPERATORS | {
    *re.findall(
        r"\w+",
        "alignof auto bool char char16_t char32_t const const_cast constexpr decltype double "
        "dynamic_cast false float int long noexcept nullptr reinterpret_cast short signed sizeof "
        "static_cast true typename unsigned void volatile wchar_t",
    )
}
# Words of statements that a bracket may follow, or a call.
STATEMENTS = {"case", "do", "else", "for", "if", "return", "static_assert", "switch", "while"}
# Names that kernel.h defines: by these macros, as functions, types and class templates.
DEFINED = re.compile(
    r"USMQ_(?:MATH_\d|POSITION|LINEAR|ATOMIC)\((\w+)|USMQ_INLINE [^\n(]*? (\w+)\(|using (\w+) ="
    r"|^(?:template <.*> )?(?:struct|class) (?:\[\[.*\]\] )?(\w+)",
    re.MULTILINE,
)
# The functions of groups, whose names macros of kernel.h compose.
GROUPS = ["group_any", "group_all"] + [
    f"group_{kind}_{name}"
    for kind in ("reduce", "inclusive", "exclusive")
    for name in ("add", "min", "max")
]
# The namespaces and class bodies whose names an expression does not use.
PRIVATE = re.compile(
    r"^namespace (detail|debug) .*?^\} // namespace \1|^public:.*?^\};", re.MULTILINE | re.DOTALL
)


@functools.cache
def kernel_names() -> frozenset[str]:
    """Return the names that an expression may use without a namespace: those of kernel.h."""
    header = Path(usmq.__file__).parent / "include" / "usmq" / "kernel.h"
    text = PRIVATE.sub("", header.read_text(encoding="utf-8"))
    found = {
        name for names in DEFINED.findall(text) for name in names if name[-1:] not in ("", "_")
    }
    vectors = re.findall(r"^USMQ_VECTOR_TYPES\((\w+)", text, re.MULTILINE)
    vectors = [f"{name}{size}" for name in vectors for size in (2, 3, 4)]
    groups = [prefix + name for prefix in ("", "sub_") for name in GROUPS]
    # Two are parameters of macros.
    return frozenset({*found, *vectors, *groups, "detail"} - {"name", "op"})


def check_names(text: str, known: Iterable[str], listed: Iterable[str]) -> None:
    """Check that an expression uses only known names, functions and types.

    An expression with statements or a lambda may declare names. Of its names, only the functions
    that it calls and does not declare are checked.

    Raises
    ------
    ValueError
        A name is unknown; the text lists the names in `listed`.
    """
    bare = OURS.sub("", LITERAL.sub("0", text))
    found, names, declared = [*NAME.finditer(bare)], set(known), set(STATEMENTS)
    if "{" in bare:
        declared |= {match[1] for match in found if not match[2] or is_declared(bare, match)}
    for name, follows in (match.groups(default="") for match in found):
        of_compiler = name.startswith(("__", "_Float", "USMQ_"))
        if name in declared or name in KEYWORDS or name in kernel_names() or of_compiler:
            continue
        if follows or name not in names:
            raise ValueError(unknown(text, name, follows, [*names, *listed], listed))


def is_declared(bare: str, name: re.Match[str]) -> bool:
    """Return whether a name follows a type, as in ``int k(3)``."""
    before = re.search(r"(\w+)\s+$", bare[: name.start()])
    return before is not None and before[1] not in STATEMENTS | OPERATORS


def unknown(text: str, name: str, follows: str, names: Iterable[str], listed: Iterable[str]) -> str:
    """Return the text of the error for a name."""
    is_unknown = f"{name!r} in the expression {text!r} is unknown"
    if follows == "::":
        return f"{is_unknown}; functions of usmq/kernel.h need no namespace, as in 'sqrt(x[i])'"
    close = difflib.get_close_matches(name, sorted(kernel_names() if follows else {*names}), 1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    if follows:
        return f"the function {is_unknown}{meant} (functions: those of usmq/kernel.h)"
    return f"{is_unknown}{meant} (names: {', '.join(listed) or 'none'})"
