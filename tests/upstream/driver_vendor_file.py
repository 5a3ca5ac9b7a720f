"""CPU driver: the vendor file of the wheel names a path that does not exist: no device is found."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from outcome import fixed, not_tried, seen

files = importlib.metadata.files("intel-opencl-rt") or []
vendors = [Path(file.locate()) for file in files if file.name == "intel-cpu.icd"]
if not vendors:
    not_tried("the wheel has no intel-cpu.icd")
named = Path(vendors[0].read_text().strip())
if named.exists():
    fixed(f"{named} exists", "src/runtime/environment.rs (name_driver)")
seen(f"{vendors[0].name} names {named}")
