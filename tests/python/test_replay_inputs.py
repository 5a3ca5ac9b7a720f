"""The arrays that may take the place of an input of a capture."""

import numpy as np
import pytest
import usmq
from emulated import result


@pytest.fixture(scope="module")
def queues():
    """Return queues of two devices in one context."""
    parts = usmq.Device("cpu").sub_devices(1)[:2]
    if len(parts) < 2:
        pytest.skip("the device has one compute unit, so it has no two sub-devices")
    context = usmq.Context(parts)
    return [usmq.Queue(part, context=context) for part in parts]


add = usmq.elementwise("const float *x, float *y", "y[i] += x[i]")


def captured(x, y):
    with usmq.capture(inputs={"x": x}) as graph:
        add(x, y, queue=y.queue)
    return graph


@pytest.mark.parametrize("made_on", [0, 1])
@pytest.mark.parametrize("replaced_by", [0, 1])
def test_host_usm_of_any_device_of_the_context_is_exchanged(queues, made_on, replaced_by):
    x = usmq.ones(8, "f4", usm_type="host", queue=queues[made_on])
    y = usmq.zeros(8, "f4", queue=queues[1])
    graph = captured(usmq.collocate(x, queue=queues[1]), y)
    other = usmq.full(8, 5, "f4", usm_type="host", queue=queues[replaced_by])
    graph.replay({"x": other}).wait()
    assert y.tolist() == [5.0] * 8
    graph.replay({"x": usmq.asarray(other)[::1]}).wait()
    graph.replay().wait()
    assert y.tolist() == [11.0] * 8


def test_host_usm_of_another_queue_and_an_import_is_exchanged():
    loose = usmq.Queue(usmq.current_queue().device, in_order=False)
    y = usmq.zeros(8, "f4")
    graph = captured(usmq.ones(8, "f4", usm_type="host"), y)
    x = usmq.full(8, 3, "f4", usm_type="host", queue=loose)
    for given in (x, usmq.from_dlpack(x)):
        graph.replay({"x": given}).wait()
    assert y.tolist() == [6.0] * 8


@pytest.mark.parametrize(
    ("recorded", "given", "text"),
    [
        ("host", "shared", r"takes host USM, but .* is shared USM; .*to\("),
        ("device", "host", r"takes device USM, but .* is host USM; .*to\("),
        ("host", "system", r"takes host USM, but .* is system memory; .*to\("),
        ("system", "host", r"takes system memory, but .* is host USM; .*to\("),
    ],
)
def test_another_kind_of_memory_is_refused_by_its_name(recorded, given, text):
    def array(kind):
        if kind == "system":
            return usmq.asarray(np.ones(8, "f4"), copy=False, queue="cpu")
        return usmq.ones(8, "f4", usm_type=kind, queue="cpu")

    graph = captured(array(recorded), usmq.zeros(8, "f4", queue="cpu"))
    with pytest.raises(usmq.PlacementError, match=text):
        graph.replay({"x": array(given)})


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_memory_of_another_device_or_context_is_refused_by_its_name(queues, kind):
    x, other = (usmq.ones(8, "f4", usm_type=kind, queue=queue) for queue in queues)
    if kind != "host":
        graph = captured(x, usmq.zeros(8, "f4", queue=queues[0]))
        text = rf"takes {kind} USM of .*, but .* is of .*; copy it there"
        with pytest.raises(usmq.PlacementError, match=text) as raised:
            graph.replay({"x": other})
        for queue in queues:
            name = str(queue.device).removeprefix("<usmq.Device ").removesuffix(">")
            assert name in str(raised.value)
    graph = captured(usmq.ones(8, "f4", usm_type=kind), usmq.zeros(8, "f4"))
    with pytest.raises(usmq.PlacementError, match=r"USM of context .*, but .* is of context"):
        graph.replay({"x": x})


def test_host_usm_of_an_emulated_gpu_and_of_the_cpu_are_exchanged():
    lines = result("""
import usmq
queues = [usmq.Queue(name) for name in ("gpu:0", "gpu:1", "cpu")]
for one in queues:
    for other in queues:
        x = usmq.collocate(usmq.zeros(8, "u4", queue=one, usm_type="host"), queue=other)
        y = usmq.zeros(8, "u4", queue=other)
        with usmq.capture(inputs={"x": x}) as graph:
            y.copy_from(x)
        for third in queues:
            graph.replay({"x": usmq.ones(8, "u4", queue=third, usm_type="host")}).wait()
            assert y.tolist() == [1] * 8
            y.fill(0)
print("done")
""")
    assert lines == ["done"]
