"""Selections by a mask give the rows that pyarrow's filter gives, for every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_values import every_type, held

# Around the sizes of bytes, of work-groups, and of the number of work-items that count (4096).
LENGTHS = [0, 1, 7, 8, 9, 63, 64, 65, 255, 257, 1023, 1025, 4095, 4096, 4097, 12289]


def filtered(array: pa.Array, mask: pa.Array) -> list[Any]:
    """Return the values that pyarrow selects; it has no kernel for every type."""
    try:
        return array.filter(mask).to_pylist()
    except pa.ArrowNotImplementedError:
        chosen = mask.to_pylist()
        return [value for value, keep in zip(array.to_pylist(), chosen, strict=True) if keep]


def masks(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    """Return masks with no row, every row, many and few rows, and with nulls."""
    return {
        "none": pa.array(np.zeros(n, "?")),
        "all": pa.array(np.ones(n, "?")),
        "most": pa.array(rng.random(n) < 0.9),
        "few": pa.array(rng.random(n) < 0.02),
        "nulls": pa.array(rng.random(n) < 0.6, mask=rng.random(n) < 0.3),
        "last": pa.array(np.arange(n) == n - 1),
    }


@pytest.mark.parametrize("n", LENGTHS)
def test_columns_of_every_type_are_filtered_like_those_of_pyarrow(n: int) -> None:
    rng = np.random.default_rng(n)
    chosen = masks(rng, n)
    for name, array in every_type(rng, n).items():
        column = held(array)
        for kind, mask in chosen.items():
            found = column.filter(usmq.from_arrow(mask)).to_arrow()
            found.validate(full=True)
            assert found.type == array.type, name
            assert found.to_pylist() == filtered(array, mask), (name, kind)


@pytest.mark.parametrize("usm_type", ["device", "shared", "host"])
@pytest.mark.parametrize(("start", "stop"), [(1, 500), (8, 300), (13, 14), (400, 400), (0, 511)])
def test_slices_are_filtered_by_slices_of_masks(usm_type: Any, start: int, stop: int) -> None:
    rng = np.random.default_rng(start)
    n = 511
    mask = masks(rng, n)["nulls"]
    for name, array in every_type(rng, n).items():
        column = held(array, usm_type)[start:stop]
        whole = usmq.from_arrow(pa.concat_arrays([mask[3:], mask[:3]]))
        part = pa.concat_arrays([mask[3:], mask[:3]])[n - (stop - start) :]
        found = column.filter(whole[n - (stop - start) :])
        assert found.to_arrow().to_pylist() == filtered(array[start:stop], part), name
        if name not in ("null", "runs") and len(found):
            assert found.usm_type == usm_type, name
        # The result is a column as any other.
        again = found[1:].filter(usmq.ones(max(len(found) - 1, 0), "bool")).to_arrow()
        assert again.to_pylist() == filtered(array[start:stop], part)[1:], name


def test_a_table_keeps_its_schema_and_batches() -> None:
    rng = np.random.default_rng(0)
    columns = every_type(rng, 1000)
    table = pa.table({name: columns[name] for name in columns if name != "runs"})
    schema = table.schema.with_metadata({"made": "here"})
    table = pa.Table.from_arrays(table.columns, schema=schema)
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3, 0), table.slice(3)])
    source = usmq.from_arrow(parts)
    mask = rng.random(1000) < 0.5
    found = source.filter(usmq.asarray(mask))
    assert len(found.batches) == len(source.batches)
    assert found.num_rows == mask.sum()
    assert pa.schema(found.schema).equals(pa.schema(source.schema), check_metadata=True)
    kept = found.to_arrow()
    for name in table.column_names:
        assert kept[name].to_pylist() == filtered(table[name], pa.array(mask)), name


def test_an_empty_result_keeps_no_memory_of_the_source() -> None:
    column = usmq.from_arrow(pa.array(range(100_000)))
    assert column.filter(usmq.zeros(100_000, "bool")).nbytes == 0


def test_masks_of_kernels_in_flight_are_read_in_order() -> None:
    kernel = usmq.Kernel.from_opencl(
        "kernel void flag(global uchar *x) {"
        "  for (volatile int i = 0; i < 20000000; i++);"
        "  x[get_global_id(0)] = get_global_id(0) % 2; }",
        "flag",
    )
    flags = usmq.zeros(4, "u1")
    kernel(4, flags)
    column = usmq.Column(usmq.arange(4))
    assert column.filter(flags.astype("bool")).to_arrow().to_pylist() == [1, 3]


def test_wrong_masks_are_refused() -> None:
    column = usmq.from_arrow(pa.array([1, 2, 3]))
    table = usmq.Table({"x": column})
    device = usmq.Device()
    elsewhere = usmq.Queue(device, context=usmq.Context([device]))
    for filtered_object in (column, table):
        with pytest.raises(TypeError, match="must be a column of bool, not column"):
            filtered_object.filter(usmq.ones(3, "u1"))
        with pytest.raises(ValueError, match="must have 3 values, not 2"):
            filtered_object.filter(usmq.ones(2, "bool"))
        with pytest.raises(TypeError, match="mask must be an array in USM"):
            filtered_object.filter([True, False, True])  # type: ignore[arg-type]
        with pytest.raises(usmq.PlacementError, match="collocate them first"):
            filtered_object.filter(usmq.ones(3, "bool", queue=elsewhere))
        mask = usmq.from_arrow(pa.array([True, True, False]))
        with usmq.capture(), pytest.raises(usmq.CaptureError, match="a selection by a mask"):
            filtered_object.filter(mask)


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 2**31 - 1, 3, 10**9, 5],
        [-7, -1, -(2**31), 2, 2**31 - 1],
        [2**31 - 1] * 5,
        [5, 4, 3, 2, 1],
    ],
)
def test_wrong_offsets_in_device_memory_stay_inside_the_text(offsets: list[int]) -> None:
    mask = usmq.ones(4, "bool")
    for dtype, of in (("i4", "string"), ("i8", "large_string")):
        starts = usmq.asarray(np.array(offsets, dtype))
        texts = usmq.Column(usmq.full(5, ord("x"), "u1"), offsets=starts, type=of)
        found = texts.filter(mask)
        ends = found.offsets().to_numpy()
        assert (np.diff(ends) >= 0).all()
        assert ends[0] == 0
        assert found.values().size == ends[-1] <= 4 * 5
        found.to_arrow().validate(full=True)
        lists = usmq.Column(usmq.Column(usmq.arange(5)), offsets=starts).filter(mask)
        lists.to_arrow().validate(full=True)
        assert set(lists.children[0].to_arrow().to_pylist()) <= set(range(5))
