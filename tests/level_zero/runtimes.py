"""The Python environment of a run: `.venv`, or one of its own with another runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import root

CHECKOUT = Path(__file__).resolve().parent.parent.parent
# The requirements of each runtime; none: `.venv`.
RUNTIMES: dict[str, tuple[str, ...]] = {
    "2026.1": (),
    "2026.2": ("intel-sycl-rt==2026.2.*", "intel-opencl-rt==2026.2.*"),
}
# Packages of a runtime, and usmq. The others are those of `.venv`, without what they require:
# dpctl asks for its runtime.
OF_RUNTIMES = ("intel-", "umf", "tcmlib", "tbb", "dpcpp-cpp-rt", "usmq")


def environment(runtime: str) -> Path:
    """Return the environment with a runtime, made on first use, with the newest wheel of usmq."""
    if not RUNTIMES[runtime]:
        return CHECKOUT / ".venv"
    folder = root.cache() / f"runtime-{runtime}"
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet"]
    if not (folder / "ready").exists():
        print(f"==> level-zero: an environment with runtime {runtime} (1.2 GB)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([*pip, *RUNTIMES[runtime]], check=True)
        freeze = [CHECKOUT / ".venv" / "bin" / "python", "-m", "pip", "freeze"]
        frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
        named = [line for line in frozen.splitlines() if "==" in line]
        others = [line for line in named if not line.startswith(OF_RUNTIMES)]
        subprocess.run([*pip, "--no-deps", *others], check=True)
        (folder / "ready").touch()
    wheels = list((CHECKOUT / "target").glob("*/usmq-*.whl"))
    if not wheels:
        raise SystemExit("level-zero: no wheel of usmq in target/; make build, or make demo")
    newest = max(wheels, key=lambda wheel: wheel.stat().st_mtime)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", "--no-index", newest], check=True)
    return folder
