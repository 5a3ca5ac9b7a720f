"""bool memory of other libraries: each byte other than 0 counts as true, as in numpy."""

import pickle
from collections.abc import Callable
from typing import Any

import dpnp
import numpy as np
import pytest
import usmq
from emulated import needs_system_usm

BYTES = [0, 1, 2, 255, 3, 0, 128, 1, 0, 254]
FLAGS = np.array(BYTES, "u1").view("?")
TRUTHS = [byte != 0 for byte in BYTES]
NUMBERS = [int(truth) for truth in TRUTHS]
COUNT = sum(NUMBERS)


def dpnp_flags() -> Any:
    return dpnp.asarray(np.array(BYTES, "u1")).view(dpnp.bool)


def filled_by(assign: Callable[[usmq.Array], object]) -> usmq.Array:
    x = usmq.zeros(len(BYTES), "?")
    assign(x)
    return x


ROUTES: dict[str, Callable[[], usmq.Array]] = {
    "asarray": lambda: usmq.asarray(FLAGS),
    "host USM": lambda: usmq.asarray(FLAGS, usm_type="host"),
    "in place": lambda: usmq.asarray(FLAGS, copy=False),
    "from_dlpack": lambda: usmq.from_dlpack(FLAGS),
    "memoryview": lambda: usmq.asarray(memoryview(FLAGS)),
    "bytes": lambda: usmq.asarray(memoryview(bytes(BYTES)).cast("?")),
    "strided": lambda: usmq.asarray(np.repeat(FLAGS, 2)[::2]),
    "setitem": lambda: filled_by(lambda x: x.__setitem__(..., FLAGS)),
    "setitem reversed": lambda: filled_by(
        lambda x: x.__setitem__(slice(None, None, -1), FLAGS[::-1])
    ),
    "copy_from": lambda: filled_by(lambda x: x.copy_from(FLAGS)),
    "array interface": lambda: usmq.asarray(dpnp_flags()),
    "DLPack of dpnp": lambda: usmq.from_dlpack(dpnp_flags()),
    "copy": lambda: usmq.asarray(dpnp_flags()).copy(),
    "view": lambda: usmq.asarray(dpnp.repeat(dpnp_flags(), 3))[::3],
    "collocate": lambda: usmq.collocate(
        usmq.asarray(dpnp_flags()), queue=usmq.Queue("cpu", in_order=False)
    ),
    "pickle": lambda: pickle.loads(pickle.dumps(usmq.asarray(dpnp_flags()))),
    "old pickle": lambda: pickle.loads(pickle.dumps(usmq.asarray(dpnp_flags()), 2)),
    "elements": lambda: filled_by(
        lambda x: [x.__setitem__(at, FLAGS[at]) for at in range(len(BYTES))]
    ),
}

count = usmq.reduction("const bool *x", "long", "x[i]", "a + b", "0")
any_of = usmq.reduction("const T *x", "T", "x[i]", "a || b", "false")
parity = usmq.reduction("const bool *x", "bool", "x[i]", "a != b", "false")
to_int = usmq.elementwise("const bool *x, int *y", "y[i] = x[i]")
to_bool = usmq.elementwise("const T *x, bool *y", "y[i] = x[i]")
inverted = usmq.elementwise("const bool *x, bool *y", "y[i] = !x[i]")
equal = usmq.elementwise("const T *x, const T *y, int *z", "z[i] = x[i] == y[i]")
lookup = usmq.elementwise("raw const bool *x, int *y", "y[i] = x[i] + 1")


@pytest.fixture(params=ROUTES, ids=str)
def flags(request: pytest.FixtureRequest) -> usmq.Array:
    if request.param == "in place":
        needs_system_usm()
    return ROUTES[request.param]()


def test_copies_to_the_host_have_the_truth_values(flags: usmq.Array) -> None:
    assert flags.tolist() == TRUTHS
    assert flags.to_numpy().view("u1").tolist() == NUMBERS
    assert [flags[at].item() for at in range(len(BYTES))] == TRUTHS
    assert [bool(flags[at]) for at in range(len(BYTES))] == TRUTHS
    assert str(flags) == str(FLAGS)
    assert pickle.loads(pickle.dumps(flags, 4)).tolist() == TRUTHS


@pytest.mark.parametrize(
    "dtype", ["i1", "u1", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "bfloat16"]
)
def test_casts_count_each_byte_but_0_as_1(flags: usmq.Array, dtype: str) -> None:
    assert flags.astype(dtype).tolist() == NUMBERS
    assert usmq.asarray(flags, dtype).tolist() == NUMBERS
    target = usmq.zeros(len(BYTES), dtype)
    target[...] = flags
    assert target.tolist() == NUMBERS
    assert flags[::-1].astype(dtype).tolist() == NUMBERS[::-1]


def test_one_line_kernels_load_the_truth_values(flags: usmq.Array) -> None:
    y = usmq.zeros(len(BYTES), "i4", queue=flags.queue)
    to_int(flags, y)
    assert y.tolist() == NUMBERS
    to_int(flags[::-1], y)
    assert y.tolist() == NUMBERS[::-1]
    equal(flags, usmq.asarray(TRUTHS, queue=flags.queue), y)
    assert y.tolist() == [1] * len(BYTES)
    truths = usmq.zeros(len(BYTES), "?", queue=flags.queue)
    for kernel in (to_bool, inverted):
        kernel(flags, truths)
        wanted = TRUTHS if kernel is to_bool else [not truth for truth in TRUTHS]
        assert np.asarray(truths.to_numpy()).view("u1").tolist() == [int(truth) for truth in wanted]
    if flags.strides == (1,):
        lookup(flags, y)
        assert y.tolist() == [number + 1 for number in NUMBERS]


def test_reductions_load_the_truth_values(flags: usmq.Array) -> None:
    assert count(flags).item() == COUNT
    assert any_of(flags).item() is True
    assert parity(flags).item() is (COUNT % 2 == 1)


def test_the_validity_of_a_column_has_the_truth_values(flags: usmq.Array) -> None:
    values = usmq.arange(len(BYTES), dtype="i4", queue=flags.queue)
    wanted = [at if truth else None for at, truth in enumerate(TRUTHS)]
    assert usmq.Column(values, validity=flags).to_arrow().to_pylist() == wanted
    column = usmq.Column(flags, type="bool")
    assert column.to_arrow().to_pylist() == TRUTHS


def test_memory_of_the_host_as_an_argument_has_the_truth_values() -> None:
    y, copied = np.zeros(len(BYTES), "i4"), np.zeros(len(BYTES), "?")
    to_int(FLAGS, y)
    assert y.tolist() == NUMBERS
    to_int(FLAGS[::-1], y)
    assert y.tolist() == NUMBERS[::-1]
    assert count(FLAGS).item() == COUNT
    to_bool(FLAGS, copied)
    assert copied.view("u1").tolist() == NUMBERS


@pytest.mark.parametrize("operator", ["|=", "&=", "^=", "+=", "-=", "*="])
@pytest.mark.parametrize("step", [1, 2])
def test_compound_assignments_read_and_write_truth_values(operator: str, step: int) -> None:
    needs_system_usm()
    update = usmq.elementwise("const bool *x, bool *y", f"y[i] {operator} x[i]")
    others = np.array([2, 0, 7, 0, 1, 5, 0, 0, 0, 9], "u1")
    memory = np.repeat(others, step).view("?")
    y = usmq.asarray(memory, copy=False)[::step]
    update(usmq.asarray(FLAGS, copy=False), y)
    y.wait()
    python = {"+=": "|=", "-=": "^=", "*=": "&="}.get(operator, operator)
    wanted = others != 0
    exec(f"wanted {python} TRUTHS", {"wanted": wanted, "TRUTHS": np.array(TRUTHS)})
    assert memory[::step].view("u1").tolist() == wanted.astype("u1").tolist()


def test_functions_of_the_header_and_of_a_preamble_take_elements() -> None:
    kernel = usmq.elementwise(
        "const bool *x, const bool *y, int *z",
        "z[i] = min(x[i], y[i]) + 2 * max(x[i], y[i]) + 4 * own(x[i]) + 8 * any_type(x[i])"
        " + 16 * (x[i] ? 1 : 0) + 32 * (x[i] && y[i]) + 64 * (x[i] & 1)",
        preamble="int own(bool x) { return x; }\n"
        "template <class T> int any_type(T x) { return x ? 1 : 0; }",
    )
    z = usmq.zeros(len(BYTES), "i4")
    kernel(FLAGS, usmq.ones(len(BYTES), "?"), z)
    assert z.tolist() == [2 + number * (1 + 4 + 8 + 16 + 32 + 64) for number in NUMBERS]


def test_copies_from_the_host_inside_a_capture_have_the_truth_values() -> None:
    x, y = usmq.zeros(len(BYTES), "?", usm_type="host"), usmq.zeros(len(BYTES), "i4")
    with usmq.capture() as graph:
        x.copy_from(FLAGS)
        to_int(x, y)
    graph.replay().wait()
    assert np.asarray(x).view("u1").tolist() == NUMBERS
    assert y.tolist() == NUMBERS


def test_a_number_of_numpy_and_an_array_without_axes_have_truth_values() -> None:
    for value in FLAGS:
        assert usmq.full(3, value).tolist() == [bool(value)] * 3
        x = usmq.zeros(3, "?", usm_type="host")
        x.fill(value)
        assert np.asarray(x).view("u1").tolist() == [int(bool(value))] * 3
    flag = FLAGS[3:4].reshape(())
    x = usmq.zeros((), "?", usm_type="host")
    x[...] = flag
    assert np.asarray(x).view("u1").tolist() == 1
    assert usmq.asarray(flag).tolist() is True
    assert usmq.asarray(flag, "i4").tolist() == 1
    assert usmq.full(2, flag, "i8").tolist() == [1, 1]


def test_a_large_copy_has_the_truth_values() -> None:
    many = np.tile(np.array(BYTES, "u1"), 100_000).view("?")
    x = usmq.asarray(many)
    assert count(x).item() == COUNT * 100_000
    np.testing.assert_array_equal(x.to_numpy().view("u1"), many.view("u1") != 0)
