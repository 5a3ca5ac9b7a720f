"""Work-group sizes that a kernel declares, and kernels that the device cannot run."""

import pytest
import usmq

PROPERTIES = """#include <sycl/sycl.hpp>
namespace e = sycl::ext::oneapi::experimental;
#define PROPERTY(...) SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((e::__VA_ARGS__))
#define KERNEL(...) extern "C" SYCL_EXTERNAL PROPERTY(__VA_ARGS__)
template <int N> void put(float *p) {
  auto it = sycl::ext::oneapi::this_work_item::get_nd_item<N>();
  p[it.get_global_linear_id()] = it.get_local_range().size();
}
KERNEL(nd_range_kernel<1>) [[sycl::reqd_work_group_size(8)]] void one(float *p) { put<1>(p); }
KERNEL(nd_range_kernel<2>) [[sycl::reqd_work_group_size(2, 4)]] void two(float *p) { put<2>(p); }
KERNEL(nd_range_kernel<3>) [[sycl::reqd_work_group_size(2, 1, 4)]] void three(float *p) {
  put<3>(p);
}
KERNEL(nd_range_kernel<1>) PROPERTY(work_group_size<8>) void property(float *p) { put<1>(p); }
KERNEL(nd_range_kernel<1>) PROPERTY(max_linear_work_group_size<8>) void limited(float *p) {
  put<1>(p);
}
KERNEL(single_task_kernel) void once(float *p) { p[0] += 1; }
"""
OPENCL = """kernel __attribute__((reqd_work_group_size(8, 1, 1))) void one(global float *p) {
  p[get_global_id(0)] = get_local_size(0);
}"""


def opencl_kernel(*options):
    """Return the kernel of OpenCL C."""
    if usmq.current_queue().device.backend != "opencl":
        pytest.skip(f"{usmq.current_queue().device} is not of the opencl backend")
    return usmq.Kernel.from_opencl(OPENCL, "one", options=options)


@pytest.fixture(scope="module")
def kernels():
    names = ("one", "two", "three", "property", "limited", "once")
    return {name: usmq.Kernel.from_sycl(PROPERTIES, name) for name in names}


def error_of(call):
    """Return the text of the error that the call raises, if any."""
    try:
        call()
    except (usmq.LaunchError, usmq.KernelBuildError) as error:
        return str(error)
    return None


def refused(kernel, size, text, **local):
    p = usmq.full(1024, -1, "f4")
    for _ in range(3):  # From the second launch on, the driver gets the commands.
        with pytest.raises(usmq.LaunchError, match=text):
            kernel(size, p, **local)
    assert set(p.tolist()) == {-1}


def test_a_range_that_the_required_size_does_not_divide_is_refused(kernels):
    """The rule is in src/kernel/work_groups.rs."""
    for kernel, size, required in (
        (kernels["one"], 4, r"\[8\]"),
        (kernels["property"], 12, r"\[8\]"),
        (kernels["two"], (4, 2), r"\[2, 4\]"),
        (kernels["three"], (2, 3, 6), r"\[2, 1, 4\]"),
    ):
        refused(kernel, size, rf"required work-group size {required} does not divide range")
    for options in ((), ("-cl-std=CL2.0",), ("-cl-std=CL3.0",)):
        refused(opencl_kernel(*options), 12, r"required work-group size \[8\] does not divide")


def test_another_local_size_is_refused(kernels):
    text = "is not its required work-group size"
    refused(kernels["one"], 16, text, local_size=4)
    refused(kernels["two"], (4, 8), text, local_size=(4, 2))
    refused(kernels["three"], (4, 1, 8), text, local_size=(4, 1, 2))
    refused(opencl_kernel(), 16, text, local_size=16)


@pytest.mark.parametrize("local", [False, True])
def test_the_required_size_is_that_of_every_launch(kernels, local):
    for kernel, size, group in [
        (kernels["one"], 24, 8),
        (kernels["property"], 24, 8),
        (kernels["two"], (4, 12), (2, 4)),
        (kernels["three"], (4, 3, 8), (2, 1, 4)),
        (opencl_kernel(), 24, 8),
        (opencl_kernel("-cl-std=CL3.0"), 24, 8),
    ]:
        given = {"local_size": group} if local else {}
        items = size if isinstance(size, int) else size[0] * size[1] * (*size, 1)[2]
        p = usmq.zeros(items, "f4")
        for _ in range(3):
            kernel(size, p, **given)
            assert set(p.tolist()) == {8}
            p.fill(0)
        with usmq.capture() as graph:
            kernel(size, p, **given)
        graph.replay()
        assert set(p.tolist()) == {8}


def test_captures_refuse_as_launches_do(kernels):
    p = usmq.zeros(12, "f4")
    with usmq.capture(), pytest.raises(usmq.LaunchError, match="does not divide"):
        kernels["one"](12, p)
    assert set(p.tolist()) == {0}


def test_a_limit_of_the_source_is_observed(kernels):
    limited = kernels["limited"]
    refused(limited, 64, "8 work-items", local_size=16)
    p = usmq.zeros(64, "f4")
    limited(64, p, local_size=8)
    assert set(p.tolist()) == {8}
    text = error_of(lambda: limited(64, p))
    if text is None:  # The driver observes the limit.
        assert max(p.tolist()) <= 8
    else:
        assert "give local_size" in text


def test_a_single_task_runs_once(kernels):
    once = kernels["once"]
    for size in (12, 0, (2, 1), (1, 1, 3)):
        refused(once, size, "declared as a single task, but range .* launch it over 1")
    p = usmq.zeros(1, "f4")
    once(1, p)
    once((1, 1), p)
    assert p.tolist() == [2]


def lacking(declaration):
    """Build a kernel that the device may not be able to run."""
    source = f"KERNEL(nd_range_kernel<1>) {declaration} void f(float *p) {{ p[0] = 1; }}"
    return usmq.Kernel.from_sycl(PROPERTIES.split("template")[0] + source, "f")


@pytest.mark.parametrize(
    ("declaration", "text"),
    [
        ("[[sycl::reqd_sub_group_size(7)]]", "sub-groups of 7 work-items, which"),
        ("PROPERTY(sub_group_size<7>)", "needs sub-groups of 7 work-items"),
        ("[[sycl::reqd_work_group_size(65536)]]", "groups of 65536 work-items"),
        ("[[sycl::device_has(sycl::aspect::custom)]]", "needs the aspect custom"),
    ],
)
def test_a_kernel_that_the_device_cannot_run_names_what_it_lacks(declaration, text):
    with pytest.raises(usmq.KernelBuildError, match=text) as error:
        lacking(declaration)
    assert "no kernel of this name" not in str(error.value)


def test_a_capability_that_the_compiler_lacks_is_named():
    declaration = "[[intel::max_work_group_size(1, 1, 8)]]"
    text = error_of(lambda: lacking(declaration))
    if text is None:
        refused(lacking(declaration), 64, "8 work-items", local_size=16)
    else:
        assert "the SPIR-V capability KernelAttributesINTEL" in text
