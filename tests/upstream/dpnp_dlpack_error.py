"""dpnp: `__dlpack__` of memory that DLPack cannot describe raises no BufferError, as it should."""

from __future__ import annotations

import dpctl
from dpnp import tensor
from outcome import fixed, not_tried, seen

try:
    part = dpctl.SyclDevice("cpu").create_sub_devices(partition=1)[0]
except dpctl.SyclSubDeviceCreationError as error:
    not_tried(str(error))
array = tensor.arange(4, sycl_queue=dpctl.SyclQueue(part))
try:
    array.__dlpack__()
except BufferError:
    fixed("it is a BufferError", "src/python/dlpack.rs (as_buffer_error)")
except Exception as error:
    seen(f"{type(error).__name__}: {error}")
fixed("the array is exported", "src/python/dlpack.rs (as_buffer_error)")
