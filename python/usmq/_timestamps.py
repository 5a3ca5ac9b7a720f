"""The type of ``Event.timestamps``."""

from collections import namedtuple

# Type checkers know this name; the module typing would slow the import of usmq.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple

    class Timestamps(NamedTuple):
        """When a command was submitted, started and ended, in nanoseconds of the device's clock."""

        submit: int
        start: int
        end: int
else:
    Timestamps = namedtuple("Timestamps", ["submit", "start", "end"])
    Timestamps.__doc__ = (
        "When a command was submitted, started and ended, in nanoseconds of the device's clock."
    )

Timestamps.__module__ = "usmq"
Timestamps.submit.__doc__ = "When the command was submitted."
Timestamps.start.__doc__ = "When the device began to execute the command."
Timestamps.end.__doc__ = "When the command was complete."
