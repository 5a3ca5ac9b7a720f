"""Invalid structs: each is refused with an InteropError, without a crash or a leak."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_void_p
from dataclasses import replace
from typing import Any

import arrow_structs
import cuda_driver
import dpctl
import dpctl.memory
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_producers import Node, Producer, gives, ints, lists, strings
from arrow_producers import record as batch
from arrow_structs import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    ONEAPI,
    ArrowArray,
    ArrowSchema,
    bitmap,
    children,
    dictionary,
    usm,
)

no_leaks = arrow_structs.no_leaks

BASES: dict[str, Node] = {
    "ints": ints([1, None, 3, 4]),
    "texts": strings([b"a", b"bc", b"def"]),
    "lists": lists(ints([1, 2, 3]), [1, 2]),
    "pairs": Node(b"+w:2", 2, [None], [replace(ints([1, 2, 3, 4]), name=b"item")]),
    "struct": Node(b"+s", 2, [None], [replace(ints([1, 2]), name=b"a")]),
    "batch": batch(a=ints([1, 2]), b=strings([b"x", b"y"])),
    "words": Node(b"c", 2, [None, np.array([1, 0], "i1")], dictionary=strings([b"x", b"y"])),
    "views": Node(b"vu", 1, [None, np.zeros(16, "u1"), np.zeros(4, "u1"), np.array([4], "i8")]),
    "list views": Node(
        b"+vl",
        2,
        [None, np.array([0, 1], "i4"), np.array([1, 2], "i4")],
        [replace(ints([1, 2, 3]), name=b"item")],
    ),
    "union": Node(
        b"+us:0,1",
        2,
        [np.array([0, 1], "i1")],
        [replace(ints([1, 2]), name=b"i"), replace(strings([b"x", b"y"]), name=b"s")],
    ),
    "map": Node(
        b"+m",
        1,
        [None, np.array([0, 2], "i4")],
        [replace(batch(key=strings([b"x", b"y"]), value=ints([1, 2])), name=b"entries", length=2)],
    ),
    "runs": Node(
        b"+r",
        4,
        [],
        [replace(ints([1, 4]), name=b"run_ends"), replace(strings([b"x", b"y"]), name=b"values")],
    ),
}


def setter(**fields: Any) -> Callable[[Any], None]:
    def set_(struct: Any) -> None:
        for name, value in fields.items():
            setattr(struct, name, value)

    return set_


def of_array(**fields: Any) -> Callable[[Producer], None]:
    return lambda producer: setter(**fields)(producer.array)


def of_child(n: int = 0, **fields: Any) -> Callable[[Producer], None]:
    return lambda producer: setter(**fields)(children(producer.array)[n])


def buffer(n: int, at: int | None = None) -> Callable[[Producer], None]:
    def lose(producer: Producer) -> None:
        (c_void_p * producer.array.n_buffers).from_address(producer.array.buffers)[n] = at

    return lose


def no_child(producer: Producer) -> None:
    (c_void_p * 1).from_address(producer.array.children)[0] = None


def cycle(of: str) -> Callable[[Producer], None]:
    def tie(producer: Producer) -> None:
        root = producer.array if of == "array" else producer.schema
        (c_void_p * 1).from_address(root.children)[0] = addressof(root)

    return tie


def both_cycles(producer: Producer) -> None:
    cycle("array")(producer)
    cycle("schema")(producer)


def dictionary_of_itself(producer: Producer) -> None:
    producer.array.dictionary = addressof(producer.array)
    producer.schema.dictionary = addressof(producer.schema)


def too_deep(producer: Producer) -> None:
    """Put ten thousand lists into the list."""
    for root in (producer.array, producer.schema):
        kind = type(root)
        levels = (kind * 10_000)()
        links = (c_void_p * 10_000)(*[addressof(level) for level in levels])
        for n, level in enumerate(levels):
            ctypes.memmove(addressof(level), addressof(root), ctypes.sizeof(kind))
            if n + 1 < len(levels):
                level.children = addressof(links) + 8 * (n + 1)
            else:
                level.n_children = 0
        producer.kept += [levels, links]
        root.children = addressof(links)


# The change, and the array to change. Tests of Rust have more numbers for each field, in host and
# device arrays (tests/fuzz/targets/arrow.rs, tests/suite/arrow_release.rs).
ARRAYS: dict[str, tuple[str, Callable[[Producer], None]]] = {
    "released": ("ints", of_array(release=None)),
    "negative length": ("ints", of_array(length=-1)),
    "offset plus length overflows": ("ints", of_array(offset=2**63 - 1)),
    "null count above length": ("ints", of_array(null_count=5)),
    "nulls without a bitmap": ("ints", buffer(0)),
    "no array of buffers": ("ints", of_array(buffers=None)),
    "too many buffers": ("ints", of_array(n_buffers=3)),
    "no data": ("ints", buffer(1)),
    "children that are not there": ("ints", of_array(n_children=1)),
    "texts with two buffers": ("texts", of_array(n_buffers=2)),
    "list without children": ("lists", of_array(n_children=0)),
    "list of a child at NULL": ("lists", no_child),
    "list of two": ("lists", of_array(n_children=2)),
    "child of too few buffers": ("lists", of_child(n_buffers=1)),
    "pairs of an overflowing length": ("pairs", of_array(length=2**63 - 1)),
    "pairs beyond their child": ("pairs", of_array(offset=1)),
    "struct beyond its child": ("struct", of_array(offset=1)),
    "struct of two buffers": ("struct", of_array(n_buffers=2)),
    "batch of columns of two lengths": ("batch", of_child(1, length=1)),
    "batch of a released column": ("batch", of_child(1, release=None)),
    "words without dictionary": ("words", of_array(dictionary=None)),
    "released dictionary": ("words", lambda p: setter(release=None)(dictionary(p.array))),
    "dictionary of length -1": ("words", lambda p: setter(length=-1)(dictionary(p.array))),
    "dictionary without a type": ("words", lambda p: setter(dictionary=None)(p.schema)),
    "views without sizes": ("views", of_array(n_buffers=2)),
    "views of no texts": ("views", buffer(2)),
    "views of sizes at NULL": ("views", buffer(3)),
    "list views without sizes": ("list views", of_array(n_buffers=2)),
    "list views of sizes at NULL": ("list views", buffer(2)),
    "union of one child": ("union", of_array(n_children=1)),
    "union of short children": ("union", of_child(length=1)),
    "union without type ids": ("union", buffer(0)),
    "union with validity": ("union", of_array(n_buffers=2)),
    "map without entries": ("map", of_array(n_children=0)),
    "map of a released child": ("map", of_child(release=None)),
    "runs of one child": ("runs", of_array(n_children=1)),
    "runs of fewer values than ends": ("runs", of_child(1, length=1)),
    "child that is its parent": ("lists", cycle("array")),
    "type that is its own item": ("lists", cycle("schema")),
    "list of itself": ("lists", both_cycles),
    "dictionary of itself": ("words", dictionary_of_itself),
    "ten thousand lists deep": ("lists", too_deep),
}
WAYS = ["array", "device array", "oneAPI array"]


def refused(producer: Producer, way: str, error_class: type[usmq.Error] = usmq.InteropError) -> str:
    obj: Any = producer
    if way == "array":
        obj = gives(array=lambda: (producer.schema_capsule(), producer.array_capsule()))
    with pytest.raises(error_class) as error:
        usmq.from_arrow(obj)
    assert isinstance(error.value, BufferError) == (error_class is usmq.InteropError)
    message = str(error.value)
    assert message
    return message


def producer_of(base: str | Node, way: str) -> Producer:
    node = BASES[base] if isinstance(base, str) else base
    return Producer(node.on_device(), ONEAPI) if way.startswith("oneAPI") else Producer(node)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", BASES)
def test_the_unmodified_array_is_valid(base: str, way: str) -> None:
    producer = producer_of(base, way)
    usmq.from_arrow(producer).to_arrow().validate(full=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ARRAYS)
def test_d20_an_invalid_array_is_refused(case: str, way: str) -> None:
    base, change = ARRAYS[case]
    producer = producer_of(base, way)
    change(producer)
    if (case, way) == ("views of no texts", "oneAPI array"):
        # That the size is not 0 is in device memory, which is read when the text is.
        column = usmq.from_arrow(producer)
        with pytest.raises(usmq.InteropError, match="null, and its size is 4 bytes"):
            column.to_arrow()
        return
    refused(producer, way)


BROKEN_CONTENTS = {
    "text": (strings([b"abc", b"\xff\xfe"]), "value 1 is not UTF-8"),
    "views": (
        Node(
            b"vu",
            1,
            [None, np.frombuffer(b"\3\0\0\0abc\0\0\0\0\0\0\0\0x", "u1"), np.zeros(0, "i8")],
        ),
        "padding of view 0",
    ),
    "indices": (
        Node(b"c", 2, [None, np.array([1, 2], "i1")], dictionary=strings([b"x", b"y"])),
        "value 1 is 2, and the dictionary has 2",
    ),
    "null count": (
        Node(b"i", 2, [bitmap([1, 1]), np.array([1, 2], "i4")], null_count=1),
        "has 0 nulls, but declares 1",
    ),
}


@pytest.mark.parametrize("way", ["host", *arrow_structs.KINDS])
@pytest.mark.parametrize("case", BROKEN_CONTENTS)
def test_contents_are_validated_before_pyarrow_reads_them(case: str, way: str) -> None:
    node, says = BROKEN_CONTENTS[case]
    column = usmq.from_arrow(
        Producer(node) if way == "host" else Producer(node.on_device(way), ONEAPI)
    )
    readers = [column.to_arrow, usmq.Table({"x": column}).to_arrow]
    if way in ("shared", "host"):
        host = column.to(usm_type="shared")
        readers += [host.host_view, usmq.Table({"x": host}).host_view]
    for read in readers:
        with pytest.raises(usmq.InteropError, match=says):
            read()


def test_an_array_of_usmq_is_not_reinterpreted_as_another_type() -> None:
    column = usmq.from_arrow(usmq.full(64, 1, dtype="int8", usm_type="host"))
    view = column.host_view()
    for way in ("array", "device_array"):
        array = getattr(view, f"__arrow_c_{way}__")()[1]
        pair = (pa.int64().__arrow_c_schema__(), array)
        with pytest.raises(usmq.InteropError, match='"l", not "c"'):
            usmq.from_arrow(gives(**{way: lambda pair=pair: pair}))


# tests/fuzz/targets/format.rs has the others.
FORMATS = [None, b"", b"zz", b"ii", b"w:-1", b"d:x,y", b"tsx:", b"+w:-2", b"+us:0,0", b"\xff\xfe"]
FORMATS += [b"+l", b"x" * 100_000]


@pytest.mark.parametrize("way", ["device array", "oneAPI array"])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: repr(form)[:30])
def test_an_invalid_format_is_refused(form: bytes | None, way: str) -> None:
    producer = producer_of("ints", way)
    producer.schema.format = producer._string(form)
    refused(producer, way)


# src/interop/arrow/schema_tests.rs has other numbers of children, names and metadata.
SCHEMAS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "released": ("ints", setter(release=None)),
    "list without item": ("lists", setter(n_children=0)),
    "list of a released item": ("lists", lambda s: setter(release=None)(children(s)[0])),
    "list of an item without format": ("lists", lambda s: setter(format=None)(children(s)[0])),
    "batch of one column less": ("batch", setter(n_children=1)),
    "dictionary that the array does not have": (
        "ints",
        lambda s: setter(dictionary=addressof(s))(s),
    ),
    "released dictionary": ("words", lambda s: setter(release=None)(dictionary(s))),
    "run ends of texts": ("runs", lambda s: setter(format=children(s)[1].format)(children(s)[0])),
    "map of ints": ("map", lambda s: setter(format=children(children(s)[0])[1].format)(s)),
}


@pytest.mark.parametrize("way", ["device array", "oneAPI array"])
@pytest.mark.parametrize("case", SCHEMAS)
def test_an_invalid_schema_is_refused(case: str, way: str) -> None:
    base, change = SCHEMAS[case]
    producer = producer_of(base, way)
    change(producer.schema)
    refused(producer, way)


def test_unusual_but_valid_arrays_are_accepted() -> None:
    nameless = replace(batch(), length=2, children=[replace(ints([1, 2]), name=None)])
    assert usmq.from_arrow(Producer(nameless)).column_names == [""]
    flagged = Producer(replace(ints([1, 2]), flags=-1, metadata=bytes(4)))
    assert usmq.from_arrow(flagged).to_arrow().to_pylist() == [1, 2]
    # A CPU array has no use for an event; pyarrow does not look at it either.
    event = dpctl.SyclEvent()
    synced = Producer(ints([1, 2]), CPU, sync_event=event.addressof_ref())
    assert usmq.from_arrow(synced).to_arrow().to_pylist() == [1, 2]


# Tests of Rust have more of each type (`spoil_numbers` in tests/fuzz/targets/tree.rs).
OFFSETS: dict[str, Node] = {
    "falling": Node(b"u", 2, [None, np.array([0, 5, 3], "i4"), np.zeros(9, "u1")]),
    "beyond the child": lists(ints([1, 2]), [1, 2]),
    "before the child": Node(
        b"+l", 1, [None, np.array([-1, 1], "i4")], [replace(ints([1]), name=b"i")]
    ),
    "falling in a child": Node(
        b"+L", 2, [None, np.array([0, 2, 1], "i8")], [replace(ints([1, 2]), name=b"i")]
    ),
    "of a map": replace(BASES["map"], buffers=[None, np.array([0, 3], "i4")]),
    "sizes of a list view": replace(
        BASES["list views"], buffers=[None, np.array([0, 1], "i4"), np.array([1, 3], "i4")]
    ),
    "negative sizes of views": replace(
        BASES["views"], buffers=[None, np.zeros(16, "u1"), np.zeros(4, "u1"), np.array([-4], "i8")]
    ),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_offsets_of_host_data_stay_in_range(case: str) -> None:
    refused(Producer(OFFSETS[case]), "device array")
    refused(Producer(batch(a=ints([1, 2]), b=OFFSETS["falling"])), "device array")


@pytest.mark.parametrize("device_type", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_d21_cuda_data_needs_a_driver(device_type: int) -> None:
    cuda_driver.skip_if_installed()
    producer = Producer(ints([1, 2]), device_type, device_id=0)
    buffer(1, at=16)(producer)  # not to be touched
    message = refused(producer, "device array", usmq.RuntimeNotFoundError)
    assert "libcuda.so.1" in message


NOT_HERE = [0, 4, 7, 8, 9, 10, 12, 15, 16, 99, -1, 2**31 - 1]


@pytest.mark.parametrize("device_type", NOT_HERE)
def test_d21_an_unsupported_device_type_is_refused_by_name(device_type: int) -> None:
    producer = Producer(ints([1, 2]), device_type, device_id=0)
    # Buffers must not be touched first: these would crash.
    buffer(1, at=16)(producer)
    message = refused(producer, "device array")
    assert str(device_type) in message


@pytest.mark.parametrize("part", ["data", "validity", "offsets", "child", "dictionary"])
def test_d23_device_data_must_be_usm(part: str) -> None:
    host = {
        "data": Node(b"i", 2, [None, np.zeros(2, "i4")]),
        "validity": replace(Node(b"i", 2, [None, np.zeros(2, "i4")]).on_device(), null_count=1),
        "offsets": Node(b"u", 1, [None, np.array([0, 1], "i4"), usm(np.zeros(1, "u1"))]),
        "child": replace(lists(ints([]), [1]).on_device(), children=[replace(ints([1]), name=b"")]),
        "dictionary": replace(BASES["words"].on_device(), dictionary=strings([b"x", b"y"])),
    }[part]
    if part == "validity":
        host.buffers = [bitmap([1, 0]), host.buffers[1]]
    refused(Producer(host, ONEAPI), "device array")


def test_d23_device_data_of_another_context_is_refused(sub_device: usmq.Device) -> None:
    queue = usmq.Queue(sub_device)
    memory = dpctl.memory.MemoryUSMDevice(16, queue=dpctl.SyclQueue(queue._get_capsule()))
    refused(Producer(Node(b"i", 4, [None, memory]), ONEAPI), "device array")


def test_the_struct_sizes_match_the_header() -> None:
    sizes = [ctypes.sizeof(kind) for kind in (ArrowSchema, ArrowArray)]
    sizes.append(ctypes.sizeof(arrow_structs.ArrowDeviceArray))
    assert sizes == [72, 80, 128], "the definitions of the tests are wrong"
