"""dpnp alone, in several threads: what the suite leaves out since it hangs without usmq.

    OCL_ICD_FILENAMES=.venv/lib/libintelocl.so .venv/bin/python tests/coexistence/control.py NAME

    first   the first calls of a dpnp function in four threads at once: hung in 3 of 5 runs
    loose   four threads, each with an out-of-order queue, that only submit, ask and free: locked up
            in 1 of 6 runs
    tight   the same with in-order queues: has not hung in ten runs
    getter  two threads, in which work on an array from DLPack goes from the cached queue to an
            in-order one, and `__sycl_usm_array_interface__` is read, where dpnp waits inside
            libsycl: hung in each of 6 runs; without `from_dlpack` in none of 3

A hang prints the stacks after 20 s and exits with status 1. A run may also hang at the end of the
process, where dpctl waits for its host tasks.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time

import dpctl
import dpnp
import numpy as np

SIZE, SECONDS = 40_000, 6


class Thread:
    """The queues and constants of a thread."""

    def __init__(self, in_order: bool, cached: bool) -> None:
        options = {"property": "in_order"} if in_order else {}
        self.queue = dpctl.SyclQueue("cpu", **options)
        begins = None if cached else self.queue
        self.base, self.seven, self.there = (
            dpnp.full(SIZE, n, dtype="u4", usm_type="shared", sycl_queue=queue)
            for n, queue in ((3, begins), (7, begins), (7, self.queue))
        )
        self.rounds = 0

    def submit_and_ask(self) -> None:
        """Submit, let go, and ask for the end without a wait."""
        made = dpnp.add(self.base, self.seven)
        dpnp.add(made, self.seven, out=made)
        result = dpnp.add(made, self.seven)
        del made
        event = self.queue.submit_barrier()
        while event.execution_status != dpctl.event_status_type.complete:
            time.sleep(1e-4)
        assert (np.asarray(result.get_array().usm_data).view("u4") == 24).all()
        self.rounds += 1

    def read_interface(self) -> None:
        """Submit on the cached queue, go on with the own one, and read the interface there."""
        made = dpnp.add(dpnp.from_dlpack(self.base), self.seven)
        self.queue.submit_barrier([made.sycl_queue.submit_barrier()])
        there = made.to_device(self.queue)
        dpnp.add(there, self.there, out=there)
        del made
        assert there.__sycl_usm_array_interface__
        self.rounds += 1


def main() -> None:
    """Run one control."""
    name = sys.argv[1]
    assert name in ("first", "loose", "tight", "getter"), __doc__
    faulthandler.dump_traceback_later(20, exit=True)
    getter = name == "getter"
    made = [Thread(name in ("tight", "getter"), getter) for _ in range(2 if getter else 4)]
    one = Thread.read_interface if getter else Thread.submit_and_ask
    if name != "first":  # the first calls, one thread after the other
        for each in made:
            one(each)
    end = time.monotonic() + SECONDS

    def work(each: Thread) -> None:
        while time.monotonic() < end:
            one(each)

    threads = [threading.Thread(target=work, args=(each,)) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{name}: {[each.rounds for each in made]} rounds", flush=True)


if __name__ == "__main__":
    main()
