"""The environment of a run: Intel's debug keys for a product, the adapter, and our switches."""

from __future__ import annotations

from pathlib import Path

# Keys that make the driver run without a GPU. Without UseAubStream=0 it crashes.
WITHOUT_GPU = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "UseAubStream": "0"}
# Products other than the large ones need their heaps from the usual allocator.
USUAL_HEAPS = {"UseExternalAllocatorForSshAndDsh": "0"}
# Tiles, slices and units of each product.
PRODUCTS = {
    "pvc": {"HardwareInfoOverride": "1x8x8"},
    "bmg": {"HardwareInfoOverride": "1x8x8", **USUAL_HEAPS},
    "dg2": {"HardwareInfoOverride": "1x8x8", **USUAL_HEAPS},
    "lnl": {"HardwareInfoOverride": "1x4x8", **USUAL_HEAPS},
}
ADAPTERS = {"v1": "0", "v2": "1"}


def environment(
    product: str,
    adapter: str,
    library: Path,
    opencl: Path,
    *,
    devices: int = 2,
    tiles: int = 1,
    switches: dict[str, str],
) -> dict[str, str]:
    """Return the variables of a run. `switches` are named as in README.md, without their prefix."""
    env = {
        **WITHOUT_GPU,
        **PRODUCTS[product],
        "ProductFamilyOverride": product,
        "SYCL_UR_USE_LEVEL_ZERO_V2": ADAPTERS[adapter],
        "ZE_ENABLE_ALT_DRIVERS": str(library),
        "USMQ_LEVEL_ZERO_OPENCL": str(opencl),
    }
    if devices > 1:
        env["CreateMultipleRootDevices"] = str(devices)
    if tiles > 1:
        env |= {"CreateMultipleSubDevices": str(tiles), "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
    return env | {f"USMQ_LEVEL_ZERO_{name}": value for name, value in switches.items()}
