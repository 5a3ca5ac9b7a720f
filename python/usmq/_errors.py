"""The exceptions of usmq. Some are also the built-in exception that a caller would expect."""


class Error(Exception):
    """Base of every exception that usmq defines."""


class SelectorError(Error, ValueError):
    """A filter string that SYCL would not understand."""


class DeviceNotFoundError(Error):
    """A well-formed filter string that no visible device matches."""


class PlacementError(Error):
    """Arrays and queues that do not go together; the text names the call that fixes it."""


# The built-in one first: it makes its objects in its own way, and tools that remake errors (tblib
# in dask) would ask the other base.
class AllocationError(MemoryError, Error):
    """Memory that could not be had; the text gives the numbers."""


class KernelBuildError(Error):
    """A kernel that does not compile.

    Attributes
    ----------
    log : str
        The compiler's output.
    """

    log: str = ""


class LaunchError(Error):
    """Arguments or ranges that a kernel does not take."""


class InteropError(Error, BufferError):
    """A foreign object that breaks its protocol, or an export that cannot be done."""


class RuntimeNotFoundError(Error):
    """No usable SYCL runtime, driver or optional library."""


class RuntimeConflictError(RuntimeNotFoundError):
    """Two SYCL runtimes in one process."""


class ForkError(Error):
    """A device was used in a process forked after the SYCL runtime had started."""


class SyclError(Error):
    """An error of the SYCL runtime.

    Attributes
    ----------
    code : str
        The name of the ``sycl::errc``, or ``"unknown"``.
    """

    code: str = "unknown"


# Where users find them, and what tracebacks show.
for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "usmq"
