"""Limits of device memory in usmq.dask: their forms, and results that leave the device."""

import contextlib
import gc
import sys
from collections import deque

import numpy as np
import pytest
import usmq
from dask.sizeof import sizeof
from dask_workers import UNCLOSED_SOCKETS, addresses, clients, send_by_value
from distributed import wait
from usmq.dask import DeviceSpill, QueuePlugin
from usmq.dask._assignment import Assignment
from usmq.dask._held import device_bytes
from usmq.dask._limits import in_bytes, parse_limit

pytestmark = UNCLOSED_SOCKETS
send_by_value(__name__)

SIZE = 1 << 20


class Box:
    """An object of a user."""

    def __init__(self, held):
        self.held = held


class Slots:
    """An object without a dict."""

    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Exporter:
    """An object of another library, with the array interface only."""

    def __init__(self, array):
        self._array = array

    @property
    def __sycl_usm_array_interface__(self):
        return self._array.__sycl_usm_array_interface__


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, None),
        ("none", None),
        (0, 0),
        ("0", 0),
        (5, 5),
        (0.8, 0.8),
        ("0.8", 0.8),
        (np.float32(0.5), 0.5),
        (1, 1.0),
        (1.0, 1.0),
        (2e9, 2_000_000_000),
        ("2 GiB", 2 << 30),
        ("200MB", 200_000_000),
    ],
)
def test_a_limit_is_bytes_or_a_fraction(given, read):
    found = parse_limit(given, "pool_limit")
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize("given", ["many", "0.8 GiBs", float("nan"), float("inf"), [1], ""])
def test_another_form_is_an_error_that_names_the_parameter(given):
    with pytest.raises(ValueError, match="pool_limit is a number of bytes, a size as '2 GiB'"):
        parse_limit(given, "pool_limit")
    with pytest.raises(ValueError, match=r"memory_limit must be 0 or more, not -0\.5"):
        QueuePlugin(memory_limit=-0.5)


OPTIONS = {
    "devices": ["opencl:0"],
    "n_workers": None,
    "sub_devices": None,
    "parts": 2,
    "pool_limit": None,
    "device_memory_limit": 0.8,
    "threads": 1,
    "memory_limit": "1 GiB",
}


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({"pool_limit": 0.5}, (0.8, 0.5)),
        ({"pool_limit": 0.5, "n_workers": 4}, (0.2, 0.125)),
        ({"pool_limit": "1 GiB", "n_workers": 4}, (0.2, 1 << 30)),
        ({"pool_limit": 0.5, "sub_devices": 1}, (0.4, 0.25)),
    ],
)
def test_workers_of_one_device_divide_a_fraction(given, limits):
    assignment = Assignment(**OPTIONS | given)
    assert (assignment.data[1]["device_limit"], assignment.plugin(0).memory_limit) == limits
    assert Assignment(**OPTIONS | {"device_memory_limit": None}).data is None


def arrays(kind):
    return usmq.zeros(SIZE, "u1", usm_type=kind)


NESTED = {
    "itself": lambda array: array,
    "list": lambda array: [1, array],
    "dict of tuples": lambda array: {"a": (array,)},
    "deque": lambda array: deque([array]),
    "attribute": Box,
    "slot": Slots,
    "nested attributes": lambda array: [Box({"a": Slots(array)})],
    "interface": Exporter,
    "column": usmq.Column,
    "table": lambda array: usmq.Table({"a": array}),
}


@pytest.mark.parametrize("form", NESTED)
def test_arrays_are_counted_inside_of_objects(form):
    for kind in ("device", "shared", "host"):
        made = NESTED[form](arrays(kind))
        assert SIZE <= sizeof(made) < SIZE + 2000
        assert SIZE <= sizeof([made]) < SIZE + 2000
        if kind != "shared":
            assert device_bytes(made) == (SIZE if kind == "device" else 0)


def test_arrays_of_dpnp_are_counted_inside_of_objects():
    dpnp = pytest.importorskip("dpnp")
    array = dpnp.zeros(SIZE, dtype="u1")
    for made in array, [array], {"a": array}, Box(array), Box([Slots(array)]), deque([array]):
        assert SIZE <= sizeof(made) < SIZE + 2000
        assert device_bytes(made) == SIZE


def test_the_size_that_an_object_states_itself_is_kept():
    class Sized(Box):
        def __sizeof__(self):
            return 50

    assert sizeof(Sized(arrays("device"))) == sys.getsizeof(Sized(None))
    assert sizeof(Box(1)) == sys.getsizeof(Box(1))
    assert sizeof(usmq.Queue) == sys.getsizeof(usmq.Queue)


def test_an_array_counts_once_and_a_cycle_ends():
    array = arrays("device")
    box = Box([array, array])
    box.held.append(box)
    assert device_bytes([box, {"again": array}]) == SIZE
    assert device_bytes([sys, Box, len, np.ones(3), "text"]) == 0


@pytest.fixture
def make_spill(tmp_path):
    yield lambda target: DeviceSpill(str(tmp_path), device_limit=0.5, target=target)
    usmq._core.set_relief(None)


@pytest.fixture
def spill(make_spill):
    return make_spill(1 << 40)


def test_a_fraction_is_of_the_memory_of_the_device(spill):
    assert spill.device_limit == usmq.current_queue().device.global_mem_size // 2
    assert in_bytes(100, usmq.Device()) == 100


@pytest.mark.parametrize("form", [name for name in NESTED if name != "interface"])
def test_objects_with_arrays_leave_the_device_and_return(form, spill):
    spill["a"] = NESTED[form](usmq.full(SIZE, 7, "u1"))
    assert spill.relieve(1)
    assert spill.bytes_by_place()["device"] == 0
    assert device_bytes(spill["a"]) == SIZE
    assert spill.bytes_by_place()["moved-to-device"] == SIZE


@pytest.mark.parametrize("form", ["attribute", "slot", "deque"])
def test_host_memory_inside_of_objects_moves_to_disk(form, make_spill):
    spill = make_spill(3 * SIZE)
    for number in range(5):
        spill[number] = NESTED[form](usmq.full(SIZE, number, "u1", usm_type="host"))
    places = spill.bytes_by_place()
    assert places["host"] <= 3 * SIZE
    assert places["disk"] >= 3 * SIZE
    for number in range(5):
        value = spill[number]
        [array] = value if isinstance(value, deque) else [value.held]
        assert (array.usm_type, array.tolist()) == ("host", [number] * SIZE)


@contextlib.contextmanager
def limited(nbytes):
    """Limit the device memory to so much more than is in use, slabs of small blocks included."""
    device = usmq.current_queue().device
    gc.collect()
    usmq.trim_memory()
    reserved = usmq.memory_stats(device)["device"]["reserved"]
    usmq.set_memory_limit(reserved + nbytes, device, "device")
    try:
        yield
    finally:
        usmq.set_memory_limit(None, device, "device")


def test_an_allocation_that_fails_moves_idle_results_only(spill):
    with limited(4 * SIZE):
        for number in range(4):
            spill[number] = usmq.full(SIZE, number, "u1")
        used = spill[0]
        more = usmq.zeros(2 * SIZE, "u1")
        # The least recently used results left: 0 is in use.
        assert sorted(spill.device) == [0, 3]
        assert used is spill[0]
        with pytest.raises(usmq.AllocationError, match="limit"):
            usmq.zeros(4 * SIZE, "u1")
        del more
        assert [int(spill[n].to_numpy()[5]) for n in range(4)] == [0, 1, 2, 3]


@pytest.mark.usefixtures("make_spill")
def test_an_error_of_the_relief_is_reported_and_the_allocation_fails(monkeypatch):
    def broken(device, usm_type, nbytes):
        raise RuntimeError(f"no room for {nbytes} of {usm_type}")

    hooks = []
    monkeypatch.setattr(sys, "unraisablehook", hooks.append)
    usmq._core.set_relief(broken)
    with limited(SIZE), pytest.raises(usmq.AllocationError):
        usmq.zeros(2 * SIZE, "u1")
    assert [str(hook.exc_value) for hook in hooks] == [f"no room for {2 * SIZE} of device"]


def test_a_result_without_a_pickle_stays_and_is_reported(spill, caplog):
    class Closed(Box):
        def __reduce__(self):
            raise TypeError("cannot leave")

    spill["a"] = Closed(arrays("device"))
    assert not spill.relieve(1)
    assert not spill.relieve(1)
    assert spill.bytes_by_place()["device"] == SIZE
    [text] = [text for *_, text in caplog.record_tuples if "stays on the device" in text]
    assert "'a' of type Closed" in text


def full(number):
    return usmq.full(4 * SIZE, number, "u1")


def test_results_beyond_the_pool_limit_leave_the_device_by_default():
    with clients(["opencl:0"], pool_limit=16 * SIZE) as client:
        parts = client.map(full, range(12))
        wait(parts, timeout=60)
        large = client.submit(lambda: usmq.zeros(14 * SIZE, "u1").nbytes, pure=False)
        assert large.result(timeout=60) == 14 * SIZE
        sums = client.map(lambda x: int(x.to_numpy()[:1000].sum()), parts, pure=False)
        assert client.gather(sums) == [1000 * number for number in range(12)]


def peer(number):
    import dpnp

    return dpnp.full(SIZE, number, dtype="i4")


def add(*parts):
    import dpnp

    # New arrays of dpnp are on the same queue.
    return int(sum((part + dpnp.ones(part.size, dtype="i4"))[10] for part in parts))


@pytest.mark.usefixtures("two_devices")
def test_arrays_of_dpnp_travel_and_leave_the_device():
    pytest.importorskip("dpnp")
    with clients(n_workers=2, device_memory_limit="16 MiB") as client:
        first, second = addresses(client)

        def on(worker, task, *given):
            return client.submit(task, *given, workers=[worker], pure=False)

        parts = client.map(peer, range(1, 9), workers=[first])
        boxed = on(first, lambda: Box([peer(7)]))
        small = on(first, lambda: peer(3)[:100:2])
        for worker in first, second:
            assert on(worker, add, *parts).result(timeout=60) == 44
            assert on(worker, lambda box: add(*box.held), boxed).result(timeout=60) == 8
            assert on(worker, add, small).result(timeout=60) == 4
        moved = client.run(lambda dask_worker: dask_worker.data.bytes_by_place())
        assert moved[first]["moved-from-device"] >= 4 * 4 * SIZE
        assert moved[first]["device"] <= 16 << 20
        assert int(parts[4].result(timeout=60)[3]) == 5
        assert int(boxed.result(timeout=60).held[0][3]) == 7
        assert on(second, add, peer(2)).result(timeout=60) == 3
