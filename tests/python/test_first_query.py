"""usmq finds the installed device in any order of queries; for errors see test_coexistence.py."""

import sys
from pathlib import Path

import pytest
from emulated import start

DRIVER = Path(sys.prefix, "lib", "libintelocl.so")
USES = "print(usmq.arange(0, 4, 1, dtype='u4').to_numpy().sum())"
ASKS = ["import dpctl; dpctl.get_devices()", "import dpnp, dpctl; dpctl.get_devices()"]


def prints(expected, code, **variables):
    """Run code with only HOME, PATH and the given variables in the environment."""
    done = start(sys.executable, "-X", "faulthandler", "-c", code, **variables)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.parametrize("asks", ASKS)
@pytest.mark.parametrize("how", ["import of usmq before", "vendors folder", "OCL_ICD_FILENAMES"])
def test_a_registered_driver_is_found_once_in_any_query_order(asks, how, tmp_path):
    (tmp_path / "cpu.icd").write_text(f"{DRIVER}\n")
    given = {
        "import of usmq before": {},
        "vendors folder": {"OCL_ICD_VENDORS": str(tmp_path)},
        "OCL_ICD_FILENAMES": {"OCL_ICD_FILENAMES": str(DRIVER)},
    }[how]
    for first in [f"import usmq; {asks}"] + [f"{asks}; import usmq"] * bool(given):
        code = f"{first}; assert len(usmq.devices()) == len(dpctl.get_devices()) == 1; {USES}"
        prints("6\n", code, **given)


def test_programs_with_a_copy_of_os_environ_find_the_device():
    child = "import dpctl; assert dpctl.get_devices(); import usmq; usmq.current_queue()"
    code = f"""
import os, subprocess, sys, usmq
print(os.environ["OCL_ICD_FILENAMES"])
subprocess.run([sys.executable, "-c", {child!r}], env=os.environ.copy(), check=True)
"""
    prints(f"{DRIVER}\n", code)


@pytest.mark.parametrize("selector", ["opencl:cpu", "opencl:*", "opencl:0"])
def test_a_selector_of_the_backend_opencl_alone_has_the_device(selector):
    """Runtime 2026.2.0 finds none with these by itself; see docs/building.md."""
    prints("6\n", f"import usmq; {USES}", ONEAPI_DEVICE_SELECTOR=selector)
