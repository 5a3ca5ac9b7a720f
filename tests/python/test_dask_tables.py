"""Logical tables: partitions on the workers' devices give the same results as pyarrow."""

import itertools
import os
import signal
import sys

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import usmq
from distributed import get_worker
from pyarrow import parquet
from usmq.dask import LocalUsmCluster, LogicalTable
from usmq.dask._aggregate import Aggregation

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PATIENCE = 120
FUNCTIONS = ["count", "sum", "mean", "min", "max"]
random = np.random.default_rng(7)


@pytest.fixture(scope="module")
def client(two_devices):
    with (
        LocalUsmCluster(n_workers=2, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        yield client


# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


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
    where = client.who_has(logical.partitions)
    assert len({worker for workers in where.values() for worker in workers}) == 2
    assert repr(logical) == "<usmq.dask.LogicalTable of 5 partitions, columns k, v, w>"


def test_other_arrow_objects_are_accepted(client):
    wanted = {"a": [1, 2, 3]}
    for table in (wanted, pa.table(wanted).to_batches()[0], usmq.from_arrow(pa.table(wanted))):
        assert LogicalTable.from_arrow(table, 2).to_arrow().to_pydict() == wanted


def test_select_accepts_columns_and_refuses_unknown_names(client):
    logical = LogicalTable.from_arrow(numbers(), 3)
    assert logical.select(["w", "k"]).to_arrow().equals(numbers().select(["w", "k"]))
    with pytest.raises(KeyError, match="'none'"):
        logical.select(["none"])


def test_functions_map_over_partitions_and_reduce(client):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 4)
    mapped = logical.map_partitions(doubled, 2.0)
    assert mapped.column_names == ["k", "y"]
    assert np.array_equal(mapped.to_arrow()["y"], table["k"].to_numpy() * 2.0)
    assert logical.reduce(known, sum).result(PATIENCE) == table["v"].null_count
    many = LogicalTable.from_arrow(table, 20)
    assert many.reduce(known, sum).result(PATIENCE) == table["v"].null_count


def test_groups_of_partitions_match_pyarrow(client):
    table = numbers()
    wanted = [("v", "mean"), ("v", "count"), ([], "count_all"), ("k", "max")]
    for parts in (1, 3, 20):
        found = LogicalTable.from_arrow(table, parts).group_by(["w", "k"]).aggregate(wanted)
        assert found.npartitions == 1
        theirs = table.group_by(["w", "k"]).aggregate(wanted)
        assert found.schema.names == theirs.column_names
        assert rows(found.to_arrow(), ["w", "k"]) == rows(theirs, ["w", "k"])


def test_parquet_is_read_on_the_worker_that_uses_it(client, tmp_path):
    table = numbers()
    for number in range(2):
        part = table.slice(number * 5000, 5000)
        parquet.write_table(part, tmp_path / f"{number}.parquet", row_group_size=1000)
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    logical = LogicalTable.from_parquet(paths, npartitions=3)
    assert logical.npartitions == 3
    assert logical.to_arrow().equals(table)
    assert LogicalTable.from_parquet(paths, npartitions=99).npartitions == 10
    two = LogicalTable.from_parquet(str(paths[0]), columns=["w", "k"])
    assert two.to_arrow().equals(table.select(["w", "k"]).slice(0, 5000))
    with pytest.raises(KeyError, match="'none'"):
        LogicalTable.from_parquet(paths, columns=["none"])
    with pytest.raises(FileNotFoundError):
        LogicalTable.from_parquet(tmp_path / "none.parquet")
    parquet.write_table(table.select(["k"]), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="another schema"):
        LogicalTable.from_parquet([*paths, tmp_path / "other.parquet"])


def by_worker(task):
    table = task.arg(usmq.Table)
    first = table["k"].values()[0].to_numpy() if table.num_rows else 0
    return table.select(["k"]) if first == 0 else table.select(["v"])


def test_wrong_results_of_functions_are_named(client):
    logical = LogicalTable.from_arrow(numbers(), 2)
    with pytest.raises(TypeError, match=r"known must return a usmq\.Table"):
        logical.map_partitions(known).to_arrow()
    with pytest.raises(ValueError, match="another"):
        logical.map_partitions(by_worker).to_arrow()
    with pytest.raises(ValueError, match="another"):
        logical.map_partitions(doubled, 1.0, schema=pa.schema({"k": pa.int32()})).to_arrow()
    with pytest.raises(TypeError, match="requests argument 2"):
        logical.map_partitions(doubled).wait()
    with pytest.raises(TypeError, match="took 1"):
        logical.reduce(known, sum, "too much").result(PATIENCE)
    with pytest.raises(TypeError, match="is a handle of the client"):
        logical.map_partitions(doubled, logical)
    with pytest.raises(ValueError, match="npartitions must be 1 or more"):
        LogicalTable.from_arrow(numbers(), 0)


def test_a_limit_below_one_partition_is_an_error_in_time(client):
    logical = LogicalTable.from_arrow(numbers(), 2)
    with pytest.raises(usmq.AllocationError, match="doubled"):
        logical.map_partitions(doubled, 1.0, memory_limit=1000).wait(PATIENCE)


def test_no_rows(client):
    table = numbers().slice(0, 0)
    logical = LogicalTable.from_arrow(table, 2)
    assert logical.to_arrow().equals(table)
    found = logical.group_by("k").aggregate([("v", "sum")]).to_arrow()
    assert found.num_rows == 0
    assert found.column_names == ["k", "v_sum"]


def dies_once(task, path):
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(get_worker().address)
        os.kill(os.getpid(), signal.SIGKILL)


def known_or_die(task):
    table, path = task.arg(usmq.Table), task.arg(str)
    dies_once(task, path)
    return table["v"].null_count


def test_a_worker_that_dies_loses_no_data(client, tmp_path):
    table = numbers()
    logical = LogicalTable.from_arrow(table, 6).wait()
    # One worker dies with its partitions; the scheduler recomputes them.
    total = logical.reduce(known_or_die, sum, str(tmp_path / "died")).result(PATIENCE)
    assert (tmp_path / "died").exists()
    assert total == table["v"].null_count
    assert logical.to_arrow().equals(table)
