"""Devices and sub-devices: usmq and dpctl describe them equally."""

import re

import dpctl
import pytest
import usmq

ASPECTS = re.findall(
    r"\w+",
    """
    cpu gpu accelerator custom emulated host_debuggable fp16 fp64 atomic64 image online_compiler
    online_linker queue_profiling usm_device_allocations usm_host_allocations
    usm_shared_allocations usm_system_allocations
    """,
)


@pytest.fixture(params=[device.filter_string for device in usmq.devices()])
def device(request):
    return usmq.Device(request.param)


@pytest.fixture
def peer(device):
    return dpctl.SyclDevice(device.filter_string)


def test_devices_lists_every_root_device_that_dpctl_sees():
    found = usmq.devices()
    assert isinstance(found, list)
    assert all(type(device) is usmq.Device for device in found)
    names = [device.filter_string for device in found]
    assert len(names) == len(set(names))
    assert {peer.filter_string for peer in dpctl.get_devices()} <= set(names)


def test_a_device_has_the_same_description_as_in_dpctl(device, peer):
    assert device.name == peer.name
    assert device.vendor == peer.vendor
    assert device.driver_version == peer.driver_version
    assert device.backend == peer.backend.name
    assert device.device_type == peer.device_type.name
    assert device.max_compute_units == peer.max_compute_units
    assert device.global_mem_size == peer.global_mem_size
    assert device.max_alloc_size == peer.max_mem_alloc_size
    assert device.filter_string == peer.filter_string


@pytest.mark.parametrize("aspect", ASPECTS)
def test_an_aspect_is_listed_exactly_when_the_device_has_it(device, peer, aspect):
    assert (aspect in device.aspects) == getattr(peer, f"has_aspect_{aspect}")


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_has_usm_agrees_with_the_aspects(device, kind):
    assert device.has_usm(kind) is (f"usm_{kind}_allocations" in device.aspects)


@pytest.mark.parametrize("kind", ["", "Device", "system ", "gpu"])
def test_an_unknown_usm_kind_is_a_value_error(device, kind):
    with pytest.raises(ValueError, match="shared"):
        device.has_usm(kind)


def test_a_filter_string_selects_the_same_device_again(device):
    again = usmq.Device(device.filter_string)
    assert again == device
    assert (again != device) is False
    assert hash(again) == hash(device)
    assert len({again, device, *usmq.devices()}) == len(usmq.devices())


def test_a_device_does_not_equal_other_types(device):
    assert device != device.filter_string
    assert device != 0
    assert device is not None
    assert device != usmq.Queue(device)


def test_the_repr_of_a_device_names_it(device):
    assert device.filter_string in repr(device)
    assert device.name.split()[0] in str(device) or device.filter_string in str(device)


def test_a_device_a_queue_and_a_foreign_queue_name_their_device(device):
    assert usmq.Device(device) == device
    assert usmq.Device(usmq.Queue(device)) == device
    assert usmq.Device(dpctl.SyclQueue(device.filter_string)) == device


def test_a_root_device_has_no_parent(device):
    assert device.parent is None


def test_attributes_cannot_be_set(device):
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


@pytest.fixture
def divisible(root):
    """Return a device that divides by compute units, as CPUs do and GPUs of Level Zero do not."""
    if "partition_equally" not in root.partition_properties:
        pytest.skip(f"{root.name} does not divide by compute units")
    return root


def test_a_count_partitions_the_device_equally_by_compute_units(divisible):
    root = divisible
    parts = root.sub_devices(1)
    assert len(parts) == root.max_compute_units
    for part in parts:
        assert part.max_compute_units == 1
        assert part.parent == root
        assert part != root
        assert not part.filter_string, "a sub-device cannot be named by a filter string"
        assert part.name == root.name
    assert len(set(parts)) == len(parts)


def test_counts_set_the_compute_units_of_each_sub_device(divisible):
    root = divisible
    parts = root.sub_devices([1, 1])
    assert [part.max_compute_units for part in parts] == [1, 1]
    assert all(part.parent == root for part in parts)


def test_partitioning_by_numa_matches_dpctl(root):
    peer = dpctl.SyclDevice(root.filter_string)
    try:
        expected = len(peer.create_sub_devices(partition="numa"))
    except dpctl.SyclSubDeviceCreationError:
        with pytest.raises(usmq.Error, match=r"(?i)numa"):
            root.sub_devices("numa")
    else:
        assert len(root.sub_devices("numa")) == expected


@pytest.mark.parametrize("parts", [0, -1, 10**6, 2**70, [], [0], [1, -1], [1, 10**6], "", "nosuch"])
def test_an_impossible_partition_is_an_error(root, parts):
    with pytest.raises((usmq.Error, ValueError, OverflowError)):
        root.sub_devices(parts)


@pytest.mark.parametrize("parts", [1.5, None, [1, "a"], {}])
def test_a_partition_argument_of_the_wrong_type_is_a_type_error(root, parts):
    with pytest.raises(TypeError):
        root.sub_devices(parts)


def test_work_runs_on_a_sub_device(sub_device):
    with usmq.use_queue(sub_device) as queue:
        x = usmq.arange(0, 1000, 1, dtype="i4")
    assert x.queue == queue
    assert x.device == sub_device
    assert x.to_numpy().tolist() == list(range(1000))
