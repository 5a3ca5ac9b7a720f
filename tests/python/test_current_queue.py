"""The current queue: explicit, then data, then scope, then process default, then SYCL's."""

import asyncio
import contextvars
import gc
import itertools
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import dpctl
import pytest
import usmq
from conftest import in_threads

HOW = {
    "follow": lambda data, queue: usmq.follow(*data, queue=queue),
    "asarray": lambda data, queue: usmq.asarray(data[0] if data else [1, 2], queue=queue).queue,
}

# The most specific level that is given decides.
LEVELS = ("explicit", "data", "scope", "default")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("given", list(itertools.product([True, False], repeat=4)), ids=str)
def test_the_most_specific_level_that_is_given_decides(queues, given, how):
    levels = list(itertools.compress(LEVELS, given))
    data = [usmq.zeros(2, queue=queues["data"])] if "data" in levels else []
    with ExitStack() as scopes:
        if "default" in levels:
            usmq.set_default_queue(queues["default"])
        if "scope" in levels:
            scopes.enter_context(usmq.use_queue(queues["scope"]))
        explicit = queues["explicit"] if "explicit" in levels else None
        assert HOW[how](data, explicit) == queues[[*levels, "sycl"][0]]
        if not {"explicit", "data"} & set(levels):
            assert usmq.current_queue() == queues[[*levels, "sycl"][0]]


@pytest.fixture
def queues(five_queues):
    return dict(zip(("sycl", "default", "scope", "data", "explicit"), five_queues, strict=True))


@pytest.mark.parametrize(
    "create",
    [
        lambda **queue: usmq.empty(3, **queue),
        lambda **queue: usmq.zeros((2, 2), "i8", **queue),
        lambda **queue: usmq.full(3, 1.5, "f4", **queue),
        lambda **queue: usmq.arange(0, 3, 1, dtype="i4", **queue),
        lambda **queue: usmq.asarray([1, 2], **queue),
    ],
    ids=["empty", "zeros", "full", "arange", "asarray"],
)
def test_every_creation_follows_the_scope_and_an_explicit_queue(queues, create):
    with usmq.use_queue(queues["scope"]):
        assert create().queue == queues["scope"]
        assert create(queue=queues["explicit"]).queue == queues["explicit"]
    assert create().queue == queues["sycl"]


def test_a_kernel_runs_on_the_queue_of_its_data_by_default(queues, source):
    fill = usmq.Kernel.from_sycl(source, "fill")
    profiled, plain = usmq.empty(4, queue=queues["default"]), usmq.empty(4, queue=queues["sycl"])
    with usmq.use_queue(queues["scope"]):
        assert len(fill(4, profiled, 1.0).timestamps) == 3
    with usmq.use_queue(queues["default"]):
        event = fill(4, plain, 1.0)
        with pytest.raises((usmq.Error, ValueError)):
            event.timestamps  # noqa: B018
        assert len(fill(4, plain, 1.0, queue=queues["default"]).timestamps) == 3


def test_a_thousand_nested_scopes_restore(queues):
    cycle = [queues["sycl"], *itertools.islice(itertools.cycle(queues.values()), 1000)]
    scopes = []
    for queue in cycle[1:]:
        scopes.append(usmq.use_queue(queue))
        assert scopes[-1].__enter__() == usmq.current_queue() == queue
        with usmq.use_queue(None) as unchanged:
            assert unchanged == usmq.current_queue() == queue
    while scopes:
        scopes.pop().__exit__(None, None, None)
        assert usmq.current_queue() == cycle[len(scopes)]
    with usmq.use_queue(None) as unchanged:
        assert unchanged == usmq.current_queue() == queues["sycl"]


def test_a_scope_accepts_every_kind_of_target(queues):
    device = queues["sycl"].device
    foreign = dpctl.SyclQueue(device.filter_string, property="in_order")
    for target, expected in [
        (device, queues["sycl"]),
        (device.filter_string, queues["sycl"]),
        (queues["data"], queues["data"]),
        (foreign, usmq.Queue(foreign)),
    ]:
        with usmq.use_queue(target) as q:
            assert q == usmq.current_queue() == expected
        usmq.set_default_queue(target)
        assert usmq.current_queue() == expected
        usmq.set_default_queue(None)
    assert usmq.current_queue() == queues["sycl"]


class Expected(Exception):
    pass


def test_an_exception_restores_the_queue(queues):
    for error in (Expected, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(error), usmq.use_queue(queues["scope"]), usmq.use_queue(queues["data"]):
            raise error
        assert usmq.current_queue() == queues["sycl"]
    with usmq.use_queue(queues["scope"]):
        with pytest.raises(usmq.DeviceNotFoundError), usmq.use_queue("gpu:99"):
            pytest.fail("the body must not run")
        assert usmq.current_queue() == queues["scope"]


def test_a_task_starts_in_the_scope_that_made_it(queues):
    async def seen():
        await asyncio.sleep(0)
        return usmq.current_queue()

    async def main():
        with usmq.use_queue(queues["scope"]):
            task = asyncio.create_task(seen())
        with usmq.use_queue(queues["data"]):
            return await task

    assert asyncio.run(main()) == queues["scope"]


def test_one_scope_object_works_in_interleaved_tasks(queues):
    scope, outside = usmq.use_queue(queues["scope"]), usmq.current_queue()

    async def work(entered, other):
        with scope as queue:
            entered.set()
            await other.wait()
            inside = usmq.current_queue() == queue == queues["scope"]
        return inside and usmq.current_queue() == outside

    async def main():
        first, second = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(work(first, second), work(second, first))

    assert asyncio.run(main()) == [True, True]


def test_one_scope_object_works_in_concurrent_threads(queues):
    scope, outside = usmq.use_queue(queues["scope"]), usmq.current_queue()
    both_in, first_out = threading.Barrier(2, timeout=60), threading.Event()

    def work(waits):
        with scope as queue:
            both_in.wait()
            if waits:
                first_out.wait(60)
            inside = usmq.current_queue() == queue == queues["scope"]
        first_out.set()
        return inside and usmq.current_queue() == outside

    assert in_threads(lambda: work(False), lambda: work(True)) == [True, True]


@pytest.mark.parametrize("elsewhere", [contextvars.Context, contextvars.copy_context])
def test_a_scope_is_exited_where_it_was_entered(queues, elsewhere):
    with usmq.use_queue(queues["data"]):
        scope = usmq.use_queue(queues["scope"])
        scope.__enter__()
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"in the context .* that entered it"):
                elsewhere().run(scope.__exit__, None, None, None)
            assert usmq.current_queue() == queues["scope"]
        copy = contextvars.copy_context()
        scope.__exit__(None, None, None)
        assert usmq.current_queue() == queues["data"]
        assert copy.run(usmq.current_queue) == queues["scope"]
        for context in (contextvars.copy_context(), copy):
            with pytest.raises(RuntimeError, match="not open here"):
                context.run(scope.__exit__, None, None, None)


def test_interleaved_generators_each_exit_their_own_scope(queues):
    def inside(queue):
        with usmq.use_queue(queue):
            yield

    first, none, second = inside(queues["scope"]), inside(None), inside(queues["data"])
    for generator in (first, none, second):
        next(generator)
    third = inside(queues["default"])
    first.close()
    next(third)
    assert usmq.current_queue() == queues["default"]
    third.close()
    assert usmq.current_queue() == queues["data"]
    second.close()
    none.close()
    assert usmq.current_queue() == queues["sycl"]


def test_a_context_with_an_open_scope_is_collected(queues):
    class Mark:
        pass

    mark = Mark()
    gone, variable = weakref.ref(mark), contextvars.ContextVar[Mark]("mark")
    context = contextvars.Context()
    context.run(variable.set, mark)
    context.run(usmq.use_queue(queues["scope"]).__enter__)
    del mark, context
    gc.collect()
    assert gone() is None


def test_to_thread_and_copy_context_carry_the_scope(queues):
    async def main():
        with usmq.use_queue(queues["scope"]):
            return await asyncio.to_thread(usmq.current_queue)

    assert asyncio.run(main()) == queues["scope"]
    with usmq.use_queue(queues["data"]):
        context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(context.run, usmq.current_queue).result() == queues["data"]
    assert usmq.current_queue() == queues["sycl"]


def test_threads_use_the_process_default_and_not_another_threads_scope(queues):
    with ThreadPoolExecutor(2) as pool:
        with usmq.use_queue(queues["scope"]):
            assert pool.submit(usmq.current_queue).result() == queues["sycl"]
            pool.submit(usmq.set_default_queue, queues["default"]).result()
            seen = {pool.submit(usmq.current_queue).result() for _ in range(8)}
            assert seen == {queues["default"]}
            assert usmq.current_queue() == queues["scope"]
        assert usmq.current_queue() == queues["default"]
        usmq.set_default_queue(None)
        assert pool.submit(usmq.current_queue).result() == queues["sycl"]
    assert usmq.current_queue() == queues["sycl"]
