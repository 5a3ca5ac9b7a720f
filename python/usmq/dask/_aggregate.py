"""Validates keys and aggregates before any task runs, and merges partial results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

import usmq
from usmq.dask._group import aggregate, sum_type

FUNCTIONS = ("count", "count_all", "sum", "mean", "min", "max")
# The function that merges partial results of each.
MERGED = {
    "count": "sum",
    "count_all": "sum",
    "sum": "sum",
    "total": "sum",
    "min": "min",
    "max": "max",
}


def _is_key(given: Any) -> bool:
    if types.is_dictionary(given):
        return _is_key(given.value_type) and not types.is_dictionary(given.value_type)
    text = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return _is_ordered(given) or any(kind(given) for kind in text)


def _is_ordered(given: Any) -> bool:
    """Whether values have at most 64 bits and an order: numbers, times, booleans."""
    if types.is_boolean(given) or types.is_integer(given) or types.is_floating(given):
        return True
    return types.is_temporal(given) and not types.is_interval(given)


def _is_sum(given: Any) -> bool:
    return _is_ordered(given) and not types.is_temporal(given)


@dataclass(frozen=True)
class Aggregation:
    """Keys, and pairs of a column (None for the rows themselves) and a function."""

    schema: Any
    keys: tuple[str, ...]
    wanted: tuple[tuple[str | None, str], ...]

    @classmethod
    def of(cls, schema: Any, keys: Sequence[str], wanted: Iterable[Any]) -> Aggregation:
        """Check the request against the schema."""
        for name in keys:
            if not _is_key(given := field(schema, name).type):
                raise TypeError(f"cannot group by column {name!r} of type {given}")
        pairs = []
        for entry in wanted:
            if isinstance(entry, str) or len(entry) != 2:
                raise TypeError(f"aggregate takes pairs such as ('delay', 'mean'), not {entry!r}")
            pairs.append(_pair(schema, *entry))
        names = [*keys, *(_name(*pair) for pair in pairs)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two columns of the result would be called {sorted(twice)[0]!r}")
        if not pairs:
            raise ValueError("nothing to aggregate; name pairs as ('delay', 'mean')")
        return cls(schema, tuple(keys), tuple(pairs))

    @property
    def parts(self) -> list[tuple[str | None, str]]:
        """The aggregates that each partition computes: a mean needs a total and a count."""
        found: dict[tuple[str | None, str], None] = {}
        for name, function in self.wanted:
            for part in ("total", "count") if function == "mean" else (function,):
                found[name, part] = None
        return list(found)

    def names(self) -> list[str]:
        """Return the names of the aggregates, as columns of the result."""
        return [_name(*pair) for pair in self.wanted]

    def result_schema(self) -> Any:
        """Return the schema of the result: the keys unchanged, then the aggregates."""
        fields = [self.schema.field(name) for name in self.keys]
        for name, function in self.wanted:
            fields.append(pa.field(_name(name, function), self._type(name, function)))
        return pa.schema([each.remove_metadata() for each in fields])

    def partial(self, task: usmq.TaskContext) -> Any:
        """Aggregate a partition, batch after batch; return a pyarrow table."""
        table = task.arg(usmq.Table)
        batches = table.batches or [usmq.from_arrow(_no_rows(pa.schema(table.schema)))]
        return pa.concat_tables([aggregate(task, b, self.keys, self.parts) for b in batches])

    def merge(self, task: usmq.TaskContext) -> Any:
        """Merge the tables of several partitions into one."""
        together = pa.concat_tables(task.rest()).combine_chunks()
        batch = together.to_batches()[0] if together.num_rows else _no_rows(together.schema)
        keys = [f"key {number}" for number in range(len(self.keys))]
        parts = [(f"part {at}", MERGED[part]) for at, (_, part) in enumerate(self.parts)]
        return aggregate(task, usmq.from_arrow(batch), keys, parts)

    def finish(self, task: usmq.TaskContext) -> usmq.Table:
        """Return the result of the last merge as a table on the worker's device."""
        table, schema = task.arg(pa.Table), self.result_schema()
        at = {part: f"part {number}" for number, part in enumerate(self.parts)}
        columns = [table[f"key {number}"] for number in range(len(self.keys))]
        for name, function in self.wanted:
            if function == "mean":
                columns.append(_mean(table[at[name, "total"]], table[at[name, "count"]]))
            else:
                columns.append(table[at[name, function]])
        pairs = zip(columns, schema, strict=True)
        typed = [_as(column, target.type) for column, target in pairs]
        result: usmq.Table = usmq.from_arrow(pa.table(typed, schema=schema).combine_chunks())
        return result

    def _type(self, name: str | None, function: str) -> Any:
        if name is None or function.startswith("count"):
            return pa.int64()
        given = self.schema.field(name).type
        return {"mean": pa.float64(), "sum": sum_type(given)}.get(function, given)


def field(schema: Any, name: str) -> Any:
    """Return the field of this name; there must be exactly one."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is a str, not {name!r}")
    found = schema.get_all_field_indices(name)
    if len(found) == 1:
        return schema.field(found[0])
    many = f"{len(found)} columns are" if found else "no column is"
    raise KeyError(f"{many} called {name!r}; there are {schema.names}")


def _pair(schema: Any, name: Any, function: str) -> tuple[str | None, str]:
    if function not in FUNCTIONS:
        raise ValueError(f"unknown aggregate {function!r}; use one of {', '.join(FUNCTIONS)}")
    if function == "count_all":
        return None, function
    given = field(schema, name).type
    allowed = _is_sum if function in ("sum", "mean") else _is_ordered
    if function != "count" and not allowed(given):
        raise TypeError(f"cannot compute {function} of column {name!r} of type {given}")
    if function == "count" and not _is_key(given):
        raise TypeError(f"cannot count column {name!r} of type {given}")
    return name, function


def _no_rows(schema: Any) -> Any:
    return pa.RecordBatch.from_pylist([], schema)


def _name(name: str | None, function: str) -> str:
    return function if name is None else f"{name}_{function}"


def _mean(sums: Any, counts: Any) -> Any:
    nulls = sums.is_null().to_numpy()
    of = np.where(nulls, 1, counts.to_numpy())
    return pa.array(sums.fill_null(0).to_numpy() / of, mask=nulls)


def _as(column: Any, wanted: Any) -> Any:
    """Convert a column to its type in the table, dictionaries included."""
    if not types.is_dictionary(wanted):
        return column.cast(wanted)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    words = column.dictionary_encode()
    indices = words.indices.cast(wanted.index_type)
    return pa.DictionaryArray.from_arrays(indices, words.dictionary, ordered=wanted.ordered)
