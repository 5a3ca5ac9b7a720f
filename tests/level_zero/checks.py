"""Check the driver in front: right use of Level Zero gives no report, each wrong use its own.

    tests/run level-zero checks

Each case runs in a process of its own, since a wrong use may end it.
"""

from __future__ import annotations

import ctypes as c
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

POINTER = c.c_void_p
HOST_SCOPE = 4
NEVER = c.c_uint64(2**64 - 1)
# Structure types of ze_api.h.
CONTEXT, QUEUE, POOL, EVENT, DEVICE_MEMORY, HOST_MEMORY = 0xD, 0xE, 0x10, 0x11, 0x15, 0x16
IN_ORDER = 2


def described(kind: int, *fields: c._SimpleCData) -> c.Structure:
    """Return a description of ze_api.h: type, a null pointer, and these fields."""
    names = [("stype", c.c_uint32), ("next", POINTER)] + [
        (f"f{i}", type(f)) for i, f in enumerate(fields)
    ]
    structure = type("Description", (c.Structure,), {"_fields_": names})()
    structure.stype = kind
    for i, field in enumerate(fields):
        setattr(structure, f"f{i}", field)
    return structure


class Driver:
    """Two devices, one context, and an immediate in-order list of the first device."""

    def __init__(self) -> None:
        self.library = c.CDLL("libze_loader.so.1")
        self("zeInit", 0)
        one = c.c_uint32(1)
        driver = POINTER()
        self("zeDriverGet", c.byref(one), c.byref(driver))
        two = c.c_uint32(2)
        devices = (POINTER * 2)()
        self("zeDeviceGet", driver, c.byref(two), devices)
        self.devices = [POINTER(device) for device in devices]
        self.context = self.made(
            "zeContextCreate", driver, c.byref(described(CONTEXT, c.c_uint32(0)))
        )
        self.list = self.new_list()

    def __call__(self, function: str, *arguments: object) -> None:
        """Call a function; a result other than success is an error."""
        result = getattr(self.library, function)(*arguments)
        if result:
            raise RuntimeError(f"{function}: {result:#x}")

    def made(self, function: str, *arguments: object) -> POINTER:
        """Return the handle that a function makes."""
        handle = POINTER()
        self(function, *arguments, c.byref(handle))
        return handle

    def new_list(self, flags: int = IN_ORDER) -> POINTER:
        zero = c.c_uint32(0)
        desc = described(QUEUE, zero, zero, c.c_uint32(flags), c.c_uint32(2), zero)
        return self.made(
            "zeCommandListCreateImmediate", self.context, self.devices[0], c.byref(desc)
        )

    def device_memory(self, size: int, device: int = 0) -> POINTER:
        desc = described(DEVICE_MEMORY, c.c_uint32(0), c.c_uint32(0))
        return self.made(
            "zeMemAllocDevice",
            self.context,
            c.byref(desc),
            c.c_size_t(size),
            c.c_size_t(64),
            self.devices[device],
        )

    def host_memory(self, size: int) -> POINTER:
        desc = described(HOST_MEMORY, c.c_uint32(0))
        return self.made(
            "zeMemAllocHost", self.context, c.byref(desc), c.c_size_t(size), c.c_size_t(64)
        )

    def events(self, number: int) -> list[POINTER]:
        desc = described(POOL, c.c_uint32(1), c.c_uint32(number))
        pool = self.made("zeEventPoolCreate", self.context, c.byref(desc), c.c_uint32(0), None)
        scope = c.c_uint32(HOST_SCOPE)
        return [
            self.made("zeEventCreate", pool, c.byref(described(EVENT, c.c_uint32(i), scope, scope)))
            for i in range(number)
        ]

    def fill(
        self, memory: POINTER, size: int, *waits: POINTER, signal: POINTER | None = None
    ) -> None:
        pattern = c.c_uint8(7)
        handles = (POINTER * len(waits))(*waits) if waits else None
        self(
            "zeCommandListAppendMemoryFill",
            self.list,
            memory,
            c.byref(pattern),
            c.c_size_t(1),
            c.c_size_t(size),
            signal,
            len(waits),
            handles,
        )

    def copy(self, to: POINTER, source: POINTER, size: int) -> None:
        self(
            "zeCommandListAppendMemoryCopy", self.list, to, source, c.c_size_t(size), None, 0, None
        )

    def wait(self) -> None:
        self("zeCommandListHostSynchronize", self.list, NEVER)


def right_use(driver: Driver) -> None:
    """Fill, copy and read through a signal of the host and an event of a command."""
    device, host = driver.device_memory(4096), driver.host_memory(4096)
    before, after = driver.events(2)
    driver.fill(device, 4096, before, signal=after)
    driver.copy(host, device, 4096)
    assert driver.library.zeEventQueryStatus(after) == 1, (
        "a command ran before its wait list was complete"
    )
    driver("zeEventHostSignal", before)
    driver("zeEventHostSynchronize", after, NEVER)
    driver.wait()
    assert c.string_at(host, 4096) == b"\x07" * 4096
    driver("zeEventHostReset", after)
    driver("zeMemFree", driver.context, device)


def freed_memory(driver: Driver) -> None:
    memory = driver.device_memory(4096)
    driver("zeMemFree", driver.context, memory)
    driver.fill(memory, 16)
    driver.wait()


def memory_freed_in_flight(driver: Driver) -> None:
    memory, (event,) = driver.device_memory(4096), driver.events(1)
    driver.fill(memory, 16, event)
    driver("zeMemFree", driver.context, memory)
    driver("zeEventHostSignal", event)
    driver.wait()


def an_overrun(driver: Driver) -> None:
    driver.fill(driver.device_memory(100), 101)
    driver.wait()


def an_overrun_by_the_host(driver: Driver) -> None:
    memory = driver.host_memory(100)
    c.memset(memory, 0, 101)
    driver("zeMemFree", driver.context, memory)


def an_event_destroyed_early(driver: Driver) -> None:
    memory, (event,) = driver.device_memory(16), driver.events(1)
    driver.fill(memory, 16, event)
    driver("zeEventDestroy", event)
    os._exit(0)


def an_event_reset_early(driver: Driver) -> None:
    memory, (gate, event) = driver.device_memory(16), driver.events(2)
    driver.fill(memory, 16, gate, signal=event)
    driver("zeEventHostReset", event)
    driver("zeEventHostSignal", gate)
    driver.wait()


def an_event_signalled_again_early(driver: Driver) -> None:
    memory, (gate, event) = driver.device_memory(16), driver.events(2)
    driver.fill(memory, 16, gate)
    driver.fill(memory, 16, event)
    driver.fill(memory, 16, signal=event)
    os._exit(0)


def a_list_destroyed_early(driver: Driver) -> None:
    memory, (gate,) = driver.device_memory(16), driver.events(1)
    driver.fill(memory, 16, gate)
    driver("zeCommandListDestroy", driver.list)
    os._exit(0)


def memory_of_another_device(driver: Driver) -> None:
    driver.fill(driver.device_memory(16, device=1), 16)
    driver.wait()


def a_failed_call(driver: Driver) -> None:
    driver.device_memory(16)
    try:
        driver.device_memory(16)
    except RuntimeError:
        driver.device_memory(16)
        return
    raise AssertionError("the second allocation did not fail")


def a_lost_device(driver: Driver) -> None:
    memory = driver.device_memory(16)
    driver.fill(memory, 16)
    assert driver.library.zeCommandListHostSynchronize(driver.list, NEVER) == 0x70000001


def blocking_copies(driver: Driver) -> None:
    """The append returns when the copy is complete."""
    memory, here = driver.device_memory(4096), c.create_string_buffer(4096)
    driver.fill(memory, 4096)
    driver.copy(c.cast(here, POINTER), memory, 4096)
    assert here.raw == b"\x07" * 4096


def an_image(driver: Driver) -> None:
    driver.library.zeImageCreate(
        driver.context,
        driver.devices[0],
        c.byref(described(0x13, *[c.c_uint64(0)] * 8)),
        c.byref(POINTER()),
    )


# Case, the report that it gives ("" for none), the switches.
CASES: list[tuple[Callable[[Driver], None], str, dict[str, str]]] = [
    (right_use, "", {}),
    (right_use, "", {"DELAY": "2000"}),
    (right_use, "", {"RANDOM_ORDER": "1"}),
    (right_use, "", {"TRUE_ADDRESSES": "0"}),
    (freed_memory, "use of freed memory", {}),
    (memory_freed_in_flight, "use of freed memory", {}),
    (an_overrun, "overrun", {}),
    (an_overrun_by_the_host, "overrun", {}),
    (an_event_destroyed_early, "an event is destroyed too early", {}),
    (an_event_reset_early, "an event is reset too early", {}),
    (an_event_signalled_again_early, "an event is reused", {}),
    (a_list_destroyed_early, "a list is destroyed too early", {}),
    (memory_of_another_device, "no peer access", {"PEERS": "0"}),
    (memory_of_another_device, "", {"PEERS": "1"}),
    (a_failed_call, "", {"FAIL": "zeMemAllocDevice:2"}),
    (a_lost_device, "", {"LOST_AFTER": "1"}),
    (blocking_copies, "", {"BLOCKING_COPIES": "1", "DELAY": "20000"}),
    (an_image, "not carried out: zeImageCreate", {}),
]


def main() -> int:
    """Run every case, or the one that is named."""
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](Driver())
        return 0
    failed = 0
    for case, expected, switches in CASES:
        with tempfile.NamedTemporaryFile("r") as reports:
            env = os.environ | {
                f"USMQ_LEVEL_ZERO_{name}": value for name, value in switches.items()
            }
            env["USMQ_LEVEL_ZERO_REPORTS"] = reports.name
            result = subprocess.run(
                [sys.executable, __file__, case.__name__],
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
            )
            found = reports.read()
        right = expected in found if expected else not found and result.returncode == 0
        failed += not right
        with_switches = " ".join(f"{name}={value}" for name, value in switches.items())
        print(f"{'passed' if right else 'FAILED'}: {case.__name__} {with_switches}")
        if not right:
            print(
                f"    expected {expected!r}, found {found!r}, status {result.returncode}",
                result.stderr[-1500:],
                sep="\n",
            )
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
