"""Groups rows by equal keys and aggregates them, with kernels on the device of the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

import usmq

# Rows are counted in 32 bits, and the hash table has twice as many slots.
MOST_ROWS = 2**30
# The largest number of row ranges that are summed separately, and of states in total.
LANES, STATES = 256, 2**18
SIGN = 1 << 63
# Larger ranges are multiples of this: the runtime chooses work-groups that divide the range. The
# kernels ignore the rest.
WHOLE = 256


@cache
def _kernel(name: str, real: str) -> usmq.Kernel:
    source = files("usmq").joinpath("kernels", "groups.cpp").read_text(encoding="utf-8")
    source = re.sub(r"\bREAL\b", {"f8": "double", "f4": "float"}[real], source)
    return usmq.Kernel.from_sycl(source, name)


@dataclass(frozen=True)
class Values:
    """A column for kernels: one validity byte per row, and the values."""

    known: usmq.Array
    values: usmq.Array
    # For text: the start of each value, then the end of the last one.
    offsets: usmq.Array | None = None

    @property
    def kind(self) -> str:
        """The kind of kernels that read it: "whole", "real" or "text"."""
        if self.offsets is not None:
            return "text"
        return "whole" if self.values.dtype == "i8" else "real"

    @property
    def arguments(self) -> list[usmq.Array]:
        """Return the values as kernel arguments."""
        return [self.values] if self.offsets is None else [self.offsets, self.values]


class Groups:
    """The rows of one batch in groups of equal keys, numbered in the order of their first rows."""

    def __init__(self, task: usmq.TaskContext, rows: int):
        if rows > MOST_ROWS:
            raise ValueError(f"a partition of {rows:,} rows; at most {MOST_ROWS:,}: divide it")
        self.task, self.rows = task, rows
        self.real = "f8" if "fp64" in task.queue.device.aspects else "f4"
        # Without keys all rows form one group. An empty table has this group, too.
        self.count = 1
        self.of_row = task.memory.zeros(rows, "u4")
        self.first_rows = task.memory.zeros(1, "u4")

    def launch(self, name: str, size: int, *arguments: Any) -> None:
        """Launch a kernel of groups.cpp, unless the size is 0."""
        if size > WHOLE:
            size += -size % WHOLE
        if size:
            _kernel(name, self.real)(size, *arguments)

    def values(self, column: usmq.Column, as_real: bool = False) -> Values:
        """Widen a column for the kernels; convert its numbers to reals on request."""
        rows, make = self.rows, self.task.memory.empty
        known = self._bits(column.validity(), column.bit_offset)
        if column.format in ("u", "U", "z", "Z"):
            return Values(known, column.values(), column.offsets().astype("i8"))
        if column.format == "b":
            values = self._bits(column.values(), column.bit_offset)
        else:
            values = column.values()
        real = as_real or column.format in ("e", "f", "g")
        wide = make(rows, self.real if real else "i8")
        wide[...] = values
        return Values(known, wide)

    def divide(self, key: Values) -> None:
        """Divide the groups by another key."""
        n, make, zeros = self.rows, self.task.memory.empty, self.task.memory.zeros
        places = 1 << max(2 * n - 1, 1).bit_length()
        slots, likes, first = zeros(places, "u4"), make(n, "u4"), make(n, "u4")
        first[...] = n
        self.launch(
            f"like_{key.kind}",
            n,
            self.of_row,
            key.known,
            *key.arguments,
            slots,
            places - 1,
            likes,
            n,
        )
        self.launch("lowest_rows", n, likes, first, n)
        lanes = min(LANES, n)
        counts = make(lanes, "u4")
        self.launch("count_groups", lanes, likes, first, counts, n, lanes)
        ends = np.cumsum(counts.to_numpy(), dtype="u4")
        self.count = int(ends[-1]) if lanes else 0
        before = usmq.asarray(ends - counts.to_numpy())
        numbers, self.first_rows = make(n, "u4"), make(self.count, "u4")
        self.launch(
            "number_groups", lanes, likes, first, before, numbers, self.first_rows, n, lanes
        )
        self.launch("spread_groups", n, likes, first, numbers, self.of_row, n)

    def key_of_each(self, key: Values) -> tuple[Any, Any]:
        """Return the key's value in each group, on the host, and which values are null.

        For text the values are a pair: the offsets, with the end of the last value, and the bytes.
        """
        count, make, rows = self.count, self.task.memory.empty, self.first_rows
        known = make(count, "u1")
        self.launch("pick_known", count, key.known, rows, known, count)
        nulls = known.to_numpy() == 0
        if key.offsets is None:
            picked = make(count, key.values.dtype)
            self.launch(f"pick_{key.kind}", count, key.values, rows, picked, count)
            return picked.to_numpy(), nulls
        lengths = make(count, "i8")
        self.launch("pick_lengths", count, key.known, key.offsets, rows, lengths, count)
        ends = np.cumsum(lengths.to_numpy())
        text = make(int(ends[-1]) if count else 0, "u1")
        place = usmq.asarray(ends)
        self.launch("pick_text", count, key.offsets, key.values, rows, place, text, count)
        return (np.concatenate([[0], ends]), text.to_numpy()), nulls

    def states(self, values: Values, unsigned: bool) -> dict[str, Any]:
        """Return count, sum, minimum and maximum of each group's known values, on the host."""
        n, count, make = self.rows, self.count, self.task.memory.empty
        lanes = max(1, min(LANES, n, STATES // max(count, 1)))
        kind, flip = values.kind, SIGN if unsigned else 0
        dtype = values.values.dtype
        counts = self.task.memory.zeros(lanes * count, "i8")
        rest = [make(lanes * count, dtype) for _ in range(3)]
        if n:
            gathered = (values.known, values.values, flip, counts, *rest, n, lanes, count)
            self.launch(f"gather_{kind}", lanes, self.of_row, *gathered)
            self.launch(f"fold_{kind}", count, flip, counts, *rest, lanes, count)
        found = [array[:count].to_numpy() for array in (counts, *rest)]
        return dict(zip(("count", "sum", "min", "max"), found, strict=True))

    def _bits(self, bitmap: usmq.Array | None, first: int) -> usmq.Array:
        """Unpack a bitmap; without a bitmap every bit is set."""
        unpacked = self.task.memory.empty(self.rows, "u1")
        if bitmap is None:
            unpacked[...] = 1
        else:
            self.launch("unpack_bits", self.rows, bitmap, first, unpacked, self.rows)
        return unpacked


def aggregate(
    task: usmq.TaskContext, table: usmq.Table, keys: Sequence[str], wanted: Sequence[Any]
) -> Any:
    """Aggregate a table of one batch; return a pyarrow table of keys and aggregates.

    ``wanted`` has pairs of a column and one of "count", "sum", "total" (a sum of real numbers),
    "min", "max"; the column of "count_all" is None. The result's columns are "key 0" and so on,
    and "part 0" and so on.
    """
    schema = pa.schema(table.schema)
    groups = Groups(task, table.num_rows)
    found = [groups.values(table[name]) for name in keys]
    for key in found:
        groups.divide(key)
    columns = {}
    for number, (name, key) in enumerate(zip(keys, found, strict=True)):
        values, nulls = groups.key_of_each(key)
        dictionary = table[name].dictionary
        columns[f"key {number}"] = host_key(schema.field(name).type, values, nulls, dictionary)
    states: dict[tuple[str | None, bool], dict[str, Any]] = {}
    for number, (name, function) in enumerate(wanted):
        of = name, function == "total"
        if of not in states:
            states[of] = _states(groups, table, *of)
        columns[f"part {number}"] = _result(states[of], function, schema, name)
    return pa.table(columns)


def _states(groups: Groups, table: usmq.Table, name: str | None, as_real: bool) -> dict[str, Any]:
    if name is None:  # Count the rows themselves: each is known.
        ones = usmq.full(groups.rows, 1, "u1")
        return groups.states(Values(ones, ones.astype("i8")), unsigned=False)
    values = groups.values(table[name], as_real)
    if values.kind == "text":  # Text is only counted.
        values = Values(values.known, values.known.astype("i8"))
    return groups.states(values, table[name].format == "L")


def _result(state: dict[str, Any], function: str, schema: Any, name: str | None) -> Any:
    """Return one aggregate as a pyarrow array; without known values null, or 0 for a count."""
    if function.startswith("count"):
        return pa.array(state["count"])
    given = schema.field(name).type
    values = state["sum" if function == "total" else function]
    if function == "total":
        of_type = pa.float64()
    elif function == "sum":
        of_type = sum_type(given)
        values = values.view("u8") if types.is_unsigned_integer(of_type) else values
    else:
        of_type = given
    return _typed(of_type, values, state["count"] == 0)


def sum_type(given: Any) -> Any:
    """Return the type of a sum: the widest type of its kind."""
    if types.is_unsigned_integer(given) or types.is_boolean(given):
        return pa.uint64()
    if types.is_signed_integer(given):
        return pa.int64()
    return pa.float64()


def host_key(given: Any, values: Any, nulls: Any, dictionary: usmq.Column | None) -> Any:
    """Return the keys of the groups as a pyarrow array; those of a dictionary as its values."""
    if dictionary is not None:
        words = dictionary.to_arrow()
        return words.take(pa.array(values, mask=nulls))
    if isinstance(values, tuple):
        offsets, text = values
        bitmap = pa.array(~nulls).buffers()[1]
        buffers = [bitmap, pa.py_buffer(offsets.astype("i8")), pa.py_buffer(text)]
        binary = types.is_binary(given) or types.is_large_binary(given)
        large = pa.large_binary() if binary else pa.large_string()
        return pa.Array.from_buffers(large, len(nulls), buffers).cast(given)
    return _typed(given, values, nulls)


def _typed(given: Any, values: Any, nulls: Any) -> Any:
    """Return values of 64 bits as an array of this type."""
    if types.is_boolean(given):
        return pa.array(values != 0, mask=nulls)
    narrow = np.dtype(_storage(given))
    values = values.astype(narrow)
    bitmap = pa.array(~nulls).buffers()[1]
    return pa.Array.from_buffers(given, len(values), [bitmap, pa.py_buffer(values)])


def _storage(given: Any) -> str:
    """Return numpy's name of the storage type of a type's values."""
    if types.is_floating(given):
        return f"f{given.bit_width // 8}"
    if types.is_unsigned_integer(given):
        return f"u{given.bit_width // 8}"
    return f"i{given.bit_width // 8}"
