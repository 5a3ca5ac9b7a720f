"""``python -m usmq list``: the visible devices, in four degrees of detail."""

from __future__ import annotations

import sys

import usmq


def show(detail: str) -> int:
    """Print the devices; ``detail`` is "short", "table", "long" or "full". Return 1 without any."""
    try:
        devices = usmq.devices()
    except usmq.Error as problem:
        print(f"usmq: {problem}", file=sys.stderr)
        return 1
    if not devices:
        print("usmq: no SYCL device is visible; run `python -m usmq doctor`", file=sys.stderr)
        return 1
    for device in devices:
        if detail == "short":
            print(device.filter_string)
        elif detail == "table":
            print(f"{device.filter_string:<22} {device.name}, {_size(device.global_mem_size)}")
        else:
            _paragraph(device, aspects=detail == "full")
    return 0


def _paragraph(device: usmq.Device, *, aspects: bool) -> None:
    kinds = [kind for kind in ("device", "shared", "host") if device.has_usm(kind)]
    rows = {
        "vendor": device.vendor,
        "driver": device.driver_version,
        "compute units": device.max_compute_units,
        "global memory": _size(device.global_mem_size),
        "largest allocation": _size(device.max_alloc_size),
        "USM kinds": ", ".join(kinds) or "none: usmq cannot allocate arrays here",
    }
    if aspects:
        rows["work-group size"] = device.max_work_group_size
        rows["local memory"] = _size(device.local_mem_size)
        rows["aspects"] = ", ".join(device.aspects)
    print(f"{device.filter_string}  {device.name}")
    for name, value in rows.items():
        print(f"    {name + ':':<20} {value}")


def _size(nbytes: int) -> str:
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
