"""Batches of a Python iterable as a device stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import arrow_structs
import numpy as np
import pyarrow as pa
import pytest
import usmq

no_leaks = arrow_structs.no_leaks


def tables(*sizes: int) -> Iterator[usmq.Table]:
    for size in sizes:
        yield usmq.Table({"x": usmq.arange(size)})


def test_batches_arrive_in_order_and_in_place() -> None:
    kept = list(tables(2, 0, 3))
    stream = usmq.DeviceStream(kept)
    assert stream.schema.children[0].name == "x"
    again = usmq.from_arrow(stream)
    assert again.to_arrow().to_pydict() == {"x": [0, 1, 0, 1, 2]}
    pointers = [batch["x"].values().ptr for batch in again.batches if len(batch)]
    assert pointers == [batch["x"].values().ptr for batch in kept if len(batch)]


def test_batches_are_made_on_demand() -> None:
    made: list[int] = []

    def lazily() -> Iterator[usmq.Table]:
        for size in (1, 2, 3):
            made.append(size)
            yield from tables(size)

    stream = usmq.DeviceStream(lazily())
    assert made == [1]  # for its type
    capsule = stream.__arrow_c_device_stream__()
    assert made == [1]
    del capsule
    assert made == [1]


def test_host_data_is_copied_to_the_queue_that_was_current() -> None:
    with usmq.use_queue(usmq.Queue(usmq.current_queue(), profiling=True)) as queue:
        stream = usmq.DeviceStream([pa.record_batch({"x": [1, 2]}), pa.table({"x": [3]})])
    table = usmq.from_arrow(stream)
    assert table.to_arrow().to_pydict() == {"x": [1, 2, 3]}
    assert queue.device == table.device


def test_a_schema_gives_the_type_before_the_first_batch() -> None:
    schema = pa.schema([("x", pa.int64())])
    empty = usmq.from_arrow(usmq.DeviceStream([], schema))
    assert (empty.column_names, empty.num_rows) == (["x"], 0)
    with pytest.raises(ValueError, match="schema"):
        usmq.DeviceStream([])


def test_a_batch_of_another_type_ends_the_stream() -> None:
    stream = usmq.DeviceStream([*tables(2), usmq.Table({"x": usmq.zeros(2)})])
    with pytest.raises(usmq.InteropError, match="one type"):
        usmq.from_arrow(stream)


@pytest.mark.parametrize("names", [["b", "a"], ["a", "c"], ["a"], ["a", "b", "c"]])
def test_a_batch_with_other_columns_is_named_with_both_lists_of_columns(names: list[str]) -> None:
    first, second = (
        usmq.Table({name: usmq.arange(3, dtype="int32") for name in some})
        for some in (["a", "b"], names)
    )
    with pytest.raises(usmq.InteropError, match="batch 2") as error:
        usmq.from_arrow(usmq.DeviceStream([first, second]))
    asked, found = (str(x).replace("'", '"') for x in (["a", "b"], names))
    assert f"{found}, not of {asked}" in str(error.value)


def failing(error: BaseException) -> Iterator[usmq.Table]:
    yield from tables(1)
    raise error


def test_an_exception_of_the_iterable_reaches_the_consumer() -> None:
    with pytest.raises(usmq.InteropError, match="the disk is gone"):
        usmq.from_arrow(usmq.DeviceStream(failing(OSError("the disk is gone"))))


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(4)])
def test_exceptions_that_end_the_program_propagate_through_the_stream(
    ending: BaseException,
) -> None:
    # Also through a stream in a stream; another consumer has a text.
    for batches in (failing(ending), [usmq.DeviceStream(failing(ending))]):
        with pytest.raises(type(ending)) as raised:
            usmq.from_arrow(usmq.DeviceStream(batches))
        assert raised.value is ending


def test_a_stream_has_one_consumer() -> None:
    stream = usmq.DeviceStream(tables(2))
    assert len(usmq.from_arrow(stream)) == 2
    with pytest.raises(usmq.InteropError, match="consumer"):
        usmq.from_arrow(stream)
    with pytest.raises(TypeError):
        usmq.DeviceStream(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_order", [True, False])
def test_chunks_of_numbers_are_joined_on_the_way(in_order: bool) -> None:
    values = np.arange(1_000_003, dtype="f8")
    # Odd lengths, offsets into the producer's arrays, and an empty chunk.
    cuts = [0, 1, 7, 7, 130_001, 400_000, 999_983, values.size]
    chunks = [pa.array(values)[a:b] for a, b in pairwise(cuts)]
    ints = [pa.array(values[a:b].astype("i2")) for a, b in pairwise(cuts)]
    table = pa.table({"x": pa.chunked_array(chunks), "n": pa.chunked_array(ints)})
    queue = usmq.Queue(usmq.current_queue(), in_order=in_order)
    with usmq.profile() as profile:
        ours = usmq.from_arrow(table, queue=queue)
        ours.wait()
    copied = sum(event.bytes for event in profile.events if event.kind == "copy")
    assert copied == values.size * 10, "once"
    assert len(ours.batches) == 1
    np.testing.assert_array_equal(ours["x"].values().to_numpy(), values)
    np.testing.assert_array_equal(ours["n"].values().to_numpy(), values.astype("i2"))
    assert ours.to_arrow().equals(table)
    only = usmq.from_arrow(table, columns=["n"], queue=queue)
    assert only.column_names == ["n"]
    np.testing.assert_array_equal(only["n"].values().to_numpy(), values.astype("i2"))
    column = usmq.from_arrow(pa.chunked_array(chunks), queue=queue)
    np.testing.assert_array_equal(column.values().to_numpy(), values)


@pytest.mark.parametrize("gap", [0, 1])
def test_chunks_that_follow_each_other_in_memory_are_one_copy(gap: int) -> None:
    # The calling thread makes smaller copies, and larger ones come in two pieces.
    values = np.arange(2e4)
    cuts = [0, 1, 8_000, 8_000, 19_999, 20_000]
    parts = [values[a + gap * (a > 0) : b] for a, b in pairwise(cuts)]
    chunks = pa.chunked_array([pa.array(part) for part in parts], pa.float64())
    with usmq.profile() as profile:
        column = usmq.from_arrow(chunks)
        column.wait()
    assert column.values().tolist() == np.concatenate(parts).tolist()
    copies = [event for event in profile.events if event.kind == "copy"]
    assert sum(event.bytes for event in copies) == 8 * len(chunks)
    assert len(copies) == (3 if gap else 1)


def test_chunks_in_host_usm_are_copied_one_by_one() -> None:
    values = usmq.arange(20_000, dtype="f8", usm_type="host")
    host = np.asarray(values)
    chunks = pa.chunked_array([pa.array(host[:10_000]), pa.array(host[10_000:])])
    with usmq.profile() as profile:
        column = usmq.from_arrow(chunks)
        column.wait()
    assert column.values().tolist() == values.tolist()
    assert len([event for event in profile.events if event.kind == "copy"]) >= 2
