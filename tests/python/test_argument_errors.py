"""A wrong argument is an error that names the parameter, the expected type and the value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import usmq

SOURCE = "kernel void nothing(global float *x) {}"
SIZES = "a whole number from 0 to 2**63 - 1, or a sequence of them"
KIND = '"device", "shared" or "host"'
FLAG = "True, False or None"
BYTES = 'a number of bytes from 0 to 2**64 - 1, a size as "512MiB", or None'
UNSIGNED = "a whole number from 0 to 2**64 - 1"
TARGET = 'a filter string as "gpu:1", a usmq.Device, a usmq.Queue or another library\'s queue'
TEXTS = 'a sequence of str, as ["-DN=3"]'
NAMES = 'a sequence of str, as ["x", "y"]'
PAIR = "a pair of whole numbers"
PARAMS = "a sequence of dtypes, usmq.read, usmq.write and usmq.local"
CONTEXT = "a usmq.Context or another library's context"
DEVICES = 'a sequence of usmq.Device, as [usmq.Device("cpu")]'
AXES = "whole numbers, one by one or as one sequence"
MASK = "an array in USM or a usmq.Column, of bool"
OPTIONAL_ARRAY = "an array in USM or None"
ALLOCATED = "an address returned by allocate()"
COLUMNS = 'a dict of str to usmq.Array or usmq.Column, as {"x": x}'
INDEX = "a str, a list of them, or a slice of rows (table.columns is by position)"
TYPE = 'a str, the name of an Arrow type, as "string"'
SCHEMA = "an object with __arrow_c_schema__"
PRIORITY = '"high", "normal" or "low"'
EVENTS = "a sequence of usmq.Event, as [event]"
CALLBACK = "a callable of one argument, the event"
MODULE = "bytes, the SPIR-V module"
BYTES_OR_EXTENTS = "a whole number of bytes, or extents with a dtype"
BATCHES = "an iterable of tables or columns"
TASK = "callable with a usmq.TaskContext"
PATH = "a str or a path object"
NUMBER = "int float bool"


@pytest.fixture(scope="module")
def given() -> SimpleNamespace:
    """Return one object of each class with methods."""
    x = usmq.zeros(3, "f4")
    with usmq.profile() as recorded:
        pass
    table = usmq.Table({"a": x})
    return SimpleNamespace(
        x=x,
        table=table,
        column=table["a"],
        device=x.device,
        kernel=usmq.Kernel.from_opencl(SOURCE, "nothing"),
        manager=usmq.QueueManager("tests"),
        profile=recorded,
    )


def build(**changed: Any) -> Any:
    given = {"source": SOURCE, "name": "nothing"} | changed
    return usmq.Kernel.from_opencl(given.pop("source"), given.pop("name"), **given)


def in_task(call: Callable[[usmq.TaskContext, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda given, value: usmq.run_task(lambda task: call(task, value))


def in_memory(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return in_task(lambda task, value: call(task.memory, value))


def idle(task: usmq.TaskContext) -> None:
    """Do nothing."""


def cpu() -> usmq.Queue:
    return usmq.Queue("cpu")


# Every converted parameter of the public functions; its name in the error is what follows the last
# point. A call, the expected type in the error, and the values of WRONG that it accepts.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "empty.shape": (lambda g, v: usmq.empty(v), SIZES, ""),
    "empty.usm_type": (lambda g, v: usmq.empty(3, usm_type=v), KIND, "text"),
    "empty.queue": (lambda g, v: usmq.empty(3, queue=v), TARGET, "text None"),
    "zeros.shape": (lambda g, v: usmq.zeros(v), SIZES, ""),
    "zeros.usm_type": (lambda g, v: usmq.zeros(3, usm_type=v), KIND, "text"),
    "full.shape": (lambda g, v: usmq.full(v, 1), SIZES, ""),
    "full.value": (lambda g, v: usmq.full(3, v), "a number", NUMBER),
    "full.usm_type": (lambda g, v: usmq.full(3, 1, usm_type=v), KIND, "text"),
    "arange.start": (lambda g, v: usmq.arange(v), "a number", NUMBER),
    "arange.stop": (lambda g, v: usmq.arange(0, v), "a number", NUMBER + " None"),
    "arange.step": (lambda g, v: usmq.arange(0, 1, v), "a number", NUMBER + " None"),
    "ones.shape": (lambda g, v: usmq.ones(v), SIZES, ""),
    "ones.usm_type": (lambda g, v: usmq.ones(3, usm_type=v), KIND, "text"),
    "zeros_like.shape": (lambda g, v: usmq.zeros_like(g.x, shape=v), SIZES, "None"),
    "zeros_like.usm_type": (lambda g, v: usmq.zeros_like(g.x, usm_type=v), KIND, "text None"),
    "zeros_like.queue": (lambda g, v: usmq.zeros_like(g.x, queue=v), TARGET, "text None"),
    "full_like.value": (lambda g, v: usmq.full_like(g.x, v), "a number", NUMBER),
    "Array.to.target": (lambda g, v: g.x.to(v), TARGET, "text None"),
    "Array.to.usm_type": (lambda g, v: g.x.to(usm_type=v), KIND, "text None"),
    "concatenate.axis": (lambda g, v: usmq.concatenate([g.x], v), "a whole number", "int None"),
    "stack.axis": (lambda g, v: usmq.stack([g.x], v), "a whole number", "int"),
    "asarray.usm_type": (lambda g, v: usmq.asarray([1], usm_type=v), KIND, "text None"),
    "asarray.copy": (lambda g, v: usmq.asarray([1], copy=v), FLAG, "bool None"),
    "asarray.device": (lambda g, v: usmq.asarray([1], device=v), TARGET, "text None"),
    "from_arrow.columns": (lambda g, v: usmq.from_arrow(g.table, columns=v), NAMES, "texts None"),
    "from_arrow.usm_type": (lambda g, v: usmq.from_arrow(g.table, usm_type=v), KIND, "text None"),
    "from_dlpack.copy": (lambda g, v: usmq.from_dlpack(g.x, copy=v), FLAG, "bool None"),
    "from_dlpack.usm_type": (lambda g, v: usmq.from_dlpack(g.x, usm_type=v), KIND, "text None"),
    "Device.filter": (lambda g, v: usmq.Device(v), TARGET, "text None"),
    "Device.has_usm.kind": (lambda g, v: g.device.has_usm(v), KIND, "text"),
    "Device.has_aspect.name": (lambda g, v: usmq.Device("cpu").has_aspect(v), "a str", "text"),
    "Queue.target": (lambda g, v: usmq.Queue(v), TARGET, "text None"),
    "Queue.context": (lambda g, v: usmq.Queue(context=v), CONTEXT, "None"),
    "Queue.in_order": (lambda g, v: usmq.Queue(in_order=v), FLAG, "bool None"),
    "Queue.profiling": (lambda g, v: usmq.Queue(profiling=v), FLAG, "bool None"),
    "Queue.priority": (lambda g, v: usmq.Queue("cpu", priority=v), PRIORITY, "text None"),
    "Queue.barrier.after": (lambda g, v: cpu().barrier(v), EVENTS, "None"),
    "Context.devices": (lambda g, v: usmq.Context(v), DEVICES, ""),
    "Event.add_done_callback.function": (
        lambda g, v: cpu().barrier().add_done_callback(v),
        CALLBACK,
        "class",
    ),
    "QueueManager.name": (lambda g, v: usmq.QueueManager(v), "a str", "text"),
    "manager.use_queue.target": (lambda g, v: g.manager.use_queue(v), TARGET, "text None"),
    "manager.set_default_queue.target": (
        lambda g, v: g.manager.set_default_queue(v),
        TARGET,
        "text None",
    ),
    "use_queue.target": (lambda g, v: usmq.use_queue(v), TARGET, "text None"),
    "set_default_queue.target": (lambda g, v: usmq.set_default_queue(v), TARGET, "text None"),
    "transpose.axes": (lambda g, v: g.x.transpose(v), AXES, "int"),
    "reshape.shape": (lambda g, v: g.x.reshape(v), AXES, "int"),
    "fill.value": (lambda g, v: g.x.fill(v), "a number", NUMBER),
    "__dlpack__.max_version": (lambda g, v: g.x.__dlpack__(max_version=v), PAIR, "None"),
    "__dlpack__.dl_device": (lambda g, v: g.x.__dlpack__(dl_device=v), PAIR, "None"),
    "__dlpack__.copy": (lambda g, v: g.x.__dlpack__(copy=v), FLAG, "bool None"),
    "__arrow_c_device_array__.wait": (
        lambda g, v: g.x.__arrow_c_device_array__(wait=v),
        FLAG,
        "bool None",
    ),
    "Kernel.source": (lambda g, v: build(source=v), "a str, the text", "text"),
    "Kernel.name": (lambda g, v: build(name=v), "a str", "text"),
    "Kernel.options": (lambda g, v: build(options=v), TEXTS, "texts"),
    "Kernel.params": (lambda g, v: build(params=v), PARAMS, "None texts list"),
    "Kernel.module": (lambda g, v: usmq.Kernel.from_spirv(v, "k"), MODULE, "bytes"),
    "kernel.global_size": (lambda g, v: g.kernel(v, g.x), SIZES, ""),
    "kernel.local_size": (lambda g, v: g.kernel(3, g.x, local_size=v), SIZES, "None"),
    "local.size": (lambda g, v: usmq.local(v), BYTES_OR_EXTENTS, ""),
    "local with a dtype.size": (lambda g, v: usmq.local(v, "f4"), SIZES, ""),
    "pointer_info.ptr": (lambda g, v: usmq.pointer_info(v, g.x.queue.context), UNSIGNED, ""),
    "memory_stats.device": (lambda g, v: usmq.memory_stats(v), TARGET, "text None"),
    "trim_memory.device": (lambda g, v: usmq.trim_memory(v), TARGET, "text None"),
    "set_memory_limit.bytes": (lambda g, v: usmq.set_memory_limit(v, "nosuch"), BYTES, "text None"),
    "set_memory_limit.usm_type": (
        lambda g, v: usmq.set_memory_limit(None, None, v),
        KIND,
        "text None",
    ),
    "record_allocations.enabled": (
        lambda g, v: usmq.record_allocations(v),
        "True or False",
        "bool",
    ),
    "Table.columns": (lambda g, v: usmq.Table(v), COLUMNS, ""),
    "Table.the name of a column": (lambda g, v: usmq.Table({v: g.x}), "a str", "text texts list"),
    "table.filter.mask": (lambda g, v: g.table.filter(v), MASK, ""),
    "column.filter.mask": (lambda g, v: g.column.filter(v), MASK, ""),
    "table.select.names": (lambda g, v: g.table.select(v), NAMES, "texts"),
    "table.the index of a table": (lambda g, v: g.table[v], INDEX, "text texts list"),
    "Column.values": (lambda g, v: usmq.Column(v), "an array in USM or a usmq.Column", ""),
    "Column.validity": (lambda g, v: usmq.Column(g.x, validity=v), OPTIONAL_ARRAY, "None"),
    "Column.offsets": (lambda g, v: usmq.Column(g.x, offsets=v), OPTIONAL_ARRAY, "None"),
    "Column.type": (lambda g, v: usmq.Column(g.x, type=v), TYPE, "text None"),
    "Column.name": (lambda g, v: usmq.Column(g.x, name=v), "a str", "text"),
    "table.to.usm_type": (lambda g, v: g.table.to(None, v), KIND, "text None"),
    "column.to.usm_type": (lambda g, v: g.column.to(None, v), KIND, "text None"),
    "DeviceStream.batches": (lambda g, v: usmq.DeviceStream(v), BATCHES, "text texts list bytes"),
    "DeviceStream.schema": (lambda g, v: usmq.DeviceStream([], v), SCHEMA, "None"),
    "run_task.function": (lambda g, v: usmq.run_task(v), TASK, "class"),
    "run_task.memory_limit": (lambda g, v: usmq.run_task(idle, memory_limit=v), BYTES, "text None"),
    "run_task.name": (lambda g, v: usmq.run_task(idle, name=v), "a str", "text None"),
    "task.arg.type": (in_task(lambda task, v: task.arg(v)), "a class, as int", "class"),
    "memory.empty.shape": (in_memory(lambda m, v: m.empty(v)), SIZES, ""),
    "memory.zeros.usm_type": (in_memory(lambda m, v: m.zeros(1, usm_type=v)), KIND, "text"),
    "memory.allocate.nbytes": (in_memory(lambda m, v: m.allocate(v)), UNSIGNED, ""),
    "memory.deallocate.address": (in_memory(lambda m, v: m.deallocate(v)), ALLOCATED, ""),
    "memory.release_block.address": (in_memory(lambda m, v: m.release_block(v)), ALLOCATED, ""),
    "memory.release.array": (in_memory(lambda m, v: m.release(v)), "a usmq.Array", ""),
    "profile.save.path": (lambda g, v: g.profile.save(v), PATH, "text bytes path"),
    "doctor.timeout": (lambda g, v: usmq.doctor(timeout=v), "a number of seconds", NUMBER),
}

WRONG: dict[str, Any] = {
    "None": None,
    "text": "foo",
    "texts": ["foo"],
    "list": [object],
    "bytes": b"x",
    "float": 2.5,
    "bool": True,
    "int": -1,
    "class": object,
    "path": Path("x.txt"),
}
# A negative number has the right type for a number.
NUMBERS = (SIZES, BYTES, "a whole number", "an address", "whole numbers")
# Messages of PyO3 and of Python's own conversions.
RAW = re.compile(
    r"object is not an instance of|Can't extract|cannot be interpreted as|must be real number|"
    r"too (large|big) to|can't convert negative|is not iterable|expected tuple|'r#"
)


@pytest.mark.parametrize("parameter", CALLS)
def test_the_error_names_parameter_expected_type_and_value(
    given: SimpleNamespace, parameter: str
) -> None:
    call, wanted, accepted = CALLS[parameter]
    for kind, value in WRONG.items():
        if kind in accepted.split():
            continue
        error = ValueError if kind == "int" and wanted.startswith(NUMBERS) else TypeError
        with pytest.raises(error) as caught:
            call(given, value)
        text = str(caught.value)
        assert text.startswith(f"{parameter.rpartition('.')[2]} must be {wanted}"), kind
        assert re.search(f", not .*{re.escape(repr(value))}", text), (kind, text)
        assert type(caught.value) is error, kind
        assert not RAW.search(text), (kind, text)
    for value in () if "int" in accepted.split() else (2**64, -(2**70)):
        with pytest.raises((TypeError, ValueError)) as caught:
            call(given, value)
        assert not RAW.search(str(caught.value)), (value, caught.value)


def test_a_long_value_is_truncated() -> None:
    with pytest.raises(TypeError) as caught:
        usmq.empty(["x" * 50] * 1000)  # type: ignore[list-item]
    assert len(str(caught.value)) < 250
    assert str(caught.value).endswith("…")


def test_a_value_whose_repr_fails_is_shown_by_its_class() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError("not today")

    with pytest.raises(TypeError, match=r"not Silent$"):
        usmq.empty(Silent())  # type: ignore[arg-type]


def test_exceptions_of_the_argument_itself_propagate() -> None:
    class Broken:
        def __index__(self) -> int:
            raise RuntimeError("broken")

    for call in (usmq.local, usmq.empty):
        with pytest.raises(RuntimeError, match="broken"):
            call(Broken())


@pytest.mark.parametrize("size", [2**63, 2**64, 10**30, -(2**64)])
@pytest.mark.parametrize("pack", [lambda n: n, lambda n: (n,), lambda n: [1, n]])
def test_a_size_beyond_the_range_is_a_value_error(size: int, pack: Callable[[int], Any]) -> None:
    text = re.escape(f"shape must be {SIZES}, not {pack(size)}")
    with pytest.raises(ValueError, match=text):
        usmq.empty(pack(size))


def test_sizes_accept_the_same_numbers_as_numpy() -> None:
    for size in (np.int8(3), np.uint64(3), usmq.full((), 3)):
        assert usmq.empty(size).shape == usmq.empty((size,)).shape == (3,)
    assert usmq.local(np.int16(8)) is not None
    with pytest.raises(TypeError, match=r"size must be .*, not True"):
        usmq.local(True)


# --- texts and paths


@pytest.mark.parametrize("options", ["-O2", "", b"-O2", [Path("x")], {"-O2": 1}, None], ids=repr)
@pytest.mark.parametrize("make", [usmq.Kernel.from_opencl, usmq.Kernel.from_sycl])
def test_options_are_a_sequence_of_strings_not_a_string(make: Any, options: Any) -> None:
    text = re.escape(f"options must be {TEXTS}, not {options!r}")
    with pytest.raises(TypeError, match=text):
        make(SOURCE, "nothing", options=options)


def test_options_may_be_any_sequence() -> None:
    source = "kernel void count(global int *x) { x[0] = N; }"
    for options in (["-DN=7"], ("-DN=7",)):
        x = usmq.zeros(1, "i4")
        usmq.Kernel.from_opencl(source, "count", options=options)(1, x)
        assert x.item() == 7


def test_a_path_as_source_is_refused_and_the_error_shows_how_to_read_it() -> None:
    with pytest.raises(TypeError, match=r"Path\(\.\.\.\)\.read_text\(\)\), not PosixPath"):
        usmq.Kernel.from_sycl(Path("axpy.cpp"), "axpy")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [str, Path, lambda path: str(path).encode()])
def test_a_profile_is_saved_to_any_kind_of_path(
    kind: Callable[[Path], Any], tmp_path: Path
) -> None:
    with usmq.profile() as recorded:
        usmq.zeros(3)
    for name in ("run.txt", "µ.json"):
        recorded.save(kind(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 0


def test_the_demo_takes_path_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from usmq.demo import main

    assert main(["--data", tmp_path]) == 1  # type: ignore[list-item]
    assert f"no airports.csv in {tmp_path}" in capsys.readouterr().err


# --- numbers and dtypes


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (300, "u1", "300 is out of range for uint8 (0 to 255)"),
        (-1, "u8", "-1 is out of range for uint64 (0 to 18446744073709551615)"),
        (2**64, "u8", "18446744073709551616 is out of range for uint64"),
        (2, "bool", "2 is out of range for bool (0 to 1)"),
        (0.5, "i4", "0.5 is not an integer, which int32 needs"),
        (2.0, "i4", "2.0 is not an integer, which int32 needs"),
        (1j, "f8", "0.0+1.0i is complex, and float64 is real"),
        (1e300, "f4", "1e300 is out of range for float32 (largest 3.4028234663852886e38)"),
        (-65520, "f2", "-65520 is out of range for float16 (largest 6.5504e4)"),
        (1e39, "bfloat16", "1e39 is out of range for bfloat16"),
        (10**30, "f2", f"{10**30} is out of range for float16"),
        (1e300j, "c8", "0.0+1e300i is out of range for complex64"),
    ],
)
def test_a_number_that_the_dtype_cannot_hold_is_refused(value: Any, dtype: str, why: str) -> None:
    """numpy makes infinity of a finite float, and warns; here it is an error."""
    text = re.escape(why)
    for call in (lambda: usmq.full(3, value, dtype), lambda: usmq.zeros(3, dtype).fill(value)):
        with pytest.raises(ValueError, match=f"^value does not fit: {text}"):
            call()
    with pytest.raises(ValueError, match=f"^{text}"):
        usmq.asarray([value], dtype)
    x = usmq.zeros(3, dtype)
    with pytest.raises(ValueError, match=f"^value does not fit: {text}"):
        x[1] = value


def test_infinite_and_rounded_values_are_accepted() -> None:
    assert usmq.full(1, math.inf, "f4").tolist() == [math.inf]
    assert usmq.full(1, 65519, "f2").tolist() == [65504.0]
    assert usmq.full(1, 1e-300, "f4").tolist() == [0.0]
    # Arrays convert as in C++ and numpy.
    assert usmq.asarray(np.array([1e300]), "f4").tolist() == [math.inf]
    assert usmq.full(1, 1e300).astype("f4").tolist() == [math.inf]


def test_integers_beyond_64_bits_convert_to_floats_as_in_numpy() -> None:
    for value in (2**64, -(2**64), 2**100, 2**127 - 1):
        assert usmq.full(1, value, "f8").tolist() == np.full(1, value, "f8").tolist()
        assert usmq.asarray([value], "f4").tolist() == np.array([value], "f4").tolist()
    with pytest.raises(ValueError, match="has more than 128 bits and fits in no dtype"):
        usmq.full(1, 2**127, "f8")
    with pytest.raises(ValueError, match="has more than 128 bits"):
        usmq.full(1, 10**5000, "f8")


def test_a_range_of_integers_beyond_64_bits() -> None:
    wanted = [float(2**64), float(2**64 + 2**20)]
    assert usmq.arange(2**64, 2**64 + 2**21, 2**20, "f8").tolist() == wanted
    low, high = -(2**127), 2**127 - 1
    assert usmq.arange(low, high, 2**126, "f8").tolist() == [
        float(value) for value in range(low, high, 2**126)
    ]
    with pytest.raises(ValueError, match="is out of range for float32"):
        usmq.arange(0, 4e38, 3.5e38, "f4")


def test_a_finite_kernel_argument_never_becomes_infinite() -> None:
    source = "kernel void put(float value, global float *x) { x[0] = value; }"
    put, x = usmq.Kernel.from_opencl(source, "put"), usmq.zeros(1, "f4")
    text = "argument 0: 1e300 is out of range for float32"
    with pytest.raises(usmq.LaunchError, match=text) as raised:
        put(1, 1e300, x)
    assert (raised.value.kernel, raised.value.argument) == ("put", 0)
    with pytest.raises(usmq.LaunchError, match="takes 2 arguments") as raised:
        put(1, 1.0)
    assert (raised.value.kernel, raised.value.argument) == ("put", None)
    put(1, math.inf, x)
    assert x.tolist() == [math.inf]
