"""Kernels built with debug=True: accesses outside of arrays are errors, and change nothing."""

import numpy as np
import pytest
import usmq

HEADER = "#include <usmq/kernel.h>\n"
SYCL = """#include <sycl/sycl.hpp>
extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))
"""


ITEM = "sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id()"


def build(params, body, *, before="", dims=1, debug=True, **options):
    """A debug build of a kernel `f` with this body."""
    source = f"{HEADER}{before}\nUSMQ_KERNEL({dims}) void f({params}) {{ {body} }}"
    return usmq.Kernel.from_sycl(source, "f", debug=debug, **options)


def fails(kernel, size, *args, match, **options):
    with pytest.raises(usmq.LaunchError, match=match):
        kernel(size, *args, **options)


def guarded(n, dtype="i4", guard=8):
    """A view of `n` zeros between elements that hold 7."""
    whole = usmq.full(n + 2 * guard, 7, dtype)
    inner = whole[guard : guard + n]
    inner.copy_from(np.zeros(n, dtype))
    return whole, inner


def test_a_read_one_past_the_end_is_an_error_that_names_it():
    kernel = build("const float *x, float *y", "auto i = global_id(0); y[i] = x[i + 1];")
    x, y = usmq.arange(8, dtype="f4"), usmq.zeros(8, "f4")
    with pytest.raises(usmq.LaunchError) as error:
        kernel(8, x, y)
    assert str(error.value) == (
        'kernel "f", argument 0 (x): work-item 7 of [8] read index 8, but the array has 8 elements '
        "of float32; compare the index with the length in the kernel"
    )
    assert y.tolist()[:7] == [1, 2, 3, 4, 5, 6, 7]
    kernel(7, x, y)


INTS = "const int *x, float a, int *y"
COPY = "auto i = global_id(0); y[i] = int(a) * x[i];"


@pytest.mark.parametrize(
    ("params", "body", "size", "arguments", "match"),
    [
        ("int *x", "x[-1] = 1;", 1, [(4, "i4")], r"0 \(x\): work-item 0 of .1. accessed index -1,"),
        ("int *x", "x[1000000000000] = 1;", 1, [(4, "i4")], "accessed index 1000000000000,"),
        ("int *x", "x[-(1l << 40)] = 1;", 1, [(4, "i4")], "accessed index -1099511627776,"),
        ("int *x", "x[global_id(0) - 1] = 1;", 4, [(4, "i4")], "item 0 of .4. accessed index -1,"),
        (INTS, COPY, 4, [(3, "i4"), 2.0, (4, "i4")], r"argument 0 \(x\)"),
        (INTS, COPY, 4, [(4, "i4"), 2.0, (3, "i4")], r"argument 2 \(y\)"),
        (INTS, COPY, 1, [(0, "i4"), 2.0, (3, "i4")], "has 0 elements of int32"),
        ("float3 *x", "x[2].z = 1;", 1, [((2, 3), "f4")], "index 2, .* has 2 elements of 12 bytes"),
        ("float *x", "((float4 *)(x + 1))->x = 1;", 1, [(4, "f4")], "accessed 16 bytes at byte 4,"),
        ("bool *x", "x[1] = 1;", 1, [(1, "?")], "has 1 element of bool"),
        # Macros are not rewritten, so `q` is a plain pointer.
        ("float *x", "PLAIN(p, x + 4); PLAIN(q, x + 5); x[0] = q - p;", 1, [(4, "f4")], "index 5"),
    ],
)
def test_each_access_outside_of_an_array_is_an_error(params, body, size, arguments, match):
    kernel = build(params, body, before="#define PLAIN(p, v) const float *p = v\n")
    given = [usmq.zeros(*each) if isinstance(each, tuple) else each for each in arguments]
    fails(kernel, size, *given, match=match)


def test_structures_and_casts_inside_of_arrays_are_used():
    body = "y[0] = x[0].z + (x + 1)->y; ((float4 *)(y + 1))->x = 1;"
    kernel = build("const float3 *x, float *y", body)
    x, y = usmq.arange(6, dtype="f4").reshape(2, 3), usmq.zeros(5, "f4")
    kernel(1, x, y)
    assert y.tolist() == [6, 1, 0, 0, 0]


def test_a_write_out_of_range_leaves_neighbours_unchanged():
    whole, inner = guarded(4)
    kernel = build("int *x", "x[long(global_id(0)) - 4] = 1;")
    fails(kernel, 12, inner, match="the first of 8 accesses out of range")
    assert whole.tolist() == [7] * 8 + [1] * 4 + [7] * 8


def test_the_first_of_many_errors_is_reported_with_the_count():
    kernel = build("double *x", "x[global_id(0)] = 1;")
    n = 100_000
    with pytest.raises(usmq.LaunchError, match=f"of {n - 10} accesses") as error:
        kernel(n, usmq.zeros(10, "f8"))
    words = str(error.value).split()
    item, index = words[words.index("work-item") + 1], words[words.index("index") + 1]
    assert item == index.rstrip(",")


@pytest.mark.parametrize(
    ("dims", "size", "item"), [(2, (2, 3), r"\[1, 2\] of \[2, 3\]"), (3, (1, 2, 2), r"\[0, 1, 1\]")]
)
def test_the_work_item_has_an_id_in_each_dimension(dims, size, item):
    kernel = build("int *x", "x[global_linear_id()] = 1;", dims=dims)
    count = int(np.prod(size))
    fails(kernel, size, usmq.zeros(count - 1, "i4"), match=f"work-item {item}")
    x = usmq.zeros(size, "i4")
    kernel(size, x)
    assert x.to_numpy().all()


ROW = """
float first(const float *p, int i) { return p[i]; }
template <class T> T second(const T *p) { return *++p; }
template <class P> auto third(P p, long i) { return *(p + i); }
const float *moved(const float *p, long by) { return p + by; }
"""


@pytest.mark.parametrize(
    ("body", "index"),
    [
        ("y[0] = *(x + 4);", 4),
        ("const float *p = x + 3; y[0] = *p++; y[1] = *p;", 4),
        ("const float *p = x, *end = x + 4; float s = 0; while (p <= end) s += *p++; y[0] = s;", 4),
        ("for (const float *p = x; p != x + 5; ++p) y[0] += *p;", 4),
        ("auto p = &x[3]; auto q = x; q += 5; y[0] = q[-1];", 4),
        ("auto *p = 6 + x; p -= 1; --p; y[0] = *p;", 4),
        ("y[0] = first(x, 4);", 4),
        ("y[0] = second(x + 3);", 4),
        ("y[0] = second(y + 1) + third(x, 6);", 6),
        ("y[0] = *moved(x + 2, 5);", 7),
        ("auto g = [&](const float *p) { return p[9]; }; y[0] = g(x);", 9),
        ("y[0] = ((const int *)x)[4];", 4),
        ("y[0] = reinterpret_cast<const unsigned *>(x)[-2];", -2),
        ("y[0] = y != nullptr && (x < y || x >= y + 4) && x ? x[4] : 1;", 4),
    ],
)
def test_pointers_that_come_from_an_array_are_checked(body, index):
    kernel = build("const float *x, float *y", body, before=ROW)
    x, y = usmq.arange(4, dtype="f4"), usmq.zeros(4, "f4")
    fails(kernel, 1, x, y, match=rf"argument 0 \(x\): work-item 0 of \[1\] read index {index},")


def test_correct_pointers_give_the_same_results():
    body = """
      long i = global_id(0), n = x_end(x) - x;
      const float *p = x + i, *q = p + 1, *none = nullptr;
      float own[3] = {1, 2, 3}, *o = own;
      float s = *p++ + (q - x) + (p == q) + (none == nullptr) + own[2] + first(own, 1) + *(o + 1);
      row r = y + i; r[0] = s * n; *(y + i) += i[x]; if (i == 0) atomic_add(y + i, 1);"""
    before = ROW + "const float *x_end(const float *p) { return p + 8; }\nusing row = float *;"
    x, found = usmq.arange(8, dtype="f4"), []
    for debug in (False, True):
        y = usmq.zeros(8, "f4")
        build("const float *__restrict x, row y", body, before=before, debug=debug)(8, x, y)
        found.append(y.tolist())
    assert found[0] == found[1]
    assert found[0][7] == 8 * (7 + 8 + 1 + 1 + 3 + 2 + 2) + 7


def test_atomic_operations_are_checked():
    for call in ("add(&x[i], 1)", "max(x + i, 1)", "exchange(x + i, 2)", "store(x + i, 2)"):
        whole, inner = guarded(4)
        kernel = build("int *x", f"auto i = global_id(0); atomic_{call};")
        kernel(4, inner)
        fails(kernel, 5, inner, match="accessed index 4,")
        assert whole.tolist()[12:] == [7] * 8


def test_arguments_are_checked_as_in_other_kernels():
    params = "float a, const float *x, local_memory<float> part, float2 v, float *y"
    kernel = build(params, "y[0] = a;")
    assert repr(kernel) == (
        "<usmq.Kernel f(float32, const float32 *, local memory, float32[2], float32 *), debug>"
    )
    assert kernel.debug
    assert not build("", "", debug=False).debug
    x, part = usmq.zeros(4, "f4"), usmq.local(16)
    kernel(4, 3, x, part, (1, 2), x.copy(), local_size=4)
    for args, why in [
        ((3, x.astype("i4"), part, (1, 2), x), "float32"),
        ((3, x, part, (1, 2)), "takes 5 arguments"),
        ((x, x, part, (1, 2), x), "argument 0"),
        ((3, usmq.zeros((4, 4), "f4").T, part, (1, 2), x), "strided"),
    ]:
        fails(kernel, 4, *args, local_size=4, match=why)
    fails(kernel, (2, 2), 3, x, part, (1, 2), x, local_size=(2, 2), match="dimension")
    with pytest.raises(TypeError):
        build("", "", debug="yes")


def test_host_arrays_and_several_launches_are_checked():
    kernel = build("const int *x, int *y", "y[global_id(0)] += x[global_id(0)] + 1;")
    x, y = np.arange(4, dtype="i4"), np.zeros(8, "i4")
    kernel(0, x, y[:4])
    kernel(4, x, y[:4])
    assert y.tolist() == [1, 2, 3, 4, 0, 0, 0, 0]
    for _ in range(2):
        fails(kernel, 5, x, y[4:], match=r"argument 0 \(x\): .* index 4")
        fails(kernel, 5, np.arange(5, dtype="i4"), y[:4], match=r"argument 1 \(y\)")
    kernel(4, x, y[:4])
    assert y.tolist()[:4] == [4, 8, 12, 16]


def test_kernels_with_sycl_headers_are_checked():
    source = f"""{SYCL} void f(const float *x, float *y, sycl::local_accessor<int, 1> part) {{
      auto i = {ITEM};
      const float *p = x;
      sycl::atomic_ref<float, sycl::memory_order::relaxed, sycl::memory_scope::device> at(y[i]);
      part[0] = 1;
      at += p[i];
    }}"""
    kernel = usmq.Kernel.from_sycl(source, "f", debug=True)
    x, y = usmq.arange(4, dtype="f4"), usmq.zeros(4, "f4")
    kernel(4, x, y, usmq.local(4, "i4"), local_size=4)
    assert y.tolist() == [0, 1, 2, 3]
    fails(kernel, 8, x, y, usmq.local(4, "i4"), local_size=4, match=r"accesses out of range")


def test_a_conditional_write_with_sycl_headers_builds():
    # The driver for CPUs crashed on this kernel while the report was inlined.
    source = f"{SYCL} void f(float *x, size_t n) {{ if ({ITEM} == 0) x[n] = -1; }}"
    kernel = usmq.Kernel.from_sycl(source, "f", debug=True)
    x = usmq.zeros(4, "f4")
    kernel(4, x, 3)
    assert x.tolist() == [0, 0, 0, -1]
    fails(kernel, 4, x, 4, match="work-item 0 of .4. accessed index 4")


def test_a_template_kernel_is_checked():
    marked = SYCL.replace('extern "C" SYCL_EXTERNAL', "template <class T>")
    source = f"{marked} void f(T a, const T *x, T *y) {{ auto i = {ITEM}; y[i] = a * x[i]; }}"
    kernel = usmq.Kernel.from_sycl(source, "f<float>", debug=True)
    x, y = usmq.arange(4, dtype="f4"), usmq.zeros(4, "f4")
    kernel(4, 2.0, x, y)
    assert y.tolist() == [0, 2, 4, 6]
    fails(kernel, 5, 2.0, x, y, match="index 4")


def test_errors_of_the_source_are_those_of_a_build_without_debug():
    with pytest.raises(usmq.KernelBuildError, match=r"rtc_\d+\.cpp:4:.*undeclared") as error:
        build("float *x", "\n x[0] = nothing;")
    assert "debug" not in error.value.log
    with pytest.raises(usmq.KernelBuildError, match='defines no kernel "g"; it defines f'):
        usmq.Kernel.from_sycl(f"{HEADER}USMQ_KERNEL(1) void f(float *x) {{}}", "g", debug=True)
    with pytest.raises(usmq.KernelBuildError, match="no code"):
        usmq.Kernel.from_sycl("", "f", debug=True)


def test_a_kernel_that_cannot_be_checked_is_refused_with_the_fix():
    whole = f"{HEADER}#define F USMQ_KERNEL(1) void f(float *x) {{ x[0] = 1; }}\nF"
    match = "definition of the kernel in the source itself"
    with pytest.raises(usmq.KernelBuildError, match=match):
        usmq.Kernel.from_sycl(whole, "f", debug=True)
    with pytest.raises(usmq.KernelBuildError, match="cannot read parameter 0"):
        build("POINTER(x)", "x[0] = 1;", before="#define POINTER(x) float *x\n")
    body = "float *rows[1] = {x}; float **all = rows; auto p = true ? x : all[0]; p[0] = 1;"
    with pytest.raises(usmq.KernelBuildError, match=r"builds without debug[^$]*as auto"):
        build("float *x", body)


def test_a_far_index_ends_a_process_without_debug(run_python):
    program = f"""
import usmq
source = '''{HEADER}USMQ_KERNEL(1) void f(int *x) {{ x[1l << 44] = 1; }}'''
usmq.Kernel.from_sycl(source, "f", debug=DEBUG)(1, usmq.zeros(4, "i4")).wait()
"""
    assert run_python(program.replace("DEBUG", "False"), check=False).returncode < 0
    done = run_python(program.replace("DEBUG", "True"), check=False)
    assert done.returncode == 1, done.stderr
    assert 'usmq.LaunchError: kernel "f", argument 0' in done.stderr
