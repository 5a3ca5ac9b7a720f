"""Limits of device memory in usmq.dask: their forms, and results that leave the device."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import usmq

distributed = pytest.importorskip("distributed")

from dask.sizeof import sizeof  # noqa: E402
from distributed import wait  # noqa: E402
from usmq.dask import DeviceSpill, LocalUsmCluster, QueuePlugin  # noqa: E402
from usmq.dask._assignment import Assignment  # noqa: E402
from usmq.dask._held import device_bytes  # noqa: E402
from usmq.dask._limits import in_bytes, parse_limit  # noqa: E402

# dask's own: it closes some of its sockets after its loop has ended.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE = 1 << 20


class Box:
    """An object of a user."""

    def __init__(self, held: Any):
        self.held = held


class Slots:
    """An object without a dict."""

    __slots__ = ("held",)

    def __init__(self, held: Any):
        self.held = held


class Exporter:
    """An object of another library, with the array interface only."""

    def __init__(self, array: usmq.Array):
        self._array = array

    @property
    def __sycl_usm_array_interface__(self) -> Any:
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
def test_a_limit_is_bytes_or_a_fraction(given: Any, read: Any) -> None:
    found = parse_limit(given, "pool_limit")
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize("given", ["many", "0.8 GiBs", float("nan"), float("inf"), [1], ""])
def test_another_form_is_an_error_that_names_the_parameter(given: Any) -> None:
    with pytest.raises(ValueError, match="pool_limit is a number of bytes, a size as '2 GiB'"):
        parse_limit(given, "pool_limit")
    with pytest.raises(ValueError, match=r"memory_limit must be 0 or more, not -0\.5"):
        QueuePlugin(memory_limit=-0.5)


def assigned(**given: Any) -> Assignment:
    options: dict[str, Any] = {
        "devices": ["opencl:0"],
        "n_workers": None,
        "sub_devices": None,
        "parts": 2,
        "pool_limit": None,
        "device_memory_limit": 0.8,
        "threads": 1,
        "memory_limit": "1 GiB",
    }
    return Assignment(**options | given)


def test_workers_of_one_device_divide_a_fraction() -> None:
    def limits(**given: Any) -> tuple[Any, Any]:
        assignment = assigned(**given)
        assert assignment.data is not None
        return assignment.data[1]["device_limit"], assignment.plugin(0).memory_limit

    assert limits(pool_limit=0.5) == (0.8, 0.5)
    assert limits(pool_limit=0.5, n_workers=4) == (0.2, 0.125)
    assert limits(pool_limit="1 GiB", n_workers=4) == (0.2, 1 << 30)
    assert limits(pool_limit=0.5, sub_devices=1) == (0.4, 0.25)
    assert assigned(device_memory_limit=None).data is None


def arrays(kind: str) -> Any:
    return usmq.zeros(SIZE, "u1", usm_type=kind)


NESTED: dict[str, Callable[[Any], Any]] = {
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
def test_device_memory_is_counted_inside_of_objects(form: str) -> None:
    assert device_bytes(NESTED[form](arrays("device"))) == SIZE
    assert device_bytes(NESTED[form](arrays("host"))) == 0


@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_dask_counts_arrays_inside_of_objects(form: str, kind: str) -> None:
    made = NESTED[form](arrays(kind))
    assert SIZE <= sizeof(made) < SIZE + 2000
    assert SIZE <= sizeof([made]) < SIZE + 2000


def test_dask_counts_arrays_of_dpnp_inside_of_objects() -> None:
    dpnp = pytest.importorskip("dpnp")
    array = dpnp.zeros(SIZE, dtype="u1")
    for made in array, [array], {"a": array}, Box(array), Box([Slots(array)]), deque([array]):
        assert SIZE <= sizeof(made) < SIZE + 2000
        assert device_bytes(made) == SIZE


def test_the_size_that_an_object_states_itself_is_kept() -> None:
    class Sized(Box):
        def __sizeof__(self) -> int:
            return 50

    assert sizeof(Sized(arrays("device"))) == sys.getsizeof(Sized(None))
    assert sizeof(Box(1)) == sys.getsizeof(Box(1))
    assert sizeof(usmq.Queue) == sys.getsizeof(usmq.Queue)


def test_an_array_counts_once_and_a_cycle_ends() -> None:
    array = arrays("device")
    box = Box([array, array])
    box.held.append(box)
    assert device_bytes([box, {"again": array}]) == SIZE
    assert device_bytes([sys, Box, len, np.ones(3), "text"]) == 0


@pytest.fixture
def spill(tmp_path: Path) -> Iterator[DeviceSpill]:
    yield DeviceSpill(str(tmp_path), device_limit=0.5, target=1 << 40)
    usmq._core.set_relief(None)


def test_a_fraction_is_of_the_memory_of_the_device(spill: DeviceSpill) -> None:
    assert spill.device_limit == usmq.current_queue().device.global_mem_size // 2
    assert in_bytes(100, usmq.Device()) == 100


@pytest.mark.parametrize("form", [name for name in NESTED if name != "interface"])
def test_objects_with_arrays_leave_the_device_and_return(form: str, spill: DeviceSpill) -> None:
    spill["a"] = NESTED[form](usmq.full(SIZE, 7, "u1"))
    assert spill.relieve(1)
    assert spill.bytes_by_place()["device"] == 0
    assert device_bytes(spill["a"]) == SIZE
    assert spill.bytes_by_place()["moved-to-device"] == SIZE


@pytest.mark.parametrize("form", [Box, Slots, lambda array: deque([array])])
def test_host_memory_inside_of_objects_moves_to_disk(form: Any, tmp_path: Path) -> None:
    try:
        spill = DeviceSpill(str(tmp_path), device_limit=0.5, target=3 * SIZE)
        for number in range(5):
            spill[number] = form(usmq.full(SIZE, number, "u1", usm_type="host"))
        places = spill.bytes_by_place()
        assert places["host"] <= 3 * SIZE
        assert places["disk"] >= 3 * SIZE
        for number in range(5):
            value = spill[number]
            [array] = value if isinstance(value, deque) else [value.held]
            assert (array.usm_type, array.tolist()) == ("host", [number] * SIZE)
    finally:
        usmq._core.set_relief(None)


def limited(nbytes: int) -> Any:
    """Limit the device memory to so much more than is in use."""
    device = usmq.current_queue().device
    used = usmq.memory_stats(device)["device"]["used"]
    usmq.set_memory_limit(used + nbytes, device, "device")


def test_an_allocation_that_fails_moves_idle_results_only(spill: DeviceSpill) -> None:
    try:
        limited(4 * SIZE)
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
    finally:
        usmq.set_memory_limit(None, usmq.current_queue().device, "device")


def test_an_error_of_the_relief_is_reported_and_the_allocation_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(device: usmq.Device, usm_type: str, nbytes: int) -> bool:
        raise RuntimeError(f"no room for {nbytes} of {usm_type}")

    hooks = []
    before, sys.unraisablehook = sys.unraisablehook, hooks.append
    try:
        usmq._core.set_relief(broken)
        limited(SIZE)
        with pytest.raises(usmq.AllocationError):
            usmq.zeros(2 * SIZE, "u1")
    finally:
        sys.unraisablehook = before
        usmq._core.set_relief(None)
        usmq.set_memory_limit(None, usmq.current_queue().device, "device")
    assert [str(hook.exc_value) for hook in hooks] == [f"no room for {2 * SIZE} of device"]


def test_a_result_without_a_pickle_stays_and_is_reported(
    spill: DeviceSpill, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed(Box):
        def __reduce__(self) -> Any:
            raise TypeError("cannot leave")

    spill["a"] = Closed(arrays("device"))
    assert not spill.relieve(1)
    assert not spill.relieve(1)
    assert spill.bytes_by_place()["device"] == SIZE
    texts = [text for *_, text in caplog.record_tuples if "stays on the device" in text]
    assert len(texts) == 1
    assert "'a' of type Closed" in texts[0]


def full(number: int) -> usmq.Array:
    return usmq.full(4 * SIZE, number, "u1")


def test_results_beyond_the_pool_limit_leave_the_device_by_default() -> None:
    with (
        LocalUsmCluster(["opencl:0"], pool_limit=16 * SIZE, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        parts = client.map(full, range(12))
        wait(parts, timeout=60)
        large = client.submit(lambda: usmq.zeros(14 * SIZE, "u1").nbytes, pure=False)
        assert large.result(timeout=60) == 14 * SIZE
        sums = client.map(lambda x: int(x.to_numpy()[:1000].sum()), parts, pure=False)
        assert client.gather(sums) == [1000 * number for number in range(12)]


def peer(number: int) -> Any:
    import dpnp

    return dpnp.full(SIZE, number, dtype="i4")


def test_arrays_of_dpnp_travel_and_leave_the_device(
    two_devices: tuple[usmq.Device, usmq.Device],
) -> None:
    pytest.importorskip("dpnp")
    with (
        LocalUsmCluster(
            n_workers=2, device_memory_limit="16 MiB", dashboard_address=":0"
        ) as cluster,
        cluster.get_client() as client,
    ):
        first, second = list(client.scheduler_info(n_workers=-1)["workers"])
        parts = client.map(peer, range(1, 9), workers=[first])
        boxed = client.submit(lambda: Box([peer(7)]), workers=[first], pure=False)
        small = client.submit(lambda: peer(3)[:100:2], workers=[first], pure=False)

        def add(*parts: Any) -> int:
            import dpnp

            # New arrays of dpnp are on the same queue.
            return int(sum((part + dpnp.ones(part.size, dtype="i4"))[10] for part in parts))

        for worker in first, second:
            assert client.submit(add, *parts, workers=[worker]).result(timeout=60) == 44
            held = client.submit(lambda box: add(*box.held), boxed, workers=[worker], pure=False)
            assert held.result(timeout=60) == 8
            assert client.submit(add, small, workers=[worker]).result(timeout=60) == 4
        moved = client.run(lambda dask_worker: dask_worker.data.bytes_by_place())
        assert moved[first]["moved-from-device"] >= 4 * 4 * SIZE
        assert moved[first]["device"] <= 16 << 20
        assert int(parts[4].result(timeout=60)[3]) == 5
        assert int(boxed.result(timeout=60).held[0][3]) == 7
        assert client.submit(add, peer(2), workers=[second]).result(timeout=60) == 3
