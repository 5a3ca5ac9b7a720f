"""``use_queue`` as a decorator: opens its scope around each step of the decorated function.

A generator or coroutine is resumed from a context that belongs to its consumer, so its scopes are
closed whenever it is suspended. In Rust, ``InQueue::in_queue`` does the same for futures.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

from usmq._errors import Error


def decorated(scope: Any, function: Any) -> Any:
    """Wrap a function of any kind; the scope is a ``UseQueue``."""
    if isinstance(function, staticmethod | classmethod):
        return type(function)(decorated(scope, function.__func__))
    if inspect.isclass(function) or not callable(function):
        raise TypeError(
            f"use_queue decorates functions, not {function!r}"
            + (": decorate its methods" if inspect.isclass(function) else "")
        )
    if _is(inspect.isasyncgenfunction, function):
        return _asynchronous_generator(scope, function)
    if _is(inspect.iscoroutinefunction, function):
        return _coroutine(scope, function)
    if _is(inspect.isgeneratorfunction, function):
        return _generator(scope, function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _resolved(scope, function):
            return function(*args, **kwargs)

    return call


def _is(kind: Callable[[object], bool], function: Any) -> bool:
    """Whether the function, or the object's ``__call__``, is of this kind."""
    return kind(function) or kind(type(function).__call__)


def _resolved(scope: Any, function: Any) -> Any:
    try:
        scope._resolve()
    except Error as error:
        name = getattr(function, "__qualname__", repr(function))
        error.args = (f"{name}() cannot enter the scope of its decorator use_queue: {error}",)
        raise
    return scope


def _coroutine(scope: Any, function: Any) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        steps = _resolved(scope, function)._resumed()
        return await _Stepped(steps, function(*args, **kwargs))

    return call


def _generator(scope: Any, function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        steps = _resolved(scope, function)._resumed()
        return (yield from _stepped(steps, function(*args, **kwargs)))

    return call


def _asynchronous_generator(scope: Any, function: Any) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = _resolved(scope, function)._resumed()
        generator = function(*args, **kwargs)
        step = generator.asend(None)
        while True:
            try:
                item = await _Stepped(steps, step)
            except StopAsyncIteration:
                return
            finally:
                del step  # it may hold an exception, whose traceback holds this frame
            try:
                value = yield item
            except BaseException as error:
                step = generator.athrow(error)
            else:
                step = generator.asend(value)

    return call


class _Stepped:
    """An awaitable whose steps run inside the scopes ``steps``."""

    def __init__(self, steps: Any, awaitable: Awaitable[Any]) -> None:
        self._steps = steps
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        return _stepped(self._steps, self._awaitable.__await__())


def _stepped(steps: Any, generator: Any) -> Generator[Any, Any, Any]:
    """Delegate to a generator, with the scopes open only while it runs."""
    resume, value = generator.send, None
    while True:
        try:
            with steps:
                item = resume(value)
        except StopIteration as stop:
            return stop.value
        finally:
            value = None  # it may be an exception, whose traceback holds this frame
        try:
            value = yield item
        except BaseException as error:
            resume, value = generator.throw, error
        else:
            resume = generator.send
