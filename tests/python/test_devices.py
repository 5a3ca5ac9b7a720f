"""Devices and sub-devices: usmq and dpctl describe them equally."""

import dpctl
import pytest
import usmq


@pytest.fixture(params=[device.filter_string for device in usmq.devices()])
def device(request):
    return usmq.Device(request.param)


def test_devices_lists_every_root_device_that_dpctl_sees():
    found = usmq.devices()
    assert isinstance(found, list)
    assert all(type(device) is usmq.Device for device in found)
    names = [device.filter_string for device in found]
    assert len(names) == len(set(names))
    assert {peer.filter_string for peer in dpctl.get_devices()} <= set(names)


def test_has_usm_agrees_with_the_aspects(device):
    for kind in ("device", "shared", "host"):
        assert device.has_usm(kind) is (f"usm_{kind}_allocations" in device.aspects)
    for kind in ("", "Device", "system ", "gpu"):
        with pytest.raises(ValueError, match="shared"):
            device.has_usm(kind)


def test_a_filter_string_and_queues_select_the_same_device_again(device):
    queue = usmq.Queue(device)
    for target in (device.filter_string, device, queue, dpctl.SyclQueue(device.filter_string)):
        again = usmq.Device(target)
        assert again == device
        assert (again != device) is False
        assert hash(again) == hash(device)
        assert len({again, device, *usmq.devices()}) == len(usmq.devices())
    for other in (device.filter_string, 0, None, queue):
        assert device != other


def test_a_root_device_has_a_text_fixed_attributes_and_no_parent(device):
    assert device.filter_string in repr(device)
    assert device.name.split()[0] in str(device) or device.filter_string in str(device)
    assert device.parent is None
    with pytest.raises(AttributeError):
        device.name = "other"


def test_two_root_devices_differ(two_devices):
    first, second = two_devices
    assert first != second
    kind = first.device_type
    assert first.filter_string == f"{first.backend}:{kind}:0"
    assert second.filter_string == f"{first.backend}:{kind}:1"
    # The GPUs of one vendor have one platform and one default context, two runtimes have two.
    is_one_platform = kind == "gpu"
    assert (usmq.Queue(first).context == usmq.Queue(second).context) == is_one_platform


@pytest.fixture
def root():
    device = usmq.current_queue().device
    if device.max_compute_units < 2:
        pytest.skip(f"{device.name} has one compute unit, so it cannot be partitioned")
    return device


def test_counts_partition_the_device_by_compute_units(root):
    if "partition_equally" not in root.partition_properties:
        pytest.skip(f"{root.name} does not divide by compute units, as GPUs of Level Zero")
    for counts, number in ((1, root.max_compute_units), ([1, 1], 2)):
        parts = root.sub_devices(counts)
        assert len(set(parts)) == len(parts) == number
        for part in parts:
            assert part.max_compute_units == 1
            assert part.parent == root
            assert part != root
            assert not part.filter_string, "a sub-device cannot be named by a filter string"
            assert part.name == root.name


def test_partitioning_by_numa_matches_dpctl(root):
    peer = dpctl.SyclDevice(root.filter_string)
    try:
        expected = len(peer.create_sub_devices(partition="numa"))
    except dpctl.SyclSubDeviceCreationError:
        with pytest.raises(usmq.Error, match=r"(?i)numa"):
            root.sub_devices("numa")
    else:
        assert len(root.sub_devices("numa")) == expected


def test_an_impossible_partition_is_an_error(root):
    for parts in (0, -1, 10**6, 2**70, [], [0], [1, -1], [1, 10**6], "", "nosuch"):
        with pytest.raises((usmq.Error, ValueError, OverflowError)):
            root.sub_devices(parts)
    for parts in (1.5, None, [1, "a"], {}):
        with pytest.raises(TypeError):
            root.sub_devices(parts)


def test_work_runs_on_a_sub_device(sub_device):
    with usmq.use_queue(sub_device) as queue:
        x = usmq.arange(0, 1000, 1, dtype="i4")
    assert x.queue == queue
    assert x.device == sub_device
    assert x.to_numpy().tolist() == list(range(1000))
