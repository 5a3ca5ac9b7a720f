"""dpctl: memory that can be written says "read-only" in `__sycl_usm_array_interface__`."""

from __future__ import annotations

from dpctl.memory import MemoryUSMShared
from outcome import fixed, seen

memory = MemoryUSMShared(64)
memory.copy_from_host(b"\1" * 64)  # it can be written
_, readonly = memory.__sycl_usm_array_interface__["data"]
if readonly:
    seen("the flag of writable memory is True")
fixed("the flag of writable memory is False", "src/python/suai.rs (is_dpctl_memory)")
