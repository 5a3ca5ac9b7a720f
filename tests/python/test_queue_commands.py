"""Barriers, priorities, timers, and hints about shared memory."""

import contextlib
import pickle
import time

import dpctl
import numpy as np
import pytest
import usmq

LONG = 50_000_000


@pytest.fixture
def loose():
    return usmq.Queue("opencl:cpu", in_order=False)


def test_a_barrier_completes_after_all_earlier_commands_of_its_queue(spin, loose):
    events = [spin(1, usmq.zeros(1, "u4", queue=loose), LONG // 10) for _ in range(4)]
    barrier = loose.barrier()
    assert (type(barrier), barrier.queue) == (usmq.Event, loose)
    barrier.wait()
    assert all(event.done() for event in events)


@pytest.mark.parametrize("sub_device", [False, True])
def test_a_barrier_completes_after_events_of_other_queues(spin, loose, sub_device):
    device = usmq.Device("opencl:cpu")
    other = usmq.Queue(device.sub_devices(1)[0] if sub_device else device, profiling=True)
    first = spin(1, usmq.zeros(1, "u4", queue=other), LONG)
    loose.barrier(after=[first]).wait()
    assert first.done()
    loose.barrier([]).wait()
    loose.barrier(after=(first, first)).wait()
    theirs = usmq.Queue(dpctl.SyclQueue("opencl:cpu", property="in_order"))
    theirs.barrier(after=[first]).wait()
    assert theirs.priority == "normal"


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_priority_belongs_to_the_identity_of_a_queue(spin, priority, in_order):
    queue = usmq.Queue("opencl:cpu", in_order=in_order, priority=priority)
    assert queue.priority == priority
    assert queue == usmq.Queue("opencl:cpu", in_order=in_order, priority=priority)
    assert (queue == usmq.Queue("opencl:cpu", in_order=in_order)) == (priority == "normal")
    assert usmq.Queue(queue, profiling=True).priority == priority
    assert usmq.Queue(queue, priority="low").priority == "low"
    assert usmq.Queue(usmq.dpctl_queue(queue)) == queue
    assert usmq.Queue(usmq.dpctl_queue(queue)).priority == priority
    assert pickle.loads(pickle.dumps(queue)) == queue
    assert (f"{priority} priority" in repr(queue)) == (priority != "normal")
    with pytest.raises(ValueError, match=r"unknown priority \"urgent\"; expected \"high\""):
        usmq.Queue("cpu", priority="urgent")
    x = usmq.zeros(1, "u4", queue=queue)
    spin(1, x, 3).wait()
    assert x.tolist() != [0]


@pytest.mark.parametrize(
    "properties", [{}, {"in_order": False}, {"profiling": True}, {"priority": "high"}], ids=str
)
def test_a_timer_measures_the_block_and_not_earlier_work(spin, properties):
    queue = usmq.Queue("opencl:cpu", **properties)
    x = usmq.zeros(1, "u4", queue=queue)
    begun = time.perf_counter()
    earlier = spin(1, x, 3 * LONG)
    with usmq.Timer(queue) as timer:
        block = spin(1, x, LONG)
        assert not block.done()
    assert timer.queue == queue
    measured = timer.device_s
    whole = time.perf_counter() - begun
    assert earlier.done()
    assert block.done()
    # A quarter of the work is in the block; other processes use the machine, too.
    assert 0.02 * whole < measured < 0.8 * whole
    assert timer.host_s < 0.5 * whole, "the block does not wait"


def test_a_timer_agrees_with_the_timestamps_of_its_kernel(spin):
    queue = usmq.Queue("opencl:cpu", profiling=True)
    x = usmq.zeros(1, "u4", queue=queue)
    x.wait()
    with usmq.Timer(queue) as timer:
        event = spin(1, x, LONG)
    inside = (event.timestamps.end - event.timestamps.start) * 1e-9
    assert inside <= timer.device_s < 2 * inside + 0.05


def test_a_timer_uses_the_current_queue_and_can_be_entered_again(spin, loose):
    with usmq.use_queue(loose):
        timer = usmq.Timer()
    assert timer.queue == loose
    for read in (lambda: timer.host_s, lambda: timer.device_s):
        with pytest.raises(ValueError, match="after its `with` block has ended"):
            read()
    with timer as entered:
        assert entered is timer
        with pytest.raises(ValueError, match="running"):
            timer.__enter__()
        with pytest.raises(ValueError, match="after its `with` block has ended"):
            timer.host_s  # noqa: B018
    first = timer.device_s
    with contextlib.suppress(RuntimeError), timer:
        spin(1, usmq.zeros(1, "u4", queue=loose), LONG)
        raise RuntimeError
    assert timer.device_s > first
    with pytest.raises(ValueError, match="not running"):
        timer.__exit__(None, None, None)


@pytest.fixture
def shared():
    return usmq.full((8, 6), 3, "i4", usm_type="shared", queue="opencl:cpu")


HINTS = {
    "prefetch": lambda x, queue=None: x.prefetch(queue),
    "mem_advise": lambda x, queue=None: x.mem_advise(0, queue),
}


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_is_ordered_and_changes_no_value(hint, shared, loose):
    other = usmq.Queue("opencl:cpu", profiling=True)
    for view in (shared, shared[::2, ::-3], shared.T, shared[3:3], shared[4, 2]):
        for queue in (None, loose, other, "opencl:cpu"):
            event = HINTS[hint](view, queue)
            assert type(event) is usmq.Event
            event.wait()
    shared.fill(4)
    event = HINTS[hint](shared, loose)
    shared.fill(5)
    event.wait()
    assert shared.tolist() == [[5] * 6] * 8


@pytest.mark.parametrize("hint", HINTS)
def test_hints_that_are_not_possible_are_refused(hint, shared):
    for kind in ("device", "host"):
        x = usmq.zeros(4, usm_type=kind, queue="opencl:cpu")
        with pytest.raises(ValueError, match=rf"^{hint} is for shared memory.* in {kind} USM"):
            HINTS[hint](x)
    with pytest.raises(usmq.PlacementError, match="collocate"):
        HINTS[hint](shared, usmq.Device("opencl:cpu").sub_devices(1)[0])


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_about_system_memory_is_accepted_where_kernels_use_it(hint):
    x = usmq.asarray(np.arange(1000, dtype="f4"), copy=False, queue="opencl:cpu")
    assert x.usm_type == "system"
    HINTS[hint](x).wait()
    assert x.tolist() == list(range(1000))


def test_any_whole_number_is_passed_to_the_driver_as_advice(shared):
    for advice in (0, 1, 2, 3, 2**31 - 1, -1):
        shared.mem_advise(advice).wait()
    for wrong in ("read", None, 1.5, True, 2**31):
        error = ValueError if wrong == 2**31 else TypeError
        with pytest.raises(error, match="advice must be a whole number"):
            shared.mem_advise(wrong)
