"""Keeps a worker's log from holding memory: dask keeps 10,000 records, with exceptions and frames.

The frames of a failed transfer hold what was sent: without this, a worker that has lost a peer
keeps those arrays on its device.
"""

import logging

from distributed.utils import DequeHandler


class TextOnly(logging.Filter):
    """Replaces a record's exception and arguments by their text, before a handler keeps it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace them in place: handlers that come later print the same text."""
        record.msg, record.args = record.getMessage(), None
        if record.exc_info:
            record.exc_text = record.exc_text or logging.Formatter().formatException(
                record.exc_info
            )
            record.exc_info = None
        return True


def keep_text_only() -> None:
    """Filter what dask's handlers of this worker's process keep from now on."""
    for handler in logging.getLogger("distributed.worker").handlers:
        if isinstance(handler, DequeHandler) and not any(
            isinstance(other, TextOnly) for other in handler.filters
        ):
            handler.addFilter(TextOnly())
