"""Types of placement in usmq._core; a stub without a module of this name."""

import builtins
from typing import Any, Literal, TypeAlias, final, overload

from usmq._core import (
    Array,
    Device,
    Queue,
    _ArrayLike,
    _DTypeLike,
    _SupportsCuda,
    _Target,
    _UsmArray,
    _UsmType,
)
from usmq._cuda import CudaArray

_Action: TypeAlias = Literal[
    "keep", "rebind", "copy_direct", "copy_staged", "from_host", "from_cuda", "to_cuda"
]
_CudaLike: TypeAlias = CudaArray | _SupportsCuda

# The general overload comes first, so that it also applies to asarray without device=.
@overload
def asarray(
    obj: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType | None = None,
    queue: _Target | None = None,
    copy: bool | None = None,
    device: Device | Queue | None = None,
) -> Array: ...
@overload
def asarray(
    obj: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: None = None,
    queue: None = None,
    copy: bool | None = None,
    device: Literal["cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"],
) -> CudaArray: ...
@overload
def asarray(
    obj: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType | None = None,
    queue: None = None,
    copy: bool | None = None,
    device: _Target,
) -> Any: ...  # CudaArray for "cuda:N", else Array

@final
class Step:
    @property
    def action(self) -> _Action: ...
    @property
    def bytes(self) -> int: ...
    @property
    def reason(self) -> str: ...

@final
class Plan:
    @property
    def target(self) -> Queue | str: ...
    @property
    def steps(self) -> list[Step]: ...
    @property
    def bytes(self) -> builtins.int: ...

def follow(*arrays: _UsmArray, queue: _Target | None = None) -> Queue: ...

# The general overload comes first, so that it also applies to collocate(*arrays).
@overload
def collocate(
    first: _ArrayLike,
    second: _ArrayLike,
    /,
    *arrays: _ArrayLike,
    like: _UsmArray | None = None,
    queue: _Target | None = None,
) -> tuple[Array, ...]: ...
@overload
def collocate(
    array: _ArrayLike, /, *, like: _UsmArray | None = None, queue: _Target | None = None
) -> Array: ...
@overload
def collocate(
    first: _ArrayLike, second: _ArrayLike, /, *arrays: _ArrayLike, like: _CudaLike
) -> tuple[CudaArray, ...]: ...
@overload
def collocate(array: _ArrayLike, /, *, like: _CudaLike) -> CudaArray: ...
def explain(
    *arrays: _ArrayLike,
    like: _UsmArray | _CudaLike | None = None,
    queue: _Target | None = None,
) -> Plan: ...
