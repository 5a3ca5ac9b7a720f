"""Kernels on columns: they read values, bitmaps, offsets and codes, and produce tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arrow_structs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import usmq
from arrow_structs import KINDS, STEPS, eventually, kernel, live

no_leaks = arrow_structs.no_leaks

SOURCE = """
bool is_set(global const uchar *bits, ulong i) { return bits[i / 8] >> (i % 8) & 1; }

kernel void doubled(global const int *x, global const uchar *valid, ulong bit, global int *y) {
  size_t i = get_global_id(0);
  y[i] = is_set(valid, bit + i) ? 2 * x[i] : -1;
}
kernel void lengths(global const int *offsets, global int *y) {
  size_t i = get_global_id(0);
  y[i] = offsets[i + 1] - offsets[i];
}
kernel void vowels(global const int *offsets, global const uchar *text, global int *y) {
  size_t i = get_global_id(0);
  y[i] = 0;
  for (int at = offsets[i]; at < offsets[i + 1]; ++at)
    switch (text[at]) { case 'a': case 'e': case 'i': case 'o': case 'u': ++y[i]; }
}
kernel void counts(global const char *codes, global const uchar *valid, ulong bit, global int *y) {
  size_t i = get_global_id(0);
  if (is_set(valid, bit + i)) atomic_inc(&y[codes[i]]);
}
"""


@pytest.fixture(autouse=True)
def opencl() -> None:
    backend = usmq.current_queue().device.backend
    if backend != "opencl":
        pytest.skip(f"the default device is of {backend}, not of OpenCL")


@pytest.fixture(scope="module")
def run() -> Callable[..., usmq.Event]:
    built: dict[str, usmq.Kernel] = {}

    def run(name: str, *args: Any, **options: Any) -> usmq.Event:
        if name not in built:
            built[name] = usmq.Kernel.from_opencl(SOURCE, name)
        return built[name](*args, **options)

    return run


Run = Callable[..., usmq.Event]
INTS = pa.array([None if n % 5 == 2 else n * n for n in range(1000)], pa.int32())
CUTS = [(0, 1000), (1, 10), (7, 999), (8, 16), (13, 14)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_reads_values_and_their_bitmap(kind: str, cut: tuple[int, int], run: Run) -> None:
    expected = [-1 if v is None else 2 * v for v in INTS.to_pylist()][slice(*cut)]
    whole = usmq.from_arrow(INTS, usm_type=kind)
    for column in (whole[slice(*cut)], usmq.from_arrow(INTS[slice(*cut)], usm_type=kind)):
        validity = column.validity()
        if validity is None:
            assert column.null_count == 0
            continue
        y = usmq.empty(len(column), "i4")
        run("doubled", len(column), column.values(), validity, column.bit_offset, y)
        assert y.to_numpy().tolist() == expected


def test_a_result_is_returned_to_pyarrow_as_a_table(run: Run) -> None:
    column = usmq.from_arrow(INTS)
    y = usmq.empty(1000, "i4")
    run("doubled", 1000, column.values(), column.validity(), column.bit_offset, y)
    table = usmq.Table({"in": column, "out": y})
    found = table.to_arrow()
    found.validate(full=True)
    assert found["in"].combine_chunks().equals(INTS)
    assert found["out"].to_pylist() == pc.fill_null(pc.multiply(INTS, 2), -1).to_pylist()
    assert usmq.from_arrow(table)["out"].values().ptr == y.ptr


def test_an_exported_table_includes_the_writes_of_a_kernel_in_flight(
    advanced: Callable[[Any, int], Any],
) -> None:
    x = usmq.arange(0, 4, 1, dtype="u4", usm_type="shared")
    running = kernel("advance")(4, x, STEPS)
    table = usmq.Table({"x": x})
    column = table["x"]
    assert not running.done(), "creating the table waited"
    expected = advanced(np.arange(4), STEPS)
    np.testing.assert_array_equal(pa.array(column.host_view()).to_numpy(), expected)
    assert running.done()
    np.testing.assert_array_equal(table.to_arrow()["x"].to_numpy(), expected)


def test_a_kernel_is_launched_on_columns_still_being_copied(run: Run) -> None:
    """Nothing waits on the host from pyarrow to the result."""
    blocker = usmq.zeros(1, "u4")
    running = kernel("advance")(1, blocker, STEPS)
    column = usmq.from_arrow(INTS)
    y = usmq.empty(1000, "i4")
    run("doubled", 1000, column.values(), column.validity(), column.bit_offset, y)
    table = usmq.Table({"y": y})
    assert not running.done()
    expected = pc.fill_null(pc.multiply(INTS, 2), -1).to_pylist()
    assert table.to_arrow()["y"].to_pylist() == expected


WORDS = pa.array(["queue", "", "device", "rhythm", "ä", "aeiou"] * 50)


@pytest.mark.parametrize("cut", [(0, 300), (1, 299), (7, 8)], ids=str)
def test_strings_are_read_through_offsets(cut: tuple[int, int], run: Run) -> None:
    column = usmq.from_arrow(WORDS)[slice(*cut)]
    lengths, vowels = (usmq.empty(len(column), "i4") for _ in range(2))
    run("lengths", len(column), column.offsets(), lengths)
    run("vowels", len(column), column.offsets(), column.values(), vowels)
    words = WORDS[slice(*cut)]
    found = usmq.Table({"lengths": lengths, "vowels": vowels}).to_arrow()
    assert found["lengths"].to_pylist() == pc.binary_length(words).to_pylist()
    assert found["vowels"].to_pylist() == [sum(c in "aeiou" for c in w) for w in words.to_pylist()]


@pytest.mark.parametrize("in_order", [True, False])
def test_codes_of_a_dictionary_are_counted(in_order: bool, run: Run) -> None:
    words = [None if n % 4 == 3 else ["a", "b", "c"][n % 3] for n in range(1000)]
    array = pa.DictionaryArray.from_arrays(
        pa.array([None if w is None else "abc".index(w) for w in words], pa.int8()), ["a", "b", "c"]
    )
    queue = usmq.Queue(usmq.current_queue().device, in_order=in_order)
    column = usmq.from_arrow(array, queue=queue)
    y = usmq.zeros(3, "i4", queue=queue)
    run("counts", 1000, column.values(), column.validity(), column.bit_offset, y)
    counted = usmq.Table({"word": column.dictionary, "n": y}).to_arrow()
    assert dict(zip(counted["word"].to_pylist(), counted["n"].to_pylist(), strict=True)) == {
        word: words.count(word) for word in "abc"
    }


def test_a_column_dropped_right_after_the_launch_is_read_to_the_end(
    advanced: Callable[[Any, int], Any],
) -> None:
    before = live()
    column = usmq.from_arrow(pa.array(range(4), pa.uint32()))
    y = usmq.zeros(4, "u4")
    running = kernel("advance_into")(4, column.values(), y, STEPS)
    del column
    assert not running.done()
    others = [usmq.full(4, 7, "u4") for _ in range(20)]
    np.testing.assert_array_equal(y.to_numpy(), advanced(np.arange(4), STEPS))
    del others, y
    assert eventually(lambda: live() == before)
