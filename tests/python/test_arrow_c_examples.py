"""The C examples, compiled and called through capsules; they do not depend on usmq."""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import subprocess
from collections.abc import Callable
from ctypes import addressof, byref, c_char_p, c_double, c_int64, c_void_p
from pathlib import Path
from typing import Any

import arrow_structs
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_structs import (
    ARRAY,
    CPU,
    DEVICE_ARRAY,
    ONEAPI,
    SCHEMA,
    ArrowDeviceArray,
    ArrowSchema,
    Exported,
    capsule,
    children,
    eventually,
    move,
    release,
)

no_leaks = arrow_structs.no_leaks

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = [1.5, None, 4.0, None, -2.5, 8.0, 16.0, 32.0, None, 64.0, 128.0, 0.5]


def compiled(name: str, folder: Path) -> ctypes.CDLL:
    library = folder / f"lib{name}.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    built = subprocess.run(
        [*compiler, *strict, "-shared", "-fPIC", "-o", library, EXAMPLES / f"{name}.c"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert not built.stderr
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compiled("c_consumer", tmp_path_factory.mktemp("consumer"))
    library.consumer_sum.restype = c_char_p
    library.consumer_sum.argtypes = [c_void_p] * 4
    library.consumer_print.restype = None
    library.consumer_print.argtypes = [c_void_p] * 2
    return library


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compiled("c_producer", tmp_path_factory.mktemp("producer"))
    library.producer_batch.argtypes = [c_int64, c_void_p, c_void_p]
    for kind in ("batches", "columns", "schemas"):
        getattr(library, f"producer_{kind}_released").restype = ctypes.c_longlong
    return library


def summed(consumer: ctypes.CDLL, exported: Exported) -> tuple[float, int]:
    total, count = c_double(), c_int64()
    error = consumer.consumer_sum(
        addressof(exported.schema), addressof(exported.device), addressof(total), addressof(count)
    )
    assert error is None, error
    # It consumed both structs, so the capsules' destructors release nothing.
    assert not exported.schema.release
    assert not exported.array.release
    return total.value, count.value


def refused(consumer: ctypes.CDLL, exported: Exported) -> bytes:
    error = consumer.consumer_sum(addressof(exported.schema), addressof(exported.device), 0, 0)
    assert exported.schema.release
    assert exported.array.release
    assert isinstance(error, bytes)
    return error


@pytest.mark.parametrize("usm_type", ["host", "shared"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8", "u4"])
def test_the_consumer_sums_the_non_null_values(
    consumer: ctypes.CDLL, dtype: str, usm_type: Any
) -> None:
    values = [value if value is None else abs(int(value)) for value in NUMBERS]
    numbers = pa.array(values, pa.from_numpy_dtype(np.dtype(dtype)))
    column = usmq.from_arrow(numbers, usm_type=usm_type)
    for start in (0, 1, 7, 8, 9, 12):
        kept = [value for value in values[start:] if value is not None]
        assert summed(consumer, Exported(column[start:].host_view())) == (sum(kept), len(kept))


def printed(consumer: ctypes.CDLL, exported: Exported, capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    consumer.consumer_print(addressof(exported.schema), addressof(exported.device))
    return capfd.readouterr().out


def test_the_consumer_prints_the_fields_of_a_host_array(
    consumer: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    batch = pa.record_batch({"miles": pa.array(NUMBERS)})
    column = usmq.from_arrow(batch, usm_type="host")["miles"]
    exported = Exported(column.host_view())
    assert exported.device.device_type == CPU
    assert printed(consumer, exported, capfd) == (
        'column "miles" of format "g"\n'
        "device type 1, device -1\n"
        "12 values, 3 of them null\n"
        "to be read at once, by the host\n"
    )


@pytest.mark.parametrize("wait", [None, True])
def test_the_consumer_prints_whether_a_device_array_needs_sycl(
    consumer: ctypes.CDLL,
    capfd: pytest.CaptureFixture[str],
    busy: Callable[[usmq.Queue], usmq.Event],
    wait: bool | None,
) -> None:
    # The copy of the numbers follows this kernel.
    busy(usmq.current_queue())
    exported = Exported(usmq.from_arrow(pa.array(NUMBERS)), wait=wait)
    number = exported.device.device_id
    assert exported.device.device_type == ONEAPI
    last = "after the sycl::event at sync_event: it takes SYCL to wait for it"
    if wait:
        last = f"at once, by oneAPI device {number}"
    assert printed(consumer, exported, capfd) == (
        f'column "" of format "g"\ndevice type 14, device {number}\n12 values, 3 of them null\n'
        f"to be read {last}\n"
    )


def test_the_caller_keeps_arrays_that_the_consumer_cannot_read(consumer: ctypes.CDLL) -> None:
    on_device = Exported(usmq.from_arrow(pa.array(NUMBERS)))
    assert refused(consumer, on_device) == b"the column is not in host memory"
    text = Exported(usmq.from_arrow(pa.array(["a"]), usm_type="host").host_view())
    assert refused(consumer, text) == b"the column is not of int32, uint32, int64, float or double"
    taken = Exported(usmq.from_arrow(pa.array(NUMBERS), usm_type="host").host_view())
    summed(consumer, taken)
    error = consumer.consumer_sum(addressof(taken.schema), addressof(taken.device), 0, 0)
    assert error == b"a struct is released"


class Batch:
    """A record batch of the producer, as an object that usmq and pyarrow take."""

    def __init__(self, producer: ctypes.CDLL, rows: int) -> None:
        self.schema, self.device = ArrowSchema(), ArrowDeviceArray()
        # Junk that a consumer may find in memory that it did not clear.
        ctypes.memset(byref(self.device), 0xAB, ctypes.sizeof(self.device))
        self.status = producer.producer_batch(rows, addressof(self.schema), addressof(self.device))

    def __arrow_c_device_array__(self, requested: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        return (
            capsule(addressof(self.schema), SCHEMA),
            capsule(addressof(self.device), DEVICE_ARRAY),
        )

    def __arrow_c_array__(self, requested: Any = None) -> tuple[Any, Any]:
        # The array is the first field of the device array.
        return capsule(addressof(self.schema), SCHEMA), capsule(addressof(self.device), ARRAY)


def released(producer: ctypes.CDLL) -> list[int]:
    kinds = ("batches", "columns", "schemas")
    return [getattr(producer, f"producer_{kind}_released")() for kind in kinds]


@pytest.fixture
def all_released(producer: ctypes.CDLL) -> Callable[[], bool]:
    """Return a function that checks for the releases of one batch since the test began."""
    batches, columns, schemas = released(producer)
    after = [batches + 1, columns + 2, schemas + 1]
    return lambda: eventually(lambda: released(producer) == after)


def expected(rows: int) -> pa.RecordBatch:
    miles = [None if row % 3 == 0 else row * 0.5 for row in range(rows)]
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("miles", pa.float64())]
    return pa.record_batch([range(rows), miles], pa.schema(fields))


@pytest.mark.parametrize("rows", [0, 1, 8, 1000])
def test_a_batch_of_the_producer_becomes_a_table(
    producer: ctypes.CDLL, all_released: Callable[[], bool], rows: int
) -> None:
    batch = Batch(producer, rows)
    assert list(batch.device.reserved) == [0, 0, 0]
    table = usmq.from_arrow(batch)
    assert table.column_names == ["id", "miles"]
    assert table["miles"].null_count == (rows + 2) // 3
    assert all_released()
    assert pa.table(table.to_arrow()) == pa.Table.from_batches([expected(rows)])


def test_pyarrow_reads_the_same_batch(
    producer: ctypes.CDLL, all_released: Callable[[], bool]
) -> None:
    # The producer is right by another consumer's word too.
    batch = pa.record_batch(Batch(producer, 100))
    assert batch == expected(100)
    batch.validate(full=True)
    del batch
    assert all_released()


def test_a_batch_that_usmq_refuses_is_released(
    producer: ctypes.CDLL, all_released: Callable[[], bool]
) -> None:
    batch = Batch(producer, 10)
    children(batch.device.array)[1].length = 9
    with pytest.raises(usmq.InteropError, match="9 of 10 values"):
        usmq.from_arrow(batch)
    assert all_released()


def test_a_column_that_was_moved_out_outlives_its_batch(
    producer: ctypes.CDLL, all_released: Callable[[], bool]
) -> None:
    batch = Batch(producer, 10)
    field, column = children(batch.schema)[1], children(batch.device.array)[1]
    field, column = move(field), move(column)
    before = released(producer)
    release(batch.schema)
    release(batch.device)
    assert released(producer)[:2] == [before[0] + 1, before[1] + 1]

    class Column:
        def __arrow_c_array__(self, requested: Any = None) -> tuple[Any, Any]:
            return capsule(addressof(field), SCHEMA), capsule(addressof(column), ARRAY)

    assert usmq.from_arrow(Column()).to_arrow() == expected(10)["miles"]
    assert all_released()


def test_data_of_the_producer_reaches_the_consumer_through_a_device(
    producer: ctypes.CDLL, consumer: ctypes.CDLL, all_released: Callable[[], bool]
) -> None:
    miles = usmq.from_arrow(Batch(producer, 100))["miles"]
    assert miles.usm_type == "device"
    kept = [row * 0.5 for row in range(100) if row % 3]
    host = miles.to(usm_type="host")
    assert summed(consumer, Exported(host.host_view())) == (sum(kept), len(kept))
    assert all_released()


@pytest.mark.parametrize("rows", [-1, 2**60, 2**61, 2**63 - 1])
def test_the_producer_refuses_rows_beyond_an_address_space_with_an_errno(
    producer: ctypes.CDLL, rows: int
) -> None:
    assert Batch(producer, rows).status == errno.EINVAL
