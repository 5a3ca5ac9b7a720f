"""dpctl: a host task drops the owner of memory under the GIL, so threads that use dpnp hang."""

from __future__ import annotations

import threading
import time

import dpctl
from dpctl.memory import as_usm_memory
from dpnp import tensor
from outcome import not_seen, trying

SECONDS = 10


class ForeignArray:
    """The memory of an array, as another library lends it."""

    def __init__(self, array: tensor.usm_ndarray) -> None:
        self.array = array
        self.__sycl_usm_array_interface__ = dict(array.__sycl_usm_array_interface__)


queue = dpctl.SyclQueue("cpu", property="in_order")
made = [tensor.full(3000, n, dtype="i8", sycl_queue=queue) for n in range(50)]
arrays = [
    tensor.usm_ndarray(a.shape, dtype=a.dtype, buffer=as_usm_memory(ForeignArray(a))) for a in made
]
for array in arrays:  # the first calls, by one thread
    tensor.add(array, 7, out=array)
end = time.monotonic() + SECONDS
rounds = [0, 0, 0]


def work(thread: int) -> None:
    while time.monotonic() < end:
        array = arrays[rounds[thread] % len(arrays)]
        tensor.add(array, 7, out=array)
        rounds[thread] += 1


trying()
threads = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
not_seen(f"{sum(rounds)} additions by three threads")
