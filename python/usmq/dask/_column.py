"""A column of a logical table: element-wise expressions and reductions over all partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from distributed import Future

import usmq
from usmq.dask import _expression
from usmq.dask._aggregate import field
from usmq.dask._expression import Expression, data_type, storage
from usmq.dask._plan import Step
from usmq.dask._table import LogicalTable
from usmq.dask._words import check_names


class LogicalColumn:
    """The client's handle to one column of a `LogicalTable`; ``table["name"]`` makes it.

    Expressions name this column ``x`` and its row ``i``, as in ``"sqrt(x[i])"``.
    """

    def __init__(self, table: LogicalTable, name: str):
        self._table, self._name = table, name
        self._field = field(table.schema, name)

    @property
    def name(self) -> str:
        """The column's name in its table."""
        return self._name

    @property
    def type(self) -> Any:
        """The pyarrow type."""
        return self._field.type

    @property
    def table(self) -> LogicalTable:
        """The table that has this column."""
        return self._table

    @property
    def npartitions(self) -> int:
        """Number of partitions."""
        return self._table.npartitions

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a LogicalColumn is a handle of the client; use to_arrow or head")

    def __repr__(self) -> str:
        return f"<usmq.dask.LogicalColumn {self._name!r}, {self.type}, of {self._table!r}>"

    def explain(self) -> str:
        """Return the steps that lead to this column, as `LogicalTable.explain`."""
        return self._table.explain()

    def elementwise(
        self,
        expression: str,
        *,
        type: Any = None,
        name: str | None = None,
        **others: LogicalColumn | int | float | bool,
    ) -> LogicalColumn:
        """Compute an expression for each row, with a kernel; return a new column.

        Parameters
        ----------
        expression : str
            C++ for row ``i``, as for `usmq.elementwise`: ``"sqrt(x[i]) + y[i] * factor"``.
        type : pyarrow.DataType or str, optional
            The type of the result, a number or time; by default that of this column.
        name : str, optional
            The name of the result; by default that of this column.
        **others
            Columns with partitions of the same lengths, and numbers, by their names in the
            expression.

        Returns
        -------
        LogicalColumn
            Null where a column of the expression is null. Its table has only this column.

        Raises
        ------
        TypeError
            ``type`` is not a type, or the type of a column is neither a number nor a time.
        ValueError
            A name is missing or not used, or the numbers of partitions differ.
        """
        wanted = self.type if type is None else data_type(type)
        storage(wanted)
        name = self._name if name is None else name
        tables, made = self._expression(expression, others)

        def call(*parts: usmq.Table) -> usmq.Table:
            return _expression.computed(made, list(parts), name, wanted)

        step = Step(
            f"elementwise({expression!r})",
            self.npartitions,
            self.npartitions,
            tuple(table._step for table in tables),
        )
        result = self._table._planned(
            step,
            lambda: self._table._zipped(call, tables),
            pa.schema([pa.field(name, wanted)]),
            tables,
        )
        return LogicalColumn(result, name)

    def reduction(
        self,
        combine: str,
        identity: str,
        *,
        map: str = "x[i]",
        post: str | None = None,
        type: Any = None,
        **others: LogicalColumn | int | float | bool,
    ) -> Future[Any]:
        """Combine the values of all rows to one number, with kernels; return its future.

        Parameters
        ----------
        combine : str
            C++ that combines two values ``a`` and ``b``, as ``"a + b"``. Partitions are combined in
            their order, so that repeated runs give the same bits.
        identity : str
            A value that changes nothing in the combination: the result without known values.
        map : str
            C++ for the value of row ``i``. Rows with nulls are skipped.
        post : str, optional
            C++ for the result, from the combined value ``a``.
        type : pyarrow.DataType or str, optional
            The type of the combined values; by default that of this column.
        **others
            As for `elementwise`.

        Raises
        ------
        TypeError, ValueError
            As for `elementwise`.
        """
        code = storage(self.type if type is None else data_type(type))
        tables, made = self._expression(map, others)
        for text, names in (combine, "ab"), (identity, ""), (post or "", "a"):
            check_names(text, names, names)

        def call(*parts: usmq.Table) -> Any:
            return made.reduced(list(parts), code, combine, identity)

        first = self._table
        found = first._zipped(call, tables)
        client = first._client

        def merge(parts: list[Future[Any]], post: str | None = None) -> Future[Any]:
            words = (code, combine, identity, post)
            return client.submit(_expression.merged, parts, *words, pure=False)

        merged = first._tree(found, merge)
        return merged if post is None else merge([merged], post)

    def head(self, rows: int = 5) -> Any:
        """Return the first rows as a pyarrow array on the client."""
        return self._table.select([self._name]).head(rows)[self._name].combine_chunks()

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow chunked array on the client."""
        return self._table.select([self._name]).to_arrow()[self._name]

    def _expression(
        self, text: str, others: dict[str, Any]
    ) -> tuple[list[LogicalTable], Expression]:
        """Return the tables whose partitions an expression needs, and the checked expression."""
        tables: list[LogicalTable] = [self._table]
        columns: dict[str, tuple[int, str, Any]] = {"x": (0, self._name, self.type)}
        numbers = {}
        for name, other in others.items():
            if not isinstance(other, LogicalColumn):
                numbers[name] = other
                continue
            if name == "x":
                raise ValueError("'x' names this column; choose another name")
            if not _expression.is_free(name):
                raise ValueError(f"{name!r} cannot name a column; another name is needed")
            if other.npartitions != self.npartitions:
                raise ValueError(
                    f"{name} has {other.npartitions} partitions, and this column has "
                    f"{self.npartitions}; combine columns of one table"
                )
            if other._table not in tables:
                tables.append(other._table)
            columns[name] = (tables.index(other._table), other._name, other.type)
        return tables, Expression.of(text, columns, numbers)
