"""usmq finds the pip-installed device in any order of queries, or names the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(sys.prefix, "lib", "libintelocl.so")


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code with only HOME, PATH and the given variables in the environment."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env=kept | variables,
        text=True,
        capture_output=True,
        timeout=120,
    )


USES = "print(usmq.arange(0, 4, 1, dtype='u4').to_numpy().sum())"
ASKS = {
    "dpctl": "import dpctl; dpctl.get_devices()",
    "dpnp": "import dpnp, dpctl; dpctl.get_devices()",
}


@pytest.mark.parametrize("peer", ASKS)
def test_a_peer_that_queries_after_importing_usmq_finds_the_device(peer: str) -> None:
    done = run(f"import usmq; {ASKS[peer]}; assert dpctl.get_devices(); {USES}")
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


@pytest.mark.parametrize("peer", ASKS)
def test_after_a_peers_query_usmq_finds_the_device_or_names_the_reason(peer: str) -> None:
    """Check that the runtime caches its first query, which finds no device here."""
    done = run(
        f"{ASKS[peer]}\nimport usmq\ntry: {USES}\nexcept usmq.Error as error: print(repr(error))"
    )
    assert done.returncode == 0, done.stderr
    if done.stdout != "6\n":
        assert "DeviceNotFoundError" in done.stdout or "RuntimeNotFoundError" in done.stdout
        text = done.stdout.lower()
        assert "before" in text, "the reason is that the runtime was asked before usmq was imported"
        assert "import usmq" in text or "OCL_ICD_FILENAMES" in done.stdout


@pytest.mark.parametrize("peer", ASKS)
@pytest.mark.parametrize("how", ["vendors folder", "OCL_ICD_FILENAMES"])
def test_a_registered_driver_is_found_once_in_any_query_order(
    peer: str, how: str, tmp_path: Path
) -> None:
    (tmp_path / "cpu.icd").write_text(f"{DRIVER}\n")
    given = {"OCL_ICD_VENDORS": str(tmp_path)}
    if how != "vendors folder":
        given = {"OCL_ICD_FILENAMES": str(DRIVER)}
    for first in (f"{ASKS[peer]}; import usmq", f"import usmq; {ASKS[peer]}"):
        done = run(
            f"{first}; assert len(usmq.devices()) == len(dpctl.get_devices()) == 1; {USES}", **given
        )
        assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


def test_programs_with_a_copy_of_os_environ_find_the_device() -> None:
    child = "import dpctl; assert dpctl.get_devices(); import usmq; usmq.current_queue()"
    done = run(f"""
import os, subprocess, sys, usmq
print(os.environ["OCL_ICD_FILENAMES"])
subprocess.run([sys.executable, "-c", {child!r}], env=os.environ.copy(), check=True)
""")
    assert (done.stdout, done.returncode) == (f"{DRIVER}\n", 0), done.stderr


@pytest.mark.parametrize("selector", ["opencl:cpu", "opencl:*", "opencl:0"])
def test_a_selector_of_the_backend_opencl_alone_has_the_device(selector: str) -> None:
    """Runtime 2026.2.0 finds none with these by itself; see docs/building.md."""
    done = run(f"import usmq; {USES}", ONEAPI_DEVICE_SELECTOR=selector)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr
