"""A package's own QueueManager: its scope and default first, then those of the process."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import usmq

LEVELS = ("own scope", "own default", "scope", "default")


@pytest.fixture
def queues(five_queues):
    return dict(zip(("sycl", *LEVELS), five_queues, strict=True))


@pytest.mark.parametrize("given", list(itertools.product([True, False], repeat=4)), ids=str)
def test_the_first_configured_level_decides(queues, given):
    levels = list(itertools.compress(LEVELS, given))
    manager = usmq.QueueManager("test")
    with ExitStack() as scopes:
        if "default" in levels:
            usmq.set_default_queue(queues["default"])
        if "own default" in levels:
            manager.set_default_queue(queues["own default"])
        if "scope" in levels:
            scopes.enter_context(usmq.use_queue(queues["scope"]))
        if "own scope" in levels:
            scopes.enter_context(manager.use_queue(queues["own scope"]))
        assert manager.current_queue() == queues[[*levels, "sycl"][0]]
        manager.set_default_queue(None)


def test_a_manager_does_not_change_the_queue_of_others(queues):
    mine, other = usmq.QueueManager("mine"), usmq.QueueManager("other")
    mine.set_default_queue(queues["own default"])
    with mine.use_queue(queues["own scope"]) as q:
        assert q == mine.current_queue() == queues["own scope"]
        assert usmq.current_queue() == queues["sycl"]
        assert other.current_queue() == queues["sycl"]
        with other.use_queue(queues["scope"]):
            assert mine.current_queue() == queues["own scope"]
            assert other.current_queue() == queues["scope"]
    assert mine.current_queue() == queues["own default"]
    mine.set_default_queue(None)
    assert mine.current_queue() == queues["sycl"]


def test_scopes_of_a_manager_nest_and_survive_exceptions(queues):
    manager = usmq.QueueManager("test")
    with manager.use_queue(queues["own scope"]):
        with pytest.raises(RuntimeError, match="inside"), manager.use_queue(queues["scope"]):
            raise RuntimeError("inside")
        assert manager.current_queue() == queues["own scope"]
        with manager.use_queue(None) as unchanged:
            assert unchanged == queues["own scope"]
    with manager.use_queue(None), usmq.use_queue(queues["scope"]):
        assert manager.current_queue() == queues["scope"]
    assert manager.current_queue() == queues["sycl"]


def test_its_default_applies_to_all_threads_and_its_scope_to_one(queues):
    manager = usmq.QueueManager("test")
    with ThreadPoolExecutor(1) as pool, manager.use_queue(queues["own scope"]):
        assert pool.submit(manager.current_queue).result() == queues["sycl"]
        manager.set_default_queue(queues["own default"])
        assert pool.submit(manager.current_queue).result() == queues["own default"]
        assert manager.current_queue() == queues["own scope"]


def test_tasks_on_one_thread_keep_separate_scopes(queues):
    manager = usmq.QueueManager("test")

    async def work(name):
        with manager.use_queue(queues[name]):
            for _ in range(20):
                await asyncio.sleep(0)
                if manager.current_queue() != queues[name]:
                    return False
        return manager.current_queue() == queues["sycl"]

    async def main():
        return await asyncio.gather(*(work(name) for name in queues))

    assert asyncio.run(main()) == [True] * len(queues)


def test_a_dropped_manager_leaks_nothing(queues):
    for _ in range(1000):
        manager = usmq.QueueManager("test")
        manager.set_default_queue(queues["own default"])
        with manager.use_queue(queues["own scope"]):
            assert "test" in repr(manager)
            del manager
    assert usmq.current_queue() == queues["sycl"]
