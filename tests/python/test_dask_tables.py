"""Logical tables: partitions on the workers' devices give the same results as pyarrow."""

import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import usmq
from dask_workers import UNCLOSED_SOCKETS, clients, die, send_by_value
from pyarrow import parquet
from usmq.dask import LocalUsmCluster, LogicalTable
from usmq.dask._aggregate import Aggregation

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)
PATIENCE = 120
FUNCTIONS = ["count", "sum", "mean", "min", "max"]
random = np.random.default_rng(7)


@pytest.fixture(scope="module")
def client(two_devices):
    with clients(n_workers=2) as client:
        yield client


# --- grouping alone, without a cluster


def grouped(table, keys, wanted, cuts=(0.5,)):
    """Group parts of a table as the workers do, and merge them."""
    plan = Aggregation.of(table.schema, keys, wanted)
    ends = [0, *(int(cut * table.num_rows) for cut in cuts), table.num_rows]
    slices = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    parts = [usmq.run_task(plan.partial, usmq.from_arrow(part)) for part in slices]
    merged = usmq.run_task(plan.merge, *parts)
    result = usmq.run_task(plan.finish, merged).to_arrow()
    assert result.schema.equals(plan.result_schema())
    return result


def rows(table, keys):
    """Return the sorted rows, with NaN as a string because NaN does not equal itself."""

    def plain(value):
        return "nan" if isinstance(value, float) and value != value else value

    found = [tuple(plain(value) for value in row.values()) for row in table.to_pylist()]
    return sorted(
        found, key=lambda row: [(value is None, str(value)) for value in row[: len(keys)]]
    )


def same(table, keys, wanted, cuts=(0.5,)):
    """Compare with pyarrow's own: names, types, every value but the last bits of a sum."""
    ours = grouped(table, keys, wanted, cuts)
    theirs = table.group_by(keys).aggregate(wanted)
    assert ours.column_names == theirs.column_names
    assert ours.schema.types == theirs.schema.types
    ours, theirs = rows(ours, keys), rows(theirs, keys)
    assert len(ours) == len(theirs)
    for found, expected in zip(ours, theirs, strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a == b or (isinstance(b, float) and a == pytest.approx(b, rel=1e-12)), (
                found,
                expected,
            )


def nulled(values, given):
    return pa.array([None if random.random() < 0.2 else value for value in values], type=given)


COUNT = 500
KEYS = {
    "int8": nulled([int(v) for v in random.integers(-5, 5, COUNT)], pa.int8()),
    "uint64": nulled([2**64 - 1 - int(v) for v in random.integers(0, 9, COUNT)], pa.uint64()),
    "double": nulled([float(v) / 3 for v in random.integers(-5, 5, COUNT)], pa.float64()),
    "float": nulled([float(v) / 4 for v in random.integers(-5, 5, COUNT)], pa.float32()),
    "bool": nulled([bool(v) for v in random.integers(0, 2, COUNT)], pa.bool_()),
    "date": nulled([int(v) for v in random.integers(0, 5, COUNT)], pa.date32()),
    "timestamp": nulled([int(v) for v in random.integers(0, 5, COUNT)], pa.timestamp("us", "UTC")),
    "text": nulled(["é" * int(v) for v in random.integers(0, 7, COUNT)], pa.string()),
    "large text": nulled([f"{v}" for v in random.integers(0, 30, COUNT)], pa.large_string()),
    "bytes": nulled([bytes([v, 0, v]) for v in random.integers(0, 7, COUNT)], pa.binary()),
    "words": nulled(
        [f"w{v}" for v in random.integers(0, 7, COUNT)], pa.string()
    ).dictionary_encode(),
}
VALUES = {
    "int16": nulled([int(v) for v in random.integers(-(2**15), 2**15, COUNT)], pa.int16()),
    "int64": nulled([int(v) for v in random.integers(-(2**50), 2**50, COUNT)], pa.int64()),
    "uint64": nulled([2**63 + int(v) for v in random.integers(0, 2**40, COUNT)], pa.uint64()),
    "float": nulled([float(v) / 8 for v in random.integers(-999, 999, COUNT)], pa.float32()),
    "double": nulled([float(v) / 8 for v in random.integers(-999, 999, COUNT)], pa.float64()),
    "bool": nulled([bool(v) for v in random.integers(0, 2, COUNT)], pa.bool_()),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("cuts", [(), (0.3,), (0.0, 0.5, 0.5)])
def test_every_key_type_groups_like_pyarrow(key, cuts):
    table = pa.table({"k": KEYS[key], "v": VALUES["double"]})
    same(table, ["k"], [("v", "sum"), ("v", "count"), ([], "count_all"), ("k", "count")], cuts)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_aggregate_matches_pyarrow(value, function):
    table = pa.table({"k": KEYS["words"], "v": VALUES[value]})
    same(table, ["k"], [("v", function)])


@pytest.mark.parametrize("function", ["min", "max"])
def test_times_have_minimum_and_maximum(function):
    table = pa.table({"k": KEYS["bool"], "a": KEYS["date"], "b": KEYS["timestamp"]})
    same(table, ["k"], [("a", function), ("b", function)])


def test_several_keys_and_every_slice():
    table = pa.table({name.replace(" ", "_"): values for name, values in KEYS.items()})
    table = table.append_column("v", VALUES["int16"]).slice(13, 471)
    same(table, ["text", "bool", "words"], [("v", "sum"), ("v", "max")], (0.01, 0.99))
    same(table, ["double", "bytes"], [("v", "mean"), ("date", "min")], ())


def test_groups_without_keys_rows_or_known_values():
    table = pa.table({"k": KEYS["text"], "v": VALUES["int16"]})
    wanted = [("v", "sum"), ("v", "mean"), ("v", "min"), ("v", "count"), ([], "count_all")]
    same(table, [], wanted)
    same(table.slice(0, 0), ["k"], wanted)
    same(table.slice(0, 0), [], wanted)
    unknown = pa.table({"k": ["a", "a", "b"], "v": pa.array([None, None, 1], pa.int32())})
    same(unknown, ["k"], wanted)


def test_nan_is_ignored_in_extremes_and_is_a_separate_key():
    nan = float("nan")
    table = pa.table({"k": [1.0, 1.0, nan, nan, 2.0], "v": [nan, 3.0, nan, nan, 1.0]})
    same(table, ["k"], [("v", "min"), ("v", "max"), ("v", "sum")])


def test_many_groups_and_repeatable_sums():
    count = 200_000
    table = pa.table({"k": random.integers(0, count, count), "v": random.random(count)})
    same(table, ["k"], [("v", "sum"), ("v", "min")])
    few = pa.table({"k": random.integers(0, 3, count), "v": random.random(count)})
    first = grouped(few, ["k"], [("v", "sum")])
    assert all(grouped(few, ["k"], [("v", "sum")]).equals(first) for _ in range(3))


def test_dictionaries_with_nulls_and_doubles_group_by_value():
    words = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, None]), pa.array(["x", "y", "x", None])
    )
    table = pa.table({"k": words, "v": [1, 2, 4, 8, 16]})
    found = grouped(table, ["k"], [("v", "sum")])
    assert found.schema.field("k").type == words.type
    assert dict(zip(found["k"].to_pylist(), found["v_sum"].to_pylist(), strict=True)) == {
        "x": 5,
        "y": 2,
        None: 24,
    }


@pytest.mark.parametrize(
    ("keys", "wanted", "error", "text"),
    [
        (["none"], [("v", "sum")], KeyError, "'none'"),
        (["k"], [("none", "sum")], KeyError, "'none'"),
        (["list"], [("v", "sum")], TypeError, "list"),
        (["k"], [("k", "sum")], TypeError, "cannot compute sum"),
        (["k"], [("date", "mean")], TypeError, "cannot compute mean"),
        (["k"], [("v", "median")], ValueError, "median"),
        (["k"], [("v", "sum"), ("v", "sum")], ValueError, "v_sum"),
        (["k"], [], ValueError, "nothing"),
    ],
)
def test_ungroupable_columns_are_refused_before_any_task_runs(keys, wanted, error, text):
    schema = pa.schema(
        {"k": pa.string(), "v": pa.int64(), "list": pa.list_(pa.int64()), "date": pa.date32()}
    )
    with pytest.raises(error, match=text):
        Aggregation.of(schema, keys, wanted)


# --- on workers


def numbers(count=10_000):
    return pa.table(
        {
            "k": pa.array(np.arange(count) % 7, pa.int32()),
            "v": pa.array(np.arange(count) / 4, mask=np.arange(count) % 11 == 0),
            "w": pa.array([f"word {n % 5}" for n in range(count)]).dictionary_encode(),
        },
        metadata={"made": "here"},
    )


def doubled(task):
    table, factor = task.arg(usmq.Table), task.arg(float)
    assert table.queue == task.queue == usmq.current_queue()
    y = task.memory.empty(table.num_rows, "f8")
    y[...] = table["k"].values()
    extra = usmq.from_arrow(pa.array(y.to_numpy() * factor))
    return usmq.Table({"k": table["k"], "y": extra})


def known(task):
    return task.arg(usmq.Table)["v"].null_count


def test_a_table_round_trips(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 5)
    assert (logical.npartitions, logical.num_rows, len(logical)) == (5, 10_000, 10_000)
    assert logical.column_names == ["k", "v", "w"]
    assert logical.schema.equals(table.schema, check_metadata=True)
    back = logical.to_arrow()
    assert back.equals(table)
    assert back.schema.equals(table.schema, check_metadata=True)
    assert logical.select(["w", "k"]).to_arrow().equals(table.select(["w", "k"]))
    where = client.who_has(logical.partitions)
    assert len({worker for workers in where.values() for worker in workers}) == 2
    assert repr(logical) == "<usmq.dask.LogicalTable of 5 partitions, columns k, v, w>"


def test_other_arrow_objects_are_accepted(client):
    wanted = {"a": [1, 2, 3]}
    for table in (wanted, pa.table(wanted).to_batches()[0], usmq.from_arrow(pa.table(wanted))):
        assert LogicalTable.from_arrow(table, 2).to_arrow().to_pydict() == wanted


def test_functions_map_over_partitions_and_reduce(client):
    table = numbers()
    mapped = LogicalTable.from_arrow(table, 4).map_partitions(doubled, 2.0)
    assert mapped.column_names == ["k", "y"]
    assert np.array_equal(mapped.to_arrow()["y"], table["k"].to_numpy() * 2.0)
    for parts in (4, 20):
        total = LogicalTable.from_arrow(table, parts).reduce(known, sum)
        assert total.result(PATIENCE) == table["v"].null_count


def test_groups_of_partitions_match_pyarrow(client):
    table = numbers()
    wanted = [("v", "mean"), ("v", "count"), ([], "count_all"), ("k", "max")]
    theirs = table.group_by(["w", "k"]).aggregate(wanted)
    for parts in (1, 3, 20):
        found = LogicalTable.from_arrow(table, parts).group_by(["w", "k"]).aggregate(wanted)
        assert found.npartitions == 1
        assert found.schema.names == theirs.column_names
        assert rows(found.to_arrow(), ["w", "k"]) == rows(theirs, ["w", "k"])


def test_parquet_is_read_on_the_worker_that_uses_it(client, tmp_path):
    table = numbers()
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for number, path in enumerate(paths):
        parquet.write_table(table.slice(number * 5000, 5000), path, row_group_size=1000)
    logical = LogicalTable.from_parquet(paths, npartitions=3)
    assert logical.npartitions == 3
    assert logical.to_arrow().equals(table)
    assert LogicalTable.from_parquet(paths, npartitions=99).npartitions == 10
    two = LogicalTable.from_parquet(str(paths[0]), columns=["w", "k"])
    assert two.to_arrow().equals(table.select(["w", "k"]).slice(0, 5000))
    parquet.write_table(table.select(["k"]), tmp_path / "other.parquet")
    for wrong, columns, error, text in (
        (paths, ["none"], KeyError, "'none'"),
        (tmp_path / "none.parquet", None, FileNotFoundError, r"none\.parquet"),
        ([*paths, tmp_path / "other.parquet"], None, ValueError, "another schema"),
    ):
        with pytest.raises(error, match=text):
            LogicalTable.from_parquet(wrong, columns=columns)


def by_worker(task):
    table = task.arg(usmq.Table)
    first = table["k"].values()[0].to_numpy() if table.num_rows else 0
    return table.select(["k"]) if first == 0 else table.select(["v"])


OF_K = pa.schema({"k": pa.int32()})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda t: t.map_partitions(known).to_arrow(),
            TypeError,
            r"known must return a usmq\.Table",
        ),
        (lambda t: t.map_partitions(by_worker).to_arrow(), ValueError, "another"),
        (lambda t: t.map_partitions(doubled, 1.0, schema=OF_K).to_arrow(), ValueError, "another"),
        (lambda t: t.map_partitions(doubled).wait(), TypeError, "requests argument 2"),
        (lambda t: t.reduce(known, sum, "too much").result(PATIENCE), TypeError, "took 1"),
        # In time, not after waiting for memory.
        (
            lambda t: t.map_partitions(doubled, 1.0, memory_limit=1000).wait(PATIENCE),
            usmq.AllocationError,
            "doubled",
        ),
        # With the log of the compiler.
        (lambda t: t.filter("v[i].nonsense > 1").wait(PATIENCE), usmq.KernelBuildError, "nonsense"),
        (
            lambda t: (
                t["v"]
                .elementwise("x[i] + y[i]", y=LogicalTable.from_arrow(numbers(12_000), 2)["v"])
                .to_arrow()
            ),
            ValueError,
            "columns of .* rows cannot be combined",
        ),
    ],
)
def test_errors_of_tasks_reach_the_client(client, call, error, text):
    table = LogicalTable.from_arrow(numbers(), 2)
    with pytest.raises(error, match=text):
        call(table)


def other_partitions():
    return LogicalTable.from_arrow(numbers(100), 3)["v"]


NO_INDEX = r"uses the column 'v' without an index; write"
HANDLE = "is a handle of the client"
TYPE = r"type is a pyarrow.DataType or a name such as"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: t.select(["none"]), KeyError, "'none'"),
        (lambda t: t.select([]), ValueError, "select takes a list of one or more names"),
        (lambda t: t.select("k"), ValueError, "select takes a list of one or more names"),
        (lambda t: t["none"], KeyError, "'none'"),
        (lambda t: t[0], TypeError, "the name of a column is a str, not 0"),
        (lambda t: iter(t), TypeError, HANDLE),
        (lambda t: iter(t["v"]), TypeError, HANDLE),
        (lambda t: t.map_partitions(doubled, t), TypeError, HANDLE),
        (lambda t: t.map_partitions(doubled, t["k"]), TypeError, f"a LogicalColumn {HANDLE}"),
        (
            lambda _: LogicalTable.from_arrow(numbers(), 0),
            ValueError,
            "npartitions must be 1 or more",
        ),
        (
            lambda t: LogicalTable.from_dask(t),
            TypeError,
            r"from_dask takes a dask.dataframe, not LogicalTable",
        ),
        (lambda t: t.head(-1), ValueError, "0 rows or more"),
        (lambda t: t.head("3"), TypeError, "head takes a number of rows, not '3'"),
        (lambda t: t.head(2.0), TypeError, r"head takes a number of rows, not 2\.0"),
        (lambda t: t.group_by(3), TypeError, "group_by takes names of columns, not"),
        (lambda t: t.group_by(["k", 3]), TypeError, "group_by takes names of columns, not"),
        (
            lambda t: t.group_by("k").aggregate(("v", "sum")),
            TypeError,
            r"aggregate takes pairs such as .* not 'v'",
        ),
        (lambda t: t.filter("w[i] > 1"), TypeError, "cannot use values of type dictionary"),
        (lambda t: t.filter("none[i] > 1"), ValueError, "uses no column"),
        (
            lambda t: t.filter("v[i] > limit", limit="1"),
            TypeError,
            "limit must be a number, not str",
        ),
        (lambda t: t.filter("v[i] > 1", limit=1), ValueError, "'limit' does not occur"),
        (lambda t: t.filter("v[i] > k", k=1), ValueError, "'k' cannot name a number"),
        (lambda t: t.filter("v"), ValueError, NO_INDEX),
        (lambda t: t.filter("k[i] > v"), ValueError, NO_INDEX),
        (lambda t: t.filter("k[i] > v + 1"), ValueError, NO_INDEX),
        (lambda t: t.filter(pc.field("k") > 1), TypeError, "an expression is a str such as"),
        (lambda t: t["w"].elementwise("x[i]"), TypeError, "use numbers or times"),
        (lambda t: t["v"].elementwise("x[i]", type=pa.string()), TypeError, "use numbers or times"),
        (lambda t: t["v"].elementwise("x[i]", type="float65"), TypeError, TYPE),
        (lambda t: t["v"].elementwise("x[i]", type=3), TypeError, TYPE),
        (lambda t: t["v"].elementwise("x[i]", type=float), TypeError, TYPE),
        (
            lambda t: t["v"].elementwise("x[i] + y[i]", y=other_partitions()),
            ValueError,
            "y has 3 partitions, and this column has 2",
        ),
        (lambda t: t["v"].elementwise("x[i]", x=t["v"]), ValueError, "'x' names this column"),
    ],
)
def test_wrong_calls_are_refused_before_any_task_runs(client, call, error, text):
    table = LogicalTable.from_arrow(numbers(100), 2)
    with pytest.raises(error, match=text):
        call(table)
    assert "planned: 2 tasks" in repr(table)


def test_wrong_arguments_of_clusters_are_refused_with_the_reason():
    with pytest.raises(RuntimeError, match="failed to start") as failed:
        LocalUsmCluster(n_workers=1, dashboard_address=":0", some_option=1)
    assert "unexpected keyword argument 'some_option'" in str(failed.value.__cause__)
    for wrong, error, text in (
        ({"device_memory_limit": -5}, ValueError, "device_memory_limit must be 0 or more, not -5"),
        (
            {"devices": [usmq.current_queue()]},
            TypeError,
            "devices are selectors such as 'gpu:0' or 'opencl:0'",
        ),
        ({"devices": 2}, TypeError, "the number of workers is n_workers"),
    ):
        with pytest.raises(error, match=text):
            LocalUsmCluster(**wrong)


def test_no_rows(client):
    table = numbers().slice(0, 0)
    logical = LogicalTable.from_arrow(table, 2)
    assert logical.to_arrow().equals(table)
    assert logical.head().num_rows == 0
    assert logical["v"].reduction("a + b", "0").result(PATIENCE) == 0
    found = logical.group_by("k").aggregate([("v", "sum")]).to_arrow()
    assert found.num_rows == 0
    assert found.column_names == ["k", "v_sum"]


def known_or_die(task):
    table, path = task.arg(usmq.Table), task.arg(str)
    if not os.path.exists(path):
        die(path)
    return table["v"].null_count


def test_a_worker_that_dies_loses_no_data(client, tmp_path):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 6).wait()
    # One worker dies with its partitions; the scheduler recomputes them.
    total = logical.reduce(known_or_die, sum, str(tmp_path / "died")).result(PATIENCE)
    assert (tmp_path / "died").exists()
    assert total == table["v"].null_count
    assert logical.to_arrow().equals(table)


# --- plans, filters, columns


def test_a_plan_prints_before_it_runs(client):
    table = LogicalTable.from_arrow(numbers(), 3)
    schema = pa.schema({"k": pa.int32(), "y": pa.float64()})
    late = table.filter("v[i] > limit", limit=10.0).map_partitions(doubled, 2.0, schema=schema)
    found = late.group_by("k").aggregate([("y", "sum")])
    assert found.explain().splitlines() == [
        "group_by(k).aggregate(y_sum): 5 tasks, 1 partition, planned",
        "  map_partitions(doubled, 2.0): 6 tasks, 3 partitions, planned",
        "    filter('v[i] > limit', limit=10.0): 3 tasks, 3 partitions, planned",
        "      from_arrow(10,000 rows): 3 tasks, 3 partitions, planned",
    ]
    assert repr(table).endswith("columns k, v, w, planned: 3 tasks>")
    table.start()
    assert found.explain().splitlines()[3].endswith("3 partitions, submitted")
    assert found.explain().count("planned") == 3
    assert repr(late).endswith("columns k, y, planned: 9 tasks>")
    assert found.wait(PATIENCE).to_arrow()["y_sum"].to_pylist()
    assert "planned" not in found.explain() + repr(found) + repr(table)


def test_head_takes_rows_of_as_few_partitions_as_needed(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 5)
    for rows in (0, 1, 7, 2000, 2001, 20_000):
        found = logical.head(rows)
        assert found.equals(table.slice(0, rows))
        assert found.schema.equals(table.schema, check_metadata=True)


def test_filter_selects_like_pyarrow(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 4)
    v, k = pc.field("v"), pc.field("k")
    kept = logical.filter("v[i] > limit && k[i] != 3", limit=700)
    assert kept.to_arrow().equals(table.filter((v > 700) & (k != 3)))
    assert kept.schema.equals(table.schema)
    # True as in C++: each number but 0.
    odd = pc.bit_wise_and(table["k"], pa.scalar(1, table["k"].type))
    assert logical.filter("(k[i] & 1) * 256").to_arrow().equals(table.filter(pc.equal(odd, 1)))
    assert logical.filter("k[i] > 99").to_arrow().equals(table.slice(0, 0))
    # A null in a column that the expression reads is not selected; others may be null.
    assert logical.filter("k[i] == 0").to_arrow()["v"].null_count > 0
    assert logical.filter("v[i] >= 0").to_arrow()["v"].null_count == 0


def test_a_column_computes_each_element(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 3)
    v, k = logical["v"], logical["k"]
    assert (v.name, v.type, v.npartitions, len(v)) == ("v", pa.float64(), 3, 10_000)

    def matches(column, expected):
        return column.to_arrow().combine_chunks().equals(expected.combine_chunks())

    roots = v.elementwise("sqrt(x[i])", name="root")
    assert matches(roots, pc.sqrt(table["v"]))
    assert roots.name == "root"
    mixed = k.elementwise("x[i] * factor + y[i]", y=v, factor=3, type=pa.float64())
    assert matches(mixed, pc.add(pc.multiply(table["k"].cast(pa.float64()), 3.0), table["v"]))
    whole = pc.floor(pc.divide(table["v"], 100)).cast(pa.int32())
    for given, width in (
        (pa.timestamp("us", "UTC"), pa.int64()),
        (pa.date32(), pa.int32()),
        (pa.duration("s"), pa.int64()),
        (pa.int8(), pa.int8()),
    ):
        assert matches(v.elementwise("x[i] / 100", type=given), whole.cast(width).cast(given))
    assert k.elementwise("-x[i]").head(3).to_pylist() == [0, -1, -2]
    # Columns of two tables whose partitions have the same lengths.
    both = roots.elementwise("x[i] * x[i] - y[i]", y=v)
    assert max(abs(value) for value in both.to_arrow().drop_null().to_pylist()) < 1e-9
    assert "elementwise('x[i] * x[i] - y[i]')" in both.explain()
    assert repr(k).startswith("<usmq.dask.LogicalColumn 'k', int32, of <usmq.dask.LogicalTable")


def test_a_column_reduces_to_one_number(client):
    table = numbers()
    dot = pc.sum(pc.multiply(table["v"], table["k"])).as_py()
    norm = np.linalg.norm(table["v"].drop_null().to_numpy())
    for parts in (1, 3, 20):
        logical = LogicalTable.from_arrow(table, parts)
        v, k = logical["v"], logical["k"]
        for found, expected in (
            (v.reduction("min(a, b)", "1e300"), pc.min(table["v"]).as_py()),
            (k.reduction("a + b", "0", type=pa.int64()), pc.sum(table["k"]).as_py()),
            (v.reduction("a + b", "0", map="x[i] * x[i]", post="sqrt(a)"), pytest.approx(norm)),
            (v.reduction("a + b", "0", map="x[i] * y[i]", y=k), pytest.approx(dot)),
        ):
            assert found.result(PATIENCE) == expected


def with_row_numbers(task):
    table, offset = task.arg(usmq.Table), task.arg(int)
    return usmq.Table({"row": usmq.arange(offset, offset + table.num_rows, dtype="i8")})


def test_a_function_gets_the_row_offset_of_its_partition(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 4)
    assert logical.row_offsets() == [0, 2500, 5000, 7500]
    numbered = logical.filter("k[i] < 3").map_partitions(with_row_numbers, row_offset=True)
    kept = table.filter(pc.field("k") < 3).num_rows
    assert numbered.to_arrow()["row"].to_pylist() == list(range(kept))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_joins_and_sorts_go_through_dask_dataframe(client):
    table = pa.table({"k": [3, 1, 2, 1], "v": [0.5, 1.5, 2.5, 3.5]})
    names = pa.table({"k": [1, 2, 3], "name": ["one", "two", "three"]})
    logical, others = LogicalTable.from_arrow(table, 2), LogicalTable.from_arrow(names, 1)
    ordered = LogicalTable.from_dask(logical.to_dask().sort_values(["k", "v"]))
    assert ordered.to_arrow().to_pydict() == {"k": [1, 1, 2, 3], "v": [1.5, 3.5, 2.5, 0.5]}
    joined = LogicalTable.from_dask(logical.to_dask().merge(others.to_dask(), on="k"))
    expected = table.join(names, "k").sort_by("v").to_pylist()
    assert joined.to_arrow().sort_by("v").to_pylist() == expected
    coded = names.set_column(1, "name", names["name"].dictionary_encode())
    back = LogicalTable.from_dask(LogicalTable.from_arrow(coded, 2).to_dask())
    assert back.to_arrow().to_pylist() == names.to_pylist()


class NotPickled:
    def __reduce__(self):
        raise TypeError("not to be pickled")


def test_a_step_that_was_not_submitted_fails_at_each_use(client):
    logical = LogicalTable.from_arrow(numbers(100), 2)
    mapped = logical.map_partitions(doubled, NotPickled(), schema=logical.schema)
    for _ in range(2):
        with pytest.raises(TypeError):
            len(mapped)
    assert "planned" in mapped.explain()


def test_columns_of_an_expression_may_have_the_names_of_operands(client):
    table = pa.table({"a": [1, 2, 3], "b": [3, 2, 1], "n": [1, 1, 1], "\u00fcn": [1, 2, 3]})
    logical = LogicalTable.from_arrow(table, 2)
    assert logical.filter("a[i] > b[i]").to_arrow().to_pylist() == table[2:].to_pylist()
    assert len(logical.filter("a[i] >= limit", limit=np.int64(2))) == 2
    by_name = logical["a"].elementwise("x[i] / 2.0", type="float64")
    assert by_name.to_arrow().to_pylist() == [0.5, 1.0, 1.5]
    with pytest.raises(ValueError, match="'\u00fc' cannot name a number"):
        logical.filter("a[i] > \u00fc", **{"\u00fc": 1})
    for name in ("a", "\u00fc"):
        with pytest.raises(ValueError, match=f"{name!r} cannot name a column"):
            logical["b"].elementwise(f"x[i] + {name}[i]", **{name: logical["b"]})
    for name in ("n", "\u00fcn"):
        with pytest.raises(ValueError, match=f"{name!r} cannot name a column in an expression"):
            logical.filter(f"{name}[i] > 1")
