"""Tables, fields, and the arrays of usmq as columns of Arrow."""

from __future__ import annotations

from typing import Any

import arrow_structs
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_structs import KINDS, Exported, buffers, children, live, text

no_leaks = arrow_structs.no_leaks

TABLE = pa.table(
    {
        "a": pa.array([1, None, 3, 4], pa.int32()),
        "b": pa.array(["x", "", None, "long enough"]),
        "c": pa.array([[True], [], None, [False, None]]),
    }
)


def test_the_error_for_numpy_shows_how_to_convert_tables_and_columns() -> None:
    table = usmq.Table({"x": usmq.arange(3)})
    for ask in (np.asarray, np.array, lambda obj: np.asarray(obj, "f8")):
        with pytest.raises(TypeError, match=r"values\(\)\.to_numpy\(\)"):
            ask(table)
        with pytest.raises(TypeError, match=r"values\(\)\.to_numpy\(\)"):
            ask(table["x"])
    assert table["x"].values().to_numpy().tolist() == [0, 1, 2]
    assert table["x"].to_arrow().to_numpy(zero_copy_only=False).tolist() == [0, 1, 2]


def test_record_batches_tables_and_structs_become_tables_others_columns() -> None:
    batch = TABLE.to_batches()[0]
    for source in (TABLE, batch):
        table = usmq.from_arrow(source)
        assert isinstance(table, usmq.Table)
        assert len(table) == table.num_rows == 4
        assert table.column_names == ["a", "b", "c"]
        assert [column.name for column in table.columns] == ["a", "b", "c"]
        assert [column.format for column in table.columns] == ["i", "u", "+l"]
        assert all(isinstance(column, usmq.Column) for column in table.columns)
    # Top-level structs are rows unless some are null; in a table they are a column.
    struct = batch.to_struct_array()
    assert usmq.from_arrow(struct).to_arrow().equals(pa.table(batch))
    assert usmq.from_arrow(struct, columns=["b"]).column_names == ["b"]
    for column in (
        usmq.from_arrow(pa.table({"s": struct}))["s"],
        usmq.from_arrow(pa.array([{"a": 1}, None])),
    ):
        assert isinstance(column, usmq.Column)
    assert usmq.from_arrow(pa.table({"s": struct}))["s"].to_arrow().equals(struct)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_reports_its_queue_device_and_usm_kind(kind: str) -> None:
    queue = usmq.Queue(usmq.current_queue().device, profiling=True)
    table = usmq.from_arrow(TABLE, queue=queue, usm_type=kind)
    assert table.queue == queue
    assert table.device == queue.device
    assert all(column.usm_type == kind for column in table.columns)
    assert table.wait() is None
    assert table["a"].wait() is None


def test_a_column_is_found_by_name_and_the_error_lists_the_names() -> None:
    table = usmq.from_arrow(TABLE)
    assert table["a"].values().to_numpy()[[0, 2, 3]].tolist() == [1, 3, 4]
    assert table["a"].name == "a"
    for find in (lambda: table["nosuch"], lambda: usmq.from_arrow(TABLE, columns=["a", "nosuch"])):
        with pytest.raises(KeyError, match=r"nosuch.*'?a'?.*'?b'?.*'?c'?"):
            find()


@pytest.mark.parametrize("columns", [["a"], ["c", "a"], ("b",), [], ["b", "a", "c"]])
def test_only_the_requested_columns_are_imported(columns: Any) -> None:
    table = usmq.from_arrow(TABLE, columns=columns)
    assert table.column_names == list(columns)
    assert table.num_rows == 4
    assert table.to_arrow().equals(TABLE.select(list(columns)))


def test_columns_that_are_not_imported_take_no_memory() -> None:
    before = live()
    wide = pa.table({f"c{n}": pa.array(range(10)) for n in range(50)})
    table = usmq.from_arrow(wide, columns=["c7"])
    some = live() - before
    assert some <= 2
    assert table.to_arrow().equals(wide.select(["c7"]))


def test_a_table_is_built_from_arrays_and_columns() -> None:
    x = usmq.asarray(np.arange(5, dtype="f4"))
    words = usmq.from_arrow(pa.array(["a", None, "c", "d", "e"]))
    grid = usmq.asarray(np.arange(10, dtype="i2").reshape(5, 2))
    table = usmq.Table({"x": x, "words": words[:5], "grid": grid})
    assert table.num_rows == 5
    assert table.column_names == ["x", "words", "grid"]
    assert table["x"].values().ptr == x.ptr
    assert table["words"].offsets().ptr == words.offsets().ptr
    assert table["grid"].children[0].values().ptr == grid.ptr
    expected = pa.table(
        {
            "x": pa.array(range(5), pa.float32()),
            "words": pa.array(["a", None, "c", "d", "e"]),
            "grid": pa.array([[2 * n, 2 * n + 1] for n in range(5)], pa.list_(pa.int16(), 2)),
        }
    )
    found = table.to_arrow()
    found.validate(full=True)
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist()
        assert found[name].type.id == expected[name].type.id
    assert table["x"].queue == x.queue
    with pytest.raises(TypeError):
        usmq.Table({"a": 1})


def test_the_columns_of_a_table_are_of_one_length_and_one_context(other_queue: usmq.Queue) -> None:
    x = usmq.zeros(3)
    with pytest.raises((usmq.Error, ValueError), match=r"3.*4|4.*3"):
        usmq.Table({"x": x, "y": usmq.zeros(4)})
    with pytest.raises((usmq.Error, ValueError)):
        usmq.Table({"x": x, "y": usmq.zeros(3, queue=other_queue)})


def test_a_table_moves_to_another_context_and_back(other_queue: usmq.Queue) -> None:
    table = usmq.from_arrow(TABLE)
    there = table.to(other_queue)
    assert there.queue == other_queue
    assert there.to_arrow().equals(TABLE)
    back = there.to(table.queue, usm_type="host")
    assert back.queue == table.queue
    assert back["a"].usm_type == "host"
    assert back.to_arrow().equals(TABLE)


@pytest.mark.parametrize("kind", ["host", "shared"])
def test_a_host_view_of_a_table_imports_into_pyarrow_and_outlives_it(kind: str) -> None:
    table = usmq.from_arrow(TABLE, usm_type=kind)
    view = table.host_view()
    for found in (pa.table(view), pa.record_batch(view)):
        assert found.column("b").to_pylist() == TABLE["b"].to_pylist()
        assert found.schema.equals(TABLE.schema)
    address = pa.record_batch(view).column("a").buffers()[1].address
    assert address == table["a"].values().ptr
    with pa.RecordBatchReader.from_stream(view) as reader:
        assert reader.read_all().equals(TABLE)
    found = pa.table(view)
    del table, view
    others = [usmq.full(4, 7, "i4", usm_type=kind) for _ in range(20)]
    assert found.equals(TABLE)
    del others


def test_a_field_has_name_format_nullability_and_metadata() -> None:
    inner = pa.field("in", pa.dictionary(pa.int8(), pa.string()), nullable=False)
    field = pa.field(
        "näme", pa.list_(inner), nullable=False, metadata={b"k": b"v", b"\0\xff": b"", b"": b"x"}
    )
    schema = pa.schema([field], metadata={"of": "all"})
    table = usmq.from_arrow(pa.table([pa.array([["x"]], field.type)], schema=schema))
    ours = table.schema
    assert isinstance(ours, usmq.Field)
    assert (ours.format, ours.nullable, ours.metadata) == ("+s", False, {b"of": b"all"})
    (outer,) = ours.children
    assert (outer.name, outer.format, outer.nullable) == ("näme", "+l", False)
    assert outer.metadata == {b"k": b"v", b"\0\xff": b"", b"": b"x"}
    (item,) = outer.children
    assert (item.name, item.format, item.nullable) == ("in", "c", False)
    assert item.dictionary.format == "u"
    assert outer.dictionary is None
    assert item.metadata == {}
    assert pa.schema(ours).equals(schema, check_metadata=True)
    assert pa.field(outer).equals(field, check_metadata=True)
    assert usmq.from_arrow(pa.array([1])).field.nullable is True


DTYPES = {"i1": "c", "u1": "C", "i2": "s", "u2": "S", "i4": "i", "u4": "I", "i8": "l", "u8": "L"}
DTYPES |= {"f2": "e", "f4": "f", "f8": "g"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_is_a_column_at_its_address(dtype: str) -> None:
    host = np.arange(6).astype(dtype)
    x = usmq.asarray(host)
    column = usmq.from_arrow(x)
    assert (column.format, column.null_count, column.queue) == (DTYPES[dtype], 0, x.queue)
    for part, start, stop in ((column, 0, 6), (usmq.from_arrow(x[2:5]), 2, 5)):
        assert part.values().ptr == x.ptr + start * x.itemsize
        np.testing.assert_array_equal(part.to_arrow().to_numpy(), host[start:stop])
    exported = Exported(x)
    assert text(exported.schema.format) == DTYPES[dtype].encode()
    assert buffers(exported.array) == [0, x.ptr]
    assert exported.array.length == 6


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (5, 0), (0, 5), (4, 3, 2)])
def test_arrays_of_more_axes_are_fixed_size_lists_at_their_address(shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    x = usmq.asarray(host)
    column = usmq.from_arrow(x)
    assert (column.format, len(column)) == (f"+w:{shape[1]}", shape[0])
    assert column.to_arrow().to_pylist() == host.tolist()
    if x.size:
        items, struct = column, Exported(x).array
        for _ in shape[1:]:
            items, struct = items.children[0], children(struct)[0]
        assert items.values().ptr == buffers(struct)[1] == x.ptr
    assert usmq.from_arrow(x[1:]).to_arrow().to_pylist() == host[1:].tolist()


@pytest.mark.parametrize("dtype", ["?", "c8", "c16", "bfloat16"])
@pytest.mark.parametrize("shape", [3, (2, 3)])
def test_dtypes_without_an_arrow_layout_are_refused_by_name(dtype: str, shape: Any) -> None:
    x = usmq.zeros(shape, dtype)
    for use in (usmq.from_arrow, Exported, lambda x: usmq.Table({"x": x})):
        with pytest.raises(usmq.InteropError, match=usmq.DType(dtype).name):
            use(x)


def test_arrays_that_cannot_be_a_column_are_refused() -> None:
    x = usmq.zeros((4, 6), "i4")
    for wrong in (x.T, x[:, ::2], x[0, 0]):
        for use in (usmq.from_arrow, Exported):
            with pytest.raises((usmq.InteropError, TypeError)):
                use(wrong)


def test_a_table_without_columns_and_one_without_rows() -> None:
    bare = usmq.from_arrow(pa.table({}))
    assert (bare.num_rows, bare.column_names) == (0, [])
    none = usmq.from_arrow(TABLE[:0])
    assert (len(none), none.column_names) == (0, ["a", "b", "c"])
    assert none.to_arrow().equals(TABLE[:0])
    assert none["b"].to_arrow().to_pylist() == []


def test_names_may_be_empty_or_repeated() -> None:
    table = pa.table([pa.array([1]), pa.array(["x"]), pa.array([2.5])], ["", "a", "a"])
    ours = usmq.from_arrow(table)
    assert ours.column_names == ["", "a", "a"]
    assert [c.to_arrow().to_pylist() for c in ours.columns] == [[1], ["x"], [2.5]]
    assert ours.to_arrow().equals(table)
    assert ours[""].to_arrow().to_pylist() == [1]


@pytest.mark.parametrize("wrong", [1, "text", None, [1, 2], np.arange(3), {"a": 1}, object()])
def test_objects_without_arrow_dunders_are_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match=type(wrong).__name__) as error:
        usmq.from_arrow(wrong)
    assert "__arrow_c_" in str(error.value)


def test_invalid_targets_are_refused() -> None:
    array = pa.array([1])
    with pytest.raises((ValueError, TypeError, usmq.Error)):
        usmq.from_arrow(array, usm_type="nosuch")
    with pytest.raises(usmq.Error):
        usmq.from_arrow(array, queue="gpu:99")
    for options in ({"queue": 5}, {"columns": ["a"]}):
        with pytest.raises((TypeError, usmq.Error)):
            usmq.from_arrow(array, **options)
    with pytest.raises(TypeError):
        usmq.from_arrow()
    assert issubclass(usmq.InteropError, usmq.Error)
    assert issubclass(usmq.InteropError, BufferError)
