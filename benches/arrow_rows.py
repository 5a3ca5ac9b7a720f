"""The `arrow.*` rows of `make bench`; same protocol as `rows.py`."""

from __future__ import annotations

from typing import Any

import nanoarrow.device
import numpy as np
import pyarrow as pa
import usmq

COLUMNS = 10
FEW, MANY = 1_000, 10_000_000
LARGE = 1 << 30

# Row: the statement of usmq, that of its peer.
ROWS = {
    # usmq itself is the peer: 1e7 rows against 1e3.
    "arrow.exchange_rows": (
        "usmq.from_arrow(Lent(many))",
        "usmq.from_arrow(Lent(few))",
    ),
    "arrow.exchange": (
        "usmq.from_arrow(Lent(many))",
        "for column in columns: c_device_array(column)",
    ),
    "arrow.host_to_usm": (
        "usmq.from_arrow(host, queue=queue).wait()",
        "np.copyto(warm, plain)",
    ),
    "arrow.usm_to_host": ("usm.to_arrow()", "np.copyto(warm, plain)"),
}


class Lent:
    """An object of another library: it has only the protocol."""

    def __init__(self, table: usmq.Table) -> None:
        self.table = table

    def __arrow_c_device_array__(self, requested_schema: Any = None) -> Any:
        """Export as a consumer requests it."""
        return self.table.__arrow_c_device_array__(requested_schema)


def names() -> dict[str, Any]:
    """Return the variables of the statements in `ROWS`."""
    queue = usmq.current_queue()
    few, many = (
        usmq.Table({f"c{i}": usmq.zeros(rows, "f8") for i in range(COLUMNS)})
        for rows in (FEW, MANY)
    )
    plain = np.ones(LARGE // 8)
    host = pa.array(plain)
    # Pool memory that has been written to, so that no page is new.
    target = usmq.empty(LARGE // 8, "f8", usm_type="host")
    warm = np.asarray(target.host_view())
    np.copyto(warm, plain)
    usm = usmq.from_arrow(host)
    usm.wait()
    return {
        "usmq": usmq,
        "np": np,
        "c_device_array": nanoarrow.device.c_device_array,
        "Lent": Lent,
        "queue": queue,
        "few": few,
        "many": many,
        "columns": [pa.array(np.zeros(MANY)) for _ in range(COLUMNS)],
        "plain": plain,
        "host": host,
        "target": target,
        "warm": warm,
        "usm": usm,
    }
