"""Columns whose parts are written: pyarrow gets data that is valid, and that stays valid."""

from __future__ import annotations

from typing import Any

import dpnp
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_producers import gives
from arrow_structs import KINDS

FAR = [0, 1 << 30, (1 << 30) + 64]


def texts(kind: Any) -> tuple[usmq.Column, usmq.Array, usmq.Array]:
    values = usmq.asarray(list(b"helloyou"), dtype="u1", usm_type=kind)
    offsets = usmq.asarray([0, 5, 8], dtype="i4", usm_type=kind)
    return usmq.Column(values, offsets=offsets, type="string", name="s"), values, offsets


def write(how: str, array: usmq.Array, values: list[int]) -> None:
    """Write by one of the ways that Python code has."""
    if how == "copy":
        array.copy_from(values)
    elif how == "assignment":
        array[:] = usmq.asarray(values, array.dtype)
    elif how == "numpy" and array.usm_type != "device":
        np.asarray(array)[:] = values
    elif how == "dpnp":
        theirs = dpnp.from_dlpack(array)
        theirs[:] = dpnp.asarray(values, dtype="i4", sycl_queue=theirs.sycl_queue)
        theirs.sycl_queue.wait()  # usmq does not know this queue
    else:
        kernel = usmq.Kernel.from_opencl(
            "kernel void put(global int *x, global const int *y) "
            "{ x[get_global_id(0)] = y[get_global_id(0)]; }",
            "put",
        )
        kernel(len(values), array, usmq.asarray(values, "i4", usm_type=array.usm_type))


@pytest.mark.parametrize("how", ["copy", "assignment", "numpy", "dpnp", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_offsets_that_change_are_checked_again(kind: str, how: str) -> None:
    column, _, offsets = texts(kind)
    whole = usmq.Table({"s": column})
    assert column.to_arrow().to_pylist() == ["hello", "you"]
    assert column[1:].to_arrow().to_pylist() == ["you"]
    assert whole.to_arrow()["s"].to_pylist() == ["hello", "you"]
    write(how, offsets, FAR)
    for reader in (column, column[1:], column[:1], whole, column.to(usm_type="host")):
        with pytest.raises(usmq.InteropError, match="not valid"):
            reader.to_arrow()
    write(how, offsets, [0, 1, 8])
    assert column.to_arrow().to_pylist() == ["h", "elloyou"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pyarrow_array_of_texts_does_not_change_with_its_column(kind: str) -> None:
    column, values, offsets = texts(kind)
    lists = usmq.asarray([0, 1, 2], "i4", usm_type=kind)
    validity = usmq.asarray([3], "u1", usm_type=kind)
    nested = usmq.Column(column, offsets=lists, validity=validity)
    readers: list[Any] = [column, nested, usmq.Table({"s": column, "l": nested})]
    found = [reader.to_arrow() for reader in readers]
    if kind != "device":
        views = [reader.host_view() for reader in readers]
        found += [pa.array(view) for view in views[:2]] + [pa.table(views[2])]
    before = [one.to_pylist() for one in found]
    offsets.copy_from(FAR)
    lists.copy_from(FAR)
    values.fill(0xFF)
    validity.fill(0)
    usmq.current_queue().wait()
    assert [one.to_pylist() for one in found] == before
    for one in found:
        one.validate(full=True)
    if kind != "device":
        # A view has the values of the moment in which it was made, however late it is read.
        assert [pa.array(view).to_pylist() for view in views[:2]] == before[:2]


@pytest.mark.parametrize("kind", ["shared", "host"])
def test_numbers_are_read_in_place_and_show_later_writes(kind: Any) -> None:
    numbers = usmq.asarray([1, 2, 3], "i8", usm_type=kind)
    array = usmq.Column(numbers).to_arrow()
    assert array.buffers()[1].address == numbers.ptr
    numbers.fill(7)
    numbers.wait()
    assert array.to_pylist() == [7, 7, 7]


def test_memory_of_usmq_that_another_library_passes_on_can_still_be_written() -> None:
    """The producer promises that it does not write, but not that arrays of usmq do not."""
    column, _, offsets = texts("shared")
    pair = column.__arrow_c_device_array__()
    passed_on = usmq.from_arrow(gives(device_array=lambda: pair))
    assert passed_on.to_arrow().to_pylist() == ["hello", "you"]
    offsets.copy_from(FAR)
    with pytest.raises(usmq.InteropError, match="not valid"):
        passed_on.to_arrow()


def test_asarray_of_a_passed_on_column_does_not_make_its_memory_writable() -> None:
    column = usmq.from_arrow(pa.array([1, 2, 3]), usm_type="shared")
    x = usmq.asarray(gives(device_array=column.__arrow_c_device_array__))
    if x.ptr == column.values().ptr:
        with pytest.raises(ValueError, match="read-only"):
            x.fill(0)
    assert column.values().tolist() == [1, 2, 3]
