"""Kernels from OpenCL C and SPIR-V, and local memory, on OpenCL devices."""

import struct

import numpy as np
import pytest
import usmq

SOURCE = """
#ifndef TERM
#define TERM 0
#endif
kernel void axpy(float a, global const float *x, __global float *y, ulong n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] = a * x[i] + y[i] + TERM;
}
__kernel void reverse(global const int *x, global int *y, local int *scratch) {
  size_t i = get_global_id(0), l = get_local_id(0), n = get_local_size(0);
  scratch[l] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[i] = scratch[n - 1 - l];
}
kernel void place(global int *x) {
  size_t r = get_global_id(1), c = get_global_id(0);
  x[r * get_global_size(0) + c] = 100 * r + c;
}
"""
SYCL_LOCAL = """
#include <cstddef>
#include <sycl/sycl.hpp>
namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
reverse(const int *x, int *y, syclexp::work_group_memory<int[]> scratch) {
  auto item = syclext::this_work_item::get_nd_item<1>();
  size_t i = item.get_global_id(0), l = item.get_local_id(0), n = item.get_local_range(0);
  scratch[l] = x[i];
  sycl::group_barrier(item.get_group());
  y[i] = scratch[n - 1 - l];
}
"""


@pytest.fixture(autouse=True)
def opencl():
    backend = usmq.current_queue().device.backend
    if backend != "opencl":
        pytest.skip(f"the default device is of {backend}, not of OpenCL")


def spirv():
    """Assemble `kernel void add_one(global uint *x) { x[get_global_id(0)] += 1; }`."""
    void, u32, u64, v3, to_v3, to_u32, function, gid = range(1, 9)
    kernel, x, entry, gid3, i, address, value, one, sum_ = range(9, 18)

    def op(code, *words):
        return [(len(words) + 1) << 16 | code, *words]

    name = struct.unpack("<2I", b"add_one\0")
    code = [
        *op(17, 4),  # OpCapability Addresses
        *op(17, 6),  # OpCapability Kernel
        *op(17, 11),  # OpCapability Int64
        *op(14, 2, 2),  # OpMemoryModel Physical64 OpenCL
        *op(15, 6, kernel, *name, gid),  # OpEntryPoint Kernel
        *op(71, gid, 11, 28),  # OpDecorate BuiltIn GlobalInvocationId
        *op(71, gid, 22),  # OpDecorate Constant
        *op(19, void),
        *op(21, u32, 32, 0),
        *op(21, u64, 64, 0),
        *op(23, v3, u64, 3),
        *op(32, to_v3, 1, v3),  # OpTypePointer Input
        *op(32, to_u32, 5, u32),  # OpTypePointer CrossWorkgroup
        *op(33, function, void, to_u32),
        *op(43, u32, one, 1),  # OpConstant
        *op(59, to_v3, gid, 1),  # OpVariable Input
        *op(54, void, kernel, 0, function),  # OpFunction
        *op(55, to_u32, x),  # OpFunctionParameter
        *op(248, entry),  # OpLabel
        *op(61, v3, gid3, gid, 2, 32),  # OpLoad Aligned 32
        *op(81, u64, i, gid3, 0),  # OpCompositeExtract
        *op(70, to_u32, address, x, i),  # OpInBoundsPtrAccessChain
        *op(61, u32, value, address, 2, 4),  # OpLoad Aligned 4
        *op(128, u32, sum_, value, one),  # OpIAdd
        *op(62, address, sum_, 2, 4),  # OpStore Aligned 4
        *op(253),  # OpReturn
        *op(56),  # OpFunctionEnd
    ]
    return struct.pack(f"<{len(code) + 5}I", 0x07230203, 0x00010000, 0, 18, 0, *code)


def test_an_opencl_c_kernel_computes_the_result_of_its_source():
    axpy = usmq.Kernel.from_opencl(SOURCE, "axpy")
    x, y = usmq.arange(0, 100, 1, dtype="f4"), usmq.full(100, 1, "f4")
    axpy(100, 2.0, x, y, 90)
    expected = np.ones(100)
    expected[:90] += 2 * np.arange(90)
    np.testing.assert_array_equal(y.to_numpy(), expected)


def test_its_signature_is_checked():
    axpy = usmq.Kernel.from_opencl(SOURCE, "axpy")
    x, y = usmq.zeros(4), usmq.zeros(4)
    with pytest.raises(usmq.LaunchError):
        axpy(4, 2.0, usmq.zeros(4, "i4"), y, 4)
    with pytest.raises(usmq.LaunchError):
        axpy(4, 2.0, x, y)
    with pytest.raises((usmq.Error, TypeError, ValueError, OverflowError)):
        axpy(4, 2.0, x, y, -1)


def test_options_reach_the_opencl_c_compiler():
    y = usmq.zeros(4)
    for term in (5, 6):
        axpy = usmq.Kernel.from_opencl(SOURCE, "axpy", options=[f"-DTERM={term}"])
        z = usmq.zeros(4)
        axpy(4, 0.0, y, z, 4)
        assert z.to_numpy().tolist() == [term] * 4


@pytest.mark.parametrize("local", [1, 4, 16])
@pytest.mark.parametrize("language", ["OpenCL C", "SYCL"])
def test_local_memory_is_shared_by_a_work_group(language, local):
    x, y = usmq.arange(0, 64, 1, dtype="i4"), usmq.zeros(64, "i4")
    if language == "SYCL":
        reverse = usmq.Kernel.from_sycl(SYCL_LOCAL, "reverse")
    else:
        reverse = usmq.Kernel.from_opencl(SOURCE, "reverse")
    reverse(64, x, y, usmq.local(4 * local), local_size=local)
    expected = np.arange(64).reshape(-1, local)[:, ::-1].ravel()
    np.testing.assert_array_equal(y.to_numpy(), expected)


def test_local_memory_without_a_local_size_is_a_launch_error():
    x, y = usmq.arange(0, 64, 1, dtype="i4"), usmq.zeros(64, "i4")
    for reverse in (
        usmq.Kernel.from_opencl(SOURCE, "reverse"),
        usmq.Kernel.from_sycl(SYCL_LOCAL, "reverse"),
    ):
        with pytest.raises(usmq.LaunchError, match=r"\"reverse\", argument 2: 16 .* local_size"):
            reverse(64, x, y, usmq.local(16))
    assert not y.to_numpy().any()


def test_an_argument_of_another_size_is_named_with_its_value():
    x = usmq.zeros(4, "f4")
    typed = (
        SYCL_LOCAL
        + """
struct Point { float x, y; int z; };
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
put(float *x, Point point) { x[0] = point.x; }
"""
    )
    put = usmq.Kernel.from_sycl(typed, "put")
    with pytest.raises(usmq.LaunchError, match=r"\"put\", argument 1: .*float64 2\.5.*12 bytes"):
        put(1, x, np.float64(2.5))


def test_more_local_memory_than_the_device_has_is_an_error():
    x, y = usmq.zeros(64, "i4"), usmq.zeros(64, "i4")
    reverse = usmq.Kernel.from_opencl(SOURCE, "reverse")
    with pytest.raises(usmq.Error):
        reverse(64, x, y, usmq.local(2**40), local_size=4).wait()


def test_a_kernel_runs_on_a_sub_device_and_a_second_device(other_queue):
    axpy = usmq.Kernel.from_opencl(SOURCE, "axpy")
    x = usmq.full(10, 2, "f4", queue=other_queue)
    y = usmq.zeros(10, "f4", queue=other_queue)
    axpy(10, 3.0, x, y, 10)
    assert y.to_numpy().tolist() == [6] * 10


def test_the_first_dimension_of_the_range_is_the_slowest():
    x = usmq.zeros((3, 5), "i4")
    usmq.Kernel.from_opencl(SOURCE, "place")((3, 5), x)
    r, c = np.indices((3, 5))
    np.testing.assert_array_equal(x.to_numpy(), 100 * r + c)


def test_an_opencl_c_build_error_has_the_log():
    with pytest.raises(usmq.KernelBuildError) as caught:
        usmq.Kernel.from_opencl("kernel void f(global int *x) { *x = nothing; }", "f")
    assert "error" in caught.value.log
    assert "nothing" in caught.value.log


@pytest.mark.parametrize(
    "text", ["", " ", "// f", "/* f */\n", "\0", "int f(void);", "kernel void g(void) {}"]
)
def test_a_source_without_the_kernel_is_an_error(text):
    with pytest.raises((usmq.Error, ValueError)):
        usmq.Kernel.from_opencl(text, "f")


def test_a_spir_v_kernel_runs():
    x = usmq.arange(0, 16, 1, dtype="u4")
    usmq.Kernel.from_spirv(spirv(), "add_one")(16, x)
    assert x.to_numpy().tolist() == list(range(1, 17))
    params = (usmq.write("u4"),)
    checked = usmq.Kernel.from_spirv(spirv(), "add_one", params=params)
    checked(16, x)
    assert x.to_numpy().tolist() == list(range(2, 18))
    with pytest.raises((usmq.LaunchError, TypeError)):
        checked(16, usmq.zeros(16, "f4"))


@pytest.mark.parametrize("binary", [b"", b"text", b"\x03\x02\x23\x07", b"\x7fELF" + bytes(60)])
def test_invalid_spir_v_is_refused(binary):
    with pytest.raises(usmq.KernelBuildError, match="module"):
        usmq.Kernel.from_spirv(binary, "add_one")


def test_spir_v_must_be_bytes_with_a_kernel_name():
    with pytest.raises(TypeError):
        usmq.Kernel.from_spirv("text", "add_one")
    with pytest.raises((usmq.Error, ValueError)):
        usmq.Kernel.from_spirv(spirv(), "add_two")
