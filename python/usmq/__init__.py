"""Choose a device once; arrays carry that choice with them.

usmq provides the current queue, arrays in unified shared memory and zero-copy interoperability
between libraries, over SYCL (oneAPI DPC++).

Importing usmq queries no device and loads no driver; the first use of a device does.

Examples
--------
>>> import usmq
>>> with usmq.use_queue("cpu") as q:
...     x = usmq.arange(3)
>>> x.queue == q
True
"""

from usmq._errors import (
    AllocationError,
    DeviceNotFoundError,
    Error,
    ForkError,
    InteropError,
    KernelBuildError,
    LaunchError,
    PlacementError,
    RuntimeConflictError,
    RuntimeNotFoundError,
    SelectorError,
    SyclError,
)

try:
    from usmq._core import (
        Array,
        Column,
        Context,
        CudaArray,
        Device,
        DeviceStream,
        DoctorFinding,
        DoctorReport,
        DType,
        Elementwise,
        Event,
        Field,
        Kernel,
        Plan,
        PointerInfo,
        Profile,
        ProfileEvent,
        Queue,
        QueueManager,
        Reduction,
        Step,
        Table,
        TaskContext,
        TaskMemory,
        __version__,
        arange,
        asarray,
        clear_kernel_cache,
        collocate,
        current_queue,
        devices,
        elementwise,
        empty,
        explain,
        follow,
        from_arrow,
        from_dlpack,
        full,
        local,
        memory_stats,
        pointer_info,
        profile,
        read,
        reduction,
        run_task,
        set_default_queue,
        set_kernel_cache_limit,
        set_memory_limit,
        trim_memory,
        use_queue,
        write,
        zeros,
    )
    from usmq._doctor import doctor
except ImportError as _missing:
    if ".so" not in str(_missing):
        raise
    from usmq._import_error import explained, is_command

    # The command reports this itself.
    if not is_command():
        raise explained(_missing) from _missing

__all__ = [
    "AllocationError",
    "Array",
    "Column",
    "Context",
    "CudaArray",
    "DType",
    "Device",
    "DeviceNotFoundError",
    "DeviceStream",
    "DoctorFinding",
    "DoctorReport",
    "Elementwise",
    "Error",
    "Event",
    "Field",
    "ForkError",
    "InteropError",
    "Kernel",
    "KernelBuildError",
    "LaunchError",
    "PlacementError",
    "Plan",
    "PointerInfo",
    "Profile",
    "ProfileEvent",
    "Queue",
    "QueueManager",
    "Reduction",
    "RuntimeConflictError",
    "RuntimeNotFoundError",
    "SelectorError",
    "Step",
    "SyclError",
    "Table",
    "TaskContext",
    "TaskMemory",
    "__version__",
    "arange",
    "asarray",
    "clear_kernel_cache",
    "collocate",
    "current_queue",
    "devices",
    "doctor",
    "elementwise",
    "empty",
    "explain",
    "follow",
    "from_arrow",
    "from_dlpack",
    "full",
    "local",
    "memory_stats",
    "pointer_info",
    "profile",
    "read",
    "reduction",
    "run_task",
    "set_default_queue",
    "set_kernel_cache_limit",
    "set_memory_limit",
    "trim_memory",
    "use_queue",
    "write",
    "zeros",
]
