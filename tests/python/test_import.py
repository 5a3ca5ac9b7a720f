"""The cost and the side effects of `import usmq`."""

import re
import statistics

import pytest
import usmq

DRIVER = re.compile(r"\S*(?:libur_adapter|libOpenCL|libintelocl|libze_|libcuda)\S*")

NAMES = re.findall(
    r"\w+",
    """
    devices Device Queue current_queue use_queue set_default_queue QueueManager
    empty zeros full arange asarray Array DType follow collocate explain Plan
    Kernel Event read write local memory_stats set_memory_limit trim_memory
    Error SelectorError DeviceNotFoundError PlacementError AllocationError KernelBuildError
    LaunchError InteropError RuntimeNotFoundError ForkError SyclError
    """,
)


@pytest.mark.parametrize("statement", ["import usmq", "import usmq; usmq.Queue; usmq.Kernel"])
def test_import_maps_no_adapter_and_no_driver(run_python, statement):
    maps = run_python(f"{statement}; print(open('/proc/self/maps').read())").stdout
    assert "_core" in maps, "the extension is not loaded"
    assert set(DRIVER.findall(maps)) == set()


def test_the_first_device_query_maps_adapter_and_driver(run_python):
    code = "import usmq; usmq.devices(); print(open('/proc/self/maps').read())"
    assert DRIVER.search(run_python(code).stdout)


def test_import_loads_no_slow_module_of_python_no_numpy_and_no_peer(run_python):
    code = "import sys; before = set(sys.modules); import usmq; print(*set(sys.modules) - before)"
    modules = {name.partition(".")[0] for name in run_python(code).stdout.split()}
    assert "usmq" in modules
    assert modules.isdisjoint({"re", "typing", "contextlib", "inspect", "pathlib", "json"})
    assert modules.isdisjoint({"numpy", "dpctl", "dpnp", "pyarrow", "asyncio", "pytest"})


def test_devices_and_arrays_work_where_numpy_cannot_be_imported(run_python):
    code = """
import sys
sys.modules["numpy"] = None  # any import of it is now an ImportError
import usmq
x = usmq.arange(0, 4, 1, dtype="i4", usm_type="shared")
x.wait()
print(memoryview(x).tolist(), x.shape, x.dtype, usmq.devices()[0].filter_string)
"""
    assert run_python(code).stdout.startswith("[0, 1, 2, 3] (4,) int32 ")


def test_import_sets_only_the_opencl_driver_variable(run_python):
    code = """
import ctypes, os
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
names = (b"ONEAPI_DEVICE_SELECTOR", b"SYCL_CACHE_PERSISTENT", b"SYCL_CACHE_DIR")
before = [getenv(name) for name in names]
given = getenv(b"OCL_ICD_FILENAMES")
import usmq
driver = getenv(b"OCL_ICD_FILENAMES")
print(before == [getenv(name) for name in names])
print(driver == given if given else os.path.exists(driver))
"""
    assert run_python(code).stdout.split() == ["True", "True"]


def test_import_is_faster_than_that_of_dpctl(run_python):
    times = {"usmq": [], "dpctl": []}
    for module in times:
        run_python(f"import {module}")  # fills the caches of files and bytecode
    for _ in range(7):
        for module, taken in times.items():
            code = f"from time import perf_counter as t; a = t(); import {module}; print(t() - a)"
            taken.append(float(run_python(code).stdout))
    assert statistics.median(times["usmq"]) < statistics.median(times["dpctl"]), times


def test_every_name_in_all_exists_once():
    assert set(NAMES) <= set(usmq.__all__)
    assert len(usmq.__all__) == len(set(usmq.__all__))
    assert [name for name in usmq.__all__ if not hasattr(usmq, name)] == []


def test_every_exception_derives_from_the_usmq_error():
    bases = {"SelectorError": ValueError, "AllocationError": MemoryError}
    bases["InteropError"] = BufferError
    names = [name for name in NAMES if name.endswith("Error")]
    assert len(names) == 11
    for name in names:
        assert issubclass(getattr(usmq, name), usmq.Error)
        assert issubclass(getattr(usmq, name), bases.get(name, Exception))


def test_public_classes_have_their_public_module_and_name():
    classes = [value for name in usmq.__all__ if isinstance(value := getattr(usmq, name), type)]
    assert {f"{cls.__module__}.{cls.__qualname__}" for cls in classes} == {
        f"usmq.{cls.__name__}" for cls in classes
    }
