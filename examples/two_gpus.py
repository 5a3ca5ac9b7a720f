"""Run one kernel on each of two GPUs, and copy data between them.

On a machine without two GPUs: usmq emulate -n 2 -- python examples/two_gpus.py
"""

import usmq

SOURCE = """#include <usmq/kernel.h>
USMQ_KERNEL(1) void scale(float a, float *x) { x[global_id(0)] *= a; }"""

with usmq.use_queue("gpu:0"):
    x = usmq.arange(4, dtype="f4")
    scale = usmq.Kernel.from_sycl(SOURCE, "scale")
with usmq.use_queue("gpu:1"):
    y = usmq.arange(4, dtype="f4")

scale(4, 2.0, x)  # on gpu:0, where x is
scale(4, 10.0, y)  # on gpu:1
z = usmq.collocate(x, like=y)  # comes after the kernel, without a wait here
print(usmq.explain(x, like=y).steps[0].action)
print(z.device.filter_string, z.tolist(), y.tolist())
