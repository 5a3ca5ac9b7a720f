"""Links to files of the checkout that are no pages: plain text here, links on a code host."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

# Files beside docs/ that the site shows as pages of its own.
PAGES = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-read", _replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _replace(app: Sphinx, doctree: nodes.document) -> None:
    root = Path(app.srcdir).parent
    for kind in (addnodes.download_reference, addnodes.pending_xref):
        for link in list(doctree.findall(kind)):
            if link.get("reftype") != "myst" or link.get("refdomain") is not None:
                continue
            here = Path(app.env.doc2path(link["refdoc"])).parent
            target = (here / link["reftarget"].partition("#")[0]).resolve()
            if not target.is_relative_to(root) or not target.exists():
                continue
            page = PAGES.get(str(target.relative_to(root)))
            if page is None:
                text = nodes.literal(text=link.astext())
            else:
                text = addnodes.pending_xref(
                    "",
                    *link.children,
                    refdomain="std",
                    reftype="doc",
                    reftarget=f"/{page}",
                    refdoc=link["refdoc"],
                    refexplicit=True,
                )
            link.replace_self(text)
