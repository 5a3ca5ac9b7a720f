"""Types of the functions that pickles call in usmq._core; a stub without a module of this name."""

from collections.abc import Callable
from typing import Literal

from typing_extensions import Buffer

from usmq._core import Array, Queue, _MemoryType
from usmq._interop import Column, Field, Table

def observe_pickles(
    observer: Callable[[Literal["device-to-host", "host-to-device"], int], object] | None,
) -> None: ...
def fill_frame(array: Array, target: Buffer) -> None: ...
def pack_in_place(object: Column | Table) -> tuple[bytes, _MemoryType | None, list[Array]]: ...
def restore_array(
    format: int,
    dtype: str,
    shape: tuple[int, ...],
    usm_type: _MemoryType,
    readonly: bool,
    frame: Buffer,
    *,
    shared: bool = False,
) -> Array: ...
def restore_column(
    header: bytes, *frames: Buffer, shared: bool = False, in_place: bool = False
) -> Column: ...
def restore_field(header: bytes) -> Field: ...
def restore_queue(
    format: int, target: str, in_order: bool, profiling: bool, priority: str
) -> Queue: ...
def restore_table(
    header: bytes, *frames: Buffer, shared: bool = False, in_place: bool = False
) -> Table: ...
