"""usmq beside dpctl, dpnp, pyarrow and jax in one process, imported and used in every order.

No variable is set: the Makefile's OCL_ICD_FILENAMES would hide that the order matters.
`USMQ_ALL_ORDERS=1` tries all 120 orders; else each of the five comes first, last and before and
after each other one.
"""

import itertools
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NAMES = ("usmq", "dpctl", "dpnp", "pyarrow", "jax")
# On a machine where the system's OpenCL registers a driver, every order finds a device.
DRIVER_IS_REGISTERED = any(Path("/etc/OpenCL/vendors").glob("*.icd"))

# Each is imported and used before the next one is imported; then arrays are exchanged.
CODE = """
import os, sys, warnings
warnings.filterwarnings("ignore")  # warnings of the other libraries about each other's versions

def usmq():
    import usmq
    try:
        assert usmq.arange(0, 4, 1, dtype="f4").to_numpy().tolist() == [0, 1, 2, 3]
    except usmq.RuntimeNotFoundError as error:
        print("asked too early")
        print(error)
        print("; ".join(f"{each.what} -> {each.fix}" for each in usmq.doctor().findings
                        if each.state == "problem"))
        sys.exit()

def dpctl():
    import dpctl, dpctl.memory
    if dpctl.get_devices():
        dpctl.memory.MemoryUSMShared(64, queue=dpctl.SyclQueue()).copy_from_host(b"x" * 64)

def dpnp():
    import dpctl, dpnp
    if dpctl.get_devices():
        assert dpnp.arange(4).sum() == 6

def pyarrow():
    import pyarrow as pa
    import pyarrow.compute as pc
    assert pc.sum(pa.array([1, 2, 3])).as_py() == 6

def jax():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    assert float(jax.jit(lambda x: (x * x).sum())(jax.numpy.arange(4.0))) == 14

for name in sys.argv[1].split(","):
    globals()[name]()

import dpctl, dpnp, jax, pyarrow as pa, usmq
x = usmq.arange(0, 4, 1, dtype="f4")
a = dpnp.asarray(x)
assert (a + 1).sum() == 10 and a.sycl_queue == dpnp.asarray(x).sycl_queue
assert usmq.asarray(a).ptr == x.ptr
assert pa.array(usmq.from_arrow(pa.array([1, 2, 3])).to_arrow()).to_pylist() == [1, 2, 3]
y = jax.numpy.arange(4.0)
assert usmq.asarray(y).to_numpy().tolist() == [0, 1, 2, 3]
assert dpctl.SyclQueue().sycl_context == a.sycl_queue.sycl_context
print("well")
"""


def orders():
    """All of them, or 24 in which each comes before each."""
    every = list(itertools.permutations(NAMES))
    if os.environ.get("USMQ_ALL_ORDERS") == "1":
        return every
    chosen = random.Random(5).sample(every, 24)
    for one, other in itertools.permutations(NAMES, 2):
        assert any(order.index(one) < order.index(other) for order in chosen)
    assert {order[0] for order in chosen} == {order[-1] for order in chosen} == set(NAMES)
    return chosen


def failure(run_python, order):
    """Run an order as users do, with no variable set; return an empty text where it behaves.

    Where dpctl or dpnp asks for devices before `import usmq`, pip's driver is not named yet, so no
    library has a device. Error and doctor name that cause, and the fix that the error names works.
    """
    arguments = ",".join(order)
    done = run_python(CODE, arguments, check=False, timeout=240, OCL_ICD_FILENAMES=None)
    asks_first = min(order.index("dpctl"), order.index("dpnp")) < order.index("usmq")
    if asks_first and not DRIVER_IS_REGISTERED:
        said = re.fullmatch(
            r"asked too early\n.*Put `import usmq` before that library's first use, or set "
            r"OCL_ICD_FILENAMES=(\S+) before the program starts\n"
            r".*asked the SYCL runtime for devices before.*\n",
            done.stdout,
        )
        if not said:
            return f"{order}: {done.returncode} {done.stdout} {done.stderr[-2000:]}"
        done = run_python(CODE, arguments, check=False, timeout=240, OCL_ICD_FILENAMES=said[1])
    return "" if done.stdout == "well\n" else f"{order}: {done.returncode} {done.stderr[-2000:]}"


def test_every_order_of_import_and_use_works(run_python):
    for name in NAMES[1:]:
        pytest.importorskip(name)
    with ThreadPoolExecutor(2) as pool:
        failed = [
            text for text in pool.map(lambda each: failure(run_python, each), orders()) if text
        ]
    assert failed == []


def test_a_device_without_usm_is_skipped_and_the_others_work(run_python, cpu_driver):
    found = [Path(folder, "libpocl.so.2") for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")]
    pocl = next((path for path in found if path.exists()), None)
    if pocl is None:
        pytest.skip("PoCL, whose device has no USM, is not installed (pocl-opencl-icd)")
    code = """
import usmq
bare, full = sorted(usmq.devices(), key=lambda device: device.has_usm("device"))
assert not any(bare.has_usm(kind) for kind in ("device", "shared", "host"))
# The runtime itself would choose the first of two CPUs.
assert usmq.current_queue().device == full, usmq.current_queue()
x = usmq.arange(0, 4, 1, dtype="i4")
assert x.to_numpy().tolist() == [0, 1, 2, 3]
for use in (
    lambda: usmq.zeros(3, queue=bare), lambda: usmq.asarray([1], queue=bare),
    lambda: usmq.collocate(x, queue=bare), lambda: usmq.full(3, 1, usm_type="host", queue=bare),
):
    try:
        use()
    except usmq.AllocationError as error:
        assert "USM" in str(error) and full.filter_string in str(error), error
    else:
        raise SystemExit("an array on a device without USM")
usmq.Queue(bare).wait()
assert x.to_numpy().tolist() == [0, 1, 2, 3]
print("well")
"""
    for drivers in (f"{pocl}:{cpu_driver}", f"{cpu_driver}:{pocl}"):
        assert run_python(code, OCL_ICD_FILENAMES=drivers).stdout == "well\n"
