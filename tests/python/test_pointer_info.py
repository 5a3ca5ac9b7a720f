"""`usmq.pointer_info`: kind, device and allocation of an address, on each device of a context."""

import dpctl
import dpctl.memory
import pytest
import usmq
from conftest import skip_where_the_driver_knows_all_contexts

KINDS = ["device", "shared", "host"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(usmq.devices())))
def test_an_address_has_the_kind_device_and_allocation_of_its_array(kind, number):
    device = usmq.devices()[number]
    if not device.has_usm(kind):
        pytest.skip(f"{device.name} has no {kind} USM")
    x = usmq.zeros(1000, "u1", usm_type=kind, queue=device)
    info = usmq.pointer_info(x.ptr + 999, x.queue.context)
    assert info is not None
    assert info.kind == kind
    if kind != "host":  # which belongs to the whole context
        assert info.device == device
    assert info.base is None or info.base <= x.ptr
    assert info.nbytes is None or info.nbytes >= 1000
    assert kind in repr(info)


@pytest.mark.parametrize("number", range(len(usmq.devices())))
def test_memory_of_dpctl_is_identified_with_its_device(number):
    device = usmq.devices()[number]
    theirs = dpctl.SyclQueue(device.filter_string)
    memory = dpctl.memory.MemoryUSMDevice(1 << 20, queue=theirs)
    info = usmq.pointer_info(memory._pointer + 100, theirs.sycl_context)
    assert info is not None
    assert (info.kind, info.device) == ("device", device)
    assert info.base in (None, memory._pointer)
    assert info.nbytes is None or info.nbytes >= 1 << 20


def test_other_addresses_are_unknown():
    x = usmq.zeros(8)
    for address in (0, 1, id(x), 2**64 - 1):
        assert usmq.pointer_info(address, x.queue.context) is None
    skip_where_the_driver_knows_all_contexts(x.device)
    assert usmq.pointer_info(x.ptr, usmq.Context([x.device])) is None
