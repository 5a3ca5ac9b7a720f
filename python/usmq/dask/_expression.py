"""Expressions over the columns of a partition, computed by one-line kernels on its device."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

import usmq
from usmq.dask._aggregate import field
from usmq.dask._words import check_names, kernel_names

# The types of C++ for the storage of Arrow's numbers and times.
SPELLINGS = {
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long",
    "u1": "unsigned char",
    "u2": "unsigned short",
    "u4": "unsigned int",
    "u8": "unsigned long",
    "f4": "float",
    "f8": "double",
}
# The types of numbers from Python.
NUMBERS: dict[type, str] = {bool: "bool", int: "long", float: "double"}
# Names that kernels use: the row, the number of rows, the operands of a reduction, results.
RESERVED = {"i", "n", "a", "b", "result_", "known_"}
# Those that only reductions use.
OPERANDS = {"a", "b"}
WORD = re.compile(r"[^\W\d]\w*")
# Words of C++ that cannot name a column, since an expression may use them.
TYPES = {word for spelling in SPELLINGS.values() for word in spelling.split()} | {"bool"}


def data_type(given: Any) -> Any:
    """Return a pyarrow type; ``given`` is one or its name, as "float64".

    Raises
    ------
    TypeError
        ``given`` is neither.
    """
    with contextlib.suppress(ValueError):
        found = pa.type_for_alias(given) if isinstance(given, str) else given
        if isinstance(found, pa.DataType):
            return found
    raise TypeError(f"type is a pyarrow.DataType or a name such as 'float64', not {given!r}")


def storage(given: Any) -> str:
    """Return the storage of a column's values, as "i4".

    Raises
    ------
    TypeError
        An expression cannot use this type.
    """
    width = getattr(given, "bit_width", 0) if types.is_primitive(given) else 0
    if types.is_floating(given):
        code = f"f{width // 8}"
    elif types.is_unsigned_integer(given):
        code = f"u{width // 8}"
    elif types.is_integer(given) or (types.is_temporal(given) and not types.is_interval(given)):
        code = f"i{width // 8}"
    else:
        code = ""
    if code not in SPELLINGS:
        raise TypeError(f"an expression cannot use values of type {given}; use numbers or times")
    return code


def words_of(text: Any) -> set[str]:
    """Return the names in an expression."""
    if not isinstance(text, str):
        raise TypeError(f"an expression is a str such as 'x[i] > 1', not {text!r}")
    return set(WORD.findall(text))


def is_free(name: str) -> bool:
    """Return whether a caller may give this name to a number or a column."""
    return name.isascii() and name.isidentifier() and name not in RESERVED


@dataclass(frozen=True)
class Expression:
    """An expression, the columns it reads, and the numbers it uses."""

    text: str
    # The name in the expression, the column's position among the tables, its name and storage.
    columns: tuple[tuple[str, int, str, str], ...]
    numbers: tuple[tuple[str, Any], ...]

    @classmethod
    def of(
        cls,
        text: str,
        columns: Mapping[str, tuple[int, str, Any]],
        numbers: Mapping[str, Any],
        schema: Iterable[str] | None = None,
    ) -> Expression:
        """Check the names; ``columns`` has the table's position, the column and its Arrow type.

        Errors list the names of the schema, by default those of ``columns``.
        """
        words = words_of(text)
        numbers = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in numbers.items()
        }
        for name, value in numbers.items():
            if type(value) not in NUMBERS:
                raise TypeError(f"{name} must be a number, not {type(value).__name__}")
            if not is_free(name) or name in columns:
                raise ValueError(f"{name!r} cannot name a number; another name is needed")
            if name not in words:
                raise ValueError(f"{name!r} does not occur in the expression {text!r}")
        used = {
            name: entry for name, entry in columns.items() if re.search(rf"\b{name}\s*\[", text)
        }
        for name in columns:
            # Other than by index, a word may be a member, a type, or a function of this name.
            others = {*re.findall(rf"(?<![\w.]){name}\b\s*([^\[\s]|$)", text)}
            is_function = name in kernel_names() and name not in used
            if name not in TYPES and others - ({"("} if is_function else set()):
                raise ValueError(
                    f"{text!r} uses the column {name!r} without an index; write '{name}[i]'"
                )
        if not used:
            named = ", ".join(columns) or "none"
            raise ValueError(f"{text!r} uses no column, such as 'x[i]'; columns: {named}")
        check_names(text, {*used, *numbers, "i", "n"}, columns if schema is None else schema)
        found = tuple(
            (name, at, column, storage(given)) for name, (at, column, given) in used.items()
        )
        return cls(text, found, tuple(numbers.items()))

    @classmethod
    def of_schema(cls, text: str, schema: Any, numbers: Mapping[str, Any]) -> Expression:
        """Check an expression that names the columns of one table."""
        words = words_of(text) & set(schema.names)
        # Without a reduction, a and b may name columns.
        taken = {name for name in words if name in RESERVED - OPERANDS or not name.isascii()}
        if words and words <= taken:
            raise ValueError(
                f"{sorted(words)[0]!r} cannot name a column in an expression: names are ASCII, i "
                "is the row, and n the number of rows; rename the column by map_partitions"
            )
        named = [name for name in dict.fromkeys(schema.names) if name in words - taken]
        columns = {name: (0, name, field(schema, name).type) for name in named}
        return cls.of(text, columns, numbers, schema.names)

    def _bind(self, tables: list[usmq.Table]) -> tuple[list[str], list[Any], int]:
        """Return the parameters, the arguments, and the number of rows."""
        rows = {table.num_rows for table in tables}
        if len(rows) != 1:
            raise ValueError(f"columns of {sorted(rows)} rows cannot be combined")
        parameters, arguments = [], []
        for name, at, column, code in self.columns:
            parameters.append(f"const {SPELLINGS[code]} *{name}")
            arguments.append(tables[at][column].values())
        for name, value in self.numbers:
            parameters.append(f"{NUMBERS[type(value)]} {name}")
            arguments.append(value)
        return parameters, arguments, rows.pop()

    def known(self, tables: list[usmq.Table]) -> usmq.Array | None:
        """Return a byte per row: 1 if no column of the expression is null; None without nulls."""
        known: usmq.Array | None = None
        for _, at, name, _ in self.columns:
            column = tables[at][name]
            bits = column.validity()
            if bits is None:
                continue
            if known is None:
                known = usmq.ones(len(column), "u1", queue=column.queue)
            usmq.elementwise(
                "raw const unsigned char *bits, long first, unsigned char *known",
                "known[i] &= bits[(i + first) / 8] >> ((i + first) % 8) & 1",
            )(bits, column.bit_offset, known)
        return known

    def values(self, tables: list[usmq.Table], code: str) -> usmq.Array:
        """Compute the expression for every row; rows with nulls have any value."""
        parameters, arguments, rows = self._bind(tables)
        result = usmq.empty(rows, code, queue=tables[0].queue)
        spelling = SPELLINGS[code]
        usmq.elementwise(
            ", ".join([*parameters, f"{spelling} *result_"]),
            f"result_[i] = ({spelling})({self.text})",
        )(*arguments, result)
        return result

    def mask(self, table: usmq.Table) -> usmq.Array:
        """Return for every row whether the expression is true; rows with nulls have any value."""
        parameters, arguments, rows = self._bind([table])
        result = usmq.empty(rows, "bool", queue=table.queue)
        usmq.elementwise(
            ", ".join([*parameters, "bool *result_"]), f"result_[i] = ({self.text}) ? true : false"
        )(*arguments, result)
        return result

    def reduced(self, tables: list[usmq.Table], code: str, combine: str, identity: str) -> Any:
        """Combine the expression's values of the rows without nulls."""
        parameters, arguments, rows = self._bind(tables)
        known = self.known(tables)
        if known is None:
            known = usmq.ones(rows, "u1", queue=tables[0].queue)
        spelling = SPELLINGS[code]
        parameters.append("const unsigned char *known_")
        value = f"known_[i] ? ({spelling})({self.text}) : ({spelling})({identity})"
        reduction = usmq.reduction(", ".join(parameters), spelling, value, combine, identity)
        return reduction(*arguments, known).item()


def selected(expression: Expression, table: usmq.Table) -> usmq.Table:
    """Return the rows for which an expression is true and no column of it is null."""
    mask = expression.mask(table)
    known = expression.known([table])
    validity = None if known is None else known.astype("bool")
    return table.filter(usmq.Column(mask, validity=validity))


def computed(
    expression: Expression, tables: list[usmq.Table], name: str, wanted: Any
) -> usmq.Table:
    """Return a table of one column: an expression's values, null where a column of it is null."""
    values = expression.values(tables, storage(wanted))
    known = expression.known(tables)
    validity = None if known is None else known.astype("bool")
    return usmq.Table({name: usmq.Column(values, validity=validity, type=str(wanted))})


def merged(numbers: list[Any], code: str, combine: str, identity: str, post: str | None) -> Any:
    """Combine the results of partitions; ``post`` maps the last one."""
    spelling = SPELLINGS[code]
    words = (f"const {spelling} *x", spelling, "x[i]", combine, identity)
    reduction = usmq.reduction(*words) if post is None else usmq.reduction(*words, post=post)
    return reduction(usmq.asarray(np.array(numbers, code))).item()
