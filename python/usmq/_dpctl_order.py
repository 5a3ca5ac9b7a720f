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

# dpctl's class of queues and its managers of all queues, once imported: an import statement costs
# half of a call. Both are None if this version of dpctl has no such managers, as the doctor says.
_found: list[Any] = []


def follow(queue: Any, number: int) -> None:
    """Let operations of dpnp on this dpctl queue, which usmq knows by its number, follow usmq.

    The queue may be an object of another library, which has no such operations.
    """
    if not _found:
        _found[:] = _find()
    queues, managers = _found
    if managers is None or not isinstance(queue, queues):
        return
    known = managers._map.get()
    if not getattr(known.get(queue), "follows_usmq", False):
        theirs = managers[queue]
        known[queue] = _follower(type(theirs))(theirs, number)


def _find() -> tuple[Any, Any]:
    try:
        from dpctl import SyclQueue
        from dpctl.utils import SequentialOrderManager as managers

        manager = managers._map.get().default_factory()
        _follower(type(manager))(manager, 0).wait()
    except (AttributeError, ImportError, TypeError):
        return None, None
    return SyclQueue, managers


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

    missing = ["order managers of queues"] if _find()[1] is None else []
    if not _knows_owners_of(MemoryUSMDevice):
        missing.append("shared pointers in memory objects")
    return missing
