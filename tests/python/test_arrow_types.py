"""Every Arrow type round-trips from pyarrow through USM: with and without nulls, sliced, empty."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import uuid
from collections.abc import Callable
from ctypes import addressof
from decimal import Decimal
from typing import Any

import arrow_structs
import nanoarrow
import pyarrow as pa
import pytest
import usmq
from arrow_structs import CPU, KINDS, Exported, move, wait_for

no_leaks = arrow_structs.no_leaks

LENGTH = 30
ONE_DAY = dt.timedelta(days=1)
NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
BERLIN = dt.timezone(dt.timedelta(hours=1))
POINT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string(), nullable=False)])


class Rational(pa.ExtensionType):  # type: ignore[misc]
    """A type that only this file knows, with parameters in its metadata."""

    def __init__(self, note: str) -> None:
        self.note = note
        storage = pa.struct([("numerator", pa.int64()), ("denominator", pa.int64())])
        super().__init__(storage, "usmq.tests.rational")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.note.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Rational:
        return cls(serialized.decode())


@pytest.fixture(scope="module", autouse=True)
def rational() -> Any:
    pa.register_extension_type(Rational(""))
    yield
    pa.unregister_extension_type("usmq.tests.rational")


# A type, and values that are repeated to the length of a case.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, False, True, True]),
    "int8": (pa.int8(), [-128, 0, 127]),
    "int16": (pa.int16(), [-(2**15), 0, 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 1, 255]),
    "uint16": (pa.uint16(), [0, 1, 2**16 - 1]),
    "uint32": (pa.uint32(), [0, 1, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1]),
    "float16": (pa.float16(), [1.5, -0.0, float("inf")]),
    "float32": (pa.float32(), [1.5, -0.0, float("inf")]),
    "float64": (pa.float64(), [1.5, 5e-324, float("-inf")]),
    "decimal32": (pa.decimal32(7, 2), [Decimal("12345.67"), Decimal("-0.01")]),
    "decimal64": (pa.decimal64(15, 3), [Decimal("123456789012.345"), Decimal("-0.001")]),
    "decimal128": (pa.decimal128(38, 5), [Decimal("1e32"), Decimal("-0.00001")]),
    "decimal128, negative scale": (pa.decimal128(5, -3), [Decimal("12345e3")]),
    "decimal256": (pa.decimal256(70, 10), [Decimal("1e59"), Decimal("-1e-10")]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "time32 s": (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
    "time32 ms": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 999000)]),
    "time64 us": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999)]),
    "time64 ns": (pa.time64("ns"), [dt.time(0), dt.time(23, 59, 59, 999999)]),
    "timestamp s": (pa.timestamp("s"), [NOON.replace(microsecond=0)]),
    "timestamp ms, UTC": (pa.timestamp("ms", "UTC"), [NOON.replace(microsecond=5000)]),
    "timestamp us, offset": (pa.timestamp("us", "+01:00"), [NOON.replace(tzinfo=BERLIN)]),
    "timestamp ns, zone": (pa.timestamp("ns", "Europe/Berlin"), [NOON, NOON + ONE_DAY]),
    "duration s": (pa.duration("s"), [ONE_DAY, -ONE_DAY]),
    "duration ms": (pa.duration("ms"), [ONE_DAY, dt.timedelta(milliseconds=-1)]),
    "duration us": (pa.duration("us"), [ONE_DAY, dt.timedelta(microseconds=1)]),
    "duration ns": (pa.duration("ns"), [ONE_DAY, dt.timedelta(microseconds=-1)]),
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([1, -2, 3 * 10**9])]),
    "string": (pa.string(), ["", "a", "ä漢🦀", "word"]),
    "large string": (pa.large_string(), ["", "a", "ä漢🦀", "word"]),
    "string view": (pa.string_view(), ["", "twelve bytes", "thirteen byte", "ä" * 20]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff\xfe", b"word"]),
    "large binary": (pa.large_binary(), [b"", b"\0", b"\xff\xfe", b"word"]),
    "binary view": (pa.binary_view(), [b"", b"\0" * 12, b"\xff" * 13, bytes(range(256))]),
    "fixed-size binary": (pa.binary(3), [b"abc", b"\0\0\0", b"\xff\xff\xff"]),
    "fixed-size binary of 0": (pa.binary(0), [b""]),
    "list": (pa.list_(pa.int32()), [[1, None], [], [3, 4, 5]]),
    "large list": (pa.large_list(pa.string()), [["a", None], [], ["bcd"]]),
    "list view": (pa.list_view(pa.int16()), [[1, None], [], [3, 4, 5]]),
    "large list view": (pa.large_list_view(pa.bool_()), [[True, None], [], [False]]),
    "fixed-size list": (pa.list_(pa.int32(), 3), [[1, 2, None], [4, 5, 6]]),
    "fixed-size list of bits": (pa.list_(pa.bool_(), 3), [[True, False, None], [True] * 3]),
    "fixed-size list of 0": (pa.list_(pa.int32(), 0), [[]]),
    "list of nulls": (pa.list_(pa.null()), [[None], [], [None, None]]),
    "fixed-size list of nulls": (pa.list_(pa.null(), 2), [[None, None]]),
    "map of nulls": (pa.map_(pa.string(), pa.null()), [[("a", None)], []]),
    "struct": (POINT, [{"x": 1, "y": "a"}, {"x": None, "y": "bc"}]),
    "struct of nothing": (pa.struct([]), [{}]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], []]),
    "sorted map": (pa.map_(pa.int8(), pa.list_(pa.bool_()), keys_sorted=True), [[(1, [True])]]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
    "ordered dictionary": (pa.dictionary(pa.uint16(), pa.float64(), ordered=True), [0.5, 1.5]),
    "run-end encoded": (pa.run_end_encoded(pa.int16(), pa.string()), ["a", "a", "a", "b"]),
    "run-end encoded lists": (
        pa.run_end_encoded(pa.int64(), pa.list_(pa.int8())),
        [[1, 2], [1, 2], []],
    ),
    "uuid": (pa.uuid(), [uuid.UUID(int=5).bytes, uuid.UUID(int=2**127).bytes]),
    "bool8": (pa.bool8(), [1, 0, -1]),
    "extension of ours": (Rational("note"), [{"numerator": 1, "denominator": 2}]),
    "list of structs": (pa.list_(POINT), [[{"x": 1, "y": "a"}], [], [{"x": None, "y": ""}] * 3]),
    "list of lists of views": (
        pa.large_list(pa.list_view(pa.string_view())),
        [[["a", None], []], [], [["longer than twelve"]]],
    ),
    "map of structs of maps": (
        pa.map_(pa.string(), pa.struct([("m", pa.map_(pa.int8(), pa.bool_()))])),
        [[("k", {"m": [(1, True)]})], []],
    ),
    "struct of many": (
        pa.struct(
            [
                ("d", pa.dictionary(pa.int32(), pa.string())),
                ("b", pa.bool_()),
                ("f", pa.list_(pa.date32(), 2)),
            ]
        ),
        [{"d": "x", "b": True, "f": [None, dt.date(2024, 1, 1)]}],
    ),
}


def repeated(values: list[Any], nulls: bool) -> list[Any]:
    cycle = itertools.islice(itertools.cycle(values), LENGTH)
    # Every third and a run of nine: bitmaps with whole bytes of nulls, and with none.
    return [None if nulls and (n % 3 == 1 or 10 < n < 20) else v for n, v in enumerate(cycle)]


def sparse_union(nulls: bool) -> pa.Array:
    tags = pa.array([0, 1, 0, 2, 1] * 6, pa.int8())
    columns = [
        pa.array(repeated([1, 2, 3], nulls)),
        pa.array(repeated(["a", "bc"], nulls)),
        pa.array(repeated([True, False], nulls)),
    ]
    return pa.UnionArray.from_sparse(tags, columns, ["i", "s", "b"])


def dense_union(nulls: bool) -> pa.Array:
    tags = pa.array([5, 9, 5] * 10, pa.int8())
    seen = {5: itertools.count(), 9: itertools.count()}
    offsets = pa.array([next(seen[tag]) for tag in tags.to_pylist()], pa.int32())
    columns = [pa.array(repeated([1, 2, 3], nulls)), pa.array(repeated([[1.5], []], nulls))]
    return pa.UnionArray.from_dense(tags, offsets, columns, ["i", "l"], [5, 9])


SPECIAL: dict[str, Callable[[bool], pa.Array]] = {
    "null": lambda nulls: pa.nulls(LENGTH),
    "sparse union": sparse_union,
    "dense union": dense_union,
    "list of unions": lambda nulls: pa.ListArray.from_arrays(
        pa.array([0, None if nulls else 0, 3, 7, *[8] * 25, 20, 30], pa.int32()),
        sparse_union(nulls),
    ),
    "struct of a union": lambda nulls: pa.StructArray.from_arrays([dense_union(nulls)], ["u"]),
    "dictionary of lists": lambda nulls: pa.DictionaryArray.from_arrays(
        pa.array(repeated([0, 1], nulls), pa.int64()), pa.array([[1, None], [2, 3]])
    ),
    "dictionary of dictionaries": lambda nulls: pa.DictionaryArray.from_arrays(
        pa.array(repeated([0, 1, 2], nulls), pa.uint8()),
        pa.array(["x", None if nulls else "y", "x"]).dictionary_encode(),
    ),
    "list of runs": lambda nulls: pa.ListArray.from_arrays(
        pa.array([0, None if nulls else 0, 3, 7, *[8] * 26, 30], pa.int32()),
        pa.array(repeated(["a", "a", "b"], nulls), pa.run_end_encoded(pa.int32(), pa.string())),
    ),
    "list of uuids": lambda nulls: pa.ListArray.from_arrays(
        pa.array([0, None if nulls else 0, *[5] * 28, 30], pa.int32()), made("uuid", nulls)
    ),
    "struct of nulls": lambda nulls: pa.StructArray.from_arrays(
        [pa.nulls(LENGTH)], ["n"], mask=pa.array([nulls, False] * 15)
    ),
    "dictionary of nulls": lambda nulls: pa.DictionaryArray.from_arrays(
        pa.array(repeated([0], nulls), pa.int8()), pa.nulls(1)
    ),
    "runs of nulls": lambda nulls: pa.RunEndEncodedArray.from_arrays([20, LENGTH], pa.nulls(2)),
    "union of nulls": lambda nulls: pa.UnionArray.from_sparse(
        pa.array([0, 1] * 15, pa.int8()), [pa.nulls(LENGTH), pa.array(repeated([1, 2], nulls))]
    ),
}
TYPES = [*VALUES, *SPECIAL]

CUTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "whole": lambda a: a,
    "empty": lambda a: a.slice(0, 0),
    "empty in the middle": lambda a: a.slice(9, 0),
    "from 1": lambda a: a.slice(1, 10),
    "from 7": lambda a: a.slice(7, 9),
    "from 8": lambda a: a.slice(8),
    "from 9": lambda a: a.slice(9, 17),
    "last": lambda a: a.slice(LENGTH - 1),
}


def made(name: str, nulls: bool) -> pa.Array:
    if name in SPECIAL:
        array = SPECIAL[name](nulls)
    else:
        array = pa.array(repeated(VALUES[name][1], nulls), VALUES[name][0])
    array.validate(full=True)
    return array


def as_column(array: pa.Array, **options: Any) -> usmq.Column:
    """Return the array as a column, also one of structs, which at the top are rows of a table."""
    found = usmq.from_arrow(array, **options)
    if isinstance(found, usmq.Table):
        found = usmq.from_arrow(pa.record_batch([array], [""]), **options)[""]
    return found


def same(found: pa.Array, expected: pa.Array, note: str) -> None:
    if len(found) or "view" not in str(found.type):
        found.validate(full=True)  # pyarrow finds its own round trip of no views at an offset wrong
    assert found.type == expected.type, note
    assert found.equals(expected), f"{note}: {found} is not {expected}"
    # The nested types are compared, too, with names and nullability.
    assert str(found.type) == str(expected.type), note


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TYPES)
def test_an_array_of_every_type_round_trips(name: str, kind: str) -> None:
    for nulls, cut in itertools.product((True, False), CUTS):
        array = CUTS[cut](made(name, nulls))
        note = f"{cut}, {'with' if nulls else 'without'} nulls"
        column = as_column(array, usm_type=kind)
        assert len(column) == len(array), note
        # A column without buffers, e.g. of nulls, has no address.
        holds = any(every_address(Exported(column).array))
        assert column.usm_type == (kind if holds else None), note
        assert column.null_count == array.null_count, note
        same(column.to_arrow(), array, note)


@pytest.mark.parametrize("name", TYPES)
def test_a_slice_of_a_column_matches_that_of_the_array(name: str) -> None:
    array = made(name, True)
    column = as_column(array)
    for start, stop in [(0, 30), (1, 11), (7, 8), (8, 24), (9, 30), (5, 5)]:
        part = column[start:stop]
        assert part.null_count == array[start:stop].null_count, (start, stop)
        same(part.to_arrow(), array[start:stop], f"{start}:{stop}")
        unpickled = pickle.loads(pickle.dumps(part)).to_arrow()
        assert unpickled.to_pylist() == array[start:stop].to_pylist()
        if stop - start > 4:
            same(part[2:-1].to_arrow(), array[start + 2 : stop - 1], f"{start}:{stop}, twice")


@pytest.mark.parametrize("name", TYPES)
def test_the_exported_structs_describe_the_array(name: str) -> None:
    """pyarrow reads the exported structs themselves, relabelled: shared USM is host memory."""
    for nulls, cut in itertools.product((True, False), CUTS):
        array = CUTS[cut](made(name, nulls))
        exported = Exported(as_column(array, usm_type="shared"))
        wait_for(exported.device)
        device, schema = move(exported.device), move(exported.schema)
        device.device_type, device.device_id, device.sync_event = CPU, -1, None
        found = pa.Array._import_from_c_device(addressof(device), addressof(schema))
        same(found, array, f"{cut}, nulls: {nulls}")
        del found


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", ["host", "shared"])
def test_a_host_view_is_the_array_at_the_same_addresses(name: str, kind: str) -> None:
    array = made(name, True)[3:25]
    column = as_column(array, usm_type=kind)
    exported = Exported(column)
    view = column.host_view()
    device = Exported(view).device
    assert (device.device_type, device.device_id, device.sync_event) == (CPU, -1, None)
    found = pa.array(view)
    same(found, array, "a host view")
    ours = {at for at in every_address(exported.array) if at}
    theirs = {b.address for b in found.buffers() if b is not None and b.size}
    assert theirs <= ours


def every_address(array: Any) -> list[int]:
    parts = [*arrow_structs.children(array), arrow_structs.dictionary(array)]
    inner = [every_address(part) for part in parts if part is not None]
    return [*arrow_structs.buffers(array), *itertools.chain.from_iterable(inner)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_every_type_keeps_names_nullability_and_metadata(kind: str) -> None:
    arrays = {name: made(name, True) for name in TYPES}
    fields = [
        pa.field(name, array.type, metadata={"of": name, b"\xff": b"\0"})
        for name, array in arrays.items()
    ]
    fields.append(pa.field("never null", pa.int8(), nullable=False))
    schema = pa.schema(fields, metadata={"whole": "table", "": ""})
    table = pa.table([*arrays.values(), pa.array([1] * LENGTH, pa.int8())], schema=schema)
    for part in (table, table[9:20], table[:0]):
        ours = usmq.from_arrow(part, usm_type=kind)
        assert isinstance(ours, usmq.Table)
        assert ours.column_names == schema.names
        found = ours.to_arrow()
        found.validate(full=True)
        assert found.schema.equals(schema, check_metadata=True)
        assert found.equals(part)


@pytest.mark.parametrize("name", TYPES)
def test_the_format_and_metadata_are_those_of_the_c_interface(name: str) -> None:
    array = made(name, True)
    column = as_column(array)
    assert column.format == column.field.format == nanoarrow.c_schema(array.type).format
    storage = getattr(array.type, "storage_type", array.type)
    assert len(column.children) == len(column.field.children) == storage.num_fields
    assert (column.dictionary is not None) is pa.types.is_dictionary(storage)
    if isinstance(array.type, pa.BaseExtensionType):
        metadata = column.field.metadata
        assert metadata[b"ARROW:extension:name"].decode() == array.type.extension_name
    if name == "extension of ours":
        assert metadata[b"ARROW:extension:metadata"] == b"note"


@pytest.mark.parametrize("name", VALUES)
def test_only_numeric_columns_without_nulls_convert_to_arrays(name: str) -> None:
    for source in (made(name, False), made(name, False)[3:7], as_column(made(name, False))):
        if name.rstrip("0123456789") in ("int", "uint", "float") or name == "bool8":
            assert usmq.asarray(source).shape == (len(source),)
        else:
            with pytest.raises(TypeError, match="from_arrow"):
                usmq.asarray(source)
