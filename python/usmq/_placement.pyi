"""Types of placement in usmq._core; a stub without a module of this name."""

import builtins
from typing import Literal, TypeAlias, final, overload

from usmq._core import (
    Array,
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
    device: None = None,
) -> Array: ...
@overload
def asarray(
    obj: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: None = None,
    queue: None = None,
    copy: bool | None = None,
    device: str,
) -> CudaArray: ...

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
