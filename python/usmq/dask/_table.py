"""A table partitioned over the devices of dask workers, and the client's handle to it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import dask
import pyarrow as pa
from distributed import Client, Future, default_client, wait

import usmq
from usmq.dask import _frames, _parquet, _tasks
from usmq.dask._aggregate import Aggregation, field
from usmq.dask._expression import Expression
from usmq.dask._plan import Step, tree_tasks

if TYPE_CHECKING:
    from usmq.dask._column import LogicalColumn

T = TypeVar("T")
# The number of partition results that one task combines.
SPLIT_EVERY = 8


class LogicalTable:
    """The client's handle to a table whose rows are in partitions on workers.

    Each partition is a `usmq.Table` on the device of one worker. `from_arrow`, `from_parquet` and
    the methods below create it. All partitions have one schema.

    A method only plans: `explain` returns the plan as text. The tasks are submitted when a result
    is needed, or by `start`.
    """

    def __init__(
        self,
        partitions: Sequence[Future[Any]] | Callable[[], Sequence[Future[Any]]],
        schema: Any,
        client: Client,
        step: Step | None = None,
        inputs: Sequence[LogicalTable] = (),
    ):
        self._schema, self._client, self._inputs = schema, client, tuple(inputs)
        self._make: Callable[[], Sequence[Future[Any]]] | None = None
        self._futures: list[Future[Any]] = []
        if callable(partitions):
            self._make = partitions
        else:
            self._futures = list(partitions)
        count = len(self._futures)
        self._step = step or Step(f"{count} given partitions", 0, count)

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
            step = Step(f"from_arrow({table.num_rows:,} rows)", count, count)
        return cls(lambda: _submit_all(client, _tasks.upload, slices), table.schema, client, step)

    @classmethod
    def from_parquet(
        cls,
        paths: _parquet.Paths,
        columns: Sequence[str] | None = None,
        npartitions: int | None = None,
        *,
        client: Client | None = None,
    ) -> LogicalTable:
        """Read Parquet files on the workers, which must see them under these paths.

        Parameters
        ----------
        paths : path or list of paths
            Files, folders and patterns such as ``"2026/*.parquet"``. All files have the same
            columns, in any order; the order of the first is used. The files of a folder or pattern
            are in the order of their names; names that begin with ``.`` or ``_`` are left out.
        columns : list of str, optional
            The columns to read; by default all.
        npartitions : int, optional
            By default one per worker; at most one per row group.
        client : distributed.Client, optional
            By default the current one.
        """
        client = client or default_client()
        names = _parquet.files(paths)
        schema, groups = _parquet.plan(names, columns)
        count = min(_count(npartitions, client), max(len(groups), 1))
        parts = [
            groups[len(groups) * n // count : len(groups) * (n + 1) // count] for n in range(count)
        ]
        step = Step(f"from_parquet({len(names)} files, {len(groups)} row groups)", count, count)
        return cls(
            lambda: client.map(_tasks.read, parts, *_columns(parts, schema), pure=False),
            schema,
            client,
            step,
        )

    @property
    def npartitions(self) -> int:
        """Number of partitions."""
        return self._step.npartitions

    @property
    def partitions(self) -> list[Future[Any]]:
        """The futures of the partitions, each of a `usmq.Table`; submits the tasks."""
        return list(self._partitions)

    @property
    def _partitions(self) -> list[Future[Any]]:
        if self._make is not None:
            self._futures = list(self._make())
            # The futures keep what they need; the plan keeps its text.
            self._make, self._inputs = None, ()
        return self._futures

    def start(self) -> LogicalTable:
        """Submit the tasks, if they are not yet, and return this table."""
        assert len(self._partitions) == self.npartitions
        return self

    def explain(self) -> str:
        """Return the steps that lead to this table, with their tasks; submits nothing.

        The last step comes first; the steps before it are indented. A step is "planned" until its
        tasks are submitted.
        """
        return "\n".join(self._step.lines(self._submitted()))

    def _submitted(self) -> set[Step]:
        if self._make is None:
            return set(self._step.steps())
        done: set[Step] = set()
        for table in self._inputs:
            done |= table._submitted()
        return done

    def _planned(
        self,
        step: Step,
        make: Callable[[], Sequence[Future[Any]]],
        schema: Any,
        inputs: Sequence[LogicalTable] | None = None,
    ) -> LogicalTable:
        """Return the table of a step after this one."""
        return LogicalTable(make, schema, self._client, step, inputs or [self])

    @property
    def schema(self) -> Any:
        """The pyarrow schema of every partition; waits for a partition if it is still unknown."""
        if self._schema is None:
            self._schema = self._client.submit(
                _tasks.schema, self._partitions[0], pure=False
            ).result()
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
        done = self._submitted()
        waiting = sum(step.tasks for step in self._step.steps() if step not in done)
        planned = f", planned: {waiting} tasks" if waiting else ""
        return f"<usmq.dask.LogicalTable of {self.npartitions} partitions{columns}{planned}>"

    def wait(self, timeout: float | None = None) -> LogicalTable:
        """Wait for every partition; raise the exception of a failed one. Return this table."""
        wait(self.partitions, timeout=timeout)
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
        ValueError
            ``names`` is empty, or a str.
        """
        if isinstance(names, str) or not names:
            raise ValueError(f"select takes a list of one or more names, not {names!r}")
        schema = pa.schema(
            [field(self.schema, name) for name in names], metadata=self.schema.metadata
        )
        count = self.npartitions
        step = Step(f"select({', '.join(names)})", count, count, (self._step,))
        return self._planned(step, lambda: self._each_part(_tasks.select, list(names)), schema)

    def __getitem__(self, name: str) -> LogicalColumn:
        """Return a column: its expressions, reductions, first rows.

        Raises
        ------
        KeyError
            The name matches no column, or more than one.
        """
        from usmq.dask._column import LogicalColumn

        return LogicalColumn(self, name)

    def __iter__(self) -> Any:
        raise TypeError("a LogicalTable is a handle of the client; use to_arrow or head")

    def head(self, rows: int = 5) -> Any:
        """Return the first rows as a pyarrow table on the client; only these rows are sent.

        Raises
        ------
        TypeError, ValueError
            The number of rows is not an integer, or negative.
        """
        try:
            rows = operator.index(rows)
        except TypeError:
            raise TypeError(f"head takes a number of rows, not {rows!r}") from None
        if rows < 0:
            raise ValueError(f"head needs 0 rows or more, not {rows}")
        parts = self._partitions
        found = [self._client.submit(_tasks.head, parts[0], rows, pure=False).result()]
        rows -= found[0].num_rows
        done, more = 1, 1
        # Partitions may have few rows, as after a filter: ask twice as many each time.
        while rows > 0 and done < len(parts):
            asked = parts[done : done + more]
            lengths = self._client.gather(self._client.map(len, asked, pure=False))
            firsts = []
            for part, length in zip(asked, lengths, strict=True):
                if wanted := min(rows, length):
                    firsts.append(self._client.submit(_tasks.head, part, wanted, pure=False))
                    rows -= wanted
            found += self._client.gather(firsts)
            done, more = done + more, 2 * more
        return pa.concat_tables(found).replace_schema_metadata(found[0].schema.metadata)

    def filter(self, expression: str, **numbers: int | float | bool) -> LogicalTable:
        """Return the rows for which an expression over columns is true.

        Kernels compute the expression and select the rows on the device, as `usmq.Table.filter`.

        Parameters
        ----------
        expression : str
            C++ for row ``i``, as for `usmq.elementwise`: ``"delay[i] > limit && month[i] == 1"``.
            Columns have their names, which must be words of C++. A row with a null in one of them
            is not selected.
        **numbers
            Numbers by their names in the expression.

        Raises
        ------
        TypeError
            The type of a column is neither a number nor a time.
        ValueError
            The expression uses no column, or one without an index, or does not use a number.
        """
        made = Expression.of_schema(expression, self.schema, numbers)
        count = self.npartitions
        words = "".join(f", {name}={value!r}" for name, value in numbers.items())
        step = Step(f"filter({expression!r}{words})", count, count, (self._step,))
        return self._planned(step, lambda: self._each_part(_tasks.filtered, made), self.schema)

    def row_offsets(self) -> list[int]:
        """Return the number of the first row of each partition in the table; waits for them."""
        found: list[int] = self._offsets().result()
        return found

    def to_dask(self) -> Any:
        """Return a ``dask.dataframe`` of the partitions, as pandas frames on the workers' hosts.

        Use it for what usmq has no kernel for, as joins and sorts; `from_dask` leads back. The
        columns have Arrow types (``pandas.ArrowDtype``), so values and types stay as they are.
        Dictionaries become columns of their values; dates with a time are pandas' own type.

        Raises
        ------
        TypeError
            pandas cannot hold the type of a column; the text names the column.
        """
        from dask import dataframe

        schema = _frames.frame_schema(self.schema)
        meta = schema.empty_table().to_pandas(types_mapper=_frames.kept)
        frames = self._each_part(_frames.to_pandas, schema)
        return dataframe.from_delayed(frames, meta=meta, verify_meta=False)

    @classmethod
    def from_dask(cls, frame: Any, *, client: Client | None = None) -> LogicalTable:
        """Compute a ``dask.dataframe`` on the workers, and copy each partition to a device.

        The index is dropped. The schema is that of the frame's types in pandas. Categories become
        text if the frame does not know their values before it is computed.
        """
        if not hasattr(frame, "to_delayed"):
            raise TypeError(f"from_dask takes a dask.dataframe, not {type(frame).__name__}")
        client = client or default_client()
        schema = _frames.schema_of(frame._meta)
        count = frame.npartitions

        def make() -> list[Future[Any]]:
            with dask.config.set({"dataframe.shuffle.method": _frames.shuffle_method(schema)}):
                parts = client.compute(frame.to_delayed())
            return client.map(_tasks.from_pandas, parts, *_columns(parts, schema), pure=False)

        return cls(make, schema, client, Step("from_dask", 2 * count, count))

    def map_partitions(
        self,
        function: Callable[[usmq.TaskContext], usmq.Table],
        *args: Any,
        schema: Any = None,
        row_offset: bool = False,
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
        row_offset : bool
            Whether the function's last argument is the number of the partition's first row in the
            table, as an int.
        memory_limit : int, optional
            Limit in bytes for the memory that the function takes from ``task.memory``, for one
            partition. Other allocations do not count.

        Raises
        ------
        TypeError
            On access to the result: the function returned another type.
        ValueError
            On access to the result: the schema differs.
        """
        self._check_arguments(args)
        count = self.npartitions

        def make() -> list[Future[Any]]:
            offsets = self._offsets() if row_offset else None
            made = self._each(_tasks.mapped, function, args, memory_limit, offsets)
            if schema is not None:
                return self._map(_tasks.checked, made, *_columns(made, schema))
            first = self._client.submit(_tasks.schema, made[0], pure=False)
            rest = made[1:]
            return [made[0], *self._map(_tasks.checked, rest, *_columns(rest, first))]

        tasks = 2 * count + (count + 1 if row_offset else 0)
        name = getattr(function, "__name__", repr(function))
        words = "".join(f", {arg!r:.40}" for arg in args)
        step = Step(f"map_partitions({name}{words})", tasks, count, (self._step,))
        return self._planned(step, make, schema)

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
        self._check_arguments(args)
        found = self._each(_tasks.run, function, args, memory_limit)
        return self._tree(
            found, lambda parts: self._client.submit(_tasks.combined, combine, parts, pure=False)
        )

    def group_by(self, keys: str | Sequence[str]) -> Grouped:
        """Group the rows by the values of columns, as ``pyarrow.Table.group_by``.

        Null is a separate key. Without keys all rows form one group.

        Raises
        ------
        TypeError
            A key is not a name.
        """
        given: Any = (keys,) if isinstance(keys, str) else keys
        names: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"group_by takes names of columns, not {keys!r}")
        return Grouped(self, names)

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow table on the client, in the order of the partitions."""
        parts = self._client.gather(self._map(_tasks.to_arrow, self._partitions))
        return pa.concat_tables(parts).replace_schema_metadata(parts[0].schema.metadata)

    def _check_arguments(self, args: Any) -> None:
        from usmq.dask._column import LogicalColumn

        for arg in args:
            if isinstance(arg, (LogicalTable, LogicalColumn)):
                kind = type(arg).__name__
                raise TypeError(
                    f"a {kind} is a handle of the client; pass futures of its partitions"
                )

    def _each(
        self,
        call: Any,
        function: Any,
        args: Any,
        memory_limit: int | None,
        offsets: Future[Any] | None = None,
    ) -> list[Future[Any]]:
        parts = self._partitions
        same = _columns(parts, function, memory_limit, offsets)
        numbers = range(len(parts))
        return self._map(call, *same, numbers, parts, *_columns(parts, *args))

    def _each_part(self, call: Any, *args: Any) -> list[Future[Any]]:
        return self._map(call, self._partitions, *_columns(self._partitions, *args))

    def _zipped(self, call: Any, tables: list[LogicalTable]) -> list[Future[Any]]:
        """Call a function with a partition of each table."""
        return self._map(call, *(table._partitions for table in tables))

    def _map(self, call: Any, *columns: Sequence[Any]) -> list[Future[Any]]:
        """Call a function with each row of the columns.

        The scheduler gets one graph of all tasks, which costs it less than a graph for each.
        """
        made: list[Future[Any]] = self._client.map(call, *columns, pure=False)
        return made

    def _offsets(self) -> Future[Any]:
        """Return the future of the list of `row_offsets`; each number is sent once."""
        lengths = self._map(len, self._partitions)
        return self._client.submit(_tasks.offsets, lengths, pure=False)

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
        client = table._client

        def make() -> list[Future[Any]]:
            found = table._each(_tasks.run, plan.partial, (), None)
            merged = table._tree(
                found, lambda parts: client.submit(_tasks.run_all, plan.merge, parts, pure=False)
            )
            return [client.submit(_tasks.run, plan.finish, None, None, 0, merged, pure=False)]

        count = table.npartitions
        pairs = ", ".join(plan.names())
        step = Step(
            f"group_by({', '.join(self._keys)}).aggregate({pairs})",
            count + tree_tasks(count, SPLIT_EVERY) + 1,
            1,
            (table._step,),
        )
        return table._planned(step, make, plan.result_schema())


def _count(wanted: int | None, client: Client) -> int:
    count = (
        max(len(client.scheduler_info(n_workers=-1)["workers"]), 1) if wanted is None else wanted
    )
    if count < 1:
        raise ValueError(f"npartitions must be 1 or more, not {count}")
    return count


def _columns(parts: Sequence[Any], *values: Any) -> list[list[Any]]:
    """Return the arguments of tasks that are the same for all parts."""
    return [[value] * len(parts) for value in values]


def _submit_all(client: Client, function: Any, parts: list[Any]) -> list[Future[Any]]:
    # The scheduler gets the rows with the tasks, on purpose.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        return [client.submit(function, part, pure=False) for part in parts]
