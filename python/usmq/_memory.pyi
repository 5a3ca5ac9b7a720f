"""Types of memory statistics in usmq._core; a stub without a module of this name."""

from typing import SupportsIndex, TypedDict

from usmq._core import _Target, _UsmType

class _MemoryStats(TypedDict):
    used: int
    reserved: int
    peak: int
    limit: int | None
    live: int
    hits: int
    misses: int

def memory_stats(device: _Target | None = None) -> dict[_UsmType, _MemoryStats]: ...
def set_memory_limit(
    bytes: SupportsIndex | None, device: _Target | None = None, usm_type: _UsmType | None = None
) -> None: ...
def trim_memory(device: _Target | None = None) -> None: ...
