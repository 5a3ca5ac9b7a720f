"""The `host.*` rows of `make bench`; same protocol as `rows.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import usmq

BYTES = 256 << 20
# Elements of one work-item.
PART = 4096
CHUNKS = 40
SOURCE = """
kernel void total(ulong part, global const float *x, global float *sums) {
  size_t i = get_global_id(0);
  float16 sum = 0;
  for (ulong at = i * part; at < (i + 1) * part; at += 16) sum += vload16(0, x + at);
  float8 half_sum = sum.lo + sum.hi;
  sums[i] = dot(half_sum.lo + half_sum.hi, (float4)(1));
}
"""

# Row: the statement of usmq, that of its peer. usmq itself is the peer.
ROWS = {
    "host.in_place": (
        "total(ITEMS, PART, host, sums)",
        "total(ITEMS, PART, usmq.asarray(host), sums).wait()",
    ),
    "host.from_arrow_chunks": (
        "usmq.from_arrow(chunks).wait()",
        "usmq.from_arrow(whole).wait()",
    ),
}


def names() -> dict[str, Any]:
    """Return the variables of the statements in `ROWS`."""
    host = np.ones(BYTES // 4, "f4")
    items = host.size // PART
    whole = pa.array(host)
    parts = [pa.array(part) for part in np.array_split(host, CHUNKS)]
    return {
        "usmq": usmq,
        "total": usmq.Kernel.from_opencl(SOURCE, "total"),
        "ITEMS": items,
        "PART": PART,
        "host": host,
        "sums": usmq.zeros(items, "f4"),
        "whole": whole,
        "chunks": pa.chunked_array(parts),
    }
