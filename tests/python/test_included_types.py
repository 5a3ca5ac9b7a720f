"""Signatures whose types, macros and kernels are in included files."""

import pytest
import usmq

TYPES = """
#ifndef MY_TYPES_H
#define MY_TYPES_H
#include "deep/more.h"
#define REAL float
#ifdef WIDE
typedef double wide;
#else
typedef float wide;
#endif
#endif
"""
KERNEL = """
#include <usmq/kernel.h>
#include {name}
USMQ_KERNEL(1) void k(real a, REAL b, wide c, size_t n, real *y) {{ y[0] = a + b + c + n; }}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_types.h").write_text(TYPES)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "more.h").write_text("#pragma once\ntypedef float real;\n")
    return tmp_path


@pytest.mark.parametrize("name", ['"my_types.h"', "<my_types.h>"])
def test_plain_numbers_convert_to_types_of_an_included_file(folder, name):
    for options, wide in (([], "float32"), (["-DWIDE"], "float64")):
        flags = [f"-I{folder}", *options]
        kernel = usmq.Kernel.from_sycl(KERNEL.format(name=name), "k", options=flags)
        assert repr(kernel) == f"<usmq.Kernel k(float32, float32, {wide}, uint64, float32 *)>"
        y = usmq.zeros(1, "f4")
        kernel(1, 0.5, 1.5, 2.0, 4, y)
        assert y.tolist() == [8.0]


def test_opencl_c_reads_the_same_files(folder):
    if usmq.current_queue().device.backend != "opencl":
        pytest.skip("only the opencl backend builds OpenCL C by its driver")
    source = (
        '#include "my_types.h"\nkernel void k(real a, wide b, global real *y) { y[0] = a + b; }'
    )
    kernel = usmq.Kernel.from_opencl(source, "k", options=[f"-I {folder} -DWIDE"])
    assert repr(kernel) == "<usmq.Kernel k(float32, float64, float32 *)>"
    y = usmq.zeros(1, "f4")
    kernel(1, 0.5, 1.5, y)
    assert y.tolist() == [2.0]


def test_a_kernel_in_an_included_file_has_a_signature(folder):
    (folder / "kernels.h").write_text(KERNEL.format(name='"my_types.h"'))
    kernel = usmq.Kernel.from_sycl('#include "kernels.h"\n', "k", options=[f"-I{folder}"])
    assert repr(kernel) == "<usmq.Kernel k(float32, float32, float32, uint64, float32 *)>"
    assert kernel.name == "k"
    with pytest.raises(usmq.LaunchError, match="declared for 1 dimension"):
        kernel((1, 1), 1.0, 1.0, 1.0, 1, usmq.zeros(1, "f4"))


def test_a_template_of_an_included_file_takes_the_types_of_its_instance(folder):
    (folder / "template.h").write_text(
        """#include <sycl/sycl.hpp>
        #include "my_types.h"
        template <typename T> SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(
            (sycl::ext::oneapi::experimental::nd_range_kernel<1>))
        void set(T value, std::uint32_t at, T *y) { y[at] = value; }
        """
    )
    for instance, dtype in (("set<real>", "f4"), ("set<double>", "f8")):
        kernel = usmq.Kernel.from_sycl('#include "template.h"', instance, options=[f"-I{folder}"])
        y = usmq.zeros(2, dtype)
        kernel(1, 3.0, 1, y)
        assert y.tolist() == [0.0, 3.0]


def test_the_error_for_an_unknown_type_names_it_and_the_file_that_was_not_found(folder):
    source = """#include <usmq/kernel.h>
    #include <sycl/sycl.hpp>
    template <typename T> struct alias { using type = T; };
    USMQ_KERNEL(1) void k(alias<float>::type value, float *y) { y[0] = value; }"""
    kernel = usmq.Kernel.from_sycl(source, "k")
    y = usmq.zeros(1, "f4")
    found = r"argument 0.*cannot read the type in `alias < float > :: type value`"
    with pytest.raises(usmq.LaunchError, match=found + r".*did not find <sycl/sycl\.hpp>"):
        kernel(1, 2.0, y)
