"""Logical tables of many partitions: row offsets, first rows, and files of Parquet."""

import os

import pyarrow as pa
import pytest
import usmq
from dask_workers import UNCLOSED_SOCKETS, clients, send_by_value
from pyarrow import parquet
from usmq.dask import LogicalTable, _parquet

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

PARTS = 60


@pytest.fixture(scope="module")
def client():
    with clients(["opencl:0"]) as client:
        yield client


@pytest.fixture(scope="module")
def numbers(client):
    return LogicalTable.from_arrow(pa.table({"v": list(range(10 * PARTS))}), PARTS).start()


def first_row(task):
    table, factor, offset = task.arg(usmq.Table), task.arg(int), task.arg(int)
    return usmq.Table({"first": usmq.full(table.num_rows, offset * factor, "i8")})


def test_row_offsets_take_a_number_of_dependencies_linear_in_the_partitions(client, numbers):
    def dependencies(dask_scheduler):
        tasks = dask_scheduler.tasks.values()
        return len(tasks), sum(len(task.dependencies) for task in tasks)

    numbers.wait(60)
    tasks, edges = client.run_on_scheduler(dependencies)
    found = numbers.map_partitions(first_row, 2, row_offset=True)
    assert f"{3 * PARTS + 1} tasks" in found.explain()
    found.wait(60)
    more_tasks, more_edges = client.run_on_scheduler(dependencies)
    assert more_tasks - tasks <= 3 * PARTS + 1
    # Each result depends on its partition, the offsets and a schema.
    assert more_edges - edges <= 6 * PARTS
    expected = [row // 10 * 10 * 2 for row in range(10 * PARTS)]
    assert found.to_arrow()["first"].to_pylist() == expected
    assert numbers.row_offsets() == list(range(0, 10 * PARTS, 10))


class Trips:
    """Counts the waits of a client for results."""

    def __init__(self, client):
        self._client, self.count = client, 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def gather(self, futures):
        self.count += 1
        return self._client.gather(futures)


def test_first_rows_of_a_sparse_filter_take_few_round_trips(client, numbers, monkeypatch):
    sparse = numbers.filter("v[i] % 200 == 199")
    trips = Trips(client)
    monkeypatch.setattr(sparse, "_client", trips)
    assert sparse.head(3).to_pylist() == [{"v": 199}, {"v": 399}, {"v": 599}]
    # Twice as many partitions each time, and two waits for each.
    assert trips.count <= 2 * PARTS.bit_length()
    assert sparse.head(2).to_pylist() == [{"v": 199}, {"v": 399}]
    assert sparse.head(0).num_rows == 0
    assert sparse.head(100).num_rows == 3
    assert numbers.head(25)["v"].to_pylist() == list(range(25))
    none = numbers.filter("v[i] < 0")
    assert none.head(3).num_rows == 0
    assert none.head(3).schema.equals(numbers.schema)


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, row_group_size=2)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "part.2.parquet", a=[3, 4], b=["z", "w"])
    write(tmp_path / "part.10.parquet", b=["v"], a=[5])
    write(tmp_path / "inner" / "part.0.parquet", a=[1, 2], b=["x", "y"])
    (tmp_path / "_metadata").write_text("not Parquet")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "other").write_text("not Parquet")
    return tmp_path


def test_folders_and_patterns_are_read_in_the_order_of_their_names(client, folder):
    for paths in (folder, str(folder), [folder / "inner", f"{folder}/part.*.parquet"]):
        table = LogicalTable.from_parquet(paths, npartitions=2).to_arrow()
        assert table.to_pydict() == {"a": [1, 2, 3, 4, 5], "b": ["x", "y", "z", "w", "v"]}
    pattern = f"{folder}/**/*.parquet"
    assert LogicalTable.from_parquet(pattern, ["b"]).to_arrow().column_names == ["b"]
    # The first file has the order of the columns.
    last = [folder / "part.10.parquet", folder / "part.2.parquet"]
    table = LogicalTable.from_parquet(last).to_arrow()
    assert table.to_pydict() == {"b": ["v", "z", "w"], "a": [5, 3, 4]}


def test_a_name_with_the_signs_of_a_pattern_is_a_file(client, tmp_path):
    name = write(tmp_path / "part[1].parquet", a=[1])
    assert LogicalTable.from_parquet(name).to_arrow()["a"].to_pylist() == [1]


def test_paths_without_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder '.*' has no files"):
        _parquet.files(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file matches '.*\*\.parquet'"):
        _parquet.files(f"{tmp_path}{os.sep}*.parquet")
    with pytest.raises(ValueError, match="no Parquet file was given"):
        _parquet.files([])
    write(tmp_path / "year=2026" / "a.parquet", a=[1])
    with pytest.raises(ValueError, match="partition folders such as 'year=2026'"):
        _parquet.files(tmp_path)
    assert len(_parquet.files(tmp_path / "year=2026")) == 1


def test_other_differences_of_schemas_are_named(tmp_path):
    first = write(tmp_path / "1", a=[1], b=["x"])
    for number, (columns, text) in enumerate(
        [
            ({"a": [1]}, "it has no column 'b'"),
            ({"a": [1], "b": ["x"], "c": [1]}, "it also has the column 'c'; select columns"),
            ({"b": ["x"], "a": [1.5]}, "'a' is double, and there int64"),
        ]
    ):
        other = write(tmp_path / f"other{number}", **columns)
        with pytest.raises(ValueError, match=f"other{number} has another schema than .*: {text}"):
            _parquet.plan([first, other], None)
    # Only the selected columns must agree.
    schema, groups = _parquet.plan([first, str(tmp_path / "other1")], ["b", "a"])
    assert (schema.names, len(groups)) == (["b", "a"], 2)
    with pytest.raises(KeyError, match="c"):
        _parquet.plan([first], ["c"])
