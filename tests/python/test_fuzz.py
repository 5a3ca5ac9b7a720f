"""Random filter strings, dicts, capsules, pickles and views, compared with dpctl and numpy.

Each test tries a fixed number of inputs by a fixed seed. With `FUZZ_MINUTES` each goes on from a
new seed for so long, as `tests/run fuzz` does. A failure names a seed; `FUZZ_SEED` starts with it.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import dpctl
import numpy as np
import pyarrow as pa
import pytest
import usmq

# The errors that may refuse a foreign object.
REFUSED = (ValueError, TypeError, OverflowError, BufferError, usmq.Error)


def inputs(name: str, count: int) -> Iterator[random.Random]:
    """Yield a source of random choices per input, and print the number of inputs."""
    start, minutes = time.monotonic(), float(os.environ.get("FUZZ_MINUTES", "0"))
    seed = int(os.environ.get("FUZZ_SEED", time.time_ns() % 10**9 * 10**6 if minutes else 8))
    tried = 0
    try:
        while tried < count or time.monotonic() - start < 60 * minutes:
            yield random.Random(seed + tried)
            tried += 1
    except GeneratorExit:
        print(f"fuzz: {name}: input {tried} went wrong: FUZZ_SEED={seed + tried}")
        raise
    print(f"fuzz: {name}: {tried} inputs in {time.monotonic() - start:.0f} s")


# --- filter strings, next to libsycl's own reading of them

PIECES = [
    "opencl",
    "level_zero",
    "cuda",
    "hip",
    "cpu",
    "gpu",
    "accelerator",
    "0",
    "1",
    "2",
    "007",
    "-1",
    "+1",
]
PIECES += [
    "2147483647",
    "2147483648",
    "host",
    "native_cpu",
    "acc",
    "*",
    "!cpu",
    " ",
    "é",
    "CPU",
    "x",
    "0x0",
    "1 ",
]


def chosen_by_sycl(text: str) -> str | None:
    """Return the device that libsycl chooses; None where it refuses the string or finds none."""
    try:
        return str(dpctl.SyclDevice(text).filter_string)
    except (dpctl.SyclDeviceCreationError, ValueError):
        return None


def test_filter_strings_select_like_libsycl() -> None:
    for source in inputs("filter strings", 3000):
        text = "".join(
            source.choice(PIECES) + source.choice([":", ":", ",", "::", ",,", ""])
            for _ in range(source.randrange(5))
        )
        try:
            found = usmq.Device(text).filter_string
        except (usmq.SelectorError, usmq.DeviceNotFoundError) as error:
            assert repr(text).strip("'\"") in str(error)  # noqa: PT017
            found = None
        assert found == chosen_by_sycl(text), text


# --- views, next to numpy


def random_index(source: random.Random, ndim: int) -> tuple[Any, ...]:
    def part() -> Any:
        bound = lambda: source.choice([None, source.randrange(-7, 8)])  # noqa: E731
        step = source.choice([None, 1, 2, 3, -1, -2, 0])
        kinds = [slice(bound(), bound(), step), source.randrange(-5, 5), None, Ellipsis]
        return source.choices(kinds, [6, 3, 1, 1])[0]

    return tuple(part() for _ in range(source.randrange(ndim + 2)))


def same(
    call: Callable[[Any], Any], ours: usmq.Array, theirs: np.ndarray
) -> tuple[Any, Any] | None:
    """Call both; return both results, or None where both refuse."""
    try:
        expected = call(theirs)
    except (IndexError, ValueError):
        with pytest.raises((IndexError, ValueError)):
            call(ours)
        return None
    return call(ours), expected


def test_views_casts_and_assignments_match_numpy() -> None:
    dtypes = ["u1", "i2", "i4", "u8", "f4", "f8", "c8", "b1"]
    for source in inputs("views", 80):
        shape = tuple(source.choice([0, 1, 2, 3, 5]) for _ in range(source.randrange(4)))
        numbers = np.arange(math.prod(shape)).reshape(shape).astype(source.choice(dtypes))
        theirs: Any = numbers.copy()
        ours: Any = usmq.asarray(theirs, usm_type=source.choice(["device", "shared", "host"]))
        for _ in range(source.randrange(5)):
            kind = source.randrange(6)
            if kind <= 2:
                index = random_index(source, theirs.ndim)
                # With Ellipsis numpy always gives an array.
                both = same(
                    lambda x, i=index: x[(*i, ...)] if Ellipsis not in i else x[i], ours, theirs
                )
            elif kind == 3:
                shape = tuple(
                    source.choice([-1, 1, 2, 3, 5, 6]) for _ in range(source.randrange(4))
                )
                # A copy where numpy and usmq both need one: only the values are compared.
                both = same(lambda x, s=shape: x.reshape(s), ours, theirs)
                if both is not None:
                    both = both[0].copy(), both[1].copy()
            elif kind == 4:
                both = ours.T, theirs.T
            else:
                dtype = source.choice(dtypes)
                if theirs.dtype.kind == "c" and dtype[0] != "c":
                    continue
                both = ours.astype(dtype), theirs.astype(dtype)
            if both is None:
                continue
            ours, theirs = both
            if source.randrange(3) == 0 and not ours.readonly:
                values = np.arange(theirs.size).reshape(theirs.shape).astype(theirs.dtype)
                ours.copy_from(values)
                theirs[...] = values
            assert ours.shape == theirs.shape
            np.testing.assert_array_equal(ours.to_numpy(), theirs)


# --- interface dicts, against independent rules

MEMORY = 64
ITEM = {
    "|b1": 1,
    "|u1": 1,
    "|i1": 1,
    "<i2": 2,
    "<u4": 4,
    "<f4": 4,
    "<f8": 8,
    "<c8": 8,
    "<c16": 16,
    "<i8": 8,
}
WRONG_TYPES = [">f4", "O", "|S3", "<U1", "f", "", "<f3", "<m8[s]", "é", 4, None, b"<f4"]
NO_NUMBERS = [None, 1.5, "3", b"3", [1], (), {}, object(), True, float("nan"), 1 << 80, -(1 << 80)]


class Shown:
    def __init__(self, interface: Any) -> None:
        self.__sycl_usm_array_interface__ = interface


def interface(source: random.Random, base: usmq.Array) -> tuple[dict[str, Any], list[int]]:
    """Return a sound dict over `base`, and the byte at which each element begins, in C order."""
    typestr, size = source.choice(list(ITEM.items()))
    room = MEMORY // size
    shape = tuple(source.choice([1, 2, 3, 0]) for _ in range(source.randrange(3)))
    strides = tuple(source.choice([-2, -1, 0, 1, 2]) for _ in shape)
    offset = source.randrange(room)
    places = [offset]
    for extent, stride in zip(shape, strides, strict=True):
        places = [place + i * stride for place in places for i in range(extent)]
    if any(not 0 <= place < room for place in places):
        return interface(source, base)
    entries = {
        "data": (base.ptr, source.random() < 0.5),
        "shape": shape,
        "strides": strides,
        "offset": offset,
        "typestr": typestr,
        "version": 1,
        "syclobj": source.choice(
            [base.queue, base.queue.context, dpctl.SyclQueue(), base.queue._get_capsule()]
        ),
    }
    if (
        strides == tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        and source.random() < 0.5
    ):
        entries["strides"] = None
    return entries, [place * size for place in places]


def spoil(source: random.Random, entries: dict[str, Any]) -> bool:
    """Break one entry; return False if the result is still valid."""
    key = source.choice(list(entries))
    empty = 0 in entries["shape"]
    if source.random() < 0.15 and key not in ("strides", "offset"):
        del entries[key]
    elif key == "data":
        address = entries["data"][0]
        wrong = [
            None,
            (),
            (address,),
            (address, False, 0),
            (None, False),
            ("x", False),
            (-1, False),
            (1.5, False),
        ]
        # An address is checked if the array is not empty.
        wrong += [] if empty else [(0, False), (1 << 63, False), (64, False), (1 << 90, False)]
        entries["data"] = source.choice(wrong)
    elif key == "shape":
        entries["shape"] = source.choice(
            [None, 3.0, "3", (1.5,), ("3",), (-1,), (None,), (1 << 70,), (1 << 62, 4)]
        )
    elif key == "strides":
        shape = entries["shape"]
        wrong = [
            (1,) * (len(shape) + 1),
            3,
            ("x",) * max(1, len(shape)),
            (1.5,) * max(1, len(shape)),
        ]
        wrong += (
            []
            if empty or max(shape, default=1) == 1
            else [(1 << 62,) * len(shape), (-(1 << 62),) * len(shape)]
        )
        entries["strides"] = source.choice(wrong)
    elif key == "offset":
        wrong = [None, 1.5, "0", (), 1 << 70]
        wrong += [] if empty else [1 << 62, -(1 << 62)]
        entries["offset"] = source.choice(wrong)
    elif key == "typestr":
        entries["typestr"] = source.choice(WRONG_TYPES)
    elif key == "version":
        entries["version"] = source.choice([0, 2, -1, None, "1", 1.0, ()])
    else:
        queue = usmq.current_queue()
        entries["syclobj"] = source.choice(
            [
                None,
                5,
                object(),
                "gpu:77",
                "",
                b"cpu",
                np.zeros(1),
                used(queue),
                capsule(source.choice(NAMES)),
                Answers(3),
            ]
        )
    return True


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def _get_capsule(self) -> Any:
        return self.answer


NAMES = [
    b"SyclQueue",
    b"used_SyclQueueRef",
    b"used_SyclContextRef",
    b"dltensor",
    b"SyclDeviceRef",
    b"",
    b"x" * 300,
]


def capsule(name: bytes | None) -> Any:
    """Return a capsule with an invalid pointer; it borrows the name."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(1, name, None)


def used(queue: usmq.Queue) -> Any:
    made = queue._get_capsule()
    dpctl.SyclQueue(made)
    return made


def test_an_interface_dict_gives_the_described_view_or_an_error() -> None:
    content = np.arange(MEMORY, dtype="u1") % 2
    base = usmq.asarray(content, usm_type="shared")
    raw = content.tobytes()
    for source in inputs("SUAI dicts", 2000):
        entries, places = interface(source, base)
        size = ITEM[entries["typestr"]]
        aligned = not places or (base.ptr + min(places)) % size == 0
        if source.random() < 0.6 and spoil(source, entries):
            with pytest.raises(REFUSED):
                usmq.asarray(Shown(entries))
            continue
        assert aligned
        array = usmq.asarray(Shown(entries))
        assert array.shape == entries["shape"]
        assert array.dtype.str == entries["typestr"]
        assert array.to_numpy().tobytes() == b"".join(raw[place : place + size] for place in places)
        if places:
            assert (array.ptr, array.readonly) == (base.ptr + places[0], entries["data"][1])


# --- capsules with any name in each protocol


class Peer:
    """Every protocol's methods, each answering with the same thing."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.used = False

    def _answer(self, *args: Any, **options: Any) -> Any:
        return self.answer

    __arrow_c_array__ = __arrow_c_stream__ = __arrow_c_device_array__ = _answer
    __arrow_c_device_stream__ = __arrow_c_schema__ = _get_capsule = _answer

    def __dlpack_device__(self) -> tuple[int, int]:
        return 14, 0

    __dlpack__ = _answer


CAPSULES = [
    b"dltensor",
    b"dltensor_versioned",
    b"arrow_schema",
    b"arrow_array",
    b"arrow_device_array",
    b"arrow_array_stream",
    b"arrow_device_array_stream",
    b"SyclQueueRef",
    b"SyclContextRef",
]


def used_up(source: random.Random, array: usmq.Array, table: usmq.Table) -> Any:
    """Return a capsule that was already consumed."""
    kind = source.randrange(4)
    if kind == 0:
        return used(array.queue)
    if kind == 1:
        made = array.__dlpack__(max_version=source.choice([None, (1, 0)]))
        usmq.from_dlpack(Peer(made))
    elif kind == 2:
        made = table.__arrow_c_device_stream__()
        usmq.from_arrow(Stream(made))
    else:
        made = array.queue.context._get_capsule()
        dpctl.SyclContext(made)
    return made


def no_capsule(source: random.Random, array: usmq.Array, table: usmq.Table) -> Any:
    """Return something that stands where a capsule of some name is expected, and is none."""
    name = source.choice(CAPSULES)
    match source.randrange(7):
        case 0:
            return capsule(name[: source.randrange(1, 8)])
        case 1:
            return capsule(b"used_" + name)
        case 2:
            return capsule(name + b"_")
        case 3:
            return capsule(None)
        case 4:
            return used_up(source, array, table)
        case 5:
            return source.choice([None, 3, (), (1, 2), object(), capsule, "x"])
        case _:
            return tuple(capsule(b"used_" + name) for _ in range(source.randrange(1, 4)))


class Stream:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **options: Any) -> Any:
        return self.stream


def test_consumed_capsules_and_other_names_are_errors() -> None:
    array = usmq.asarray(np.arange(4.0), usm_type="shared")
    table = usmq.from_arrow(pa.table({"x": [1, 2, 3]}))
    sound = dict(array.__sycl_usm_array_interface__)
    consumers: list[Callable[[Any], Any]] = [
        lambda wrong: usmq.asarray(Peer(wrong)),
        lambda wrong: usmq.asarray(Shown(sound | {"syclobj": wrong})),
        lambda wrong: usmq.asarray(Shown(sound | {"syclobj": Answers(wrong)})),
        lambda wrong: usmq.asarray(Shown(wrong)),
        lambda wrong: usmq.from_arrow(Peer(wrong)),
        lambda wrong: usmq.from_arrow(Stream(wrong)),
        lambda wrong: usmq.from_dlpack(Peer(wrong)),
        lambda wrong: usmq.Queue(Answers(wrong)),
        lambda wrong: usmq.use_queue(Answers(wrong)).__enter__(),
        lambda wrong: usmq.empty(2, queue=Answers(wrong)),
        lambda wrong: usmq.collocate(array, queue=Answers(wrong)),
    ]
    for source in inputs("capsules", 1000):
        wrong = no_capsule(source, array, table)
        with pytest.raises((*REFUSED, AttributeError)):
            source.choice(consumers)(wrong)
    np.testing.assert_array_equal(array.to_numpy(), np.arange(4.0))
    assert usmq.current_queue() == array.queue


# --- pickles with bytes changed


def changed(source: random.Random, data: bytes) -> bytes:
    """Bytes that are changed, cut, doubled or put in."""
    new = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(len(new)) if new else 0
        match source.randrange(4):
            case 0 if new:
                new[at] ^= 1 << source.randrange(8)
            case 1:
                del new[at : at + source.randrange(1, 9)]
            case 2:
                new[at:at] = source.randbytes(source.randrange(1, 9))
            case _:
                new[at : at + 8] = source.choice([0, 1, 2**31, 2**63, 2**64 - 1]).to_bytes(
                    8, "little"
                )
    return bytes(new)


def test_a_changed_pickle_header_or_frame_is_an_error_or_a_valid_object() -> None:
    table = usmq.from_arrow(
        pa.table(
            {
                "n": pa.array([1, None, 3]),
                "text": ["a", "bcd", None],
                "list": [[1.5], None, []],
                "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
                "view": pa.array(["a" * 20, None, "b"], pa.string_view()),
            }
        )
    )
    things = [
        table,
        table["list"],
        table["kind"],
        table["n"],
        table.schema,
        usmq.zeros((2, 3), "f4"),
        table["view"],
    ]
    reduced = [thing.__reduce_ex__(4)[:2] for thing in things]
    for source in inputs("pickles", 1500):
        function, arguments = source.choice(reduced)
        new = list(arguments)
        at = source.randrange(len(new))
        if isinstance(new[at], bytes) and source.random() < 0.9:
            new[at] = changed(source, new[at])
        else:
            new[at] = source.choice(
                [None, -1, 0, 1 << 70, "f8", "x", b"", b"x" * 40, (), (1 << 62, 8), 1.5, [2, 3]]
            )
        if source.random() < 0.1:
            del new[source.randrange(len(new))]
        try:
            thing = function(*new)
        except (*REFUSED, UnicodeDecodeError):
            continue
        # Imports are exported again without a crash; the bytes are arbitrary.
        for protocol in (4, 5):
            pickle.loads(pickle.dumps(thing, protocol=protocol))
        if isinstance(thing, usmq.Array):
            assert thing.to_numpy().nbytes == thing.nbytes
