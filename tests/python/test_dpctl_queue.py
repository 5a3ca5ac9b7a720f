"""The current queue as dpctl's: ``dpctl_queue``."""

import dpctl
import dpnp
import pytest
import usmq


@pytest.fixture(params=["in order", "out of order", "profiling", "sub-device"])
def queue(request):
    return {
        "in order": lambda: usmq.Queue("cpu"),
        "out of order": lambda: usmq.Queue("cpu", in_order=False),
        "profiling": lambda: usmq.Queue("cpu", profiling=True),
        "sub-device": lambda: usmq.Queue(usmq.Device("cpu").sub_devices(1)[0]),
    }[request.param]()


def test_the_current_queue_is_the_same_queue_in_dpctl(queue):
    with usmq.use_queue(queue):
        theirs = usmq.dpctl_queue()
    assert type(theirs) is dpctl.SyclQueue
    assert theirs == dpctl.SyclQueue(queue._get_capsule())
    assert (theirs.is_in_order, theirs.has_enable_profiling) == (queue.in_order, queue.profiling)
    assert usmq.Queue(theirs) == queue


def test_each_form_of_target_is_accepted(queue):
    ours = usmq.dpctl_queue(queue)
    assert usmq.dpctl_queue(ours) == ours
    assert usmq.dpctl_queue("cpu") == usmq.dpctl_queue(usmq.Device("cpu"))
    assert usmq.dpctl_queue(None) == usmq.dpctl_queue() == usmq.dpctl_queue(usmq.current_queue())
    with pytest.raises(usmq.DeviceNotFoundError, match="gpu:99"):
        usmq.dpctl_queue("gpu:99")
    with pytest.raises(TypeError, match="target must be a filter string"):
        usmq.dpctl_queue(3)


def test_work_of_dpnp_on_it_is_ordered_with_work_of_usmq():
    x = usmq.arange(1000)
    y = dpnp.asarray(x)
    z = dpnp.ones(1000, dtype=y.dtype, sycl_queue=usmq.dpctl_queue(x.queue))
    assert float((y + z).sum()) == 1000 * 999 / 2 + 1000


def test_without_dpctl_the_error_has_the_command_that_installs_it(run_python):
    program = """
import sys
sys.modules["dpctl"] = None
import usmq
try:
    usmq.dpctl_queue()
except ImportError as error:
    print(error)
"""
    text = "usmq.dpctl_queue() needs dpctl, which is not installed: run `pip install dpctl`\n"
    assert run_python(program).stdout == text
