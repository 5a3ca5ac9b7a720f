"""Selects devices for workers, as values of ONEAPI_DEVICE_SELECTOR, without loading a driver."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import usmq

SELECTOR = "ONEAPI_DEVICE_SELECTOR"
MASK = "ZE_AFFINITY_MASK"

TYPES = ("gpu", "cpu", "accelerator", "custom")

# Seconds. A driver that does not answer within this time never answers.
PATIENCE = 60.0


class Found(NamedTuple):
    """A root device: its selector and its properties."""

    selector: str
    backend: str
    type: str
    name: str


class Visible(str):
    """A filter string that counts the devices that this process sees, not all of the machine."""


def all_devices() -> list[Found]:
    """List all devices in a child process, without a selector. Drivers do not survive a fork.

    Its warnings, as that emulated GPUs are missing, become warnings of this process.

    Raises
    ------
    DeviceNotFoundError
        The child failed, or did not answer in time.
    """
    environment = {name: value for name, value in os.environ.items() if name != SELECTOR}
    command = [sys.executable, "-m", "usmq._list_devices_json"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise usmq.DeviceNotFoundError(
            f"the drivers did not list their devices within {PATIENCE:.0f} s; "
            "run python -m usmq doctor"
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise usmq.DeviceNotFoundError(f"listing the devices of this machine failed: {last}")
    listed = json.loads(done.stdout)
    for text in listed["warnings"]:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    counts: dict[str, int] = {}
    found = []
    for device in listed["devices"]:
        number = counts[device["backend"]] = counts.get(device["backend"], -1) + 1
        found.append(Found(f"{device['backend']}:{number}", **device))
    return found


def chosen(
    wanted: Collection[str | int] | None, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return one selector per worker: the requested, else this process's, else the best devices.

    Raises
    ------
    ValueError
        ZE_AFFINITY_MASK is set, or the selector of this process is too complex to divide.
    DeviceNotFoundError
        A requested device does not exist; the text lists the existing ones.
    """
    if mask := environment.get(MASK):
        raise ValueError(
            f"{MASK}={mask!r} is set, but conflicts with the {SELECTOR} of each worker; "
            "unset it and name the devices, as in devices=['level_zero:0']"
        )
    found = all_devices()
    of_process = (environment.get(SELECTOR) or "").split(";")
    if wanted is None and of_process == [""]:
        selected = best(found)
    else:
        # Two terms may name one device; it then gets one worker per term.
        selected = [
            device
            for term in (of_process if wanted is None else wanted)
            for device in matching(term, found, of_process)
        ]
    if not selected:
        raise nothing("any device" if wanted is None else "an empty list", found)
    return [device.selector for device in selected]


def matching(term: str | int, found: list[Found], of_process: Iterable[str] = ("",)) -> list[Found]:
    """Return the devices of one term, of these forms.

    ``0``: a number among the devices that are used by default. ``"gpu"`` and ``"gpu:0"``: all
    devices of a type, or one. ``"opencl:0"``, ``"opencl:gpu"``, ``"opencl:gpu:0"``, ``"opencl:*"``:
    those of a backend, by their number there, type, both or all. Several numbers: ``"gpu:0,1"``.
    `of_process` is the selector of this process, by which a `Visible` term counts.
    """
    if isinstance(term, Visible) and [*of_process] != [""]:
        seen = [device for part in of_process for device in matching(part, found)]
        found = [device for device in found if device in seen]
    # SYCL reads selectors without regard to case, too.
    words = str(term).strip().lower().split(":")
    if isinstance(term, int) or (len(words) == 1 and words[0].replace(",", "").isdecimal()):
        return picked(term, best(found), words[0], found)
    backend = None if words[0] in TYPES else words.pop(0)
    if (backend or "").startswith("!") or not words or not words[0] or "." in words[0]:
        raise ValueError(
            f"{term!r} cannot be divided among workers; name devices, as in ['gpu:0'] or "
            "['level_zero:0']"
        )
    there = [device for device in found if backend in (None, "*", device.backend)]
    if words[0] in TYPES:
        of_type = [device for device in there if device.type == words[0]]
        if backend is None:
            # A GPU that is visible through two backends counts once.
            of_type = best(of_type)
        if len(words) > 1 or not of_type:
            return picked(term, of_type, ":".join(words[1:]), found)
        return of_type
    selected = [
        device
        for item in ":".join(words).split(",")
        for device in there
        if item.strip() in ("*", device.type, device.selector.partition(":")[2])
    ]
    if not selected:
        raise nothing(repr(term), found)
    return selected


def picked(term: str | int, of: list[Found], numbers: str, found: list[Found]) -> list[Found]:
    """Return the devices of these numbers."""
    selected = []
    for item in numbers.split(","):
        text = item.strip()
        if not text.isdecimal() or int(text) >= len(of):
            raise nothing(repr(term), found)
        selected.append(of[int(text)])
    return selected


def best(found: list[Found]) -> list[Found]:
    """Return the GPUs, each once; without GPUs the CPUs, else all devices."""
    gpus = [device for device in found if device.type == "gpu"]
    # A GPU that is visible through Level Zero is visible through OpenCL, too.
    native = [device for device in gpus if device.backend != "opencl"]
    return native or gpus or [device for device in found if device.type == "cpu"] or found


def nothing(what: str, found: list[Found]) -> usmq.DeviceNotFoundError:
    """Return the error for an empty selection."""
    there = ", ".join(f"{device.selector} ({device.type} {device.name})" for device in found)
    return usmq.DeviceNotFoundError(
        f"no device for a worker: {what} was requested; visible devices: {there or 'none'}"
    )
