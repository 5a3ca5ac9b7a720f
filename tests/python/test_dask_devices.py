"""The devices that a user names for the workers of a cluster, in every form."""

import sys

import numpy as np
import pytest
import usmq
from emulated import result, start

pytest.importorskip("distributed")

from usmq.dask._assignment import terms
from usmq.dask._selectors import Visible

FORMS = {
    "a list of strings": (["gpu:0", "cpu"], ["gpu:0", "cpu"]),
    "a string": ("gpu:0", ["gpu:0"]),
    "a string of several": ("gpu:0;opencl:cpu", ["gpu:0", "opencl:cpu"]),
    "a list of a string of several": (["gpu:0;gpu:1", 3], ["gpu:0", "gpu:1", 3]),
    "numbers": ([0, 1], [0, 1]),
    "a range": (range(2), [0, 1]),
    "numbers of numpy": (np.array([0, 1]), [0, 1]),
    "a generator": ((name for name in ("gpu:0", "gpu:1")), ["gpu:0", "gpu:1"]),
    "no device": ([], []),
}


@pytest.mark.parametrize("form", FORMS)
def test_devices_have_many_forms(form):
    given, selectors = FORMS[form]
    assert [*terms(given)] == selectors


def test_a_device_is_its_filter_string_of_this_process():
    device = usmq.current_queue().device
    for given in device, [device], (device,):
        [term] = terms(given)
        assert isinstance(term, Visible)
        assert term == device.filter_string


WRONG = {
    "a number": (lambda: 2, r"not 2; the number of workers is n_workers$"),
    "a number of numpy": (lambda: np.int64(2), r"2\)?; the number of workers is n_workers$"),
    "a float": (lambda: 2.0, r"\['gpu:0', 'gpu:1'\] or \[0, 1\], not 2\.0$"),
    "bytes": (lambda: b"gpu:0", r"not b'gpu:0'$"),
    "a queue": (lambda: usmq.current_queue(), r"not <usmq\.Queue [^;]*$"),
    "a list of a queue": (lambda: [usmq.current_queue()], r"or numbers, not <usmq\.Queue"),
    "a bool": (lambda: [True], r"or numbers, not True$"),
    "a list of None": (lambda: [None], r"or numbers, not None$"),
    "a list of lists": (lambda: [["gpu:0"]], r"or numbers, not \['gpu:0'\]$"),
}


@pytest.mark.parametrize("form", WRONG)
def test_another_form_is_named(form):
    make, text = WRONG[form]
    with pytest.raises(TypeError, match=text):
        [*terms(make())]


def test_a_sub_device_is_refused():
    device = usmq.current_queue().device.root_device
    if (device.partition_max_sub_devices or 0) < 2:
        pytest.skip(f"{device} has no sub-devices")
    with pytest.raises(TypeError, match=r"not <usmq\.Device sub-device.*; sub_devices divides a"):
        [*terms(device.sub_devices(1)[0])]


CLUSTERS = """
import usmq
from usmq.dask import LocalUsmCluster

def names(devices):
    options = {"dashboard_address": ":0", "device_memory_limit": None}
    with LocalUsmCluster(devices, **options) as cluster, cluster.get_client() as client:
        found = client.run(lambda: usmq.current_queue().device.name[:14])
        print(*sorted(found.values()), sep=", ")
"""
QUIET = {"DASK_LOGGING__DISTRIBUTED": "critical"}


def test_workers_are_on_the_named_emulated_gpus():
    code = f"""{CLUSTERS}
for devices in ["gpu:0"], [0], "gpu:1", [0, "GPU:1"], usmq.Device("gpu:1"):
    names(devices)
"""
    first, second = "Emulated GPU 0", "Emulated GPU 1"
    lines = [first, first, second, f"{first}, {second}", second]
    assert result(code, "2", **QUIET) == lines
    # Behind a selector the first GPU of this process is the second one.
    code = f"{CLUSTERS}names([usmq.Device('gpu:0')])"
    assert result(code, "2", ONEAPI_DEVICE_SELECTOR="opencl:1", **QUIET) == [second]


def test_the_reason_for_missing_gpus_is_a_warning_of_the_cluster():
    code = f"""{CLUSTERS}
try:
    names(["gpu:0"])
except usmq.DeviceNotFoundError as error:
    print(error)
"""
    variables = {"USMQ_EMULATE_GPUS": "2", "USMQ_LAYERS_LIBRARY": __file__}
    done = start(sys.executable, "-c", code, **variables)
    assert done.stdout.startswith("no device for a worker: 'gpu:0' was requested; visible devices:")
    assert "RuntimeWarning: USMQ_EMULATE_GPUS=2, but no emulated GPU is visible" in done.stderr
    assert f"has not taken {__file__}" in done.stderr
