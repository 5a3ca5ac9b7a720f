"""A table partitioned over the devices of dask workers, and the client's handle to it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import dask
import pyarrow as pa
from distributed import Client, Future, default_client, wait
from pyarrow import parquet

import usmq
from usmq.dask._aggregate import Aggregation, field

T = TypeVar("T")
# The number of partition results that one task combines.
SPLIT_EVERY = 8


class LogicalTable:
    """The client's handle to a table whose rows are in partitions on workers.

    Each partition is a `usmq.Table` on the device of one worker; the client holds no data.
    `from_arrow`, `from_parquet` and the methods below create it. All partitions have one schema.
    """

    def __init__(self, partitions: Sequence[Future[Any]], schema: Any, client: Client):
        self._partitions, self._schema, self._client = list(partitions), schema, client

    @classmethod
    def from_arrow(
        cls, table: Any, npartitions: int | None = None, *, client: Client | None = None
    ) -> LogicalTable:
        """Divide a pyarrow table into ranges of rows, and copy each to a worker's device.

        The scheduler also keeps the rows, to recreate the partitions of a lost worker; use
        `from_parquet` for tables that are too large for that.

        Parameters
        ----------
        table : pyarrow.Table
            Or a `usmq.Table`, or any object that ``pyarrow.table`` accepts.
        npartitions : int, optional
            By default one per worker.
        client : distributed.Client, optional
            By default the current one.
        """
        client = client or default_client()
        if isinstance(table, usmq.Table):
            table = table.to_arrow()
        elif not isinstance(table, pa.Table):
            table = pa.table(table)
        count = _count(npartitions, client)
        # Give each partition one dictionary and one chunk.
        table = table.unify_dictionaries()
        ends = [table.num_rows * part // count for part in range(count + 1)]
        slices = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
            made = [client.submit(_upload, part, pure=False) for part in slices]
        return cls(made, table.schema, client)

    @classmethod
    def from_parquet(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        npartitions: int | None = None,
        *,
        client: Client | None = None,
    ) -> LogicalTable:
        """Read Parquet files on the workers, which must see them under these paths.

        Parameters
        ----------
        paths : path or list of paths
            Files of one schema.
        columns : list of str, optional
            The columns to read; by default all.
        npartitions : int, optional
            By default one per worker; at most one per row group.
        client : distributed.Client, optional
            By default the current one.
        """
        client = client or default_client()
        files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not files:
            raise ValueError("no Parquet file was given")
        names = [os.fspath(path) for path in files]
        schema: Any = None
        groups: list[tuple[str, int]] = []
        for name in names:
            with parquet.ParquetFile(name) as file:
                found = file.schema_arrow
                groups += [(name, group) for group in range(file.num_row_groups)]
            if schema is not None and not found.equals(schema):
                raise ValueError(f"{name} has another schema than {names[0]}")
            schema = found
        if columns is not None:
            schema = pa.schema([field(schema, name) for name in columns], metadata=schema.metadata)
        count = min(_count(npartitions, client), max(len(groups), 1))
        parts = [
            groups[len(groups) * n // count : len(groups) * (n + 1) // count] for n in range(count)
        ]
        made = [client.submit(_read, part, schema, pure=False) for part in parts]
        return cls(made, schema, client)

    @property
    def npartitions(self) -> int:
        """Number of partitions."""
        return len(self._partitions)

    @property
    def partitions(self) -> list[Future[Any]]:
        """The futures of the partitions, each of a `usmq.Table`."""
        return list(self._partitions)

    @property
    def schema(self) -> Any:
        """The pyarrow schema of every partition; waits for a partition if it is still unknown."""
        if self._schema is None:
            self._schema = self._client.submit(_schema, self._partitions[0], pure=False).result()
        return self._schema

    @property
    def column_names(self) -> list[str]:
        """The columns' names, in their order."""
        return list(self.schema.names)

    @property
    def num_rows(self) -> int:
        """Number of rows of all partitions; waits for them."""
        return sum(self._client.gather(self._client.map(len, self._partitions, pure=False)))

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        columns = "" if self._schema is None else f", columns {', '.join(self._schema.names)}"
        return f"<usmq.dask.LogicalTable of {self.npartitions} partitions{columns}>"

    def wait(self, timeout: float | None = None) -> LogicalTable:
        """Wait for every partition; raise the exception of a failed one. Return this table."""
        wait(self._partitions, timeout=timeout)
        for part in self._partitions:
            if part.status != "finished":
                part.result(timeout=timeout)
        return self

    def select(self, names: Sequence[str]) -> LogicalTable:
        """Return the table with only these columns, in this order.

        Raises
        ------
        KeyError
            A name matches no column, or more than one.
        """
        schema = pa.schema(
            [field(self.schema, name) for name in names], metadata=self.schema.metadata
        )
        made = [
            self._client.submit(_select, part, list(names), pure=False) for part in self._partitions
        ]
        return LogicalTable(made, schema, self._client)

    def map_partitions(
        self,
        function: Callable[[usmq.TaskContext], usmq.Table],
        *args: Any,
        schema: Any = None,
        memory_limit: int | None = None,
    ) -> LogicalTable:
        """Run a function on every partition, on its worker; the results form a new table.

        Parameters
        ----------
        function : callable
            Called as by `usmq.run_task`: its arguments are the partition and then ``args``. It
            returns a `usmq.Table`, of the same schema for every partition.
        *args : object
            Futures are replaced by their results; arrays are on the worker's queue.
        schema : pyarrow.Schema, optional
            The schema of the results; a partition with another schema fails. By default that of
            the first result.
        memory_limit : int, optional
            Limit in bytes for the task's memory, for one partition.

        Raises
        ------
        TypeError
            On access to the result: the function returned another type.
        ValueError
            On access to the result: the schema differs.
        """
        made = self._each(_mapped, function, args, memory_limit)
        if schema is None and made:
            schema_of = self._client.submit(_schema, made[0], pure=False)
            made[1:] = [
                self._client.submit(_checked, part, schema_of, pure=False) for part in made[1:]
            ]
        elif made:
            made = [self._client.submit(_checked, part, schema, pure=False) for part in made]
        return LogicalTable(made, schema, self._client)

    def reduce(
        self,
        function: Callable[[usmq.TaskContext], T],
        combine: Callable[[list[T]], T],
        *args: Any,
        memory_limit: int | None = None,
    ) -> Future[Any]:
        """Run a function on every partition, combine the results, and return a future.

        Parameters
        ----------
        function : callable
            As for `map_partitions`; it may return any picklable object.
        combine : callable
            Called with a list of results, in the order of the partitions. The list may contain
            results of ``combine``: the parts of a large table are combined in several steps.
        *args : object
            As for `map_partitions`.
        memory_limit : int, optional
            As for `map_partitions`.
        """
        found = self._each(_run, function, args, memory_limit)
        return self._tree(
            found, lambda parts: self._client.submit(_combined, combine, parts, pure=False)
        )

    def group_by(self, keys: str | Sequence[str]) -> Grouped:
        """Group the rows by the values of columns, as ``pyarrow.Table.group_by``.

        Null is a separate key. Without keys all rows form one group.
        """
        return Grouped(self, (keys,) if isinstance(keys, str) else tuple(keys))

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow table on the client, in the order of the partitions."""
        parts = self._client.gather(self._client.map(_to_arrow, self._partitions, pure=False))
        return pa.concat_tables(parts).replace_schema_metadata(parts[0].schema.metadata)

    def _each(
        self, call: Any, function: Any, args: Any, memory_limit: int | None
    ) -> list[Future[Any]]:
        if any(isinstance(arg, LogicalTable) for arg in args):
            raise TypeError(
                "a LogicalTable is a handle of the client; pass futures of its partitions"
            )
        return [
            self._client.submit(call, function, memory_limit, part, *args, pure=False)
            for part in self._partitions
        ]

    def _tree(
        self, parts: list[Future[Any]], merged: Callable[[list[Future[Any]]], Future[Any]]
    ) -> Future[Any]:
        while len(parts) > SPLIT_EVERY:
            runs = [parts[n : n + SPLIT_EVERY] for n in range(0, len(parts), SPLIT_EVERY)]
            parts = [merged(run) for run in runs]
        return merged(parts)


class Grouped:
    """A table with keys to group its rows by; created by `LogicalTable.group_by`."""

    def __init__(self, table: LogicalTable, keys: tuple[str, ...]):
        self._table, self._keys = table, keys

    def aggregate(self, wanted: Iterable[tuple[str | Sequence[str], str]]) -> LogicalTable:
        """Aggregate each group with kernels on the workers; return a table of one partition.

        Groups are in the order of their first rows. As in ``pyarrow``, all functions except
        ``"count_all"`` skip nulls, and the result of a group without known values is null.

        Parameters
        ----------
        wanted : list of (str, str)
            A column and one of ``"count"`` (of known values), ``"sum"``, ``"mean"``, ``"min"``,
            ``"max"``; for the number of rows ``([], "count_all")``. The result's columns are the
            keys and then ``column_function``.

        Raises
        ------
        KeyError
            A column does not exist.
        TypeError
            A column's type cannot be grouped by or aggregated.
        ValueError
            A function is unknown, or two results would have the same name.
        """
        table = self._table
        plan = Aggregation.of(table.schema, self._keys, wanted)
        found = table._each(_run, plan.partial, (), None)
        merged = table._tree(
            found, lambda parts: table._client.submit(_run_all, plan.merge, parts, pure=False)
        )
        result = table._client.submit(_run, plan.finish, None, merged, pure=False)
        return LogicalTable([result], plan.result_schema(), table._client)


def _count(wanted: int | None, client: Client) -> int:
    count = (
        max(len(client.scheduler_info(n_workers=-1)["workers"]), 1) if wanted is None else wanted
    )
    if count < 1:
        raise ValueError(f"npartitions must be 1 or more, not {count}")
    return count


# --- tasks: run on workers, where `usmq.run_task` creates a context from dask's arguments


def _run(function: Any, memory_limit: int | None, *args: Any) -> Any:
    return usmq.run_task(function, *args, memory_limit=memory_limit)


def _run_all(function: Any, parts: list[Any]) -> Any:
    return usmq.run_task(function, *parts)


def _mapped(function: Any, memory_limit: int | None, *args: Any) -> usmq.Table:
    made = _run(function, memory_limit, *args)
    if not isinstance(made, usmq.Table):
        name = getattr(function, "__name__", function)
        raise TypeError(
            f"{name} must return a usmq.Table for each partition, not {type(made).__name__}"
        )
    return made


def _combined(combine: Any, parts: list[Any]) -> Any:
    return combine(parts)


def _upload(part: Any) -> usmq.Table:
    table: usmq.Table = usmq.from_arrow(part.combine_chunks())
    return table


def _read(groups: list[tuple[str, int]], schema: Any) -> usmq.Table:
    parts = []
    for name, group in groups:
        with parquet.ParquetFile(name) as file:
            parts.append(file.read_row_group(group, columns=schema.names).select(schema.names))
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    return _upload(table.unify_dictionaries())


def _select(table: usmq.Table, names: list[str]) -> usmq.Table:
    return table.select(names)


def _schema(table: usmq.Table) -> Any:
    return pa.schema(table.schema)


def _checked(table: usmq.Table, schema: Any) -> usmq.Table:
    found = pa.schema(table.schema)
    if not found.equals(schema):
        raise ValueError(f"a partition has the schema\n{found}\nand another\n{schema}")
    return table


def _to_arrow(table: usmq.Table) -> Any:
    return table.to_arrow()
