"""The table of protocols in src/python/protocol.rs: every row, every pair of rows, every filter."""

import ctypes
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import usmq

TABLE = Path(__file__).parents[2] / "src/python/protocol.rs"

SUAI, CUDA, DLPACK = "__sycl_usm_array_interface__", "__cuda_array_interface__", "__dlpack__"
# The protocols that an object of another class can have, in the order of the table. Each one has
# the elements [N], N its position here, so the result tells which one was read.
ORDER = [
    SUAI,
    "buffer",
    CUDA,
    "__arrow_c_device_stream__",
    "__arrow_c_device_array__",
    "__arrow_c_stream__",
    "__arrow_c_array__",
    DLPACK,
    "numbers",
]


def elements(name: str) -> list[int]:
    return [ORDER.index(name)]


def members(name: str) -> dict[str, Any]:
    """Return the attributes of a class whose objects have this protocol."""
    values = elements(name)
    if name == SUAI:
        array = usmq.asarray(values)
        return {SUAI: property(lambda _: array.__sycl_usm_array_interface__)}
    if name == CUDA:
        # usmq refuses stream 0, with or without a driver.
        shape = {"shape": (1,), "typestr": "<i8", "data": (64, False)}
        return {CUDA: shape | {"version": 3, "stream": 0}}
    if name == DLPACK:
        tensor = np.array(values)
        return {
            DLPACK: lambda _, **options: tensor.__dlpack__(**options),
            "__dlpack_device__": lambda _: tensor.__dlpack_device__(),
        }
    if name == "numbers":
        return {
            "__len__": lambda _: 1,
            "__getitem__": lambda _, at: values[at],
            "__iter__": lambda _: iter(values),
        }
    if name == "buffer":
        return {}
    column: Any = pa.array(values)
    if name == "__arrow_c_stream__":
        column = pa.chunked_array([column])
    elif name == "__arrow_c_device_stream__":
        column = usmq.from_arrow(column)
    return {name: lambda _: getattr(column, name)()}


def having(*names: str) -> Any:
    """Return an object with these protocols and no other."""
    base: Any = ctypes.c_int64 * 1 if "buffer" in names else object
    made = type("Foreign", (base,), {k: v for name in names for k, v in members(name).items()})
    if "numbers" in names:
        Sequence.register(made)
    return made(*elements("buffer")) if "buffer" in names else made()


def assigned(obj: Any) -> usmq.Array:
    target = usmq.full(1, -1, "i8")
    target[...] = obj
    return target


def here() -> usmq.Queue:
    return usmq.current_queue()


# Entry points that take foreign arrays, and the protocols that each accepts.
ENTRIES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "asarray": (usmq.asarray, ORDER),
    "collocate": (lambda obj: usmq.collocate(obj, queue=here()), [SUAI, "buffer", CUDA, "numbers"]),
    "assign": (assigned, ORDER),
    "explain": (lambda obj: usmq.explain(obj, queue=here()), [SUAI, "buffer", CUDA, "numbers"]),
    "like": (lambda obj: usmq.explain(like=obj), [SUAI, CUDA]),
    "follow": (usmq.follow, [SUAI]),
}


def test_this_file_knows_each_row_of_the_table() -> None:
    rows = re.findall(r"Protocol \{\s*names: &\[?(.+?)\]?,\s*sign:", TABLE.read_text())
    assert rows == [
        '"usmq.Array"',
        "suai::NAME",
        '"buffer"',
        '"usmq.CudaArray"',
        "cuda::NAME",
        "arrow::METHODS",
        '"__dlpack__"',
        '"numbers"',
    ]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("names", [(name,) for name in ORDER] + [*itertools.combinations(ORDER, 2)])
def test_the_first_row_that_an_entry_point_accepts_is_read(
    entry: str, names: tuple[str, ...]
) -> None:
    call, accepted = ENTRIES[entry]
    # A buffer of memory on a CUDA device is not used.
    usable = [
        name for name in names if name in accepted and not (name == "buffer" and CUDA in names)
    ]
    read = next(iter(usable), None)
    obj = having(*names)
    if read is None:
        with pytest.raises(TypeError, match="Foreign"):
            call(obj)
    elif read == CUDA:
        with pytest.raises(usmq.InteropError, match="stream 0"):
            call(obj)
    else:
        result = call(obj)
        assert not isinstance(result, usmq.Array) or result.tolist() == elements(read)


@pytest.mark.parametrize("usm_type", ["device", "shared", "host"])
def test_an_array_of_usmq_is_itself(usm_type: str) -> None:
    x = usmq.zeros(3, usm_type=usm_type)
    assert usmq.asarray(x) is x
    assert usmq.collocate(x, like=x) is x


def test_cuda_memory_without_a_stream_leaves_the_order_to_dlpack() -> None:
    obj = having(CUDA, DLPACK)
    del type(obj).__cuda_array_interface__["stream"]
    assert usmq.asarray(obj).tolist() == elements(DLPACK)
