"""Dictionaries of chunks that are joined: equal values have one code, for all lengths and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import usmq


def joined(*chunks: Any) -> usmq.Column:
    """Join chunks as the column of a table, and as a stream of arrays."""
    table = pa.table({"k": pa.chunked_array(list(chunks))})
    column = usmq.from_arrow(table)["k"]
    alone = usmq.from_arrow(pa.chunked_array(list(chunks)))
    assert isinstance(alone, usmq.Column)
    for one in (column, alone):
        assert one.to_arrow().to_pylist() == table["k"].to_pylist()
        one.to_arrow().validate(full=True)
    assert alone.values().tolist() == column.values().tolist()
    return column


def words(column: usmq.Column) -> list[Any]:
    assert column.dictionary is not None
    found: list[Any] = column.dictionary.to_arrow().to_pylist()
    return found


def encoded(indices: list[int | None], values: Any, of: Any = None, ordered: bool = False) -> Any:
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, of or pa.int32()), values, ordered=ordered
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 64, 1000])
@pytest.mark.parametrize("chunks", [2, 3, 7])
def test_chunks_of_all_lengths_share_one_dictionary(rows: int, chunks: int) -> None:
    orders = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"], ["d", "d"], ["a", "d"], ["c", "b"]]
    parts = [pa.array((orders[n] * rows)[:rows]).dictionary_encode() for n in range(chunks)]
    column = joined(*parts)
    expected = list(dict.fromkeys(word for part in parts for word in part.dictionary.to_pylist()))
    assert words(column) == expected
    texts = [word for part in parts for word in part.to_pylist()]
    assert column.values().tolist() == [expected.index(text) for text in texts]


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [1, -3]),
    "uint64": (pa.uint64(), [2**64 - 1, 0]),
    "float": (pa.float32(), [0.5, -1.5]),
    "half": (pa.float16(), [0.5, -1.5]),
    "decimal": (pa.decimal128(9, 2), [None, 2]),
    "date": (pa.date32(), [1, 7]),
    "timestamp": (pa.timestamp("us", "UTC"), [1, 7]),
    "duration": (pa.duration("ns"), [1, 7]),
    "binary": (pa.binary(), [b"\xff", b""]),
    "large binary": (pa.large_binary(), [b"\xff", b""]),
    "large string": (pa.large_string(), ["x", "y"]),
    "string view": (pa.string_view(), ["x", "more than twelve bytes"]),
    "binary view": (pa.binary_view(), [b"x", b"more than twelve bytes"]),
    "fixed binary": (pa.binary(2), [b"xy", b"zz"]),
    "null": (pa.null(), [None]),
    "list": (pa.list_(pa.int8()), [[1, 2], []]),
    "struct": (pa.struct({"a": pa.int8(), "b": pa.string()}), [{"a": 1, "b": "x"}, None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_are_unified(name: str) -> None:
    of, values = TYPES[name]
    first, second = pa.array(values, of), pa.array(values[::-1], of)
    column = joined(
        encoded([0, None, len(values) - 1], first), encoded([0], second), encoded([0], first)
    )
    assert words(column) == first.to_pylist()
    assert column.values().tolist()[0] == 0
    assert column.values().tolist()[2:] == [len(values) - 1, len(values) - 1, 0]


def test_duplicates_and_nulls_of_dictionaries_have_one_code() -> None:
    twice = encoded([0, 1, 2, 3], pa.array(["a", "a", None, "b"]))
    column = joined(twice, encoded([0, 1, 2, None], pa.array(["b", None, None])))
    assert words(column) == ["a", None, "b"]
    assert column.values().tolist()[:7] == [0, 0, 1, 2, 2, 1, 1]
    # As many values as the first dictionary has, but others.
    column = joined(encoded([0, 1], pa.array(["a", "a"])), encoded([0], pa.array(["b"])))
    assert (words(column), column.values().tolist()) == (["a", "b"], [0, 0, 1])


def test_equal_empty_and_unused_dictionaries_are_joined() -> None:
    shared = pa.array(["x", "y"])
    assert words(joined(encoded([1], shared), encoded([0], shared))) == ["x", "y"]
    empty = encoded([None, None], pa.array([], pa.string()))
    assert words(joined(empty, encoded([0], shared), empty)) == ["x", "y"]
    unused = encoded([0], pa.array(["z", "not used"]))
    assert words(joined(encoded([1], shared), unused)) == ["x", "y", "z", "not used"]
    parts = [encoded([], shared), encoded([0], shared), encoded([], pa.array(["w"]))]
    assert words(joined(*parts)) == ["x", "y"]


def test_slices_of_chunks_keep_their_values() -> None:
    part = pa.array(["c", "a", "b", "a", None, "b"]).dictionary_encode()
    column = joined(part[1:4], part[2:], pa.array(["b", "d"]).dictionary_encode()[1:])
    assert words(column) == ["c", "a", "b", "d"]


def offsets(part: Any, of: Any = None) -> Any:
    return pa.array([0, 1, len(part)], of or pa.int32())


def numbered(part: Any, start: int = 0) -> Any:
    return pa.array(range(start, start + len(part)), pa.int32())


# How to nest a dictionary, and the place of its column among the children.
NESTED: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "struct": (lambda part: pa.StructArray.from_arrays([part], ["f"]), [0]),
    "list": (lambda part: pa.ListArray.from_arrays(offsets(part), part), [0]),
    "large list": (
        lambda part: pa.LargeListArray.from_arrays(offsets(part, pa.int64()), part),
        [0],
    ),
    "pairs": (lambda part: pa.FixedSizeListArray.from_arrays(part, 2), [0]),
    "map": (lambda part: pa.MapArray.from_arrays(offsets(part), numbered(part), part), [0, 1]),
    "list of structs": (
        lambda part: pa.ListArray.from_arrays(offsets(part), NESTED["struct"][0](part)),
        [0, 0],
    ),
    "runs": (lambda part: pa.RunEndEncodedArray.from_arrays(numbered(part, 1), part), [1]),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_dictionaries_are_unified(name: str) -> None:
    nest, places = NESTED[name]
    first = pa.array(["a", "b"] * 3).dictionary_encode()
    second = pa.array(["b", "c"] * 3).dictionary_encode()
    table = pa.table({"k": pa.chunked_array([nest(first), nest(second), nest(first)])})
    column = usmq.from_arrow(table)["k"]
    assert column.to_arrow().to_pylist() == table["k"].to_pylist()
    for place in places:
        column = column.children[place]
    assert words(column) == ["a", "b", "c"]


@pytest.mark.parametrize("of", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("where", ["column", "struct"])
def test_more_values_than_indices_name_the_column_and_the_cast(of: str, where: str) -> None:
    most = {"int8": 128, "uint8": 256, "int16": 2**15, "uint16": 2**16}[of]
    kind = pa.type_for_alias(of)

    def chunk(start: int, stop: int) -> Any:
        part = encoded([0], pa.array([f"w{n}" for n in range(start, stop)]), kind)
        return pa.StructArray.from_arrays([part], ["f"]) if where == "struct" else part

    def table(*chunks: Any) -> Any:
        return pa.table(
            {"other": pa.chunked_array([[1]] * len(chunks)), "k": pa.chunked_array(chunks)}
        )

    full = usmq.from_arrow(table(chunk(0, most - 1), chunk(most - 2, most)))["k"]
    assert len(words(full.children[0] if where == "struct" else full)) == most
    path = "k.f" if where == "struct" else "k"
    with pytest.raises(usmq.InteropError) as error:
        usmq.from_arrow(table(chunk(0, most - 1), chunk(most - 1, most + 1)))
    for part in (f'"{path}"', of, str(most + 1), "cast", "int64"):
        assert part in str(error.value)


def test_the_cast_that_the_error_names_works() -> None:
    chunks = [encoded([0], pa.array([f"{p}{n}" for n in range(100)]), pa.int8()) for p in "ab"]
    table = pa.table({"k": pa.chunked_array(chunks)})
    wide = table.cast(pa.schema({"k": pa.dictionary(pa.int64(), pa.string())}))
    assert usmq.from_arrow(wide)["k"].values().tolist() == [0, 100]
    plain = usmq.from_arrow(table.cast(pa.schema({"k": pa.string()})))
    assert plain["k"].to_arrow().to_pylist() == ["a0", "b0"]


def test_ordered_dictionaries_keep_their_order_or_are_refused() -> None:
    def ordered(*texts: str) -> Any:
        return encoded([0], pa.array(texts), ordered=True)

    for parts, expected in [
        ([("a", "b"), ("a", "b")], ["a", "b"]),
        ([("a", "b"), ("a", "b", "c")], ["a", "b", "c"]),
        ([("a", "b", "c"), ("b", "c")], ["a", "b", "c"]),
        ([("a", "b"), ("b", "c")], ["a", "b", "c"]),
    ]:
        column = joined(*[ordered(*part) for part in parts])
        assert words(column) == expected
        assert column.to_arrow().type.ordered
    for parts in ([("a", "b"), ("b", "a")], [("a", "c"), ("b",)], [("a", "c"), ("a", "b")]):
        with pytest.raises(usmq.InteropError, match=r'"k".*order'):
            usmq.from_arrow(pa.table({"k": pa.chunked_array([ordered(*part) for part in parts])}))


@pytest.mark.parametrize("kind", ["shared", "device", "host"])
def test_batches_on_a_device_keep_their_dictionaries(kind: Any) -> None:
    parts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]
    tables = [usmq.from_arrow(pa.table({"k": part}), usm_type=kind) for part in parts]
    table = usmq.from_arrow(usmq.DeviceStream(tables))
    assert isinstance(table, usmq.Table)
    assert table.to_arrow()["k"].to_pylist() == ["a", "b", "b", "a"]
    assert [words(batch["k"]) for batch in table.batches] == [["a", "b"], ["b", "a"]]
