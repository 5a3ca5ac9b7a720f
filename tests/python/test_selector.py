"""Filter strings: those that SYCL accepts are accepted, others are refused with an explanation."""

import dpctl
import numpy as np
import pytest
import usmq

ACCEPTED = (
    "cpu opencl opencl:cpu opencl:cpu:0 cpu:0 0 00 cpu:00 0:cpu cpu:opencl 0:opencl:cpu opencl::0 "
    ": :: :cpu cpu: opencl: opencl:cpu:0: cpu, ,cpu cpu,, gpu,cpu cpu,gpu level_zero,cpu cpu:0,cpu "
    "cuda:gpu:3,opencl:cpu"
)
# Other refused forms are in src/device/selector.rs and tests/fuzz/targets/selector.rs.
REFUSED = ["", "CPU", " cpu", "cpu\0x", "cpu:\u0660", "cpu:2147483648", "cpu,nosuch", "x" * 100_000]
ABSENT = "cpu:99 gpu:99 opencl:cpu:99 99 cuda:gpu:99 hip:accelerator:99 2147483647"


ENTRIES = {
    "Device": usmq.Device,
    "Queue": usmq.Queue,
    "use_queue": lambda target: usmq.use_queue(target).__enter__(),
    "set_default_queue": usmq.set_default_queue,
    "empty": lambda target: usmq.empty(3, queue=target),
    "asarray": lambda target: usmq.asarray([1, 2], queue=target),
    "manager.use_queue": lambda target: usmq.QueueManager("test").use_queue(target).__enter__(),
    "manager.set_default": lambda target: usmq.QueueManager("test").set_default_queue(target),
    "memory_stats": usmq.memory_stats,
}


@pytest.mark.parametrize("text", ACCEPTED.split())
def test_an_accepted_filter_selects_the_same_device_as_sycl(text):
    try:
        expected = dpctl.SyclDevice(text).filter_string
    except dpctl.SyclDeviceCreationError:
        pytest.skip(f"no visible device matches {text!r}")
    # A subclass of str is one, too.
    assert usmq.Device(np.str_(text)).filter_string == expected
    assert usmq.Queue(text).device.filter_string == expected


def test_the_index_counts_matching_devices(two_devices):
    _, second = two_devices
    kind, backend = second.device_type, second.backend
    forms = (f"{kind}:1", f"1:{kind}", f"{backend}:1:{kind}", f"{backend}:{kind}:1")
    for text in (*forms, f"gpu:99,{kind}:1"):
        assert usmq.Device(text) == second, text
    either = f"{kind}:1,{kind}:0"
    assert usmq.Device(either).filter_string == dpctl.SyclDevice(either).filter_string


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text[:24]))
def test_a_refused_filter_is_a_selector_error_that_quotes_it(text):
    with pytest.raises(usmq.SelectorError) as caught:
        usmq.Device(text)
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, usmq.DeviceNotFoundError)
    if text.isascii() and text.isprintable() and 0 < len(text) < 100:
        assert text in str(caught.value)


@pytest.mark.parametrize("text", ABSENT.split())
def test_an_absent_device_is_an_error_that_lists_the_visible_ones(text):
    with pytest.raises(usmq.DeviceNotFoundError) as caught:
        usmq.Device(text)
    assert not isinstance(caught.value, usmq.SelectorError)
    assert text in str(caught.value)
    for device in usmq.devices():
        assert device.filter_string in str(caught.value)
        assert device.name in str(caught.value)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_raises_the_same_errors_and_keeps_the_default(entry):
    kept = usmq.Queue(profiling=True)
    usmq.set_default_queue(kept)
    with pytest.raises(usmq.SelectorError):
        ENTRIES[entry]("CPU")
    with pytest.raises(usmq.DeviceNotFoundError):
        ENTRIES[entry]("gpu:99")
    assert usmq.current_queue() == kept


def test_oneapi_device_selector_decides_what_is_visible(run_python):
    code = "import usmq; print(*[d.filter_string for d in usmq.devices()])"
    shown = run_python(code, ONEAPI_DEVICE_SELECTOR="opencl:cpu").stdout.split()
    assert shown
    assert all(name.startswith("opencl:cpu:") for name in shown)
    only_first = run_python(code, ONEAPI_DEVICE_SELECTOR="opencl:0").stdout.split()
    assert len(only_first) == 1
    assert run_python(code, ONEAPI_DEVICE_SELECTOR="!opencl:*").stdout.find("opencl") == -1
