"""How the site is built: Sphinx over these pages and the docstrings of the installed usmq."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import usmq

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "usmq"
author = "the usmq contributors"
copyright = author
version = release = usmq.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "outside_links",
    "pygments_names",
    "stub_signatures",
]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

autodoc_member_order = "groupwise"
napoleon_google_docstring = False
napoleon_use_rtype = False
maximum_signature_line_length = 80
python_display_short_literal_types = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"usmq {release}"
html_static_path = ["_static"]
html_css_files = ["usmq.css"]
html_show_sphinx = False
html_copy_source = False
# `make docs` puts the Rust reference here; without it the site has none.
RUSTDOC = Path(os.environ.get("USMQ_RUSTDOC", HERE.parent / "target" / "docs" / "rustdoc"))
html_extra_path = [str(RUSTDOC)] if (RUSTDOC / "rust").is_dir() else []
