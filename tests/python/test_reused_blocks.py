"""Host-accessible memory is not reused while a queued kernel still writes it."""

import pytest
from children import PRELUDE

CODE = """
import ctypes
import usmq._core
lib = ctypes.CDLL(usmq._core.__file__)
lib.usmq_allocate.argtypes = [
    ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
]
lib.usmq_free.argtypes = [ctypes.c_void_p]
kind, how, size = sys.argv[1], sys.argv[2], int(sys.argv[3])

def allocate():
    "Its address, what keeps it, and what frees it."
    if how == "usmq.empty":
        array = usmq.empty(size, "u4", usm_type=kind)
        return array.ptr, array
    out = ctypes.c_void_p()
    assert lib.usmq_allocate(4 * size, {"host": 2, "shared": 1}[kind], None, out) == 0
    return out.value, out

for _ in range(5):
    usmq.current_queue().wait()
    usmq.trim_memory()
    x = usmq.zeros(1, "u4")
    y = usmq.empty(size, "u4", usm_type=kind)
    spin(1, x, steps(0.3))
    last = write_late(size, y, 77, 1)
    del y  # its kernel is queued behind 0.3 s
    address, keeps = allocate()
    host = np.ctypeslib.as_array(
        ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32)), (size,)
    )
    host[:] = 1
    last.wait()
    usmq.current_queue().wait()
    assert (host == 1).all(), f"the kernel wrote {np.unique(host)} to host-accessible memory"
    del host
    if how == "usmq_allocate":
        lib.usmq_free(keeps)
    del keeps
"""


@pytest.mark.parametrize("size", [256, 100_000])
@pytest.mark.parametrize("how", ["usmq.empty", "usmq_allocate"])
@pytest.mark.parametrize("kind", ["host", "shared"])
def test_a_queued_kernel_does_not_write_new_memory(run_python, kind, how, size):
    run_python(PRELUDE + CODE, kind, how, str(size))
