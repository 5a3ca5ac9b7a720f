"""Sorts and joins of logical tables through dask.dataframe keep the values and types of Arrow."""

import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from dask_workers import UNCLOSED_SOCKETS, clients, send_by_value
from usmq.dask import LogicalTable

pytest.importorskip("pandas")
pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

KEYS = [3, 1, 2, 6, 5, 4]
COLUMNS = {
    "int64": pa.array([2**53 + 1, None, 2**60 + 1, -(2**63), 2**63 - 1, 0]),
    "uint64": pa.array([2**64 - 1, None, 1, 2, 3, 4], pa.uint64()),
    "int8": pa.array([1, None, -128, 127, 0, 5], pa.int8()),
    "bool": pa.array([True, None, False] * 2),
    "half": pa.array([1, None, 3] * 2).cast(pa.float16()),
    "double": pa.array([float("nan"), None, 1.5] * 2),
    "decimal": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("3.00")] * 2),
    "decimal256": pa.array([decimal.Decimal("1.25"), None] * 3, pa.decimal256(50, 2)),
    "list": pa.array([[1], None, [2, 3]] * 2),
    "fixed list": pa.array([[1, 2], None, [2, 3]] * 2, pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}] * 2),
    "map": pa.array([[("a", 1)], None, [("b", 2)]] * 2, pa.map_(pa.string(), pa.int64())),
    "date32": pa.array([1, None, 3] * 2, pa.date32()),
    "date64": pa.array([86400000, None, 0] * 2, pa.date64()),
    "time32": pa.array([1, None, 3] * 2, pa.time32("s")),
    "time64": pa.array([1, None, 3] * 2, pa.time64("ns")),
    "timestamp s": pa.array([1, None, 3] * 2, pa.timestamp("s")),
    "timestamp ns": pa.array([1, None, 3] * 2, pa.timestamp("ns")),
    "zoned": pa.array([1, None, 3] * 2, pa.timestamp("us", "Europe/Berlin")),
    "duration": pa.array([1, None, 3] * 2, pa.duration("ms")),
    "binary": pa.array([b"\xff", None, b""] * 2),
    "fixed binary": pa.array([b"\xff", None, b"a"] * 2, pa.binary(1)),
    "string": pa.array(["x", None, ""] * 2),
    "large string": pa.array(["x", None, ""] * 2, pa.large_string()),
    "null": pa.nulls(6),
}


@pytest.fixture(scope="module")
def client():
    with clients(["opencl:0"], n_workers=2) as client:
        yield client


def same(found, wanted):
    assert found.schema.types == wanted.schema.types
    for name in wanted.column_names:
        # As text: NaN does not equal itself.
        assert repr(found[name].to_pylist()) == repr(wanted[name].to_pylist()), name


@pytest.mark.parametrize("npartitions", [1, 3])
def test_a_sort_keeps_values_and_types(client, npartitions):
    table = pa.table({"key": KEYS} | COLUMNS)
    frame = LogicalTable.from_arrow(table, npartitions).to_dask()
    same(LogicalTable.from_dask(frame.sort_values("key")).to_arrow(), table.sort_by("key"))


def test_a_join_keeps_values_and_types(client):
    table = pa.table({"key": KEYS} | COLUMNS)
    left = LogicalTable.from_arrow(table, 2).to_dask()
    right = LogicalTable.from_arrow(pa.table({"key": [1, 6, 3], "other": [10, 60, None]}), 2)
    found = LogicalTable.from_dask(left.merge(right.to_dask(), on="key")).to_arrow()
    wanted = table.filter(pc.field("key").isin([1, 3, 6])).sort_by("key")
    same(found.sort_by("key"), wanted.append_column("other", pa.array([10, None, 60])))


def test_tables_sort_by_times_and_text(client):
    for values in (
        pa.array([3, 1, 2], pa.timestamp("s")),
        pa.array([3, 1, 2], pa.timestamp("ns", "UTC")),
        pa.array([3, 1, 2], pa.duration("us")),
        pa.array([3, 1, 2], pa.date32()),
        pa.array(["c", "a", "b"]),
        pa.array([decimal.Decimal("3.5"), decimal.Decimal("1.5"), decimal.Decimal("2.5")]),
    ):
        table = LogicalTable.from_arrow(pa.table({"key": values}), 2)
        found = LogicalTable.from_dask(table.to_dask().sort_values("key")).to_arrow()["key"]
        assert (found.type, found.to_pylist()) == (values.type, sorted(values.to_pylist()))


def test_a_dictionary_becomes_a_column_of_its_values(client):
    table = pa.table({"key": KEYS, "word": pa.array(["x", None, "y"] * 2).dictionary_encode()})
    frame = LogicalTable.from_arrow(table, 2).to_dask()
    found = LogicalTable.from_dask(frame.sort_values("key")).to_arrow()["word"]
    assert found.type == pa.string()
    assert found.to_pylist() == table.sort_by("key")["word"].to_pylist()


STRANGE = {
    "string_view": pa.array(["x"], pa.string_view()),
    "month_day_nano_interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_type_that_pandas_cannot_hold_is_refused_by_name(client, name):
    strange = pa.table({"key": [1], "strange": STRANGE[name]})
    table = LogicalTable([], strange.schema, client)
    with pytest.raises(TypeError, match=f"pandas cannot keep the column 'strange' of type {name}"):
        table.to_dask()
