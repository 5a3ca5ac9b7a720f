"""Random filter strings, dicts, capsules, pickles and views, compared with dpctl and numpy.

Each test tries a fixed number of inputs by a fixed seed. With `FUZZ_MINUTES` each goes on from a
new seed for so long, as `tests/run fuzz` does. A failure names a seed; `FUZZ_SEED` starts with it.
"""

from __future__ import annotations

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
from arrow_structs import capsule
from test_suai_refused import MALFORMED, REFUSED, Answers, Foreign, malformed, used_capsule


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

PIECES = ["opencl", "level_zero", "cuda", "hip", "cpu", "gpu", "accelerator", "host", "native_cpu"]
PIECES += ["acc", "0", "1", "2", "007", "-1", "+1", "2147483647", "2147483648", "0x0", "1 ", " "]
PIECES += ["*", "!cpu", "é", "CPU", "x"]


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
TYPES = ["|b1", "|u1", "|i1", "<i2", "<u4", "<f4", "<f8", "<c8", "<c16", "<i8"]
# Changes that make each dict wrong, with any number of axes.
WRONG = [change for change in MALFORMED if "strides" not in change]


def interface(source: random.Random, base: usmq.Array) -> tuple[dict[str, Any], list[int]]:
    """Return a sound dict over `base`, and the byte at which each element begins, in C order."""
    typestr = source.choice(TYPES)
    size = np.dtype(typestr).itemsize
    room = MEMORY // size
    shape = tuple(source.choice([1, 2, 3, 0]) for _ in range(source.randrange(3)))
    strides = tuple(source.choice([-2, -1, 0, 1, 2]) for _ in shape)
    offset = source.randrange(room)
    places = [offset]
    for extent, stride in zip(shape, strides, strict=True):
        places = [place + i * stride for place in places for i in range(extent)]
    if any(not 0 <= place < room for place in places):
        return interface(source, base)
    contiguous = strides == tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    queues = [base.queue, base.queue.context, dpctl.SyclQueue(), base.queue._get_capsule()]
    entries = {
        "data": (base.ptr, source.random() < 0.5),
        "shape": shape,
        "strides": None if contiguous and source.random() < 0.5 else strides,
        "offset": offset,
        "typestr": typestr,
        "version": 1,
        "syclobj": source.choice(queues),
    }
    return entries, [place * size for place in places]


def test_an_interface_dict_gives_the_described_view_or_an_error() -> None:
    content = np.arange(MEMORY, dtype="u1") % 2
    base = usmq.asarray(content, usm_type="shared")
    raw = content.tobytes()
    for source in inputs("SUAI dicts", 2000):
        entries, places = interface(source, base)
        size = np.dtype(entries["typestr"]).itemsize
        if places and source.random() < 0.6:  # of an empty array no address is checked
            with pytest.raises(REFUSED):
                usmq.asarray(Foreign(malformed(entries, source.choice(WRONG))))
            continue
        array = usmq.asarray(Foreign(entries))
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

    def _answer(self, *args: Any, **options: Any) -> Any:
        return self.answer

    __arrow_c_array__ = __arrow_c_stream__ = __arrow_c_device_array__ = _answer
    __arrow_c_device_stream__ = __arrow_c_schema__ = _get_capsule = __dlpack__ = _answer

    def __dlpack_device__(self) -> tuple[int, int]:
        return 14, 0


class Stream:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **options: Any) -> Any:
        return self.stream


NAMES = [b"dltensor", b"dltensor_versioned", b"arrow_schema", b"arrow_array", b"arrow_device_array"]
NAMES += [b"arrow_array_stream", b"arrow_device_array_stream", b"SyclQueueRef", b"SyclContextRef"]


def consumed(array: usmq.Array, table: usmq.Table) -> list[Any]:
    """Return capsules of each protocol that have been consumed."""
    tensors = [array.__dlpack__(max_version=version) for version in (None, (1, 0))]
    for tensor in tensors:
        usmq.from_dlpack(Peer(tensor))
    stream = table.__arrow_c_device_stream__()
    usmq.from_arrow(Stream(stream))
    context = array.queue.context._get_capsule()
    dpctl.SyclContext(context)
    return [*tensors, stream, context, used_capsule()]


def test_consumed_capsules_and_other_names_are_errors() -> None:
    array = usmq.asarray(np.arange(4.0), usm_type="shared")
    table = usmq.from_arrow(pa.table({"x": [1, 2, 3]}))
    sound = dict(array.__sycl_usm_array_interface__)
    consumers: list[Callable[[Any], Any]] = [
        lambda wrong: usmq.asarray(Peer(wrong)),
        lambda wrong: usmq.asarray(Foreign(sound | {"syclobj": wrong})),
        lambda wrong: usmq.asarray(Foreign(sound | {"syclobj": Answers(wrong)})),
        lambda wrong: usmq.asarray(Foreign(wrong)),
        lambda wrong: usmq.from_arrow(Peer(wrong)),
        lambda wrong: usmq.from_arrow(Stream(wrong)),
        lambda wrong: usmq.from_dlpack(Peer(wrong)),
        lambda wrong: usmq.Queue(Answers(wrong)),
        lambda wrong: usmq.use_queue(Answers(wrong)).__enter__(),
        lambda wrong: usmq.empty(2, queue=Answers(wrong)),
        lambda wrong: usmq.collocate(array, queue=Answers(wrong)),
    ]
    others = [None, 3, (), (1, 2), object(), capsule, "x", capsule(1, None)]
    others += consumed(array, table)
    for source in inputs("capsules", 1000):
        name = source.choice(NAMES)
        used = capsule(1, b"used_" + name)
        near = [capsule(1, name[: source.randrange(1, 8)]), capsule(1, name + b"_"), used]
        near.append((used,) * source.randrange(1, 4))
        wrong = source.choice(source.choice([near, others]))
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
    columns: dict[str, Any] = {"n": [1, None, 3], "text": ["a", "bcd", None]}
    columns["list"] = [[1.5], None, []]
    columns["kind"] = pa.array(["x", "y", "x"]).dictionary_encode()
    columns["view"] = pa.array(["a" * 20, None, "b"], pa.string_view())
    table = usmq.from_arrow(pa.table(columns))
    parts = [table[name] for name in ("list", "kind", "n", "view")]
    things = [table, *parts, table.schema, usmq.zeros((2, 3), "f4")]
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
