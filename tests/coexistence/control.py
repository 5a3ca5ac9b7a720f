"""dpnp or dpctl alone in several threads: cases excluded because they hang without usmq.

    export OCL_ICD_FILENAMES=.venv/lib/libintelocl.so
    .venv/bin/python tests/coexistence/control.py NAME [SECONDS]

    first   the first calls of a dpnp function in four threads at once: hung in 3 of 5 runs
    loose   four threads, each with an out-of-order queue, that only submit, ask and free: locked up
            in 1 of 6 runs
    tight   the same with in-order queues: has not hung in ten runs
    getter  two threads, in which work on an array from DLPack goes from the cached queue to an
            in-order one, and `__sycl_usm_array_interface__` is read, where dpnp waits inside
            libsycl: hung in each of 6 runs; without `from_dlpack` in none of 3
    owners  three threads that add to arrays over memory with an owner other than dpctl, on one
            in-order queue: hung in each of 3 runs; over dpctl's own memory (`shared`) in none of 1.
            dpctl lets such an owner go in a host task that needs the GIL, the next command of the
            queue waits for that task, and dpnp waits for the command inside libsycl
    waits   dpctl alone: two threads, each with two out-of-order queues, that call
            `SyclQueue.submit`, which waits: locked up in 3 of 6 runs, one more aborted at its end;
            with the layer that `import usmq` adds, in none of 4
    blas    two threads that compute `matmul` on queues of both, or on their own (`blas-own`). A
            longer form, also with `dot` and `norm`, for 240 s: wrong in 1 of 164,846 rounds; never
            in 126,478 rounds with queues of their own. Set OPENCL_LAYERS to usmq's layer, since
            these threads can lock up the driver without it

A hang prints the stacks after 20 s and exits with status 1. A run may also hang at the end of the
process, where dpctl waits for its host tasks.
"""

import ctypes
import faulthandler
import sys
import threading
import time

import dpctl
import dpnp
import numpy as np
from dpctl.memory import MemoryUSMDevice, as_usm_memory
from dpctl.program import create_program_from_source
from dpnp import tensor

SIZE, SECONDS = 40_000, 6
NAMES = ("first", "loose", "tight", "getter", "owners", "shared", "waits", "blas", "blas-own")
ADD = """__kernel void add_to(__global const uint *a, __global uint *b, uint n) {
    size_t i = get_global_id(0); b[i] = a[i] + n; }"""


class Thread:
    """The queues and constants of a thread."""

    def __init__(self, in_order, cached):
        options = {"property": "in_order"} if in_order else {}
        self.queue = dpctl.SyclQueue("cpu", **options)
        begins = None if cached else self.queue
        self.base, self.seven, self.there = (
            dpnp.full(SIZE, n, dtype="u4", usm_type="shared", sycl_queue=queue)
            for n, queue in ((3, begins), (7, begins), (7, self.queue))
        )
        self.rounds = 0

    def submit_and_ask(self):
        """Submit, drop the handles, and query completion without a wait."""
        made = dpnp.add(self.base, self.seven)
        dpnp.add(made, self.seven, out=made)
        result = dpnp.add(made, self.seven)
        del made
        event = self.queue.submit_barrier()
        while event.execution_status != dpctl.event_status_type.complete:
            time.sleep(1e-4)
        assert (np.asarray(result.get_array().usm_data).view("u4") == 24).all()
        self.rounds += 1

    def read_interface(self):
        """Submit on the cached queue, continue on the own one, and read the interface there."""
        made = dpnp.add(dpnp.from_dlpack(self.base), self.seven)
        self.queue.submit_barrier([made.sycl_queue.submit_barrier()])
        there = made.to_device(self.queue)
        dpnp.add(there, self.there, out=there)
        del made
        assert there.__sycl_usm_array_interface__
        self.rounds += 1


class Waits:
    """A thread with two out-of-order queues of dpctl, whose `submit` waits."""

    def __init__(self):
        self.queue, self.rounds = dpctl.SyclQueue("cpu"), 0
        own = dpctl.SyclQueue(self.queue.sycl_context, self.queue.sycl_device)
        self.queues = (self.queue, own)
        program = create_program_from_source(self.queue, ADD)
        self.kernel = program.get_sycl_kernel("add_to")
        self.memory = MemoryUSMDevice(4 * SIZE, queue=self.queue)
        self.event = self.queue.submit_barrier()

    def submit(self):
        """Submit to both queues in turn, each command after the last one."""
        for queue in self.queues * 2:
            made = MemoryUSMDevice(4 * SIZE, queue=self.queue)
            arguments = [self.memory, made, ctypes.c_uint32(7)]
            first = queue.submit_async(self.kernel, arguments, [SIZE], dEvents=[self.event])
            queue._submit_keep_args_alive(arguments, [first])
            self.event = queue.submit(self.kernel, arguments, [SIZE], dEvents=[first])
            self.memory = made
        self.rounds += 1


class ForeignArray:
    """The memory of an array, shared by another library."""

    def __init__(self, array):
        self.array = array
        self.__sycl_usm_array_interface__ = dict(array.__sycl_usm_array_interface__)


class Shared:
    """A thread that adds to arrays on a queue which all threads share."""

    def __init__(self, arrays):
        self.arrays, self.rounds = arrays, 0

    def add(self):
        """Add to the next array."""
        array = self.arrays[self.rounds % len(self.arrays)]
        array += 7
        self.rounds += 1


class Blas:
    """A thread that multiplies matrices on queues of all threads, or on its own."""

    FIRST = np.random.default_rng(0).normal(size=(32, 32))
    SECOND = np.random.default_rng(1).normal(size=(32, 32))

    def __init__(self, queues):
        self.queues, self.rounds = queues, 0

    def multiply(self):
        """Multiply two matrices, and compare the product with that of numpy."""
        queue = self.queues[self.rounds % len(self.queues)]
        first, second = (dpnp.asarray(x, sycl_queue=queue) for x in (self.FIRST, self.SECOND))
        product = dpnp.asnumpy(first @ second)
        assert np.allclose(product, self.FIRST @ self.SECOND), f"wrong in round {self.rounds}"
        self.rounds += 1


def over_lent_memory(array):
    """Return an array over the same memory, with an owner unknown to dpctl."""
    return tensor.usm_ndarray(
        array.shape, dtype=array.dtype, buffer=as_usm_memory(ForeignArray(array))
    )


def prepare(name):
    """Return the threads of a control, and a round of one."""
    if name in ("owners", "shared"):
        queue = dpctl.SyclQueue("cpu", property="in_order")
        arrays = [dpnp.full(3000, n, dtype="i8", sycl_queue=queue) for n in range(50)]
        if name == "owners":
            arrays = [over_lent_memory(array) for array in arrays]
        return [Shared(arrays) for _ in range(3)], Shared.add
    if name in ("blas", "blas-own"):
        device = dpctl.SyclDevice("cpu")
        pairs = [
            [dpctl.SyclQueue(device, property="in_order"), dpctl.SyclQueue(device)] for _ in "ab"
        ]
        return [Blas(pairs[n if name == "blas-own" else 0]) for n in range(2)], Blas.multiply
    if name == "waits":
        return [Waits() for _ in range(2)], Waits.submit
    if name == "getter":
        return [Thread(True, True) for _ in range(2)], Thread.read_interface
    return [Thread(name == "tight", False) for _ in range(4)], Thread.submit_and_ask


def main():
    """Run one control."""
    name = sys.argv[1]
    assert name in NAMES, __doc__
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    faulthandler.dump_traceback_later(seconds + 14, exit=True)
    made, one = prepare(name)
    if name != "first":  # the first calls, one thread after the other
        for each in made:
            one(each)
    end = time.monotonic() + seconds

    def work(each):
        while time.monotonic() < end:
            one(each)

    threads = [threading.Thread(target=work, args=(each,)) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{name}: {[each.rounds for each in made]} rounds", flush=True)
    if name == "waits":
        # A host task of dpctl that takes the GIL while Python ends aborts the process.
        for each in made:
            for queue in each.queues:
                queue.wait()


if __name__ == "__main__":
    main()
