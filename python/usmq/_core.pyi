"""Types of the extension module of usmq; names with an underscore are for type checkers only."""

import builtins
import ctypes
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, CapsuleType

from usmq._capture import Graph, capture
from usmq._cuda import CudaArray
from usmq._device import Device, Platform, devices, layers, platforms
from usmq._interop import (
    ArrayView,
    Column,
    ColumnView,
    DeviceStream,
    Field,
    Lent,
    Table,
    TableView,
    _UsmInterface,
    from_arrow,
    from_dlpack,
)
from usmq._join import concatenate, expand_dims, squeeze, stack
from usmq._memory import (
    live_allocations,
    memory_stats,
    record_allocations,
    set_memory_limit,
    set_relief,
    trim_memory,
)
from usmq._pickle import (
    fill_frame,
    observe_pickles,
    pack_in_place,
    restore_array,
    restore_column,
    restore_field,
    restore_queue,
    restore_table,
)
from usmq._placement import Plan, Step, _CudaLike, asarray, collocate, explain, follow
from usmq._profile import Profile, ProfileEvent, profile, watch_calls
from usmq._report import DoctorFinding, DoctorReport, examine
from usmq._task import TaskContext, TaskMemory, run_task
from usmq._timestamps import Timestamps

# fmt: off
__all__ = [
    "Array", "ArrayView", "Column", "ColumnView", "Context", "CudaArray", "DType", "Device",
    "DeviceStream", "DoctorFinding", "DoctorReport", "Elementwise", "Event", "Field", "Graph",
    "Kernel", "Lent", "Local", "Mark", "Plan", "Platform", "PointerInfo", "Profile", "ProfileEvent",
    "Queue", "QueueManager", "Reduction", "Step", "Table", "TableView", "TaskContext", "TaskMemory",
    "Timer", "UseQueue", "__version__", "_finish_commands", "_knows_owners_of", "arange", "asarray",
    "capture", "clear_kernel_cache", "collocate", "concatenate", "current_queue", "devices",
    "dpctl_queue", "elementwise", "empty", "empty_like", "examine", "expand_dims", "explain",
    "fill_frame", "follow", "from_arrow", "from_dlpack", "full", "full_like", "layers",
    "live_allocations", "local", "memory_stats", "observe_pickles", "ones", "ones_like",
    "pack_in_place", "platform_problems", "platforms", "pointer_info", "prepare_emulation",
    "profile", "read", "record_allocations", "reduction", "restore_array", "restore_column",
    "restore_field", "restore_queue", "restore_table", "run_task", "runtime_libraries",
    "set_default_queue", "set_kernel_cache_limit", "set_memory_limit", "set_relief", "squeeze",
    "stack", "trim_memory", "use_queue", "watch_calls", "write", "zeros", "zeros_like",
]
# fmt: on

__version__: str

# --- types of arguments

_Function = TypeVar("_Function", bound=Callable[..., Any])

class _SupportsGetCapsule(Protocol):
    """Another library's queue or context."""

    def _get_capsule(self) -> CapsuleType: ...

class _SupportsUsm(Protocol):
    """Another library's array."""

    @property
    def __sycl_usm_array_interface__(self) -> Mapping[str, Any]: ...

class _SupportsCuda(Protocol):
    """Another library's array in CUDA memory."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

_Target: TypeAlias = str | Device | Queue | _SupportsGetCapsule | CapsuleType
_UsmType: TypeAlias = Literal["device", "shared", "host"]
_MemoryType: TypeAlias = Literal["device", "shared", "host", "system"]
_DTypeLike: TypeAlias = (
    str
    | DType
    | np.dtype[Any]
    | type[np.generic]
    | type[bool]
    | type[int]
    | type[float]
    | type[complex]
)
_ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]

_Real: TypeAlias = float | np.floating[Any] | np.integer[Any] | np.bool_
_Number: TypeAlias = complex | np.number[Any] | np.bool_
_Numbers: TypeAlias = Sequence[_Number | _Numbers]
_UsmArray: TypeAlias = Array | _SupportsUsm
_KernelArg: TypeAlias = (
    _UsmArray
    | Buffer
    | npt.NDArray[Any]
    | _Number
    | tuple[_Number, ...]
    | np.void
    | ctypes.Structure
    | ctypes.Union
    | Mark
    | Local
)
_ArrayLike: TypeAlias = (
    _UsmArray | CudaArray | _SupportsCuda | Buffer | npt.NDArray[Any] | _Number | _Numbers
)

_Bound: TypeAlias = SupportsIndex | None
_IndexPart: TypeAlias = SupportsIndex | slice[_Bound, _Bound, _Bound] | EllipsisType | None
_Axes: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
_Index: TypeAlias = _IndexPart | tuple[_IndexPart, ...]

# --- devices and queues

@final
class Context:
    def __new__(cls, devices: Sequence[Device]) -> Context: ...
    @property
    def devices(self) -> list[Device]: ...
    def _get_capsule(self) -> CapsuleType: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class PointerInfo:
    @property
    def kind(self) -> _UsmType: ...
    @property
    def device(self) -> Device: ...
    @property
    def base(self) -> int | None: ...
    @property
    def nbytes(self) -> int | None: ...

def pointer_info(ptr: int, context: Context | _SupportsGetCapsule) -> PointerInfo | None: ...

@final
class Queue:
    def __new__(
        cls,
        target: _Target | None = None,
        *,
        context: Context | _SupportsGetCapsule | CapsuleType | None = None,
        in_order: bool | None = None,
        profiling: bool | None = None,
        priority: Literal["high", "normal", "low"] | None = None,
    ) -> Queue: ...
    @property
    def priority(self) -> Literal["high", "normal", "low"]: ...
    def barrier(self, after: Sequence[Event] | None = None) -> Event: ...
    @property
    def device(self) -> Device: ...
    @property
    def context(self) -> Context: ...
    @property
    def in_order(self) -> bool: ...
    @property
    def profiling(self) -> bool: ...
    def wait(self) -> None: ...
    def _get_capsule(self) -> CapsuleType: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object) -> Self: ...

@final
class Event:
    @property
    def timestamps(self) -> Timestamps: ...
    @property
    def queue(self) -> Queue: ...
    def wait(self) -> None: ...
    def done(self) -> bool: ...
    def add_done_callback(self, function: Callable[[Event], object]) -> None: ...
    def _wake(self, function: Callable[[Event], object]) -> None: ...
    def __await__(self) -> Generator[Any]: ...

@final
class Timer:
    def __new__(cls, queue: _Target | None = None) -> Timer: ...
    def __enter__(self) -> Timer: ...
    def __exit__(self, *_exception: object) -> Literal[False]: ...
    @property
    def host_s(self) -> float: ...
    @property
    def device_s(self) -> float: ...
    @property
    def queue(self) -> Queue: ...

@final
class UseQueue:
    def __enter__(self) -> Queue: ...
    def __exit__(self, *_exception: object) -> Literal[False]: ...
    def __call__(self, function: _Function) -> _Function: ...

@final
class QueueManager:
    def __new__(cls, name: str) -> QueueManager: ...
    @property
    def name(self) -> str: ...
    def current_queue(self) -> Queue: ...
    def use_queue(self, target: _Target | None) -> UseQueue: ...
    def set_default_queue(self, target: _Target | None) -> None: ...

def platform_problems() -> list[tuple[str, str]]: ...
def prepare_emulation() -> None: ...
def _finish_commands(number: int) -> None: ...
def _knows_owners_of(class_: type) -> bool: ...
def runtime_libraries(prefix: str) -> list[str]: ...
def current_queue() -> Queue: ...
def use_queue(target: _Target | None) -> UseQueue: ...
def set_default_queue(target: _Target | None) -> None: ...
def dpctl_queue(target: _Target | None = None) -> Any: ...  # a dpctl.SyclQueue

# --- arrays

@final
class DType:
    def __new__(cls, dtype: _DTypeLike, /) -> DType: ...
    @property
    def name(self) -> builtins.str: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def str(self) -> builtins.str | None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def __numpy_dtype__(self) -> np.dtype[Any]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def __numpy_dtype__(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def usm_type(self) -> _MemoryType: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def device(self) -> Device: ...
    @property
    def ptr(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def T(self) -> Array: ...
    @property
    def real(self) -> Array: ...
    @property
    def imag(self) -> Array: ...
    def transpose(self, *axes: SupportsIndex | Iterable[SupportsIndex]) -> Array: ...
    def reshape(self, *shape: SupportsIndex | Iterable[SupportsIndex]) -> Array: ...
    def ravel(self) -> Array: ...
    def flatten(self) -> Array: ...
    def squeeze(self, axis: _Axes | None = None) -> Array: ...
    def expand_dims(self, axis: _Axes) -> Array: ...
    def to(
        self,
        target: _Target | None = None,
        *,
        dtype: _DTypeLike | None = None,
        usm_type: _UsmType | None = None,
        device: _Target | None = None,
    ) -> Array: ...
    @overload
    def collocate(self, other: _UsmArray) -> Array: ...
    @overload
    def collocate(self, other: _CudaLike) -> CudaArray: ...
    def __getitem__(self, key: _Index, /) -> Array: ...
    def __setitem__(self, key: _Index, value: _ArrayLike, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Array]: ...
    def astype(self, dtype: _DTypeLike) -> Array: ...
    def copy(self) -> Array: ...
    def copy_from(self, source: _ArrayLike) -> None: ...
    def fill(self, value: _Number) -> None: ...
    def prefetch(self, queue: _Target | None = None) -> Event: ...
    def mem_advise(self, advice: int, queue: _Target | None = None) -> Event: ...
    def wait(self) -> None: ...
    def __dlpack__(
        self,
        *,
        stream: Queue | _SupportsGetCapsule | CapsuleType | int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    __dlpack_c_exchange_api__: ClassVar[CapsuleType]
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_device_array__(
        self,
        requested_schema: CapsuleType | None = None,
        *,
        wait: bool | None = None,
        **kwargs: None,
    ) -> tuple[CapsuleType, CapsuleType]: ...
    def to_numpy(self) -> npt.NDArray[Any]: ...
    def tolist(self) -> Any: ...  # nested lists, or a number without axes
    def item(self) -> Any: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __contains__(self, _value: object, /) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...  # TypeError for arrays and numbers
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: object, /) -> NoReturn: ...
    def __le__(self, other: object, /) -> NoReturn: ...
    def __gt__(self, other: object, /) -> NoReturn: ...
    def __ge__(self, other: object, /) -> NoReturn: ...
    def __hash__(self) -> int: ...
    def __array__(
        self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def host_view(self) -> ArrayView: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def __sycl_usm_array_interface__(self) -> _UsmInterface: ...
    @property
    def __usm_ndarray__(self) -> Any: ...  # a dpnp.tensor.usm_ndarray
    @property
    def sycl_queue(self) -> Any: ...  # a dpctl.SyclQueue
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object) -> Self: ...

def empty(
    shape: _ShapeLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType = "device",
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def zeros(
    shape: _ShapeLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType = "device",
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def ones(
    shape: _ShapeLike,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType = "device",
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def full(
    shape: _ShapeLike,
    value: _Number,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType = "device",
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def arange(
    start: _Real,
    stop: _Real | None = None,
    step: _Real | None = None,
    dtype: _DTypeLike | None = None,
    *,
    usm_type: _UsmType = "device",
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def empty_like(
    x: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    shape: _ShapeLike | None = None,
    usm_type: _UsmType | None = None,
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def zeros_like(
    x: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    shape: _ShapeLike | None = None,
    usm_type: _UsmType | None = None,
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def ones_like(
    x: _ArrayLike,
    dtype: _DTypeLike | None = None,
    *,
    shape: _ShapeLike | None = None,
    usm_type: _UsmType | None = None,
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...
def full_like(
    x: _ArrayLike,
    value: _Number,
    dtype: _DTypeLike | None = None,
    *,
    shape: _ShapeLike | None = None,
    usm_type: _UsmType | None = None,
    queue: _Target | None = None,
    device: _Target | None = None,
) -> Array: ...

# --- kernels

@final
class Mark: ...

@final
class Local: ...

_Param: TypeAlias = _DTypeLike | Mark | Local

@final
class Kernel:
    @staticmethod
    def from_sycl(
        source: str,
        name: str,
        *,
        options: Sequence[str] = ...,
        params: Iterable[_Param] | None = None,
        queue: _Target | None = None,
        debug: bool = False,
    ) -> Kernel: ...
    @staticmethod
    def from_opencl(
        source: str,
        name: str,
        *,
        options: Sequence[str] = ...,
        params: Iterable[_Param] | None = None,
        queue: _Target | None = None,
    ) -> Kernel: ...
    @staticmethod
    def from_spirv(
        module: bytes,
        name: str,
        *,
        params: Iterable[_Param] | None = None,
        queue: _Target | None = None,
    ) -> Kernel: ...
    @property
    def name(self) -> str: ...
    @property
    def debug(self) -> bool: ...
    def __call__(
        self,
        global_size: _ShapeLike,
        *args: _KernelArg,
        local_size: _ShapeLike | None = None,
        queue: _Target | None = None,
    ) -> Event: ...

@final
class Elementwise:
    @property
    def name(self) -> str: ...
    def __call__(
        self,
        *args: _UsmArray | Buffer | npt.NDArray[Any] | _Number | Mark,
        size: SupportsIndex | None = None,
        queue: _Target | None = None,
    ) -> Event: ...

@final
class Reduction:
    @property
    def name(self) -> str: ...
    def __call__(
        self,
        *args: _UsmArray | Buffer | npt.NDArray[Any] | _Number | Mark,
        axis: SupportsIndex | None = None,
        keepdims: bool = False,
        queue: _Target | None = None,
    ) -> Array: ...

def elementwise(
    params: str,
    operation: str,
    *,
    name: str = "elementwise",
    preamble: str = "",
    options: Sequence[str] = ...,
    queue: _Target | None = None,
) -> Elementwise: ...
def reduction(
    params: str,
    result: str,
    map: str,
    combine: str,
    identity: str,
    *,
    post: str = "",
    deterministic: bool = False,
    name: str = "reduction",
    preamble: str = "",
    options: Sequence[str] = ...,
    queue: _Target | None = None,
) -> Reduction: ...
def read(x: _UsmArray | Buffer | npt.NDArray[Any] | _DTypeLike) -> Mark: ...
def write(x: _UsmArray | Buffer | npt.NDArray[Any] | _DTypeLike) -> Mark: ...
def local(size: _ShapeLike, dtype: _DTypeLike | None = None) -> Local: ...
def set_kernel_cache_limit(bytes: SupportsIndex | str | None) -> None: ...
def clear_kernel_cache() -> None: ...
