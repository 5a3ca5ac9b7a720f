"""Replays of captures equal direct work, also beside dpnp; calls that need results at once fail."""

import asyncio
import ctypes
import random
import threading

import dpnp
import numpy as np
import pytest
import usmq
from conftest import in_threads
from dpctl.utils import SequentialOrderManager

SIZE = 24


@pytest.fixture(scope="module")
def add():
    return usmq.elementwise("const float *x, float *y", "y[i] += x[i]")


@pytest.fixture(scope="module")
def step():
    return usmq.elementwise("unsigned int *x", "x[i] = x[i] * 1664525u + 1013904223u")


@pytest.fixture(scope="module")
def fold():
    return usmq.elementwise("const unsigned int *x, unsigned int *y", "y[i] = y[i] * 31u + x[i]")


@pytest.fixture(params=["", "1"], ids=["as usual", "with SYCL graphs"])
def setting(request, monkeypatch):
    """Run the test as usual, and with SYCL graphs on devices that have them."""
    if request.param:
        monkeypatch.setenv("USMQ_SYCL_GRAPHS", request.param)
    return str(request.param)


@pytest.mark.parametrize("launches", [3, 12])
def test_replays_run_what_the_block_recorded(add, setting, launches):
    """Long parts are SYCL graphs on request, and on devices where these are faster."""
    x, y = usmq.ones(4, "f4"), usmq.zeros(4, "f4")
    with usmq.capture(inputs={"x": x}) as graph:
        for _ in range(launches):
            add(x, y)
    assert y.tolist() == [0.0] * 4
    graph.replay().wait()
    assert y.tolist() == [launches] * 4
    assert graph.replay({"x": usmq.full(4, 10, "f4")}).wait() is None
    assert y.tolist() == [11 * launches] * 4
    assert f"{launches} commands in 1 part" in repr(graph)
    text = graph.explain()
    assert text.startswith(f'graph of {launches} commands in 1 part\ninput "x"')
    prefers = y.device.backend not in ("opencl", "level_zero")
    wanted = launches > 3 and (bool(setting) or prefers)
    # Adapter v1 of Level Zero (docs/upstream.md).
    has_graphs = y.device.platform.name != "Intel(R) oneAPI Unified Runtime over Level-Zero"
    is_graph = wanted and has_graphs and "ext_oneapi_limited_graph" in y.device.aspects
    assert f"{launches} commands, {'SYCL graph' if is_graph else 'prepared list'}" in text
    assert graph.svg() == graph._repr_svg_()
    assert graph.svg().startswith("<svg ")


def test_typed_kernels_and_kernels_from_source_are_recorded():
    source = """
    #include <usmq/kernel.h>
    USMQ_KERNEL(1) void scale(float a, const float *x, float *y) {
      y[global_id(0)] = a * x[global_id(0)];
    }
    """
    scale = usmq.Kernel.from_sycl(source, "scale")
    x, y = usmq.arange(5, dtype="f4"), usmq.empty(5, "f4")
    with usmq.capture() as graph:
        scale(5, 2.0, x, y)
        z = y.astype("i4")
    y.copy_from(np.zeros(5, "f4"))
    graph.replay()
    assert z.tolist() == [0, 2, 4, 6, 8]


def programs(chosen, count, most=20, of_dpnp=False):
    """Return operations on pairs of arrays, by their names."""
    names = ("step", "fold", "assign", "view", "reverse", "cast", "fill", "move")
    if of_dpnp:
        names = ("add", "multiply", "view", "assign", "cast")
    return [
        (chosen.choice(names), chosen.randrange(count), chosen.randrange(count))
        for _ in range(chosen.randrange(1, most))
    ]


def run(program, arrays, step, fold):
    for name, i, j in program:
        x, y = arrays[i], arrays[j]
        near = usmq.collocate(x, like=y)
        if name == "step":
            step(x)
        elif name == "fold" and i != j:
            fold(near, y)
        elif name == "assign":
            y.copy_from(near)
        elif name == "view":
            x[: SIZE // 2].copy_from(x[SIZE // 2 :])
        elif name == "reverse":
            y.copy_from(usmq.collocate(x[::-1], like=y))
        elif name == "cast":
            y.copy_from(near.astype("u8").astype("u4"))
        elif name == "fill":
            x[::3].copy_from(usmq.full(SIZE // 3, 7, "u4", queue=x.queue))
        elif name == "move":
            copy = near.copy()
            step(copy)
            y.copy_from(copy)


@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize("length", [2, 12])
def test_replays_are_ordered_with_dpnp_on_the_same_arrays(length, add):
    x, y = dpnp.ones(SIZE, dtype="f4"), dpnp.zeros(SIZE, dtype="f4")
    with usmq.capture(inputs={"x": x}) as graph:
        for _ in range(length):
            add(x, y)
    expected = np.zeros(SIZE, "f4")
    for k in range(60):
        factor = 3 if k % 10 == 9 else 1
        graph.replay({"x": dpnp.full(SIZE, 3, dtype="f4")} if factor == 3 else None)
        y *= 0.5
        y += k
        expected = (expected + length * factor) * np.float32(0.5) + np.float32(k)
    assert dpnp.asnumpy(y).tolist() == expected.tolist()


@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize("length", [2, 12])
def test_a_replay_behind_a_pending_host_task_of_dpnp(length, step, kernels, advanced):
    y, seven = dpnp.zeros(SIZE, dtype="u4"), dpnp.full(SIZE, 7, dtype="u4")
    ours = usmq.asarray(y)
    elsewhere = usmq.Queue(ours.device, context=usmq.Context([ours.device]))
    z = usmq.zeros(SIZE, "u4", queue=elsewhere)
    with usmq.capture() as graph:
        for _ in range(length):
            step(ours)
        step(z)
        z.copy_from(usmq.collocate(ours, like=z))
    graph.replay().wait()
    dpnp.add(y, seven, out=y)
    # So that dpnp's operations do not wait for the kernel themselves.
    SequentialOrderManager.clear()
    steps = 1 << 28
    event = kernels.advance(SIZE, ours, steps)
    dpnp.add(y, seven, out=y)  # the host task that keeps its operands waits for the kernel
    replays = [graph.replay()]
    dpnp.add(y, seven, out=y)  # submits with the GIL while the replay waits
    replays.append(graph.replay())
    pending = not event.done()
    # Threads that wait need the GIL again, and so does the host task.
    thread = threading.Thread(target=replays[0].wait)
    thread.start()
    replays[1].wait()
    thread.join()
    expected = advanced(np.zeros(SIZE, "u4"), length)
    expected = advanced(expected + np.uint32(7), steps) + np.uint32(7)
    expected = advanced(expected, length) + np.uint32(7)
    expected = advanced(expected, length)
    assert dpnp.asnumpy(y).tolist() == expected.tolist()
    assert z.tolist() == expected.tolist()
    # An engine of Level Zero stops at a command that waits, so usmq waits for the host task.
    waits = ours.device.backend == "level_zero"
    assert pending or waits, "the kernel took too little time"


def run_dpnp(program, arrays):
    for name, i, j in program:
        x, y = arrays[i], arrays[j]
        if name == "add":
            y += x
        elif name == "multiply":
            y *= 3
        elif name == "view":
            x[::2] += x[1::2]
        elif name == "assign":
            y[: SIZE // 2] = x[SIZE // 2 :]
        elif name == "cast":
            y[:] = (x.astype("u8") // 3).astype("u4")


@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize("seed", range(100, 112))
def test_replays_of_random_programs_equal_direct_work_beside_dpnp(seed, step, fold):
    """Arrays of dpnp, and of usmq on each device and context; tests/suite/capture.rs has no dpnp.

    All queues are in-order: on others a copy of dpnp does not wait for a barrier
    (tests/upstream/barrier_before_copy.cpp), and waits of its host tasks lock up the CPU driver
    (tests/upstream/out_of_order_waits.cpp).
    """
    chosen = random.Random(seed)
    # A queue of each device, and one of another context.
    first = usmq.devices()[0]
    queues = [usmq.Queue(device) for device in usmq.devices()[:2]]
    queues.append(usmq.Queue(first, context=usmq.Context([first])))
    places = [chosen.choice(queues) for _ in range(2)]
    common = usmq.empty(1, queue=first).sycl_queue

    def fresh():
        values = [np.arange(SIZE, dtype="u4") + np.uint32(100 * k) for k in range(4)]
        theirs = [dpnp.asarray(value, sycl_queue=common) for value in values[:2]]
        ours = [usmq.asarray(value, queue=at) for value, at in zip(values[2:], places, strict=True)]
        return theirs, [*(usmq.asarray(array) for array in theirs), *ours]

    (theirs, direct), (their_replayed, replayed) = fresh(), fresh()
    program = programs(random.Random(seed), len(direct))
    with usmq.capture(inputs={"first": replayed[0]}) as graph:
        run(program, replayed, step, fold)
    assert [x.tolist() for x in replayed] == [x.tolist() for x in direct], "a capture runs nothing"
    for round_ in range(50):
        run(program, direct, step, fold)
        # An input that is exchanged for itself is a list, also where the part has a SYCL graph.
        graph.replay({"first": replayed[0]} if round_ % 2 else None)
        if round_ % 3 == 0:
            beside = programs(chosen, 2, 4, of_dpnp=True)
            run_dpnp(beside, theirs)
            run_dpnp(beside, their_replayed)
        if round_ % 9 == 4:
            between = programs(random.Random(1000 * seed + round_), len(direct), 4)
            run(between, direct, step, fold)
            run(between, replayed, step, fold)
    found = [dpnp.asnumpy(x).tolist() for x in their_replayed] + [x.tolist() for x in replayed]
    expected = [dpnp.asnumpy(x).tolist() for x in theirs] + [x.tolist() for x in direct]
    assert found == expected, (program, graph.explain())


def test_calls_that_need_results_at_once_are_errors(add):
    with usmq.capture() as other:
        pass
    x, y = usmq.ones(4, "f4"), usmq.zeros(4, "f4", usm_type="shared")
    with usmq.capture() as graph:
        event = add(x, y)
        for name, call in (
            ("tolist", y.tolist),
            ("to_numpy", y.to_numpy),
            ("item", lambda: y[0].item()),
            (r"wait\(\)", y.wait),
            ("a wait for queue", y.queue.wait),
            ("__dlpack__", lambda: np.from_dlpack(y)),
            ("__dlpack__", y.__dlpack__),
            ("__sycl_usm_array_interface__", lambda: y.__sycl_usm_array_interface__),
            ("Arrow", y.__arrow_c_device_array__),
            ("export", lambda: memoryview(y)),
            ("inside a capture", usmq.capture().__enter__),
            ("event that replay", event.wait),
            ("host memory", lambda: add(np.ones(4, "f4"), y)),
            (r"replay\(\)", other.replay),
            ("its with block has not ended; move it behind", graph.replay),
        ):
            with pytest.raises(usmq.CaptureError, match=name):
                call()
    with pytest.raises(usmq.CaptureError, match="event that replay"):
        event.wait()
    assert "graph of 1 command" in repr(graph)
    graph.replay()
    assert y.tolist() == [1.0] * 4


def test_the_text_of_an_array_inside_a_block():
    x, y = usmq.ones(4, "f4"), usmq.zeros((2, 2), "f4")
    with usmq.capture() as graph:
        y.copy_from(x.reshape(2, 2))
        made = usmq.zeros(3, "i4")
        for array, shape, dtype in ((y, (2, 2), "float32"), (made, (3,), "int32")):
            assert str(array) == f"{array}" == "<captured>"
            assert repr(array).startswith(
                f"usmq.Array(<captured>, shape={shape}, dtype={dtype}, usm_type='device',"
            )
            assert "device='" in repr(array)
        # The block does not write it: its elements are known. Reading them records nothing.
        assert str(x) == "[1. 1. 1. 1.]"
        assert repr(x).startswith("usmq.Array([1., 1., 1., 1.], dtype=float32,")
    assert "graph of 2 commands" in repr(graph)
    assert str(y) == "[[0. 0.]\n [0. 0.]]"
    graph.replay()
    assert str(y) == "[[1. 1.]\n [1. 1.]]"


def test_an_exception_discards_the_capture(add):
    x, y = usmq.ones(4, "f4"), usmq.zeros(4, "f4")
    graph = usmq.capture()

    def fail():
        with graph:
            add(x, y)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(ValueError, match="discarded"):
        graph.replay()
    with pytest.raises(RuntimeError, match="captures once"):
        graph.__enter__()
    with pytest.raises(ValueError, match="with block"):
        usmq.capture().replay()
    add(x, y)
    assert y.tolist() == [1.0] * 4


def test_a_thread_that_did_not_enter_a_capture_cannot_leave_it(add):
    x, y = usmq.ones(4, "f4"), usmq.zeros(4, "f4")
    graph = usmq.capture()
    assert repr(graph) == "<usmq.Graph: not captured yet>"

    def leave():
        with pytest.raises(RuntimeError, match="leave it in the thread"):
            graph.__exit__(None, None, None)

    with graph:
        in_threads(leave)
        assert repr(graph) == "<usmq.Graph: capturing>"
        add(x, y)
    assert y.tolist() == [0.0] * 4
    graph.replay()
    assert y.tolist() == [1.0] * 4


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("size", [8, 2000])
def test_a_block_reuses_memory_that_another_library_has_had(in_order, size):
    other = usmq.Queue(in_order=False)
    own = usmq.Queue(in_order=in_order)
    x = usmq.zeros(size, "i4", queue=other)
    for value in range(1, 4):
        before = usmq.zeros(size, "i4", queue=own)
        assert before.__sycl_usm_array_interface__["version"] == 1
        del before
        with usmq.capture() as graph:
            made = usmq.full(size, value, "i4", queue=own)
            x.copy_from(made)
        assert "2 commands" in graph.explain()
        for _ in range(2):
            graph.replay()
            assert made.tolist() == x.tolist() == [value] * size


def test_wrong_inputs_are_errors(add):
    """Others are in tests/suite/capture.rs, and memory of other kinds in test_replay_inputs.py."""
    x, y = usmq.ones(4, "f4"), usmq.zeros(4, "f4")
    with usmq.capture(inputs={"x": x}) as graph:
        add(x, y)
    for error, inputs, text in (
        (TypeError, {"x": usmq.ones(4, "f8")}, r"astype\("),
        (ValueError, {"x": usmq.ones(5, "f4")}, None),
        (ValueError, {"z": x}, None),
        (TypeError, {"x": np.ones(4, "f4")}, None),
    ):
        with pytest.raises(error, match=text):
            graph.replay(inputs)
    for wrong in (3, {1: x}, {"x": 3}):
        with pytest.raises(TypeError):
            usmq.capture(inputs=wrong)
    assert y.tolist() == [0.0] * 4


@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize("launches", [1, 12])
def test_a_wait_for_each_queue_of_a_capture_covers_its_commands(launches, kernels, advanced):
    first, last = usmq.Queue("cpu"), usmq.Queue("cpu", profiling=True)
    assert first != last
    x = usmq.zeros(1, "u4", usm_type="shared", queue=first)
    y, z = usmq.zeros(1, "u4", queue=last), usmq.zeros(1, "u4", queue=first)
    value = ctypes.c_uint32.from_address(x.ptr)  # as it is, without a wait
    steps = 100_000_000 // launches * launches
    with usmq.capture() as graph:
        for _ in range(launches):
            kernels.advance(1, x, steps // launches)
        kernels.advance(1, y, 1)
    graph.replay().wait()
    event = graph.replay()
    pending = not event.done()
    first.wait()
    assert pending, "the kernel took too little time"
    assert value.value == advanced([0], 2 * steps)[0]
    # A later command of the queue does not end the wait.
    graph.replay()
    kernels.advance(1, z, 1)
    first.wait()
    assert value.value == advanced([0], 3 * steps)[0]


def test_each_task_captures_for_itself(add):
    """Threads are in tests/suite/capture.rs."""
    x, inside, beside = usmq.ones(4, "f4"), usmq.zeros(4, "f4"), usmq.zeros(4, "f4")

    async def capture():
        with usmq.capture() as graph:
            await asyncio.sleep(0)
            add(x, inside)
            await asyncio.sleep(0)
        return graph

    async def work():
        for _ in range(3):
            add(x, beside)
            await asyncio.sleep(0)

    async def both():
        graph, _ = await asyncio.gather(capture(), work())
        return graph

    graph = asyncio.run(both())
    assert (inside.tolist(), beside.tolist()) == ([0.0] * 4, [3.0] * 4)
    graph.replay().wait()
    assert inside.tolist() == [1.0] * 4


def test_tasks_and_threads_that_a_block_starts_work_directly(add):
    x = usmq.ones(4, "f4")
    inside, child, thread, later = (usmq.zeros(4, "f4") for _ in range(4))

    async def main():
        async def beside(target):
            add(x, target)
            await asyncio.sleep(0)
            return target.tolist()  # a read by the host, which a capture refuses

        with usmq.capture() as graph:
            add(x, inside)
            assert await asyncio.create_task(beside(child)) == [1.0] * 4
            await asyncio.to_thread(add, x, thread)
            kept = asyncio.create_task(beside(later))
            await asyncio.sleep(0)
        assert await kept == x.tolist()
        return graph

    graph = asyncio.run(main())
    assert graph.explain().startswith("graph of 1 command")
    assert thread.tolist() == x.tolist()
    assert inside.tolist() == [0] * len(inside)
    graph.replay().wait()
    assert inside.tolist() == x.tolist()

    async def of_the_thread():
        add(x, inside)

    with usmq.capture() as graph:  # which records the tasks that its thread runs
        asyncio.run(of_the_thread())
    graph.replay().wait()
    assert inside.tolist() == [2.0] * 4


def test_imports_need_a_queue_inside_a_capture(add):
    x, y = dpnp.ones(4, dtype="f4"), usmq.zeros(4, "f4")

    class Bare:
        """Memory of dpnp that names its context only."""

        __sycl_usm_array_interface__ = x.__sycl_usm_array_interface__ | {
            "syclobj": x.sycl_queue.sycl_context
        }

    with usmq.capture() as graph:
        with pytest.raises(usmq.CaptureError, match="without a queue"):
            usmq.asarray(Bare())
        add(usmq.collocate(x, like=y), y)
    graph.replay()
    assert y.tolist() == [1.0] * 4
