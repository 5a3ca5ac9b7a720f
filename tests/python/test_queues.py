"""Queues: one per set of properties, exchanged with dpctl, waiting without the GIL."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dpctl
import pytest
import usmq
from arrow_structs import capsule

PROPERTIES = list(itertools.product([True, False], repeat=2))


def in_dpctl(queue):
    return dpctl.SyclQueue(queue._get_capsule())


@pytest.mark.parametrize(("in_order", "profiling"), PROPERTIES)
def test_the_same_arguments_give_the_same_queue(queue, in_order, profiling):
    def ask(target):
        return usmq.Queue(target, in_order=in_order, profiling=profiling)

    first = ask(queue.device)
    assert (first.in_order, first.profiling) == (in_order, profiling)
    for target in (queue.device, queue.device.filter_string, queue.device.filter_string, None):
        again = ask(target)
        assert again == first
        assert hash(again) == hash(first)
        assert in_dpctl(again) == in_dpctl(first)


def test_other_properties_give_another_queue(queue):
    queues = [usmq.Queue(queue.device, in_order=o, profiling=p) for o, p in PROPERTIES]
    assert len(set(queues)) == 4
    for one, other in itertools.combinations(queues, 2):
        assert one != other
        assert in_dpctl(one) != in_dpctl(other)
        assert one.context == other.context


def test_a_plain_queue_is_in_order_and_does_not_profile(queue):
    plain = usmq.Queue(queue.device)
    assert plain.in_order is True
    assert plain.profiling is False
    assert plain == queue, "the default queue is the plain one of its device"


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


def test_without_a_target_the_device_is_the_one_sycl_selects(queue):
    assert usmq.Queue() == queue
    assert queue.device.filter_string == dpctl.SyclDevice().filter_string


@pytest.mark.parametrize(("in_order", "profiling"), PROPERTIES)
def test_dpctl_sees_the_properties(queue, in_order, profiling):
    peer = in_dpctl(usmq.Queue(queue.device, in_order=in_order, profiling=profiling))
    assert peer.is_in_order is in_order
    assert peer.has_enable_profiling is profiling
    assert peer.sycl_device.filter_string == queue.device.filter_string


def test_a_queue_does_not_equal_other_types(queue):
    assert queue != queue.device
    assert queue != "cpu"
    assert queue is not None
    assert queue != hash(queue)


def test_the_repr_of_a_queue_names_its_device(queue):
    assert queue.device.filter_string in repr(queue)


def test_attributes_cannot_be_set(queue):
    with pytest.raises(AttributeError):
        queue.profiling = True


@pytest.mark.parametrize("number", range(len(usmq.devices())))
def test_a_root_device_uses_the_default_context_of_its_platform(number):
    device = usmq.devices()[number]
    peer = dpctl.SyclDevice(device.filter_string)
    assert in_dpctl(usmq.Queue(device)).sycl_context == peer.sycl_platform.default_context
    assert in_dpctl(usmq.Queue(device)).sycl_context == dpctl.SyclQueue(peer).sycl_context
    context = usmq.Queue(device).context
    assert dpctl.SyclContext(context._get_capsule()) == peer.sycl_platform.default_context


def test_contexts_compare_and_hash(queue, queue_of_other_context):
    again = usmq.Queue(queue.device, profiling=True).context
    assert again == queue.context
    assert hash(again) == hash(queue.context)
    assert queue_of_other_context.context != queue.context


def test_the_default_context_may_be_given_by_name(queue):
    assert usmq.Queue(queue.device, context=queue.context) == queue


def test_a_context_without_the_device_is_refused(queue, queue_of_other_context):
    with pytest.raises((usmq.Error, ValueError)):
        usmq.Queue(queue.device, context=queue_of_other_context.context)


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
    with usmq.use_queue(theirs) as scoped:
        assert scoped == ours
    assert usmq.empty(2, queue=theirs).queue == ours


def test_two_queues_of_dpctl_stay_distinct(queue):
    name = queue.device.filter_string
    assert usmq.Queue(dpctl.SyclQueue(name)) != usmq.Queue(dpctl.SyclQueue(name))


def test_a_queue_of_dpctl_is_released_after_its_work(run_python):
    # The driver's thread may not be through with the last command. That the queue is gone by then
    # would lock it up for good.
    run_python(
        """
import dpctl, usmq
for number in range(20_000):
    assert usmq.full(8, number, "i4", queue=dpctl.SyclQueue()).to_numpy()[7] == number
""",
        timeout=60,
    )


def test_our_queue_round_trips_through_dpctl(queue):
    assert usmq.Queue(in_dpctl(queue)) == queue


def test_a_capsule_is_accepted_once(queue):
    for made in (queue._get_capsule(), in_dpctl(queue)._get_capsule()):
        assert '"SyclQueueRef"' in repr(made)
        assert usmq.Queue(made) == queue
        assert '"used_SyclQueueRef"' in repr(made)
        with pytest.raises((usmq.Error, TypeError, ValueError)):
            usmq.Queue(made)
        with pytest.raises(TypeError):
            dpctl.SyclQueue(made)


def test_each_call_returns_a_new_capsule(queue):
    first, second = queue._get_capsule(), queue._get_capsule()
    assert dpctl.SyclQueue(first) == dpctl.SyclQueue(second)


def test_unconsumed_capsules_are_freed(queue):
    for _ in range(10_000):
        queue._get_capsule()
        queue.context._get_capsule()
    assert in_dpctl(queue).sycl_device.filter_string == queue.device.filter_string


@pytest.mark.parametrize("name", [b"dltensor", b"SyclEventRef", b"used_SyclQueueRef", b""])
def test_a_capsule_with_another_name_is_refused_unread(name):
    with pytest.raises((usmq.Error, TypeError, ValueError)):
        usmq.Queue(capsule(1, name))


class Impostor:
    def __init__(self, answer):
        self.answer = answer

    def _get_capsule(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_an_object_with_a_queue_capsule_is_a_foreign_queue(queue):
    assert usmq.Queue(Impostor(queue._get_capsule())) == queue


@pytest.mark.parametrize(
    "answer", [None, 3, "cpu", capsule(1, b"nosuch")], ids=["None", "int", "str", "other capsule"]
)
def test_an_object_with_an_invalid_capsule_is_refused(answer):
    with pytest.raises((usmq.Error, TypeError, ValueError)):
        usmq.Queue(Impostor(answer))


def test_an_error_inside_get_capsule_reaches_the_caller():
    with pytest.raises(ZeroDivisionError, match="inside"):
        usmq.Queue(Impostor(ZeroDivisionError("inside")))


def test_many_threads_get_one_queue(queue):
    start = threading.Barrier(32)

    def ask(_):
        start.wait()
        return usmq.Queue(queue.device.filter_string, in_order=False, profiling=True)

    with ThreadPoolExecutor(32) as pool:
        assert len(set(pool.map(ask, range(32)))) == 1


def test_wait_returns_after_the_work_completes(queue, kernels):
    x = usmq.zeros(1, "u4")
    event = kernels.advance(1, x, 20_000_000)
    assert not event.done(), "the launch itself must not wait"
    queue.wait()
    assert event.done()


@pytest.mark.parametrize("how", ["queue.wait", "event.wait", "array.wait", "to_numpy"])
def test_waiting_releases_the_gil(queue, kernels, how):
    x = usmq.zeros(1, "u4")
    event = kernels.advance(1, x, 1)
    queue.wait()
    ticks = 0
    stop = threading.Event()

    def tick():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.002)

    ticker = threading.Thread(target=tick)
    event = kernels.advance(1, x, 150_000_000)
    ticker.start()
    before, start = ticks, time.monotonic()
    {"queue.wait": queue.wait, "event.wait": event.wait, "array.wait": x.wait}.get(
        how, x.to_numpy
    )()
    waited, during = time.monotonic() - start, ticks - before
    stop.set()
    ticker.join()
    assert waited > 0.05, "the kernel was too short for this test"
    assert during > waited / 0.002 / 10
