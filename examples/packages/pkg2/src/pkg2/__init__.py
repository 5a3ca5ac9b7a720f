"""Random samples: the package has its own default queue and scopes."""

from __future__ import annotations

from importlib import resources

import usmq

__all__ = ["current_queue", "samples", "set_default_queue", "use_queue"]

_SOURCE = resources.files(__name__).joinpath("samples.cpp").read_text(encoding="utf-8")

# Without a scope or default of its own it answers as usmq.current_queue does.
_queues = usmq.QueueManager(__name__)

current_queue = _queues.current_queue
use_queue = _queues.use_queue
set_default_queue = _queues.set_default_queue


def samples(n: int, seed: int) -> usmq.Array:
    """Return ``n`` float32 samples of [0, 1), evenly distributed, on the package's current queue.

    Sample ``i`` of a seed is the same wherever it is made.

    Parameters
    ----------
    n
        The number of samples.
    seed
        Of 32 bits; others give other samples.
    """
    # Read once: another thread may change the default between two reads.
    queue = current_queue()
    result = usmq.empty(n, "f4", queue=queue)
    usmq.Kernel.from_sycl(_SOURCE, "pkg2_samples", queue=queue)(n, seed, result)
    return result
