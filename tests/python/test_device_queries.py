"""Platforms, selection of devices, and every query of ``dpctl.SyclDevice``."""

import dpctl
import dpctl.utils
import pytest
import usmq

# Attributes of dpctl.SyclDevice that usmq.Device has under another name, or not, with the reason.
OTHER = {
    "addressof_ref": "an address of dpctl's own C object",
    "can_access_peer": "usmq asks for peer access where a command needs it",
    "enable_peer_access": "usmq enables peer access where a command needs it",
    "disable_peer_access": "usmq never disables what another library may use",
    "component_devices": "composite devices are not supported; their parts are root devices",
    "composite_device": "composite devices are not supported; their parts are root devices",
    "create_sub_devices": "sub_devices",
    "get_device_id": "ordinal",
    "get_filter_string": "filter_string",
    "get_unpartitioned_parent_device": "root_device",
    "max_mem_alloc_size": "max_alloc_size",
    "max_work_item_sizes": "deprecated in dpctl; max_work_item_sizes3d",
    "parent_device": "parent",
    "print_device_info": "python -m usmq list -f",
    "sycl_platform": "platform",
}
VALUES = sorted(
    name
    for name in dir(dpctl.SyclDevice)
    if not name.startswith(("_", "has_aspect_")) and name not in OTHER
)


@pytest.fixture(scope="module", params=[*range(len(usmq.devices())), "sub-device"], ids=str)
def pair(request):
    """Return a device of usmq and of dpctl."""
    if request.param == "sub-device":
        ours = usmq.Device("cpu").sub_devices(1)[0]
    else:
        ours = usmq.devices()[request.param]
    return ours, usmq.dpctl_queue(ours).sycl_device


def test_each_attribute_of_dpctl_is_present_or_listed():
    missing = [name for name in VALUES if not hasattr(usmq.Device, name)]
    assert missing == []
    assert [name for name in OTHER if not hasattr(dpctl.SyclDevice, name)] == []


def plain(value):
    """A value of dpctl as usmq has it: enumerations by name."""
    enumerations = ("backend_type", "device_type", "global_mem_cache_type")
    return value.name if type(value).__name__ in enumerations else value


def test_each_property_has_the_value_of_dpctl(pair):
    ours, theirs = pair
    for name in VALUES:
        if name == "filter_string" and ours.parent is not None:
            assert ours.filter_string is None  # dpctl raises
        else:
            assert getattr(ours, name) == plain(getattr(theirs, name)), name


def test_each_renamed_property_has_the_value_of_dpctl(pair):
    ours, theirs = pair
    assert ours.max_alloc_size == theirs.max_mem_alloc_size
    if ours.parent is None:
        assert ours.ordinal == theirs.get_device_id()
        assert ours.filter_string == theirs.get_filter_string()
        return
    assert ours.parent == ours.root_device == ours.parent.root_device
    root = usmq.dpctl_queue(ours.root_device).sycl_device
    assert root == theirs.get_unpartitioned_parent_device()


def test_aspects_are_those_of_dpctl(pair):
    ours, theirs = pair
    names = [name for name in dir(dpctl.SyclDevice) if name.startswith("has_aspect_")]
    assert len(names) > 15
    for name in names:
        aspect = name.removeprefix("has_aspect_")
        if aspect in ("is_component", "is_composite"):
            aspect = f"ext_oneapi_{aspect}"
        assert ours.has_aspect(aspect) == getattr(theirs, name), aspect
        assert (aspect in ours.aspects) == getattr(theirs, name), aspect


def test_an_unknown_aspect_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown aspect \"fp65\"; .*fp64.*ext_"):
        usmq.Device("cpu").has_aspect("fp65")
    for call in (usmq.devices, usmq.Device.select):
        for keyword in ("aspects", "excluded_aspects"):
            with pytest.raises(ValueError, match='unknown aspect "fp65"'):
                call(**{keyword: ["fp64", "fp65"]})
            with pytest.raises(TypeError, match=f"{keyword} must be a sequence of str"):
                call(**{keyword: "fp64"})
        with pytest.raises(ValueError, match=r'unknown backend "vulkan".*level_zero'):
            call(backend="vulkan")
        with pytest.raises(ValueError, match=r'unknown device type "CPU".*cpu, gpu'):
            call(device_type="CPU")


def test_intel_numbers_are_those_of_dpctl(pair):
    ours, theirs = pair
    # dpctl leaves out a clock rate that the driver reports as 0.
    numbers = {name: number for name, number in ours.intel_device_info().items() if number}
    assert numbers == {k: v for k, v in dpctl.utils.intel_device_info(theirs).items() if v}


def test_platforms_are_those_of_dpctl():
    ours, theirs = usmq.platforms(), dpctl.get_platforms()
    assert [(p.name, p.vendor, p.version, p.backend) for p in ours] == [
        (p.name, p.vendor, p.version, p.backend.name) for p in theirs
    ]
    assert [d for p in ours for d in p.devices] == usmq.devices()
    for platform, other in zip(ours, theirs, strict=True):
        assert [d.name for d in platform.devices] == [d.name.strip() for d in other.get_devices()]
        assert usmq.Queue(platform.devices[0]).context == platform.default_context
        assert usmq.dpctl_queue(platform.devices[0]).sycl_context == other.default_context
        assert all(device.platform == platform for device in platform.devices)
        assert all(hash(device.platform) == hash(platform) for device in platform.devices)
        assert repr(platform).startswith(f"<usmq.Platform {platform.name} ({platform.backend}), ")
    part = usmq.Device("cpu").sub_devices(1)[0]
    assert part.platform == usmq.Device("cpu").platform


def test_devices_are_selected_by_their_properties():
    every = usmq.devices()
    cpus = [d for d in every if d.device_type == "cpu"]
    assert usmq.devices(device_type="cpu") == cpus
    assert usmq.devices(backend="opencl") == [d for d in every if d.backend == "opencl"]
    assert usmq.devices(aspects=["fp64", "cpu"]) == [
        d for d in every if {"fp64", "cpu"} <= set(d.aspects)
    ]
    assert usmq.devices(excluded_aspects=("cpu",)) == [d for d in every if not d.is_cpu]
    assert usmq.devices(aspects=[]) == usmq.devices() == every
    assert usmq.devices(device_type="custom") == []
    assert usmq.Device.select() == usmq.Device()
    assert usmq.Device.select(aspects=["fp64"], device_type="cpu") == usmq.Device("cpu")
    theirs = dpctl.select_device_with_aspects(["cpu", "fp64"])
    assert usmq.Device.select(aspects=["cpu", "fp64"]) == usmq.Device(theirs.filter_string)


def test_no_match_is_an_error_that_names_the_request_and_the_visible_devices():
    with pytest.raises(
        usmq.DeviceNotFoundError,
        match=r"backend opencl, type custom, aspect fp64, without aspect cpu.*visible devices: ",
    ):
        usmq.Device.select(
            aspects=["fp64"], excluded_aspects=["cpu"], backend="opencl", device_type="custom"
        )
