"""usmq says where offloaded work runs, once, and lets the data carry that choice onward.

Queues, arrays in unified shared memory and zero-copy hand-over between libraries, over SYCL
(oneAPI DPC++).

Importing it queries no device and loads no driver; the first question about a device does.

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
        Device,
        DeviceStream,
        DType,
        Event,
        Field,
        Kernel,
        Plan,
        Profile,
        ProfileEvent,
        Queue,
        QueueManager,
        Step,
        Table,
        __version__,
        arange,
        asarray,
        collocate,
        current_queue,
        devices,
        empty,
        explain,
        follow,
        from_arrow,
        from_dlpack,
        full,
        local,
        memory_stats,
        profile,
        read,
        set_default_queue,
        set_memory_limit,
        trim_memory,
        use_queue,
        write,
        zeros,
    )
except ImportError as _missing:
    if ".so" not in str(_missing):
        raise
    # The loader's own message names the library but not the package that brings it.
    raise ImportError(
        f"usmq cannot load the SYCL runtime ({_missing}). "
        "Install it into this environment: pip install 'intel-sycl-rt>=2026.0,<2026.2' umf"
    ) from _missing

__all__ = [
    "AllocationError",
    "Array",
    "Column",
    "Context",
    "DType",
    "Device",
    "DeviceNotFoundError",
    "DeviceStream",
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
    "Profile",
    "ProfileEvent",
    "Queue",
    "QueueManager",
    "RuntimeConflictError",
    "RuntimeNotFoundError",
    "SelectorError",
    "Step",
    "SyclError",
    "Table",
    "__version__",
    "arange",
    "asarray",
    "collocate",
    "current_queue",
    "devices",
    "empty",
    "explain",
    "follow",
    "from_arrow",
    "from_dlpack",
    "full",
    "local",
    "memory_stats",
    "profile",
    "read",
    "set_default_queue",
    "set_memory_limit",
    "trim_memory",
    "use_queue",
    "write",
    "zeros",
]
