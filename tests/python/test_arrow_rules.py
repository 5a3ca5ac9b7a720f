"""Rules of device arrays that the other files do not cover."""

from __future__ import annotations

import arrow_structs
import numpy as np
import pyarrow as pa
import pytest
import usmq
from arrow_producers import Producer, ints, record
from arrow_structs import KINDS, ONEAPI

no_leaks = arrow_structs.no_leaks


@pytest.mark.parametrize("kind", KINDS)
def test_d15_d29_exported_memory_is_not_written(kind: str) -> None:
    column = usmq.from_arrow(pa.array(["hello", None, "you"]), usm_type=kind)
    before = column.to_arrow()
    store = usmq.elementwise("T *x", "x[i] = 1")
    for part in (column.values(), column.offsets(), column.validity()):
        for view in (part, part[:], part.reshape(-1), part.T, part.to(usm_type=kind)):
            assert view.ptr != part.ptr or view.readonly
        for write in (lambda x: x.fill(0), lambda x: x.copy_from(x.copy())):
            with pytest.raises(ValueError, match="read-only"):
                write(part)
        with pytest.raises((usmq.LaunchError, TypeError)):
            store(part)
        if kind != "device":
            assert not np.asarray(part).flags.writeable
    assert column.to_arrow() == before


def test_d29_foreign_data_is_not_changed() -> None:
    producer = Producer(ints([4, None, 6]).on_device(), ONEAPI)
    column = usmq.from_arrow(producer)
    with pytest.raises(ValueError, match="read-only"):
        column.values().fill(7)
    assert column.to_arrow().to_pylist() == [4, None, 6]


def test_d18_bool_arrays_are_not_exported_as_arrow_booleans() -> None:
    flags = usmq.asarray(np.array([True, False]))
    with pytest.raises(usmq.InteropError, match="bits"):
        usmq.from_arrow(flags)
    bits = usmq.from_arrow(pa.array([True, False, True]))
    assert bits.values().to_numpy().tolist() == [0b101]


def test_d24_junk_in_reserved_is_ignored() -> None:
    producer = Producer(ints([1, 2]).on_device(), ONEAPI)
    producer.device.reserved[:] = (-1, 2**62, 77)
    assert usmq.from_arrow(producer).to_arrow().to_pylist() == [1, 2]


@pytest.mark.parametrize("device_type", [1, ONEAPI])
def test_d27_an_array_that_fails_after_the_move_is_released(device_type: int) -> None:
    node = record(a=ints([1, 2]), b=ints([3, 4]))
    producer = Producer(node.on_device() if device_type == ONEAPI else node, device_type)
    with pytest.raises(KeyError, match='"c"'):
        usmq.from_arrow(producer, columns=["c"])
    assert producer.log.count("array") == 1
