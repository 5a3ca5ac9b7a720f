"""Vectors, structures and shaped local memory as arguments of kernels, and the text of `help`."""

import ctypes
import inspect
import pydoc

import numpy as np
import pytest
import usmq

SOURCE = """
#include <usmq/kernel.h>
struct Pair { int a; float b; };
USMQ_KERNEL(1) void pair(float *y, Pair p) { y[0] = p.a; y[1] = p.b; }
USMQ_KERNEL(1) void vector(float *y, float3 v, int n) { y[0] = v.x; y[1] = v.y; y[2] = v.z + n; }
USMQ_KERNEL(2) void plain(const float *x, float *y, local_memory<float> part) { y[0] = x[0]; }
"""
SQUARE = """
#include <sycl/sycl.hpp>
namespace syclexp = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void square(int *y, sycl::local_accessor<int, 2> own) {
  y[0] = own.get_range()[0] * 10 + own.get_range()[1];
}
"""
PAIR = np.dtype([("a", "i4"), ("b", "f4")])


def built(name):
    """Return a kernel of `SOURCE`."""
    return usmq.Kernel.from_sycl(SOURCE, name)


def structure(base=ctypes.Structure, **fields):
    """Return a type of ctypes with these fields."""
    return type("Structure", (base,), {"_fields_": list(fields.items())})


NUMBERS = {"a": ctypes.c_int, "b": ctypes.c_float}
Pair = structure(**NUMBERS)
Nest = structure(pairs=Pair * 1)
# Fields in the other byte order: all, those in an array, one, those of a base, those in a union.
Big = structure(ctypes.BigEndianStructure, **NUMBERS)
Outer = structure(pairs=Big * 1)
Swapped = structure(a=ctypes.c_int.__ctype_be__, b=ctypes.c_float)
Derived = structure(Swapped)
Either = structure(ctypes.Union, one=ctypes.c_double, other=Big)
Holder = structure(object=ctypes.py_object)


@pytest.mark.parametrize(
    "value",
    [
        np.array((3, 2.5), PAIR),
        np.array([(3, 2.5)], PAIR)[0],
        Pair(3, 2.5),
        np.array(([(3, 2.5)],), [("v", PAIR, 1)]),
        Nest((Pair * 1)(Pair(3, 2.5))),
    ],
    ids=["array without axes", "scalar", "ctypes", "nested", "nested in ctypes"],
)
def test_structures_are_passed_by_value(value):
    y = usmq.zeros(2, "f4")
    built("pair")(1, y, value)
    assert y.tolist() == [3.0, 2.5]


FOREIGN = [
    (np.array((1, 2.5), PAIR.newbyteorder(">")), 'field "a" has the byte order'),
    (np.array([(1, 2.5)], PAIR.newbyteorder(">"))[0], 'field "a" has the byte order'),
    (np.array((1, 2.5), [("a", "i4"), ("b", ">f4")]), 'field "b" has the byte order'),
    (np.array(((1, 2.5),), [("p", [("a", "i4"), ("b", ">f4")])]), 'field "p.b" has the byte'),
    (np.array(([1, 2],), [("v", ">i4", 2)]), 'field "v" has the byte order'),
    (np.array(([(1, 2)],), [("v", [("a", "i4"), ("b", ">f4")], 1)]), 'field "v.b" has the byte'),
    (np.rec.array([(1, 2.5)], dtype=PAIR.newbyteorder(">"))[0], 'field "a" has the byte order'),
    (np.array(([],), [("o", object)]), 'field "o" holds Python objects'),
    (np.array((([], 0),), [("p", [("o", object), ("n", "i8")])]), 'field "p.o" holds Python'),
    (Big(1, 2.5), "it has the byte order"),
    (Outer(), 'field "pairs" has the byte order'),
    (Swapped(1, 2.5), 'field "a" has the byte order'),
    (Derived(1, 2.5), 'field "a" has the byte order'),
    (Either(1.0), 'field "other" has the byte order'),
    (Holder([]), 'field "object" holds Python objects'),
]


@pytest.mark.parametrize(("value", "text"), FOREIGN)
def test_a_structure_that_a_kernel_cannot_read_is_refused(value, text):
    y = usmq.zeros(2, "f4")
    with pytest.raises(TypeError, match=f"a structure as a kernel argument, .*: {text}"):
        built("pair")(1, y, value)
    assert y.tolist() == [0, 0]


def test_a_structure_of_another_size_is_refused():
    if usmq.current_queue().device.backend == "level_zero":
        pytest.skip("Intel's GPU driver does not compare the sizes (docs/howto/kernels.md)")
    y = usmq.zeros(2, "f4")
    wrong = np.array((3, 2.5), [("a", "i4"), ("b", "f8")])
    for value, text in (
        (wrong, "got a value of 12 bytes.* takes 8 bytes"),
        (np.array([(3, 2.5)], PAIR), r"ndarray: .*by value pass one element, as x\[0\]"),
    ):
        with pytest.raises(usmq.LaunchError, match=f"argument 1: {text}"):
            built("pair")(1, y, value)


def test_a_tuple_converts_to_the_elements_of_a_vector():
    y = usmq.zeros(3, "f4")
    built("vector")(1, y, (1, 2.5, np.float64(3)), 4)
    assert y.tolist() == [1.0, 2.5, 7.0]
    for value, error, part in [
        ((1, 2), usmq.LaunchError, r"argument 1: got \(1, 2\).* takes a vector of 3 float32"),
        ((), usmq.LaunchError, "argument 1"),
        ((1, 2, 3j), usmq.LaunchError, "argument 1"),
        ((1, 2, "3"), TypeError, "a tuple as a kernel argument is a vector.*not str"),
        (1.0, usmq.LaunchError, "argument 1: .*a vector of 3 float32"),
    ]:
        with pytest.raises(error, match=part):
            built("vector")(1, y, value, 4)


def test_local_memory_has_a_shape():
    y = usmq.zeros(1, "i4")
    square = usmq.Kernel.from_sycl(SQUARE, "square")
    square(1, y, usmq.local((3, 4), "i4"), local_size=1)
    assert y.tolist() == [34]
    assert repr(usmq.local((3, 4), "i4")) == 'usmq.local((3, 4), "i4")'
    assert repr(usmq.local(6, np.float32)) == 'usmq.local((6,), "f4")'
    with pytest.raises(usmq.LaunchError, match=r"argument 1: .*2-dimensional.*; give its shape"):
        square(1, y, usmq.local(48), local_size=1)
    for size, dtype, error in [
        ((1, 2, 3, 4), "i4", ValueError),
        ((3, 4), None, TypeError),
        (-1, None, ValueError),
        ((2**62, 4), "f4", ValueError),
        ("3", None, TypeError),
    ]:
        with pytest.raises(error, match=r"size|shape"):
            usmq.local(size, dtype)


def test_help_shows_the_signature():
    text = pydoc.plain(pydoc.render_doc(built("plain")))
    assert "plain(const float32 *, float32 *, local memory)" in text
    assert "a range of 2 dimensions" in text
    kernel_class = pydoc.plain(pydoc.render_doc(usmq.Kernel))
    assert "A function that runs on a device." in kernel_class
    assert inspect.getdoc(usmq.Kernel).startswith("A function")
