"""nanoarrow: it crashes where Python reads a column of text views."""

from __future__ import annotations

import nanoarrow
import pyarrow
from outcome import fixed, trying

views = pyarrow.array(["a text of more than twelve bytes", "short"], pyarrow.string_view())
trying()
values = nanoarrow.Array(views).to_pylist()
assert values == views.to_pylist(), values
fixed("the values are read", "tests/python/test_arrow_capsules.py (nanoarrow gets no views)")
