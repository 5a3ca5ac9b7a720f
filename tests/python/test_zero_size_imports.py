"""Empty arrays keep the USM kind and the address of their producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpnp
import pyarrow as pa
import pytest
import usmq
from arrow_structs import KINDS
from dlpack_structs import address

EMPTY: dict[str, Callable[[Any], Any]] = {
    "slice": lambda a: a[:0],
    "slice from the middle": lambda a: a[5:5],
    "shape": lambda a: a.reshape(4, 6)[:, 3:3],
}
IMPORTS: dict[str, Callable[[Any], usmq.Array]] = {
    "SUAI": lambda a: usmq.asarray(a, copy=False),
    "DLPack": usmq.from_dlpack,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", EMPTY)
@pytest.mark.parametrize("protocol", IMPORTS)
def test_an_empty_array_keeps_its_usm_kind_and_address(protocol: str, view: str, kind: str) -> None:
    theirs = EMPTY[view](dpnp.zeros(24, dtype="i4", usm_type=kind))
    given = address(theirs)
    assert given
    x = IMPORTS[protocol](theirs)
    assert (x.shape, x.size) == (theirs.shape, 0)
    assert (x.usm_type, x.ptr) == (kind, given)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_size_allocations_keep_their_usm_kind_both_ways(kind: str) -> None:
    theirs = dpnp.empty((0, 3), dtype="f4", usm_type=kind)
    x = usmq.asarray(theirs, copy=False)
    assert (x.shape, x.usm_type, x.ptr) == ((0, 3), kind, address(theirs))
    for shape in ((0,), (3, 0), (0, 2, 5)):
        for give in (dpnp.asarray, dpnp.tensor.asarray):
            assert give(usmq.zeros(shape, usm_type=kind)).shape == shape
    x = usmq.zeros(24, "i4", usm_type=kind)[7:7]
    back = usmq.asarray(dpnp.asarray(x), copy=False)
    assert (back.usm_type, back.ptr) == (kind, x.ptr)


TYPES = [pa.int32(), pa.string(), pa.large_string(), pa.binary(), pa.list_(pa.int32())]
TYPES += [pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int8(), pa.string())]
TYPES += [pa.struct([("s", pa.string())]), pa.run_end_encoded(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", ["shared", "host"])
@pytest.mark.parametrize("of", TYPES, ids=str)
def test_an_arrow_table_without_rows_is_imported_in_the_requested_usm(of: Any, kind: str) -> None:
    empty = pa.Table.from_batches([], pa.schema([("c", of)]))
    table = usmq.from_arrow(empty, usm_type=kind)
    assert pa.table(table.host_view()).schema == empty.schema
    assert table.to_arrow().num_rows == 0
    if of == pa.string():
        assert table["c"].offsets().usm_type == kind
