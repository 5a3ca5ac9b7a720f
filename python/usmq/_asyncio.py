"""``await event``: waits in asyncio without a blocked thread."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usmq import Event


async def wait(event: Event) -> None:
    """Wait for the event, and raise its errors as ``event.wait()`` does."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "`await event` needs a running asyncio loop; in another framework, wait in a thread, "
            "as `await trio.to_thread.run_sync(event.wait)`"
        ) from None
    if not event.done():
        # Short commands end during one round of the loop, which other threads need longer to wake.
        await asyncio.sleep(0)
    if not event.done():
        ended = loop.create_future()

        def end(_event: Event) -> None:
            # A closed loop raises: no task waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_ended)

        def set_ended() -> None:
            if not ended.done():  # a cancelled wait
                ended.set_result(None)

        event._wake(end)
        await ended
    event.wait()
