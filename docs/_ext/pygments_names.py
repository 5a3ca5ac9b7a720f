"""The words after ``` that rustdoc knows, for Pygments, which colours the same blocks."""

from __future__ import annotations

from pygments.lexers.rust import RustLexer
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    for name in ("rust,no_run", "rust,should_panic", "rust,compile_fail"):
        app.add_lexer(name, RustLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
