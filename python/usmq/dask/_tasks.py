"""The tasks of logical tables: functions of a partition that run on its worker."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

import usmq
from usmq.dask import _parquet
from usmq.dask._expression import Expression, selected


def run(
    function: Any, memory_limit: int | None, offsets: list[int] | None, number: int, *args: Any
) -> Any:
    """Call a function with a `TaskContext`; with offsets, that of the partition is the last."""
    last = [] if offsets is None else [offsets[number]]
    return usmq.run_task(function, *args, *last, memory_limit=memory_limit)


def offsets(lengths: list[int]) -> list[int]:
    """Return the number of the first row of each partition."""
    return [0, *itertools.accumulate(lengths)][: len(lengths)]


def run_all(function: Any, parts: list[Any]) -> Any:
    """Call a function with the arguments of a list."""
    return usmq.run_task(function, *parts)


def mapped(function: Any, *args: Any) -> usmq.Table:
    """Call a function that returns a table; arguments as of `run`."""
    made = run(function, *args)
    if not isinstance(made, usmq.Table):
        name = getattr(function, "__name__", function)
        raise TypeError(
            f"{name} must return a usmq.Table for each partition, not {type(made).__name__}"
        )
    return made


def combined(combine: Any, parts: list[Any]) -> Any:
    """Combine the results of partitions."""
    return combine(parts)


def upload(part: Any) -> usmq.Table:
    """Copy rows to the worker's device."""
    table: usmq.Table = usmq.from_arrow(part.combine_chunks())
    return table


def read(groups: list[tuple[str, int]], schema: Any) -> usmq.Table:
    """Read row groups of Parquet files, and copy them to the device."""
    return upload(_parquet.read(groups, schema).unify_dictionaries())


def select(table: usmq.Table, names: list[str]) -> usmq.Table:
    """Return some columns."""
    return table.select(names)


def schema(table: usmq.Table) -> Any:
    """Return the schema of a partition."""
    return pa.schema(table.schema)


def checked(table: usmq.Table, schema: Any) -> usmq.Table:
    """Return a partition, unless its schema differs."""
    found = pa.schema(table.schema)
    if not found.equals(schema):
        raise ValueError(f"a partition has the schema\n{found}\nand another\n{schema}")
    return table


def to_arrow(table: usmq.Table) -> Any:
    """Return a partition's rows."""
    return table.to_arrow()


def head(table: usmq.Table, rows: int) -> Any:
    """Return the first rows; only these leave the device."""
    wanted = min(rows, table.num_rows)
    if not table.column_names or wanted == table.num_rows:
        return table.to_arrow()
    # Cut on the device, so that only these rows are copied.
    cut = usmq.Table({name: table[name][:wanted] for name in table.column_names})
    return cut.to_arrow().cast(pa.schema(table.schema))


def filtered(table: usmq.Table, expression: Expression) -> usmq.Table:
    """Return the rows for which an expression is true."""
    return selected(expression, table)


def from_pandas(frame: Any, schema: Any) -> usmq.Table:
    """Copy the rows of a pandas frame to the device."""
    return upload(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
