"""Let operations of dpnp on a CPU follow the commands of usmq on their queue.

dpnp passes the events of its earlier operations on a queue to the next one. On a CPU, oneMKL
computes in the calling thread after these events alone; it does not wait for other commands on the
queue, even an in-order one (docs/upstream.md). dpctl keeps these events in one order manager for
each queue; that of a queue shared with usmq also waits for the commands of usmq.
"""

from __future__ import annotations

from usmq._core import _finish_commands, _knows_owners_of

# As in typing, whose import takes a third of that of usmq.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# dpctl's managers of all queues, once imported: an import statement costs half of a call.
_managers: list[Any] = []


def follow(queue: Any, number: int) -> None:
    """Let operations of dpnp on this dpctl queue, which usmq knows by its number, follow usmq."""
    if not _managers:
        from dpctl.utils import SequentialOrderManager

        _managers.append(SequentialOrderManager)
    known = _managers[0]._map.get()
    if not getattr(known.get(queue), "follows_usmq", False):
        theirs = _managers[0][queue]
        known[queue] = _follower(type(theirs))(theirs, number)


# The class of order managers that wait for usmq, by that of dpctl.
_followers: dict[Any, Any] = {}


def _follower(base: Any) -> Any:
    """Return the class of order managers that wait for usmq; ``base`` is that of dpctl."""
    return _followers.get(base) or _followers.setdefault(base, _derived(base))


def _derived(base: Any) -> Any:

    class Follower(base):  # type: ignore[misc]
        follows_usmq = True

        def __init__(self, theirs: Any, number: int) -> None:
            # Both add to the same lists.
            self._state = theirs._state
            self._number = number

        @property
        def submitted_events(self) -> list[Any]:
            # Not the event of usmq's last command: oneMKL would wait for it with the GIL held, and
            # a host task of dpctl before that command may need the GIL.
            _finish_commands(self._number)
            return super().submitted_events  # type: ignore[no-any-return]

        def wait(self) -> None:
            _finish_commands(self._number)
            super().wait()

    return Follower


def lacks() -> list[str]:
    """Return what this version of dpctl does not have, or has in another form."""
    from dpctl.memory import MemoryUSMDevice
    from dpctl.utils import SequentialOrderManager as managers

    missing = []
    try:
        manager = managers._map.get().default_factory()
        _follower(type(manager))(manager, 0).wait()
    except (AttributeError, TypeError):
        missing.append("order managers of queues")
    if not _knows_owners_of(MemoryUSMDevice):
        missing.append("shared pointers in memory objects")
    return missing
