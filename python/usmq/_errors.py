"""The exceptions of usmq. Some also derive from the built-in exception that a caller expects."""


class Error(Exception):
    """Base of every exception that usmq defines."""


class SelectorError(Error, ValueError):
    """A filter string with invalid SYCL syntax."""


class DeviceNotFoundError(Error):
    """A well-formed filter string that no visible device matches."""


class PlacementError(Error):
    """Arrays and queues that cannot be used together; the text names the call that fixes it."""


# MemoryError comes first: it has its own object layout and constructor, and tools that recreate
# exceptions (tblib in dask) would call the constructor of the other base.
class AllocationError(MemoryError, Error):
    """An allocation that failed; the text gives the sizes."""


class KernelBuildError(Error):
    """A kernel that does not compile.

    Attributes
    ----------
    log : str
        The compiler's output.
    """

    log: str = ""


class LaunchError(Error):
    """Arguments or ranges that a kernel does not accept.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    argument : int or None
        The position of the argument, from 0; None if the error concerns no single argument.
    """

    kernel: str = ""
    argument: int | None = None


class CaptureError(Error):
    """A call that is not possible inside a capture, or with an event of one."""


class InteropError(Error, BufferError):
    """A foreign object that breaks its protocol, or an impossible export."""


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


# Tracebacks show the public module.
for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "usmq"
