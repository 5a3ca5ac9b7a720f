"""Types of memory statistics in usmq._core; a stub without a module of this name."""

from collections.abc import Callable
from typing import SupportsIndex, TypedDict

from usmq._core import Device, _Target, _UsmType

class _MemoryStats(TypedDict):
    used: int
    reserved: int
    peak: int
    limit: int | None
    live: int
    hits: int
    misses: int

def memory_stats(device: _Target | None = None) -> dict[_UsmType, _MemoryStats]: ...

class _LiveAllocation(TypedDict):
    bytes: int
    usm_type: _UsmType
    device: Device
    source: str | None
    seconds: float

def record_allocations(enabled: bool = True) -> None: ...
def live_allocations() -> list[_LiveAllocation]: ...
def set_memory_limit(
    bytes: SupportsIndex | str | None,
    device: _Target | None = None,
    usm_type: _UsmType | None = None,
) -> None: ...
def trim_memory(device: _Target | None = None) -> None: ...
def set_relief(make_room: Callable[[Device, _UsmType, int], bool] | None) -> None: ...
