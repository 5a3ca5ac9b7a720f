"""Compute follows data: follow, collocate and explain, within a context and across contexts."""

import gc
import re

import numpy as np
import pytest
import usmq


@pytest.fixture
def same_context_queue(queue):
    """Return another queue of the same device and context."""
    return usmq.Queue(queue.device, profiling=True)


def actions(plan):
    """Return the actions of the steps, independent of how their words are joined."""
    return [re.sub("[^a-z]", "", str(step.action).lower()) for step in plan.steps]


def test_follow_returns_the_common_or_an_explicit_queue(queue, same_context_queue):
    arrays = [usmq.zeros(2, queue=same_context_queue) for _ in range(3)]
    assert usmq.follow(*arrays) == same_context_queue
    assert usmq.follow(arrays[0][1:], arrays[1].T) == same_context_queue
    with usmq.use_queue(usmq.Queue(in_order=False)):
        assert usmq.follow(*arrays) == same_context_queue
    arrays.append(usmq.zeros(2))
    for explicit in (queue, same_context_queue):
        assert usmq.follow(*arrays, queue=explicit) == explicit
    for wrong in (None, 3, "x", [1, 2], object):
        with pytest.raises((TypeError, usmq.Error)):
            usmq.follow(usmq.zeros(2), wrong)


def test_follow_of_two_queues_is_an_error_that_names_each_argument(queue, same_context_queue):
    with pytest.raises(usmq.PlacementError, match=r"collocate\(") as caught:
        usmq.follow(usmq.zeros(2), usmq.zeros(3, "i2", queue=same_context_queue), usmq.zeros(4))
    text = str(caught.value)
    assert text.count(queue.device.filter_string) >= 3, "one device for each argument"
    # The difference between the two queues is their profiling.
    assert all(word in text for word in ("queue", "context", "profiling"))


def test_an_explicit_queue_of_another_context_is_refused(queue, other_queue):
    for at, explicit in ((queue, other_queue), (other_queue, queue)):
        with pytest.raises(usmq.PlacementError, match="collocate"):
            usmq.follow(usmq.zeros(2, queue=at), queue=explicit)


def test_a_rebound_array_shares_values_and_keeps_the_memory(same_context_queue, kernels):
    x = usmq.zeros((4, 5), "f4")
    plan = usmq.explain(x[1:, ::2], queue=same_context_queue)
    assert (actions(plan), plan.steps[0].bytes) == (["rebind"], 0)
    moved = usmq.collocate(x[1:, ::2], queue=same_context_queue)
    assert moved.strides == (20, 8), "no copy, so the layout is kept"
    assert (moved.queue, x.queue == same_context_queue) == (same_context_queue, False)
    kernels.fill(20, x, 3.0)
    del x
    gc.collect()
    others = [usmq.zeros((4, 5), "f4") for _ in range(50)]
    assert moved.tolist() == [[3, 3, 3]] * 3
    del others


def test_an_array_is_kept_on_its_own_queue(queue):
    x = usmq.arange(0, 6, 1, dtype="i4")
    for target in ({"queue": queue}, {"like": usmq.zeros(1)}):
        plan, kept = usmq.explain(x, **target), usmq.collocate(x, **target)
        assert (actions(plan), plan.steps[0].bytes, plan.target) == (["keep"], 0, queue)
        assert (kept.ptr, kept.queue, kept.shape) == (x.ptr, queue, x.shape)


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_across_contexts_every_array_arrives_and_comes_back(queue, other_queue, kind):
    """All dtypes, sizes and layouts are in tests/suite/placement.rs."""
    host = np.arange(4 * 5 * 6, dtype="f2").reshape(4, 5, 6)
    x = usmq.asarray(host, usm_type=kind)
    for key in ((), np.s_[::-1], np.s_[1:, ::-3, 2], np.s_[1, 2, 3], np.s_[:0]):
        view = x[key]
        step = usmq.explain(view, queue=other_queue).steps[0]
        moved = usmq.collocate(view, queue=other_queue)
        assert (moved.queue, moved.device) == (other_queue, other_queue.device)
        assert (moved.dtype, moved.shape, moved.usm_type) == (x.dtype, view.shape, kind)
        if step.action.startswith("copy"):
            assert step.bytes == view.nbytes
            assert moved.strides == view.copy().strides
        np.testing.assert_array_equal(moved.to_numpy(), host[key])
        back = usmq.collocate(moved, like=x)
        assert back.queue == queue
        np.testing.assert_array_equal(back.to_numpy(), host[key])


def test_host_data_is_copied_to_the_queue(same_context_queue):
    host = np.arange(12, dtype="i4").reshape(3, 4)[:, ::-1]
    plan = usmq.explain(host, queue=same_context_queue)
    assert actions(plan) == ["fromhost"]
    assert plan.steps[0].bytes == host.nbytes
    moved = usmq.collocate(host, queue=same_context_queue)
    assert moved.queue == same_context_queue
    np.testing.assert_array_equal(moved.to_numpy(), host)


def test_several_arrays_are_returned_as_a_tuple_in_order(queue, same_context_queue, other_queue):
    a, b = usmq.full(3, 1, "i4"), usmq.full(2, 2, "i4", queue=same_context_queue)
    c = usmq.full(4, 3, "i4", queue=other_queue)
    moved = usmq.collocate(a, b, c, like=a)
    assert type(moved) is tuple
    assert usmq.follow(*moved) == queue
    assert [m.to_numpy().tolist() for m in moved] == [[1] * 3, [2] * 2, [3] * 4]
    assert moved[0].ptr == a.ptr
    assert moved[1].ptr == b.ptr


def test_host_data_among_the_arguments_is_copied_to_the_queue_of_the_arrays(queue, other_queue):
    small, large = usmq.zeros(2, "u1", queue=other_queue), usmq.zeros(100, "u1", queue=queue)
    host = np.arange(3)
    for data in (host, [0, 1, 2], memoryview(host)):
        both = (small, large, data, data)
        for at, arguments in [(0, (data, small)), (1, (small, data)), (2, both)]:
            target = queue if len(arguments) == 4 else other_queue
            plan = usmq.explain(*arguments)
            assert plan.target == target
            moved = usmq.collocate(*arguments)
            assert usmq.follow(*moved) == target
            assert moved[at].to_numpy().tolist() == [0, 1, 2]
            assert plan.steps[at].action == "from_host"
    for arguments in [(), (host,), (host, [1.5])]:
        for call in (usmq.collocate, usmq.explain):
            with pytest.raises(ValueError, match=r"no array is in USM.* pass a target"):
                call(*arguments)


def test_explain_moves_nothing_and_prints_a_table(queue, same_context_queue, other_queue):
    a, b = usmq.zeros(1000, "f8"), usmq.zeros(10, queue=same_context_queue)
    c = usmq.zeros((50, 100), "f8", queue=other_queue)
    before = usmq.memory_stats()
    plan = usmq.explain(a, b, c, like=a)
    assert usmq.memory_stats() == before
    assert plan.target == queue
    assert actions(plan)[:2] == ["keep", "rebind"]
    assert actions(plan)[2] in ("copydirect", "copystaged")
    assert [step.bytes for step in plan.steps] == [0, 0, 40_000]
    assert all(step.reason for step in plan.steps)
    text = str(plan)
    assert len(text.splitlines()) >= 3, "a line for each array"
    assert all(step.reason in text for step in plan.steps)
    assert all(name in re.sub("[^a-z]", "", text.lower()) for name in actions(plan))
    assert queue.device.filter_string in text
    assert re.search(r"40[,.]?0|39\.?1? Ki", text), "the bytes that would move"


def test_a_wrong_call_is_a_type_error():
    x = usmq.zeros(2)
    for call, data, target in (
        (usmq.collocate, x, {"like": x, "queue": x.queue}),
        (usmq.explain, x, {"like": x, "queue": x.queue}),
        (usmq.collocate, x, {"like": 3}),
        (usmq.collocate, x, {"queue": 3}),
        (usmq.collocate, object(), {"queue": x.queue}),
        (usmq.collocate, None, {"like": x}),
        (usmq.explain, "abc", {"queue": x.queue}),
    ):
        with pytest.raises((TypeError, ValueError)):
            call(data, **target)
