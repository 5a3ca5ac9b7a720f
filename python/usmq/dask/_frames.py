"""Converts partitions to pandas frames and back, with unchanged values and Arrow types."""

from __future__ import annotations

from typing import Any

import dask
import pyarrow as pa
import pyarrow.types as types

import usmq


def kept(given: Any) -> Any:
    """Return the dtype of pandas for values of an Arrow type; None for that of ``to_pandas``."""
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    # pandas' own types of times have the same units, and dask can sort by them.
    own = types.is_timestamp(given) or types.is_duration(given)
    return None if own else pd.ArrowDtype(given)


def frame_schema(schema: Any) -> Any:
    """Return the schema of a table as a frame: dictionaries become their values.

    dask cannot shuffle dictionaries, and each partition has its own.

    Raises
    ------
    TypeError
        pandas cannot hold the values of a column; the text names it.
    """
    fields = []
    for each in schema:
        given = each.type.value_type if types.is_dictionary(each.type) else each.type
        try:
            sample = pa.table({"x": pa.nulls(2, given)}).to_pandas(types_mapper=kept)["x"]
            # A type without a type of its values cannot be sorted or joined.
            _ = sample.dtype.type, sample.array.take([1, 0])
        except (pa.ArrowException, NotImplementedError, TypeError, ValueError) as failed:
            raise TypeError(
                f"pandas cannot keep the column {each.name!r} of type {each.type} ({failed}); "
                "convert it by map_partitions, or leave it out by select"
            ) from failed
        fields.append(each.with_type(given))
    return pa.schema(fields)


def shuffle_method(schema: Any) -> str | None:
    """Return the way in which dask exchanges rows of these types; None is its default.

    "p2p" restores a type from its name, which pandas does not read for nested types and those with
    parameters.
    """
    import pandas as pd

    given: str | None = dask.config.get("dataframe.shuffle.method", None)
    try:
        for each in schema:
            if (dtype := kept(each.type)) is not None and not types.is_string(each.type):
                pd.api.types.pandas_dtype(str(dtype))
    except (NotImplementedError, TypeError):
        return given or "tasks"
    return given


def to_pandas(table: usmq.Table, schema: Any) -> Any:
    """Return the rows as a pandas frame, with the types of `frame_schema`."""
    return table.to_arrow().cast(schema).to_pandas(types_mapper=kept)


def schema_of(empty: Any) -> Any:
    """Return the schema of a pandas frame without rows."""
    found = pa.Table.from_pandas(empty, preserve_index=False).schema
    # The categories of a frame without rows have no type.
    return pa.schema(
        given.with_type(pa.string())
        if types.is_dictionary(given.type) and types.is_null(given.type.value_type)
        else given
        for given in found
    )
