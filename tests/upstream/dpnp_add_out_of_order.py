"""oneMKL, by dpnp: a sum on a CPU does not wait for earlier work on its in-order queue."""

from __future__ import annotations

import dpctl
import dpnp
from dpctl.program import create_program_from_source
from outcome import fixed, seen

SOURCE = """
kernel void slow(global float *x) {
  for (volatile int i = 0; i < 3000000; i++);
  x[get_global_id(0)] = 2;
}
"""

queue = dpctl.SyclQueue("cpu", property="in_order")
kernel = create_program_from_source(queue, SOURCE).get_sycl_kernel("slow")
x = dpnp.zeros(6, dtype="f4", sycl_queue=queue)
queue.wait()
queue.submit_async(kernel, [x.get_array().usm_data], [6])
total = dpnp.asnumpy(x + x).tolist()
queue.wait()
if total != [4.0] * 6:
    seen(f"the sum was computed before the kernel: {total}")
fixed("the sum waits", "python/usmq/_dpctl_order.py (follow)")
