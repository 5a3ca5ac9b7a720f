"""Capsules and dunders, rule by rule (Y of the specification)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import arrow_structs
import nanoarrow
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_producers import Producer, StreamProducer, gives, ints, record, strings
from arrow_structs import (
    ARRAY,
    CPU,
    DEVICE_ARRAY,
    DEVICE_STREAM,
    SCHEMA,
    STREAM,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    Exported,
    capsule,
    children,
    eventually,
    live,
    name_of,
    pointer,
    text,
)
from test_arrow_export import SOURCES, TABLE

no_leaks = arrow_structs.no_leaks

HOST = {
    "column": lambda: usmq.from_arrow(TABLE["a"].chunk(0), usm_type="shared").host_view(),
    "table": lambda: usmq.from_arrow(TABLE, usm_type="host").host_view(),
}
FIELDS = {
    "field": lambda: usmq.from_arrow(TABLE["a"].chunk(0)).field,
    "schema": lambda: usmq.from_arrow(TABLE).schema,
    "child": lambda: usmq.from_arrow(TABLE).schema.children[1],
}


def given_stream(device_type: int | None) -> Any:
    chunks = [Producer(record(a=ints([1, 2])))]
    return StreamProducer(record(a=ints([])), chunks, device_type).capsule()


def test_the_first_available_dunder_is_used() -> None:
    ways: dict[str, Callable[[], Any]] = {
        "device_stream": lambda: given_stream(CPU),
        "device_array": lambda: pair(SCHEMA, DEVICE_ARRAY),
        "stream": lambda: given_stream(None),
        "array": lambda: pair(SCHEMA, ARRAY),
    }
    order = list(ways)
    for n, first in enumerate(order):
        obj = gives(**{name: ways[name] for name in reversed(order[n:])})
        assert len(usmq.from_arrow(obj)) == 2
        assert obj.called == [first]


CHUNKS = pa.chunked_array([[1, 2], [3]], pa.int32())


def test_an_object_whose_array_method_refuses_several_chunks_is_read_as_a_stream() -> None:
    def refuse() -> Any:
        raise ValueError("several chunks")

    host = gives(array=refuse, stream=CHUNKS.__arrow_c_stream__)
    parts = [usmq.from_arrow(chunk) for chunk in CHUNKS.chunks]
    device = gives(
        device_array=refuse, device_stream=usmq.DeviceStream(parts).__arrow_c_device_stream__
    )
    for made in (host, nanoarrow.Array.from_chunks(CHUNKS.chunks), device):
        assert usmq.from_arrow(made).to_arrow().to_pylist() == [1, 2, 3]
    again = gives(array=refuse, stream=CHUNKS.__arrow_c_stream__)
    assert usmq.asarray(again).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "names",
    [
        ("array",),
        ("stream", "array"),
        ("device_stream", "device_array"),
        ("device_array", "stream", "array"),
    ],
)
def test_the_error_of_the_first_method_is_raised_and_no_other_is_called(
    names: tuple[str, ...],
) -> None:
    def refuse() -> Any:
        raise ZeroDivisionError("the first method")

    others = dict.fromkeys(names[1:], CHUNKS.chunk(0).__arrow_c_array__)
    made = gives(**{names[0]: refuse}, **others)
    for read in (usmq.from_arrow, usmq.asarray, lambda obj: usmq.asarray(obj, copy=False)):
        with pytest.raises(ZeroDivisionError, match="the first method"):
            read(made)
    assert set(made.called) == {names[0]}


@pytest.mark.parametrize("source", SOURCES)
def test_y1_device_capsules_have_the_names_of_the_specification(source: str) -> None:
    obj = SOURCES[source]()
    given = obj.__arrow_c_device_array__()
    assert type(given) is tuple
    assert tuple(map(name_of, given)) == (SCHEMA, DEVICE_ARRAY)
    assert name_of(obj.__arrow_c_schema__()) == SCHEMA
    if source in HOST:
        assert name_of(obj.__arrow_c_device_stream__()) == DEVICE_STREAM
        view = HOST[source]()
        assert tuple(map(name_of, view.__arrow_c_array__())) == (SCHEMA, ARRAY)
        assert tuple(map(name_of, view.__arrow_c_device_array__())) == (SCHEMA, DEVICE_ARRAY)
        assert name_of(view.__arrow_c_schema__()) == SCHEMA
        assert hasattr(view, "__arrow_c_stream__") is (source == "table")
    if source == "table":
        assert name_of(view.__arrow_c_stream__()) == STREAM


@pytest.mark.parametrize("source", SOURCES)
def test_y2_an_unconsumed_capsule_frees_its_contents(source: str) -> None:
    before = live()
    obj = SOURCES[source]()
    capsules = [obj.__arrow_c_device_array__() for _ in range(5)]
    capsules.append(obj.__arrow_c_schema__())
    if source in ("column", "table"):
        capsules.append(obj.__arrow_c_device_stream__())
    del obj
    assert live() > before
    del capsules
    assert eventually(lambda: live() == before)


@pytest.mark.parametrize("source", ["column", "table"])
def test_y2_a_consumer_that_fails_half_way_causes_no_double_free(source: str) -> None:
    """pyarrow takes the schema, then finds that it knows no such device."""
    before = live()
    obj = SOURCES[source]()
    take = pa.array if source == "column" else pa.record_batch
    for _ in range(3):
        with pytest.raises((KeyError, pa.ArrowException), match="14"):
            take(obj)
    del obj
    gc.collect()
    assert eventually(lambda: live() == before)


@pytest.mark.parametrize("source", SOURCES)
def test_y3_a_capsule_is_consumed_once(source: str) -> None:
    held = [SOURCES[source]().__arrow_c_device_array__()]
    obj = gives(device_array=lambda: held[0])
    taken = usmq.from_arrow(obj)
    assert len(taken) == 3
    schema, array = held[0]
    assert ArrowSchema.from_address(pointer(schema, SCHEMA)).release is None
    assert ArrowDeviceArray.from_address(pointer(array, DEVICE_ARRAY)).array.release is None
    for _ in range(2):
        with pytest.raises(usmq.InteropError):
            usmq.from_arrow(obj)
    held.clear()
    del schema, array
    assert len(taken.to_arrow()) == 3, "the capsule released memory that is still used"


def test_y3_a_stream_capsule_is_consumed_once() -> None:
    given = usmq.from_arrow(TABLE).__arrow_c_device_stream__()
    obj = gives(device_stream=lambda: given)
    assert usmq.from_arrow(obj).to_arrow().equals(TABLE)
    assert ArrowDeviceArrayStream.from_address(pointer(given, DEVICE_STREAM)).release is None
    with pytest.raises(usmq.InteropError):
        usmq.from_arrow(obj)


def pair(*names: bytes) -> tuple[Any, ...]:
    """Return a schema and arrays in capsules of these names."""
    made = Producer(ints([1, 2]))
    schema = pointer(made.schema_capsule(), SCHEMA)
    array = pointer(made.device_capsule(), DEVICE_ARRAY)
    return tuple(capsule(array if n else schema, name) for n, name in enumerate(names))


# The method, and the names of the capsules that it must not give.
WRONG_NAMES: dict[str, tuple[str, tuple[bytes, ...]]] = {
    "arrays without a device": ("device_array", (SCHEMA, ARRAY)),
    "arrays of a device": ("array", (SCHEMA, DEVICE_ARRAY)),
    "used ones": ("device_array", (SCHEMA, b"used_arrow_device_array")),
    "used schemas": ("device_array", (b"used_arrow_schema", DEVICE_ARRAY)),
    "swapped ones": ("device_array", (DEVICE_ARRAY, SCHEMA)),
    "a stream": ("device_array", (SCHEMA, DEVICE_STREAM)),
    "of no name": ("device_array", (SCHEMA, b"")),
    "of dlpack": ("device_array", (SCHEMA, b"dltensor")),
    "one": ("device_array", (SCHEMA,)),
    "three": ("device_array", (SCHEMA, DEVICE_ARRAY, DEVICE_ARRAY)),
}


@pytest.mark.parametrize("case", WRONG_NAMES)
def test_y3_other_capsules_are_refused_unchanged(case: str) -> None:
    name, names = WRONG_NAMES[case]
    error: Any = usmq.InteropError if len(names) == 2 else (usmq.InteropError, TypeError)
    with pytest.raises(error, match="capsule" if len(names) == 2 else None):
        usmq.from_arrow(gives(**{name: lambda: pair(*names)}))
    (producer,) = arrow_structs.PRODUCERS
    assert producer.untouched()


@pytest.mark.parametrize("name", ["stream", "device_stream"])
def test_y3_a_stream_of_the_other_method_is_refused_unchanged(name: str) -> None:
    device_type = None if name == "device_stream" else CPU
    with pytest.raises(usmq.InteropError, match="capsule"):
        usmq.from_arrow(gives(**{name: StreamProducer(record(), [], device_type).capsule}))
    (producer,) = arrow_structs.PRODUCERS
    assert producer.calls == []


@pytest.mark.parametrize("name", ["device_array", "device_stream", "array", "stream"])
def test_y3_objects_other_than_capsules_are_refused(name: str) -> None:
    for wrong in (None, 1, "text", (), (1,), (1, 2), (None, None), (1, 2, 3), [], object()):
        with pytest.raises((usmq.InteropError, TypeError)):
            usmq.from_arrow(gives(**{name: lambda wrong=wrong: wrong}))
    for wrong in (1, None, "text", (1, 2)):
        with pytest.raises((usmq.InteropError, TypeError)):
            usmq.from_arrow(type("Odd", (), {f"__arrow_c_{name}__": wrong})())


@pytest.mark.parametrize("source", SOURCES)
def test_y4_unknown_options_must_be_none(source: str) -> None:
    names = ["device_array", "device_stream"] if source in ("column", "table") else ["device_array"]
    for name in names:
        export = getattr(SOURCES[source](), f"__arrow_c_{name}__")
        assert export(None, future=None, other=None)
        assert export(requested_schema=None)
        with pytest.raises(NotImplementedError, match="future"):
            export(future=1)
        with pytest.raises(NotImplementedError, match=r"(?s)first.*second|second.*first"):
            export(None, first=False, second=0, third=None)


OTHER_SCHEMAS = {
    "one field less": pa.schema([("a", pa.int32())]),
    "one field more": pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int8())]),
    "no fields": pa.schema([]),
    "no struct": pa.int32(),
    "other names": pa.schema([("b", pa.string()), ("a", pa.int32())]),
    "a struct for a number": pa.schema([("a", pa.struct([("x", pa.int32())])), ("b", pa.string())]),
}


@pytest.mark.parametrize("case", OTHER_SCHEMAS)
def test_y5_a_schema_of_other_fields_is_refused(case: str) -> None:
    table = usmq.from_arrow(TABLE)
    before = live()
    for method in (table.__arrow_c_device_array__, table.__arrow_c_device_stream__):
        with pytest.raises(usmq.InteropError):
            method(OTHER_SCHEMAS[case].__arrow_c_schema__())
    assert live() == before
    column = usmq.from_arrow(TABLE["a"].chunk(0))
    with pytest.raises(usmq.InteropError):
        column.__arrow_c_device_array__(TABLE.schema.__arrow_c_schema__())


def test_y5_a_refusal_names_the_requested_and_the_actual_type() -> None:
    table = usmq.from_arrow(TABLE)
    text = r'fields \["b", "a"\], but the data has \["a", "b"\].*or no schema'
    with pytest.raises(usmq.InteropError, match=text):
        table.__arrow_c_device_array__(OTHER_SCHEMAS["other names"].__arrow_c_schema__())
    nested = usmq.from_arrow(pa.table({"s": [{"x": 1, "y": 2}]}))
    asked = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    with pytest.raises(usmq.InteropError, match='1 fields in "s", but the data has 2 fields'):
        nested.__arrow_c_device_stream__(asked.__arrow_c_schema__())


def test_y5_a_compatible_schema_is_best_effort() -> None:
    table = usmq.from_arrow(TABLE)
    for asked in (
        TABLE.schema,
        pa.schema([("a", pa.int64()), ("b", pa.large_string())]),
        pa.schema(
            [
                ("a", pa.run_end_encoded(pa.int32(), pa.int32())),
                ("b", pa.dictionary(pa.int8(), pa.string())),
            ]
        ),
    ):
        schema, array = table.__arrow_c_device_array__(asked.__arrow_c_schema__())
        again = usmq.from_arrow(gives(device_array=lambda pair=(schema, array): pair))
        assert again.column_names == ["a", "b"]
        assert again.to_arrow().to_pydict() == TABLE.to_pydict()
    column = usmq.from_arrow(TABLE["a"].chunk(0))
    assert column.__arrow_c_device_array__(pa.int64().__arrow_c_schema__())
    assert table.__arrow_c_device_stream__(TABLE.schema.__arrow_c_schema__())


def test_y5_objects_other_than_schema_capsules_are_refused() -> None:
    other = usmq.from_arrow(TABLE).__arrow_c_device_array__()[1]
    for wrong in (1, "text", object(), TABLE.schema, other):
        with pytest.raises((TypeError, usmq.InteropError)):
            usmq.from_arrow(TABLE).__arrow_c_device_array__(wrong)


@pytest.mark.parametrize("kind", arrow_structs.KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_y6_data_in_usm_has_no_host_dunder(source: str, kind: str) -> None:
    obj = SOURCES[source](usm_type=kind)
    assert not hasattr(obj, "__arrow_c_array__")
    assert not hasattr(obj, "__arrow_c_stream__")
    assert hasattr(obj, "__arrow_c_device_array__")
    if source in ("column", "table"):  # arrays are buffers, which nanoarrow takes too
        with pytest.raises(TypeError):
            nanoarrow.Array(obj)


@pytest.mark.parametrize("source", HOST)
def test_y6_a_host_view_exports_host_accessible_data(source: str) -> None:
    view = HOST[source]()
    exported = Exported(view)
    device = exported.device
    assert (device.device_type, device.device_id, device.sync_event) == (
        arrow_structs.CPU,
        -1,
        None,
    )
    assert list(device.reserved) == [0, 0, 0]
    expected = TABLE if source == "table" else TABLE["a"].chunk(0)
    take = pa.record_batch if source == "table" else pa.array
    for name in ("array", "device_array"):
        found = take(gives(**{name: getattr(view, f"__arrow_c_{name}__")}))
        found.validate(full=True)
        assert found.to_pylist() == expected.to_pylist()
    assert nanoarrow.Array(view).to_pylist() == expected.to_pylist()
    assert usmq.from_arrow(view).to_arrow().to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("source", [*SOURCES, *FIELDS, *(f"host {name}" for name in HOST)])
def test_y8_every_object_exports_its_schema(source: str) -> None:
    obj = {**SOURCES, **FIELDS, **{f"host {k}": v for k, v in HOST.items()}}[source]()
    before = live()
    first, second = obj.__arrow_c_schema__(), obj.__arrow_c_schema__()
    assert live() == before
    schema = ArrowSchema.from_address(pointer(first, SCHEMA))
    assert schema.release
    forms = {"column": b"i", "field": b"i", "array": b"i", "grid": b"+w:2", "child": b"u"}
    assert text(schema.format) == forms.get(source.removeprefix("host "), b"+s")
    if text(schema.format) == b"+s":
        assert [text(child.name) for child in children(schema)] == [b"a", b"b"]
        assert pa.schema(obj).equals(TABLE.schema)
    else:
        assert nanoarrow.c_schema(obj).format == (text(schema.format) or b"").decode()
        assert pa.field(obj).nullable
    del obj, second
    assert text(schema.format), "a schema outlives its object"


def test_y8_a_schema_describes_the_array() -> None:
    words = strings([b"x"], metadata=np.array([1, 1], "i4").tobytes() + b"k\1\0\0\0v")
    column = usmq.from_arrow(Producer(words))
    assert column.field.metadata == {b"k": b"v"}
    assert pa.field(column).metadata == {b"k": b"v"}
