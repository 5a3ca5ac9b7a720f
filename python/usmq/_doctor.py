"""``python -m usmq doctor``: what decides which devices are visible, each with its mend."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import usmq
from usmq._core import platform_problems, runtime_libraries

# Newer runtime wheels have no OpenCL adapter, hence no CPU device.
_RUNTIME = "pip install 'intel-sycl-rt>=2026.0,<2026.2' 'intel-opencl-rt>=2026.0,<2026.2'"
_VARIABLES = ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS")


def report() -> int:
    """Print every check and return 0 when a device is visible and nothing is wrong, else 1."""
    checks = _Checks()
    checks.libraries()
    checks.environment()
    checks.devices()
    checks.neighbours()
    print("\nall is well" if not checks.problems else f"\n{checks.problems} problem(s)")
    return 1 if checks.problems else 0


class _Checks:
    def __init__(self) -> None:
        self.problems = 0

    def _ok(self, fact: str) -> None:
        print(f"ok       {fact}")

    def _problem(self, fact: str, mend: str) -> None:
        self.problems += 1
        print(f"problem  {fact}\n         mend: {mend}")

    def libraries(self) -> None:
        """Show which runtime is loaded, and what lies beside it."""
        loaded = runtime_libraries("libsycl.so")
        for path in loaded:
            self._ok(f"SYCL runtime {path}")
        if len(loaded) > 1:
            self._problem(
                "more than one SYCL runtime is loaded",
                "install all SYCL packages into one environment from one source",
            )
        folder = Path(loaded[0]).parent if loaded else Path()
        adapters = sorted(path.name for path in folder.glob("libur_adapter_*.so"))
        self._ok(f"adapters {', '.join(adapters) or 'none'}")
        if "libur_adapter_opencl.so" not in adapters:
            self._problem("the runtime has no OpenCL adapter, so no CPU device", _RUNTIME)
        if (folder / "libintelocl.so").exists():
            self._ok("OpenCL driver for CPUs beside the runtime")
        elif not os.environ.get("OCL_ICD_FILENAMES") and not any(
            Path("/etc/OpenCL/vendors").glob("*.icd")
        ):
            self._problem("no OpenCL driver is registered", _RUNTIME)

    def environment(self) -> None:
        """Show the variables in force."""
        for name in _VARIABLES:
            if name in os.environ:
                self._ok(f"{name}={os.environ[name]}")
        for path in filter(None, os.environ.get("OCL_ICD_FILENAMES", "").split(":")):
            if os.path.isabs(path) and not os.path.exists(path):
                self._problem(
                    f"OCL_ICD_FILENAMES names {path}, which does not exist",
                    "unset OCL_ICD_FILENAMES",
                )

    def devices(self) -> None:
        """Show what the runtime sees."""
        try:
            devices, problems = usmq.devices(), platform_problems()
        except usmq.Error as problem:
            self._problem(str(problem), "see above")
            return
        for device in devices:
            self._ok(f"device {device.filter_string} {device.name}, driver {device.driver_version}")
        for platform, reason in problems:
            self._problem(
                f"platform {platform}: {reason}", "check its driver; the others work without it"
            )
        if not devices:
            selector = os.environ.get("ONEAPI_DEVICE_SELECTOR")
            mend = f"unset ONEAPI_DEVICE_SELECTOR (it is {selector!r})" if selector else _RUNTIME
            self._problem("no device is visible", mend)

    def neighbours(self) -> None:
        """Show the packages of this environment that use SYCL too."""
        for name in ("dpctl", "dpnp", "torch", "intel-sycl-rt", "intel-opencl-rt", "umf"):
            try:
                self._ok(f"package {name} {importlib.metadata.version(name)}")
            except importlib.metadata.PackageNotFoundError:
                continue
