"""Kernels that need more local memory than a work-group has: the error has the numbers."""

import pytest
import usmq

HEAD = "#include <usmq/kernel.h>\n"
BODY = "part[local_id(0)] = y[global_id(0)]; barrier(); y[global_id(0)] = part[local_id(0)] + 1;"


def limit():
    return usmq.current_queue().device.local_mem_size


def sycl(floats):
    text = f"USMQ_KERNEL(1) void k(float *y) {{ static local_array<float, {floats}> part; {BODY} }}"
    return usmq.Kernel.from_sycl(HEAD + text, "k")


def opencl(floats):
    text = f"""kernel void k(global float *y) {{
      local float part[{floats}]; size_t i = get_local_id(0);
      part[i] = y[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE);
      y[get_global_id(0)] = part[i] + 1;
    }}"""
    return usmq.Kernel.from_opencl(text, "k")


def is_refused_by_compiler():
    """Return whether the compiler refuses such a source, with an empty log, as Intel's for GPUs."""
    return usmq.current_queue().device.backend == "level_zero"


@pytest.mark.parametrize("make", [sycl, opencl])
def test_more_local_memory_in_a_source_than_the_limit_is_an_error_with_both_numbers(make):
    kernel, x = make(limit() // 4), usmq.zeros(64, "f4")
    kernel(64, x, local_size=8).wait()
    assert x.tolist() == [1] * 64
    for more in (1, 10**6):
        floats = limit() // 4 + more
        if is_refused_by_compiler():
            with pytest.raises(usmq.KernelBuildError):
                make(floats)
            continue
        text = f"{floats * 4} bytes of local memory in its source are more than the {limit()}"
        for _ in range(2):  # the second kernel is from the cache
            kernel = make(floats)
            for options in ({}, {"local_size": 8}):
                with pytest.raises(usmq.LaunchError, match=text + ".*declare smaller arrays"):
                    kernel(64, x, **options)
        with usmq.capture(), pytest.raises(usmq.LaunchError, match="in its source"):
            kernel(64, x)
    assert x.tolist() == [1] * 64


def test_local_memory_of_the_source_and_of_arguments_add_up():
    text = f"""USMQ_KERNEL(1) void k(float *y, local_memory<float> more) {{
      static local_array<float, {limit() // 8}> part; {BODY} more[local_id(0)] = y[global_id(0)];
    }}"""
    kernel, x = usmq.Kernel.from_sycl(HEAD + text, "k"), usmq.zeros(8, "f4")
    kernel(8, x, usmq.local(limit() // 2), local_size=8).wait()
    assert x.tolist() == [1] * 8
    text = rf"{limit() // 2} bytes .* in its source and {limit()} in arguments"
    if is_refused_by_compiler():
        # The driver does not tell how much the source takes.
        text = f"argument 1: {limit()} bytes of local memory: the driver has too few resources"
    with pytest.raises(usmq.LaunchError, match=text):
        kernel(8, x, usmq.local(limit()), local_size=8)
