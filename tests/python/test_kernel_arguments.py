"""Kernel arguments: those that do not match the signature are refused before the launch."""

import numpy as np
import pytest
import usmq

C_TYPES = {
    "bool": "?",
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned int": "u4",
    "long": "i8",
    "unsigned long long": "u8",
    "float": "f4",
    "double": "f8",
    "std::int8_t": "i1",
    "std::uint16_t": "u2",
    "int32_t": "i4",
    "uint64_t": "u8",
    "size_t": "u8",
}
# The exceptions of a call with arguments that do not fit, before anything is written.
ERRORS = (usmq.Error, TypeError, ValueError, OverflowError)


PUT = """
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
put_{number}({type} before, {type} *x, const {type} value, {type} const *from) {{
  x[0] = value; x[1] = from[0]; x[2] = before; // a comment with ) and , in it
}}
"""


@pytest.fixture(scope="module")
def putters():
    """Return, for each C type, a kernel that writes its three inputs to an array."""
    text = """
#include <cstddef>
#include <cstdint>
#include <sycl/sycl.hpp>
namespace syclexp = sycl::ext::oneapi::experimental;
"""
    text += "".join(PUT.format(number=n, type=c_type) for n, c_type in enumerate(C_TYPES))
    return {t: usmq.Kernel.from_sycl(text, f"put_{n}") for n, t in enumerate(C_TYPES)}


@pytest.mark.parametrize("c_type", C_TYPES)
def test_numbers_and_arrays_of_its_type_reach_the_kernel_and_no_others(putters, c_type):
    if c_type == "double" and "fp64" not in usmq.current_queue().device.aspects:
        pytest.skip("the device has no fp64")
    dtype = np.dtype(C_TYPES[c_type])
    if dtype.kind in "iu":
        numbers = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
    else:
        numbers = [False, True] if dtype.kind == "b" else [-0.5, 1.25, 2]
    source = usmq.full(1, 1, dtype)
    for number in [*numbers, *map(dtype.type, numbers)]:
        x = usmq.zeros(3, dtype)
        putters[c_type](1, number, x, number, source)
        assert x.to_numpy().tolist() == [number, 1, number]
    x = usmq.zeros(3, dtype)
    for wrong in sorted(set(C_TYPES.values()) - {C_TYPES[c_type]}):
        with pytest.raises(usmq.LaunchError, match=str(np.dtype(wrong))):
            putters[c_type](1, 1, x, 1, usmq.zeros(3, wrong))
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("c_type", "numbers"),
    [
        ("int", [1.5, 2**31, -(2**31) - 1, None, [1], b"1"]),
        ("unsigned int", [-1]),
        ("size_t", [-1, 2**64]),
        ("signed char", [128]),
        ("unsigned char", [256]),
        ("float", ["1", 1j, None, 10**400]),
        ("bool", ["yes"]),
    ],
)
def test_a_number_that_does_not_fit_the_type_is_refused(putters, c_type, numbers):
    x = usmq.zeros(3, C_TYPES[c_type])
    for number in numbers:
        with pytest.raises(ERRORS):
            putters[c_type](1, number, x, 1, x)
    assert not x.to_numpy().any()


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_a_wrong_number_of_arguments_is_a_launch_error_with_both_numbers(kernels, count):
    x = usmq.zeros(4)
    with pytest.raises(usmq.LaunchError) as caught:
        kernels.fill(4, *[x, *[1.0] * 8][:count])
    assert "2" in str(caught.value)
    assert str(count) in str(caught.value)
    assert not x.to_numpy().any()


def test_other_objects_are_refused(kernels):
    x = usmq.zeros(4)
    pointers = [None, "x", b"1234", [1.0], (1.0,), object(), np.zeros(4), memoryview(b"abcd"), 0]
    for pointer in [*pointers, 1.5]:
        with pytest.raises((usmq.Error, TypeError)):
            kernels.fill(4, pointer, 1.0)
    for scalar in (x, usmq.local(4)):
        with pytest.raises((usmq.Error, TypeError)):
            kernels.fill(4, x, scalar)
    for mark in (usmq.read, usmq.write):
        for wrong in (None, 3, [1], "nosuch", "f4"):
            with pytest.raises((usmq.Error, TypeError, ValueError)):
                kernels.fill(4, mark(wrong), 1.0)
    with pytest.raises(TypeError):
        kernels.fill(4, x, 1.0, group_size=2)
    assert not x.to_numpy().any()


def test_an_invalid_global_or_local_size_is_refused(kernels):
    """Other ranges are in tests/suite/kernels.rs, other types in test_argument_errors.py."""
    x = usmq.zeros(64)
    for size in (-1, (2, -3), (), (1, 1, 1, 1), 2**64, (2**40, 2**40), (2, 2)):
        with pytest.raises(ERRORS):
            kernels.fill(size, x, 1.0)
    for local in (0, -1, 3, 2**20, (2, 2), (), (4, 1, 1, 1)):
        with pytest.raises(ERRORS):
            kernels.fill(64, x, 1.0, local_size=local).wait()
    assert not x.to_numpy().any()


class ReadOnly:
    """Lends an array as memory that must not be written."""

    def __init__(self, base):
        self.base = base
        interface = dict(base.__sycl_usm_array_interface__)
        interface["data"] = (interface["data"][0], True)
        self.__sycl_usm_array_interface__ = interface


def test_a_read_only_array_may_be_read_and_not_written(kernels):
    base = usmq.full(4, 3, "f4")
    x, y = usmq.asarray(ReadOnly(base)), usmq.zeros(4)
    assert x.readonly
    assert x[1:].readonly
    kernels.axpy(4, 1.0, x, y, 4)
    assert y.to_numpy().tolist() == [3] * 4
    for target in (x, x[1:], usmq.write(x)):
        with pytest.raises((usmq.Error, TypeError, ValueError), match=r"read.?only"):
            kernels.fill(3, target, 9.0)
    assert base.to_numpy().tolist() == [3] * 4
