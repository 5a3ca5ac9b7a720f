"""Two asyncio tasks with one queue each, and a result computed from the data of both."""

from __future__ import annotations

import asyncio

import usmq

SOURCE = """
#include <usmq/kernel.h>
USMQ_KERNEL(1) void add(const float *x, const float *y, float *sum) {
  size_t i = global_id(0);
  sum[i] = x[i] + y[i];
}
"""


async def filled(queue: usmq.Queue, value: float) -> usmq.Array:
    """Return an array of one value; the task's scope is unknown to the other task."""
    with usmq.use_queue(queue):
        await asyncio.sleep(0)
        return usmq.full(1000, value, "f4")


async def main() -> None:
    """Fill on two queues, bring the arrays together, add."""
    device = usmq.current_queue().device
    parts = device.sub_devices(1)[:2] if device.max_compute_units > 1 else [device]
    queues = [usmq.Queue(part) for part in parts]
    x, y = await asyncio.gather(filled(queues[0], 1.0), filled(queues[-1], 2.0))
    print(usmq.explain(x, y))
    x, y = usmq.collocate(x, y)
    with usmq.use_queue(usmq.follow(x, y)):
        total = usmq.empty(x.shape, x.dtype)
        usmq.Kernel.from_sycl(SOURCE, "add")(x.size, x, y, total)
    print((await asyncio.to_thread(total.to_numpy)).sum())  # waits, but not in the event loop


if __name__ == "__main__":
    asyncio.run(main())
