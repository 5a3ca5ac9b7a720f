"""``use_queue`` as a decorator of functions, coroutines, generators and asynchronous generators."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import inspect
import weakref

import pytest
import usmq
from conftest import in_threads

MANAGERS = {"process": usmq, "package": usmq.QueueManager("decorated")}


@pytest.fixture(params=MANAGERS)
def manager(request):
    return MANAGERS[request.param]


@pytest.fixture(scope="module")
def inner():
    """A queue other than the current one."""
    queue = usmq.Queue("cpu", in_order=False)
    assert queue != usmq.current_queue()
    return queue


@pytest.fixture(scope="module")
def other():
    return usmq.Queue("cpu", profiling=True)


def test_a_decorated_function_runs_in_the_scope_and_keeps_its_metadata(manager, inner):
    outside = manager.current_queue()

    @manager.use_queue(inner)
    def work(a: int, *, b: int = 2) -> tuple[usmq.Queue, int]:
        """Work."""
        return manager.current_queue(), a + b

    assert work(1, b=3) == (inner, 4)
    assert manager.current_queue() == outside
    assert work.__name__ == "work"
    assert work.__doc__ == "Work."
    assert work.__qualname__.endswith("<locals>.work")
    assert work.__module__ == __name__
    assert list(inspect.signature(work).parameters) == ["a", "b"]
    assert inspect.unwrap(work) is not work


def test_exceptions_recursion_and_cancellation_restore_the_scopes(inner):
    outside, seen = usmq.current_queue(), []

    @usmq.use_queue(inner)
    def fall(n):
        assert usmq.current_queue() == inner
        if n == 0:
            raise RuntimeError("at the bottom")
        fall(n - 1)

    @usmq.use_queue(inner)
    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(usmq.current_queue())

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work(), 0.01)
        return usmq.current_queue()

    with pytest.raises(RuntimeError, match="at the bottom"):
        fall(3)
    assert usmq.current_queue() == asyncio.run(main()) == outside
    assert seen == [inner]


def test_methods_of_each_kind_are_decorated(inner):
    class Solver:
        @usmq.use_queue(inner)
        def method(self):
            return self, usmq.current_queue()

        @usmq.use_queue(inner)
        @classmethod
        def of_class(cls):
            return cls, usmq.current_queue()

        static = usmq.use_queue(inner)(staticmethod(usmq.current_queue))

    solver = Solver()
    assert solver.method() == (solver, inner)
    assert solver.of_class() == (Solver, inner)
    assert solver.static() == Solver.static() == inner
    unchanged = usmq.use_queue(None)(usmq.current_queue)
    assert unchanged() == usmq.current_queue()
    with usmq.use_queue(inner):
        assert unchanged() == inner


def test_a_filter_string_is_read_at_the_call():
    @usmq.use_queue("gpu:99")
    def far():
        raise AssertionError("the scope is not open")

    @usmq.use_queue("gpu:99")
    async def task():
        raise AssertionError("the scope is not open")

    with pytest.raises(usmq.DeviceNotFoundError, match=r"<locals>\.far\(\) .*\"gpu:99\""):
        far()
    with pytest.raises(usmq.DeviceNotFoundError, match=r"<locals>\.task\(\)"):
        asyncio.run(task())
    with pytest.raises(usmq.SelectorError, match="no_such_backend"):
        usmq.use_queue("no_such_backend")


def test_wrong_uses_name_the_decorated_object():
    class Solver:
        pass

    def unfinished():
        pass

    for decorator, thing, text in (
        (usmq.use_queue("cpu"), Solver, r"Solver.*decorate its methods"),
        (usmq.use_queue("cpu"), 3, "not 3"),
        (usmq.use_queue, unfinished, r"unfinished.*@usmq.use_queue\(\"gpu:1\"\)"),
    ):
        with pytest.raises(TypeError, match=text):
            decorator(thing)


def test_a_generator_has_the_scope_and_its_consumer_has_not(manager, inner, other):
    outside = manager.current_queue()
    seen = []

    @manager.use_queue(inner)
    def numbers():
        seen.append(manager.current_queue())
        got = yield 1
        seen.append((manager.current_queue(), got))
        try:
            yield 2
        except KeyError as error:
            seen.append((manager.current_queue(), error.args))
        try:
            yield 3
        finally:
            seen.append(manager.current_queue())

    assert inspect.isgeneratorfunction(numbers)
    generator = numbers()
    for value, step, *arguments in [
        (1, next, generator),
        (2, generator.send, "sent"),
        (3, generator.throw, KeyError("thrown")),
    ]:
        with manager.use_queue(other):
            assert step(*arguments) == value
            assert manager.current_queue() == other
        assert manager.current_queue() == outside
    generator.close()
    assert manager.current_queue() == outside
    assert seen == [inner, (inner, "sent"), (inner, ("thrown",)), inner]


def test_a_generator_returns_and_raises_as_without_the_decorator(inner):
    @usmq.use_queue(inner)
    def child(fail):
        yield 1
        if fail:
            raise ValueError("failed")
        return "result"

    def parent(fail):
        return (yield from child(fail))

    generator = parent(False)
    assert next(generator) == 1
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "result"
    with pytest.raises(ValueError, match="failed"):
        list(parent(True))
    with pytest.raises(TypeError, match="fail"):
        next(child())


def test_a_scope_inside_a_decorated_generator_does_not_leak_either(inner, other):
    @usmq.use_queue(inner)
    def numbers():
        with usmq.use_queue(other):
            yield usmq.current_queue()
            yield usmq.current_queue()
        yield usmq.current_queue()

    outside, first, second = usmq.current_queue(), numbers(), numbers()
    for expected in (other, other, inner):
        for generator in (first, second):
            with usmq.use_queue(None):
                assert next(generator) == expected
                assert usmq.current_queue() == outside
    assert list(first) == list(second) == []
    assert usmq.current_queue() == outside


def test_the_consumer_may_change_its_scopes_between_steps(inner, other):
    @usmq.use_queue(None)
    def numbers():
        yield usmq.current_queue()
        with usmq.use_queue(inner):
            yield usmq.current_queue()
            yield usmq.current_queue()
        yield usmq.current_queue()

    outside, generator = usmq.current_queue(), numbers()
    third = usmq.Queue("cpu", in_order=False, profiling=True)
    for scope, expected in ((other, [other, inner]), (third, [inner, third])):
        with usmq.use_queue(scope):
            assert [next(generator), next(generator)] == expected
            assert usmq.current_queue() == scope
        assert usmq.current_queue() == outside


def test_a_generator_may_be_resumed_in_other_threads_and_contexts(inner, other):
    @usmq.use_queue(inner)
    def numbers():
        with usmq.use_queue(other):
            yield usmq.current_queue()
        yield usmq.current_queue()

    generator = numbers()
    assert in_threads(lambda: next(generator)) == [other]
    assert in_threads(lambda: next(generator)) == [inner]
    assert contextvars.copy_context().run(next, generator, "end") == "end"


def test_a_context_manager_made_from_a_decorated_generator_opens_no_scope_in_the_block(inner):
    """One with a plain scope does: see the generators in test_current_queue.py."""

    @contextlib.contextmanager
    @usmq.use_queue(inner)
    def resource():
        yield usmq.current_queue()

    outside = usmq.current_queue()
    with resource() as queue:
        assert queue == inner
        assert usmq.current_queue() == outside


def test_a_coroutine_has_the_scope_in_each_step(manager, inner):
    @manager.use_queue(inner)
    async def work(n):
        for _ in range(n):
            assert manager.current_queue() == inner
            await asyncio.sleep(0)
        return manager.current_queue()

    async def main():
        outside = manager.current_queue()
        results = await asyncio.gather(work(3), asyncio.sleep(0, outside), work(2))
        assert manager.current_queue() == outside
        return results[0], results[2], await work(1)

    assert inspect.iscoroutinefunction(work)
    assert asyncio.run(main()) == (inner, inner, inner)


def test_coroutines_that_take_turns_in_one_context_keep_their_scopes(inner, other):
    async def waits():
        class Turn:
            def __await__(self):
                yield

        await Turn()
        return usmq.current_queue()

    outside = usmq.current_queue()
    first, second = usmq.use_queue(inner)(waits)(), usmq.use_queue(other)(waits)()
    for coroutine in (first, second):
        coroutine.send(None)
        assert usmq.current_queue() == outside
    for coroutine, expected in ((first, inner), (second, other)):
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        assert stop.value.value == expected
    assert usmq.current_queue() == outside


def test_an_asynchronous_generator_has_the_scope_and_its_consumer_has_not(manager, inner, other):
    seen = []

    @manager.use_queue(inner)
    async def numbers():
        try:
            for number in range(3):
                await asyncio.sleep(0)
                with manager.use_queue(other):
                    got = yield number, manager.current_queue()
                seen.append((got, manager.current_queue()))
        except KeyError as error:
            yield error.args, manager.current_queue()
        finally:
            await asyncio.sleep(0)
            seen.append(manager.current_queue())

    async def main():
        outside = manager.current_queue()
        generator = numbers()
        assert await anext(generator) == (0, other)
        assert manager.current_queue() == outside
        assert await generator.asend("sent") == (1, other)
        assert await generator.athrow(KeyError("thrown")) == (("thrown",), inner)
        await generator.aclose()
        assert manager.current_queue() == outside
        assert [n async for n, _ in numbers()] == [0, 1, 2]
        assert manager.current_queue() == outside

    assert inspect.isasyncgenfunction(numbers)
    asyncio.run(main())
    assert seen[:2] == [("sent", inner), inner]
    assert seen[2:] == [(None, inner)] * 3 + [inner]


def test_callable_objects_are_decorated_by_the_kind_of_their_call(inner):
    class Work:
        async def __call__(self, value):
            await asyncio.sleep(0)
            return value, usmq.current_queue()

    for work in (Work(), functools.partial(Work().__call__)):
        assert asyncio.run(usmq.use_queue(inner)(work)(1)) == (1, inner)


def test_an_abandoned_generator_is_closed_in_its_scope_and_freed(inner):
    seen = []

    class Kept:
        pass

    @usmq.use_queue(inner)
    def numbers(kept):
        try:
            yield kept
        finally:
            seen.append(usmq.current_queue())

    generator = numbers(Kept())
    watched = weakref.ref(next(generator))
    gc.disable()
    try:
        del generator
        assert seen == [inner]
        assert watched() is None
    finally:
        gc.enable()
    assert usmq.current_queue() != inner
