"""Arrays of pyarrow with every layout, and columns of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import usmq


def every_type(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    """Return arrays of every layout, with nulls."""
    nulls = rng.random(n) < 0.2
    lengths = rng.integers(0, 5, n)
    ints = pa.array(rng.integers(0, 100, n), mask=nulls)
    text = pa.array(["é" * length for length in lengths], mask=nulls)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
    items = pa.array(rng.integers(0, 9, int(ends[-1])), mask=rng.random(int(ends[-1])) < 0.3)
    lists = pa.ListArray.from_arrays(pa.array(ends), items, mask=pa.array(nulls))
    pairs = pa.StructArray.from_arrays([ints, text], ["a", "b"], mask=pa.array(nulls))
    ids = pa.array(np.arange(n) % 2, pa.int8())
    runs = (n + 2) // 3
    run_ends = pa.array(np.minimum(np.arange(1, runs + 1) * 3, n), pa.int32())
    found = {str(of): ints.cast(of) for of in (pa.int8(), pa.int16(), pa.float32(), pa.int64())}
    found |= {
        "decimal128": ints.cast(pa.decimal128(25, 2)),
        "decimal256": ints.cast(pa.decimal256(50, 2)),
        "timestamp": ints.cast(pa.timestamp("us", "UTC")),
        "bool": pa.array(rng.random(n) < 0.5, mask=nulls),
        "null": pa.nulls(n),
        "fixed binary": pa.array([b"abcde"] * n, pa.binary(5), mask=nulls),
        "interval": pa.array([(1, 2, 3)] * n, pa.month_day_nano_interval()),
        "text": text,
        "large text": text.cast(pa.large_string()),
        "binary": text.cast(pa.binary()),
        "text view": text.cast(pa.string_view()),
        "dictionary": text.dictionary_encode(),
        "list": lists,
        "large list": lists.cast(pa.large_list(pa.int64())),
        "list view": pa.ListViewArray.from_arrays(pa.array(ends[:-1]), lengths.astype("i4"), items),
        "fixed list": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * n)), 3),
        "struct": pairs,
        "list of structs": pa.ListArray.from_arrays(
            pa.array(np.arange(n + 1, dtype="i4")), pairs, mask=pa.array(nulls)
        ),
        "sparse union": pa.UnionArray.from_sparse(ids, [ints, text]),
        "dense union": pa.UnionArray.from_dense(
            ids, pa.array(np.arange(n) // 2, pa.int32()), [ints, text]
        ),
        "runs": pa.RunEndEncodedArray.from_arrays(run_ends, text[:runs]),
    }
    return found


def held(array: pa.Array, usm_type: Any = "device") -> usmq.Column:
    """Return a column; an array of structs alone may become a table."""
    return usmq.from_arrow(pa.table({"x": array}), usm_type=usm_type)["x"]
