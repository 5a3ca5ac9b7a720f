"""Queues: one per set of properties, exchanged with dpctl, waiting without the GIL."""

import itertools
import threading
import time

import dpctl
import pytest
import usmq
from arrow_structs import capsule
from conftest import in_threads

PROPERTIES = list(itertools.product([True, False], repeat=2))


def in_dpctl(queue):
    return dpctl.SyclQueue(queue._get_capsule())


@pytest.mark.parametrize(("in_order", "profiling"), PROPERTIES)
def test_the_same_arguments_give_the_same_queue(queue, in_order, profiling):
    name = queue.device.filter_string
    asked = [
        usmq.Queue(target, in_order=in_order, profiling=profiling)
        for target in (queue.device, name, name, None)
    ]
    assert len(set(asked)) == len({in_dpctl(each) for each in asked}) == 1
    assert all(each == asked[0] and hash(each) == hash(asked[0]) for each in asked)
    assert (asked[0].in_order, asked[0].profiling) == (in_order, profiling)
    theirs = in_dpctl(asked[0])
    assert (theirs.is_in_order, theirs.has_enable_profiling) == (in_order, profiling)
    assert theirs.sycl_device.filter_string == name == dpctl.SyclDevice().filter_string
    # The default queue is the plain one of the device that SYCL selects.
    assert (asked[0] == queue) == (usmq.Queue() == asked[0]) == (in_order and not profiling)


def test_other_properties_give_another_queue(queue):
    queues = [usmq.Queue(queue.device, in_order=o, profiling=p) for o, p in PROPERTIES]
    assert len(set(queues)) == len({in_dpctl(each) for each in queues}) == 4
    assert all(one != other for one, other in itertools.combinations(queues, 2))
    assert len({each.context for each in queues}) == 1


@pytest.mark.parametrize(("in_order", "profiling"), PROPERTIES)
@pytest.mark.parametrize("foreign", [False, True])
def test_a_queue_as_target_supplies_the_unspecified_properties(queue, in_order, profiling, foreign):
    names = ["in_order"] * in_order + ["enable_profiling"] * profiling
    given = usmq.Queue(queue.device, in_order=in_order, profiling=profiling)
    target = dpctl.SyclQueue(queue.device.filter_string, property=names) if foreign else given
    for ask in itertools.product([None, True, False], repeat=2):
        found = usmq.Queue(target, in_order=ask[0], profiling=ask[1])
        expected = tuple(
            a if a is not None else b for a, b in zip(ask, (in_order, profiling), strict=True)
        )
        assert (found.in_order, found.profiling) == expected
        assert (found == usmq.Queue(target)) == (expected == (in_order, profiling))
        assert found.context == usmq.Queue(target).context
    elsewhere = usmq.Queue(target, context=usmq.Context([queue.device]))
    assert (elsewhere.in_order, elsewhere.profiling) == (in_order, profiling)


def test_a_queue_has_a_text_and_fixed_attributes_and_equals_no_other_types(queue):
    for other in (queue.device, "cpu", None, hash(queue)):
        assert queue != other
    assert queue.device.filter_string in repr(queue)
    with pytest.raises(AttributeError):
        queue.profiling = True


def test_contexts_compare_and_hash(queue, queue_of_other_context):
    again = usmq.Queue(queue.device, profiling=True).context
    assert again == queue.context
    assert hash(again) == hash(queue.context)
    assert usmq.Queue(queue.device, context=again) == queue
    assert queue_of_other_context.context != queue.context
    with pytest.raises((usmq.Error, ValueError)):
        usmq.Queue(queue.device, context=queue_of_other_context.context)


@pytest.mark.parametrize("number", range(len(usmq.devices())))
def test_a_root_device_uses_the_default_context_of_its_platform(number):
    device = usmq.devices()[number]
    peer = dpctl.SyclDevice(device.filter_string)
    assert in_dpctl(usmq.Queue(device)).sycl_context == peer.sycl_platform.default_context
    assert in_dpctl(usmq.Queue(device)).sycl_context == dpctl.SyclQueue(peer).sycl_context
    context = usmq.Queue(device).context
    assert dpctl.SyclContext(context._get_capsule()) == peer.sycl_platform.default_context


def test_a_sub_device_has_a_context_of_its_own(queue, sub_device):
    own = usmq.Queue(sub_device)
    assert own == usmq.Queue(sub_device)
    assert own.context != queue.context
    assert own.device == sub_device
    assert usmq.Queue(sub_device, profiling=True).context == own.context
    assert usmq.Queue(sub_device, context=own.context) == own
    sibling = sub_device.parent.sub_devices(1)[1]
    assert usmq.Queue(sibling).context != own.context


@pytest.mark.parametrize("properties", [(), ("in_order",), ("enable_profiling",)])
def test_a_queue_of_dpctl_is_used_unchanged(queue, properties):
    theirs = dpctl.SyclQueue(queue.device.filter_string, property=list(properties))
    ours = usmq.Queue(theirs)
    assert ours == usmq.Queue(theirs)
    assert hash(ours) == hash(usmq.Queue(theirs))
    assert in_dpctl(ours) == theirs
    assert ours.device == queue.device
    assert ours.in_order is theirs.is_in_order
    assert ours.profiling is theirs.has_enable_profiling
    assert ours != queue
    assert ours != usmq.Queue(dpctl.SyclQueue(theirs.sycl_device, property=list(properties)))
    with usmq.use_queue(theirs) as scoped:
        assert scoped == ours
    assert usmq.empty(2, queue=theirs).queue == ours


def test_a_capsule_is_accepted_once(queue):
    assert usmq.Queue(in_dpctl(queue)) == queue
    for made in (queue._get_capsule(), in_dpctl(queue)._get_capsule()):
        assert '"SyclQueueRef"' in repr(made)
        assert usmq.Queue(made) == queue
        assert '"used_SyclQueueRef"' in repr(made)
        with pytest.raises(
            usmq.InteropError, match=r"\"SyclQueueRef\" has been used.*_get_capsule"
        ):
            usmq.Queue(made)
        with pytest.raises(TypeError):
            dpctl.SyclQueue(made)
    made = queue.context._get_capsule()
    assert usmq.Queue(queue.device, context=made).context == queue.context
    with pytest.raises(usmq.InteropError, match=r"\"SyclContextRef\" has been used.*_get_capsule"):
        usmq.Queue(queue.device, context=made)


def test_unconsumed_capsules_are_freed(queue):
    for _ in range(10_000):
        queue._get_capsule()
        queue.context._get_capsule()
    assert in_dpctl(queue).sycl_device.filter_string == queue.device.filter_string


class Impostor:
    def __init__(self, answer):
        self.answer = answer

    def _get_capsule(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_an_object_with_a_queue_capsule_is_a_foreign_queue(queue):
    assert usmq.Queue(Impostor(queue._get_capsule())) == queue
    with pytest.raises(ZeroDivisionError, match="inside"):
        usmq.Queue(Impostor(ZeroDivisionError("inside")))
    for answer in (None, 3, "cpu", capsule(1, b"nosuch")):
        with pytest.raises((usmq.Error, TypeError, ValueError)):
            usmq.Queue(Impostor(answer))
    for name in (b"dltensor", b"SyclEventRef", b"used_SyclQueueRef", b""):
        with pytest.raises((usmq.Error, TypeError, ValueError)):
            usmq.Queue(capsule(1, name))  # which must not be read


def test_a_queue_of_dpctl_is_released_after_its_work(run_python):
    # The driver's thread may not be through with the last command. That the queue is gone by then
    # would lock it up for good.
    code = """
import dpctl, usmq
for number in range(20_000):
    assert usmq.full(8, number, "i4", queue=dpctl.SyclQueue()).to_numpy()[7] == number
"""
    run_python(code, timeout=60)


def test_many_threads_get_one_queue(queue):
    def ask():
        return usmq.Queue(queue.device.filter_string, in_order=False, profiling=True)

    assert len(set(in_threads(*[ask] * 32))) == 1


@pytest.mark.parametrize("how", ["queue.wait", "event.wait", "array.wait", "to_numpy"])
def test_a_wait_releases_the_gil_and_returns_after_the_work_completes(queue, kernels, how):
    x = usmq.zeros(1, "u4")
    kernels.advance(1, x, 1).wait()
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.002):
            ticks.append(how)

    ticker = threading.Thread(target=tick)
    event = kernels.advance(1, x, 150_000_000)
    ticker.start()
    assert not event.done(), "the launch itself must not wait"
    before, start = len(ticks), time.monotonic()
    waits = {"queue.wait": queue.wait, "event.wait": event.wait, "array.wait": x.wait}
    waits.get(how, x.to_numpy)()
    waited, during = time.monotonic() - start, len(ticks) - before
    assert event.done()
    event.wait()
    stop.set()
    ticker.join()
    assert waited > 0.05, "the kernel was too short for this test"
    assert during > waited / 0.002 / 10
