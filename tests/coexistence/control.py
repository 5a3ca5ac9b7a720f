"""dpnp alone, in several threads: what the suite leaves out since it hangs without usmq.

    OCL_ICD_FILENAMES=.venv/lib/libintelocl.so .venv/bin/python tests/coexistence/control.py NAME

    first   the first calls of a dpnp function in four threads at once: hung in 2 of 4 runs
    loose   four threads, each with an out-of-order queue, that only submit, ask and free: one run
            of six locked up
    tight   the same with in-order queues: has not hung in ten runs
    getter  the same, and each round reads `__sycl_usm_array_interface__`, in which dpnp waits: has
            not hung in 8,000 rounds

A hang prints the stacks after 20 s and exits with status 1.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time

import dpctl
import dpnp
import numpy as np

THREADS, SIZE, SECONDS = 4, 20_000, 6


def main() -> None:
    """Run one control."""
    name = sys.argv[1]
    faulthandler.dump_traceback_later(20, exit=True)
    options = {"property": "in_order"} if name in ("tight", "getter") else {}
    queues = [dpctl.SyclQueue("cpu", **options) for _ in range(THREADS)]
    base, seven = (
        [dpnp.full(SIZE, n, dtype="u4", usm_type="shared", sycl_queue=q) for q in queues]
        for n in (3, 7)
    )
    rounds = [0] * THREADS

    def work(number: int) -> None:
        while time.monotonic() < end:
            made = dpnp.add(base[number], seven[number])
            dpnp.add(made, seven[number], out=made)
            result = dpnp.add(made, seven[number])
            del made
            if name == "getter":
                assert result.__sycl_usm_array_interface__
            event = queues[number].submit_barrier()
            while event.execution_status != dpctl.event_status_type.complete:
                time.sleep(1e-4)
            assert (np.asarray(result.get_array().usm_data).view("u4") == 24).all()
            rounds[number] += 1

    if name != "first":  # one thread after the other
        for number in range(THREADS):
            made = dpnp.add(base[number], seven[number])
            dpnp.add(made, seven[number], out=made)
            queues[number].wait()
    end = time.monotonic() + SECONDS
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{name}: {rounds} rounds")


if __name__ == "__main__":
    main()
