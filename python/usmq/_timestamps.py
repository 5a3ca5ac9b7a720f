"""The type of ``Event.timestamps``."""

from typing import NamedTuple


class Timestamps(NamedTuple):
    """When a command was submitted, started and ended, in nanoseconds of the device's clock."""

    submit: int
    start: int
    end: int


Timestamps.__module__ = "usmq"
Timestamps.submit.__doc__ = "When the command was submitted."
Timestamps.start.__doc__ = "When the device began to execute the command."
Timestamps.end.__doc__ = "When the command was complete."
