"""Finds Parquet files, checks that their schemas agree, and lists their row groups."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from dask.utils import natural_sort_key
from pyarrow import parquet

from usmq.dask._aggregate import field

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def files(paths: Paths) -> list[str]:
    """Return the files of paths, folders and patterns; those of one in the order of their names.

    Raises
    ------
    FileNotFoundError
        A folder has no file, or a pattern matches none.
    ValueError
        No path is given, or a folder contains partition folders.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError("no Parquet file was given")
    found = []
    for path in [os.fspath(path) for path in given]:
        if os.path.isdir(path):
            found += files_of_folder(path)
        elif glob.has_magic(path) and not os.path.exists(path):
            matches = glob.glob(path, recursive=True)
            names = [name for name in matches if not os.path.isdir(name)]
            if not names:
                raise FileNotFoundError(f"no file matches {path!r}")
            found += sorted(names, key=natural_sort_key)
        else:
            found.append(path)
    return found


def files_of_folder(folder: str) -> list[str]:
    """Return the files of a folder and of those in it, without names that begin with . or _."""
    names = []
    for path in sorted(Path(folder).rglob("*"), key=lambda path: natural_sort_key(str(path))):
        inner = path.relative_to(folder).parts
        if any(part.startswith((".", "_")) for part in inner):
            continue
        if any("=" in part for part in inner[:-1]):
            raise ValueError(
                f"{folder!r} has partition folders such as {inner[0]!r}, and from_parquet does not "
                f"read their columns; name one of them, as {str(path.parent)!r}, or a pattern"
            )
        if path.is_file():
            names.append(str(path))
    if not names:
        raise FileNotFoundError(f"the folder {folder!r} has no files")
    return names


def plan(names: list[str], columns: Sequence[str] | None) -> tuple[Any, list[tuple[str, int]]]:
    """Return the schema of the files, and their row groups.

    Raises
    ------
    KeyError
        A column does not exist.
    ValueError
        The columns of two files differ in more than their order.
    """
    schema: Any = None
    groups = []
    for name in names:
        with parquet.ParquetFile(name) as file:
            found = file.schema_arrow
            groups += [(name, group) for group in range(file.num_row_groups)]
        if columns is not None:
            fields = [field(found, column) for column in columns]
            found = pa.schema(fields, metadata=found.metadata)
        if schema is None:
            schema = found
        elif not found.equals(schema):
            schema = joined(schema, names[0], found, name)
    return schema, groups


def joined(schema: Any, first: str, found: Any, name: str) -> Any:
    """Return the schema of the first file; where the other may have nulls, with nulls.

    Raises
    ------
    ValueError
        The columns differ in more than their order.
    """
    begin = f"{name} has another schema than {first}:"
    if len(set(schema.names)) < len(schema) or len(set(found.names)) < len(found):
        raise ValueError(f"{begin} columns of one name must have the same order in both")
    for missing in set(schema.names) - set(found.names):
        raise ValueError(f"{begin} it has no column {missing!r}")
    for more in set(found.names) - set(schema.names):
        raise ValueError(f"{begin} it also has the column {more!r}; select columns")
    fields = []
    for each in schema:
        other = found.field(each.name)
        if other.type != each.type:
            raise ValueError(f"{begin} {each.name!r} is {other.type}, and there {each.type}")
        fields.append(each.with_nullable(each.nullable or other.nullable))
    return pa.schema(fields, metadata=schema.metadata)


def read(groups: list[tuple[str, int]], schema: Any) -> Any:
    """Return row groups as a pyarrow table of this schema."""
    parts = []
    for name, group in groups:
        with parquet.ParquetFile(name) as file:
            part = file.read_row_group(group, columns=schema.names).select(schema.names)
        parts.append(part if part.schema.equals(schema) else part.cast(schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()
