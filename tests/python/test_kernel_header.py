"""The device header usmq/kernel.h: functions against numpy, include orders, the fallback."""

import math

import numpy as np
import pytest
import usmq

HEADER = "#include <usmq/kernel.h>\n"


def built(body, params="", dims=1, before="", **options):
    """Build a kernel `f` with this body."""
    source = f"{HEADER}{before}USMQ_KERNEL({dims}) void f({params}) {{ {body} }}"
    return usmq.Kernel.from_sycl(source, "f", **options)


def run(body, *args, size=1, params="", **options):
    """Launch a kernel with this body, and return the first argument as numpy."""
    built(body, params)(size, *args, **options)
    return args[0].to_numpy()


def need(*aspects):
    missing = [aspect for aspect in aspects if aspect not in usmq.current_queue().device.aspects]
    if missing:
        pytest.skip(f"the device lacks {', '.join(missing)}")


@pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 3, 4)])
@pytest.mark.parametrize("other", [False, True], ids=["one kernel", "kernels of all dimensions"])
def test_ids_count_as_numpy_indices(shape, other):
    dims = len(shape)
    names = ("global_id", "global_size", "local_id", "local_size", "group_id", "group_count")
    calls = [f"{name}({dim})" for name in names for dim in range(4)]
    calls += ["global_linear_id()", "local_linear_id()", "group_linear_id()", "local_linear_size()"]
    body = "size_t *r = x + global_linear_id() * 28;"
    body += "".join(f" r[{i}] = {call};" for i, call in enumerate(calls))
    more = [f"USMQ_KERNEL({n}) void other_{n}(size_t *x) {{ {body} }}\n" for n in (1, 2, 3)]
    local = tuple(2 if extent % 2 == 0 else 1 for extent in shape)
    groups = tuple(extent // each for extent, each in zip(shape, local, strict=True))
    x = usmq.zeros((math.prod(shape), 28), "u8")
    built(body, "size_t *x", dims, "".join(more * other))(shape, x, local_size=local)
    for row, at in zip(x.to_numpy().tolist(), np.ndindex(shape), strict=True):
        inside = tuple(i % each for i, each in zip(at, local, strict=True))
        group = tuple(i // each for i, each in zip(at, local, strict=True))
        expected = []
        # The values, and those of dimensions that the kernel does not have.
        for position, extent in ((at, shape), (inside, local), (group, groups)):
            expected += [*position, *[0] * (4 - dims), *extent, *[1] * (4 - dims)]
        for position, extent in ((at, shape), (inside, local), (group, groups)):
            expected.append(np.ravel_multi_index(position, extent))
        assert row == [*expected, math.prod(local)]


def test_ids_are_right_in_helpers_and_without_a_readable_signature():
    source = (
        f"{HEADER}static size_t row() {{ return global_id(0); }}\n"
        "#define DECLARE(name) USMQ_KERNEL(2) void name(int *x)\n"
        "#include <usmq/kernel.h>\n"
        "DECLARE(f) { x[row() * 3 + global_id(1)] = 10 * row() + global_id(1); }"
    )
    x = usmq.zeros((2, 3), "i4")
    usmq.Kernel.from_sycl(source, "f", options=["-DUNUSED"])((2, 3), x)
    assert x.tolist() == [[0, 1, 2], [10, 11, 12]]


SAME = (
    "abs cbrt ceil cos cosh exp exp2 expm1 fabs floor isfinite isinf isnan log log10 log1p log2 "
    "rint signbit sin sinh sqrt tan tanh trunc"
)
ONE = {
    **{name: getattr(np, name) for name in SAME.split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("cos", "sin", "sinh", "tan", "tanh")},
    **{name: np.vectorize(getattr(math, name)) for name in ("erf", "erfc", "lgamma")},
    "tgamma": np.vectorize(math.gamma),
    "cospi": lambda x: np.cos(np.pi * x),
    "sinpi": lambda x: np.sin(np.pi * x),
    "exp10": lambda x: 10.0**x,
    "logb": lambda x: np.frexp(x)[1] - 1.0,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
}
TWO = {
    **{name: getattr(np, name) for name in ("copysign", "fmax", "fmin", "fmod", "hypot")},
    "atan2": np.arctan2,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "max": np.maximum,
    "min": np.minimum,
    "nextafter": np.nextafter,
    "pow": np.power,
    "remainder": np.vectorize(math.remainder),
}


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_mathematical_functions_are_those_of_numpy(dtype):
    need(*{"f2": ["fp16"], "f8": ["fp64"]}.get(dtype, []))
    word = {"f2": "half", "f4": "float", "f8": "double"}[dtype]
    x = np.array([0.1, 0.3, 0.5, 0.7, 0.9], dtype)
    y = np.array([0.4, 0.3, 0.8, 0.2, 0.6], dtype)
    calls = [f"{name}(x)" for name in ONE] + ["acosh(x + 1)"] + [f"{name}(x, y)" for name in TWO]
    calls += ["fma(x, y, x)", "ldexp(x, 3)", "clamp(x, 0.2, 0.6)"]
    body = "auto x = xs[global_id(0)]; auto y = ys[global_id(0)];"
    body += f"auto r = to + global_id(0) * {len(calls)};"
    body += "".join(f" r[{i}] = {call};" for i, call in enumerate(calls))
    to = usmq.zeros((5, len(calls)), dtype)
    arrays = (usmq.asarray(x), usmq.asarray(y))
    run(body, to, *arrays, size=5, params=f"{word} *to, const {word} *xs, const {word} *ys")
    wide, other = x.astype("f8"), y.astype("f8")
    expected = [f(wide) for f in ONE.values()] + [np.arccosh(wide + 1)]
    expected += [
        (np.nextafter(x, y) if name == "nextafter" else f(wide, other)) for name, f in TWO.items()
    ]
    expected += [wide * other + wide, wide * 8, np.clip(wide, 0.2, 0.6)]
    tolerance = {"f2": 4e-3, "f4": 2e-6, "f8": 2e-15}[dtype]
    for call, found, right in zip(calls, to.to_numpy().T, expected, strict=True):
        np.testing.assert_allclose(
            found.astype("f8"), right, rtol=tolerance, atol=tolerance, err_msg=call
        )


def test_mixed_arguments_and_integers_follow_cpp():
    need("fp64")
    body = """
      static_assert(__is_same(decltype(sqrt(2)), double));
      static_assert(__is_same(decltype(sqrt(2.f)), float));
      static_assert(__is_same(decltype(sqrt(half(2))), half));
      static_assert(__is_same(decltype(pow(2.f, 3)), float));
      static_assert(__is_same(decltype(pow(2.f, 3.0)), double));
      static_assert(__is_same(decltype(fma(1.f, 2, 3)), float));
      static_assert(__is_same(decltype(min(1, 2)), int) && __is_same(decltype(abs(-1l)), long));
      x[0] = sqrt(4); x[1] = pow(2.f, 3); x[2] = abs(-3); x[3] = min(2, 1); x[4] = max(1, 2.5);
      x[5] = clamp(9, 0, 4); x[6] = popcount(255); x[7] = bit_cast<float>(0x40400000);
      x[8] = isnan(__builtin_nan("")); x[9] = isinf(-1 / 0.0);
      x[10] = isfinite(1 / 0.0); x[11] = signbit(-0.0);"""
    found = run(body, usmq.zeros(12, "f8"), params="double *x")
    assert found.tolist() == [2, 8, 3, 1, 2.5, 4, 8, 3, 1, 1, 0, 1]


def test_vectors_are_plain_structs():
    body = """
      static_assert(sizeof(float3) == 12 && alignof(float4) == 4);
      static_assert(sizeof(usmq::vec<double, 2>) == 16);
      auto i = global_id(0);
      float3 v = x[i];
      v += v; v = 2 * v - float3{1, 1, 1}; v = -(v / 2.f) * float3{1, 2, 3};
      int all = dot(int4{1, 2, 3, 4}, int4{1, 1, 1, 1});
      y[i] = {v.x, dot(v, v), length(float2{3, 4}) + all};"""
    x, y = np.arange(12, dtype="f4").reshape(4, 3), usmq.zeros((4, 3), "f4")
    run(body, y, usmq.asarray(x), size=4, params="float3 *y, const float3 *x")
    v = -((4 * x - 1) / 2) * np.array([1, 2, 3], "f4")
    expected = np.stack([v[:, 0], (v * v).sum(1), np.full(4, 15.0)], 1)
    np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-6)


def test_local_memory_of_both_kinds_and_a_barrier():
    body = """
      static local_array<float, 4> tile;
      static local_array<int[2], 4> pairs;
      size_t i = local_id(0);
      tile[i] = float(i); part[i] = 10.f * i; pairs[i][1] = 100 * i;
      barrier();
      x[global_id(0)] = tile[3 - i] + part[(i + 1) % 4] + pairs[3 - i][1];
      x[global_id(0)] += tile.data()[0] + part.data()[0];"""
    params = "float *x, local_memory<float> part"
    found = run(body, usmq.zeros(8, "f4"), usmq.local(16), size=8, local_size=4, params=params)
    assert found.tolist() == [3 + 10 + 300, 2 + 20 + 200, 1 + 30 + 100, 0] * 2


@pytest.mark.parametrize(
    "word", ["int32_t", "int64_t", "uint32_t", "uint64_t", "float", "double", "half"]
)
def test_group_functions_combine_all_work_items(word):
    need(*{"half": ["fp16"], "double": ["fp64"]}.get(word, []))
    calls = [
        f"group_{kind}_{name}(v)"
        for kind in ("reduce", "inclusive", "exclusive")
        for name in ("add", "min", "max")
    ]
    body = f"{word} v = 1 + (global_id(0) * 5) % 8; auto r = x + global_id(0) * 11;"
    body += "".join(f" r[{i}] = double({call});" for i, call in enumerate(calls))
    body += "r[9] = group_any(v == 3); r[10] = group_all(v < 9);"
    found = run(body, usmq.zeros((16, 11), "f4"), size=16, local_size=8, params="float *x")
    values = (1 + np.arange(16) * 5 % 8).reshape(2, 8)
    for group, rows in zip(values, found.reshape(2, 8, 11), strict=True):
        running = (
            np.add.accumulate(group),
            np.minimum.accumulate(group),
            np.maximum.accumulate(group),
        )
        for at, ends in enumerate(running):
            assert (rows[:, at] == ends[-1]).all()
            assert (rows[:, 3 + at] == ends).all()
            assert (rows[1:, 6 + at] == ends[:-1]).all()
        assert (rows[:, 9] == 1).all()
        assert (rows[:, 10] == 1).all()


def test_sub_groups():
    body = """
      uint32_t at = sub_group_local_id(), n = sub_group_size();
      auto r = x + global_id(0) * 12; int v = int(global_id(0));
      r[0] = at; r[1] = n; r[2] = sub_group_id(); r[3] = sub_group_count();
      r[4] = sub_group_max_size();
      r[5] = sub_group_broadcast(v, n - 1); r[6] = sub_group_shuffle(v, n - 1 - at);
      r[7] = sub_group_shuffle_xor(v, 1); r[8] = at > 0 ? sub_group_shuffle_up(v, 1) : -1;
      r[9] = at + 1 < n ? sub_group_shuffle_down(v, 1) : -1; sub_group_barrier();
      r[10] = sub_group_reduce_add(v); r[11] = sub_group_any(v < 0) + 2 * sub_group_all(v >= 0);"""
    found = run(body, usmq.zeros((16, 12), "i4"), size=16, local_size=16, params="int *x")
    count = found[0, 3]
    start = 0
    for number in range(count):
        rows = found[found[:, 2] == number]
        n = len(rows)
        values = np.arange(start, start + n)
        start += n
        assert rows[:, 0].tolist() == list(range(n))
        assert (rows[:, 1] == n).all()
        assert (rows[:, 4] >= n).all()
        assert (rows[:, 5] == values[-1]).all()
        assert (rows[:, 6] == values[::-1]).all()
        if n % 2 == 0:
            assert (rows[:, 7] == values ^ 1).all()
        assert (rows[1:, 8] == values[:-1]).all()
        assert (rows[:-1, 9] == values[1:]).all()
        assert (rows[:, 10] == values.sum()).all()
        assert (rows[:, 11] == 2).all()
    assert start == 16


@pytest.mark.parametrize(
    ("word", "dtype", "aspects"),
    [
        ("int", "i4", []),
        ("unsigned", "u4", []),
        ("float", "f4", []),
        ("long", "i8", ["atomic64"]),
        ("unsigned long long", "u8", ["atomic64"]),
        ("double", "f8", ["atomic64", "fp64"]),
    ],
)
def test_atomic_operations_count_every_work_item(word, dtype, aspects):
    need(*aspects)
    n = 1000
    body = f"""
      {word} v = global_id(0) + 1;
      atomic_add(&x[0], 1); atomic_sub(&x[1], 1); atomic_min(&x[2], v); atomic_max(&x[3], v);
      if (atomic_exchange(&x[4], v) == 0) atomic_add(&x[5], 1);
      for ({word} old = atomic_load(&x[6]);;) {{
        {word} now = atomic_compare_exchange(&x[6], old, old + 2);
        if (now == old) break;
        old = now;
      }}
      atomic_store(&x[7], 7); memory_fence();"""
    x = usmq.asarray(np.array([0, n, 10**6, 0, 0, 0, 0, 0], dtype))
    found = run(body, x, size=n, params=f"{word} *x")
    assert found[[0, 1, 2, 3, 5, 6, 7]].tolist() == [n, 0, 1, n, 1, 2 * n, 7]
    assert 1 <= found[4] <= n


def test_atomic_bits():
    body = "int v = 1 << global_id(0);"
    body += "atomic_or(x, v); atomic_and(x + 1, ~v); atomic_xor(x + 2, v);"
    x = usmq.asarray(np.array([0, -1, 0], "i4"))
    assert run(body, x, size=31, params="int *x").tolist() == [2**31 - 1, -(2**31), 2**31 - 1]


ORDERS = {
    "alone": HEADER,
    "before sycl.hpp": f"{HEADER}#include <sycl/sycl.hpp>\n",
    "after sycl.hpp": f"#include <sycl/sycl.hpp>\n{HEADER}",
    "among standard headers": f"#include <cmath>\n{HEADER}#include <algorithm>\n",
    "twice, in quotes": f'{HEADER}#include "usmq/kernel.h"\n',
    "without names": "#include <sycl/sycl.hpp>\n#define USMQ_NO_NAMES\n"
    f"{HEADER}using namespace sycl;\nusing usmq::global_id;\n",
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_include_order_builds(order):
    kernel = "USMQ_KERNEL(1) void f(float *x) { x[global_id(0)] = sqrt(x[global_id(0)]); }"
    x = usmq.full(4, 9.0, "f4")
    usmq.Kernel.from_sycl(ORDERS[order] + kernel, "f")(4, x)
    assert x.tolist() == [3.0] * 4


def test_a_header_of_the_source_may_include_it_and_is_read_again_when_it_changes(tmp_path):
    for factor in (5, 6, 5):
        (tmp_path / "scale.h").write_text(
            f"{HEADER}USMQ_KERNEL(2) void f(int *x, int by) {{\n"
            f"x[global_id(0) * 3 + global_id(1)] *= {factor} * by; }}"
        )
        (tmp_path / "outer.h").write_text("#include <scale.h>\n")
        for name in ("scale.h", "outer.h"):
            x = usmq.full((2, 3), 2, "i4")
            options, params = ["-I", str(tmp_path)], [usmq.read("i4"), "i4"]
            source = f'#include "{name}"\n'
            usmq.Kernel.from_sycl(source, "f", options=options, params=params)((2, 3), x, 1)
            assert x.tolist() == [[2 * factor] * 3] * 2


UNREADABLE = (
    f"{HEADER}USMQ_KERNEL(1 + 1) void f(int *x) "
    "{ x[global_id(0) * 3 + global_id(1)] = global_id(1); }"
)


@pytest.mark.parametrize("option", [[], ["-DUSMQ_DIMENSIONS=2"]], ids=["no option", "option"])
def test_dimensions_that_the_source_does_not_show_are_asked_for_or_refused(option):
    f = usmq.Kernel.from_sycl(UNREADABLE, "f", params=[usmq.write("i4")], options=option)
    for rows in (1, 2):
        x = usmq.full((rows, 3), 9, "i4")
        if x.device.backend == "opencl" or option:
            f((rows, 3), x)
            assert x.tolist() == [[0, 1, 2]] * rows
        else:
            with pytest.raises(usmq.LaunchError, match="-DUSMQ_DIMENSIONS=2"):
                f((rows, 3), x)


@pytest.mark.parametrize("debug", [False, True])
def test_macros_of_one_letter_do_not_change_the_header(debug):
    options = ["-DN=3", "-DT=float", *(f"-D{each}=7" for each in "ABCDEFGHIJKLMOPQRSUVWXYZ")]
    x = usmq.zeros(4)
    body = "x[global_id(0)] = max(T(N), T(1));"
    built(body, "T *x", options=options, debug=debug)(4, x).wait()
    assert x.tolist() == [3.0] * 4


def test_printf_prints_the_values(capfd):
    body = r'USMQ_PRINTF("item %d of %g\n", int(global_id(0)), 2.5f); USMQ_PRINTF("end\n");'
    run(body, usmq.zeros(1, "i4"), params="int *x")
    usmq.current_queue().wait()
    assert "item 0 of 2.5\nend\n" in capfd.readouterr().out


@pytest.mark.parametrize("debug", [False, True])
def test_a_failed_assertion_prints_line_work_item_and_condition(capfd, debug):
    body = "\nUSMQ_ASSERT(x[global_id(0)] % 2 == 0 && same<int, 2>());\nx[global_id(0)] = 8;"
    before = "template <class T, int N> bool same() { return N == 2; }\n"
    text = "line 4, work-item (2, 0, 0): assertion failed: "
    text += "x[global_id(0)] % 2 == 0 && same<int, 2>()\n"
    for options, expected in (([], text), (["-DNDEBUG"], "")):
        x = usmq.asarray([2, 4, 5, 6], "i4")
        built(body, "int *x", before=before, options=options, debug=debug)(4, x)
        assert x.tolist() == [8] * 4
        out = capfd.readouterr().out
        assert expected in out
        assert out.count("assertion") == expected.count("assertion")


def test_the_signature_is_read_and_checked():
    kernel = built("", "half a, const int32_t *x, usmq::half *y, local_memory<int> part")
    assert repr(kernel) == "<usmq.Kernel f(float16, const int32 *, float16 *, local memory)>"
    x, y = usmq.zeros(4, "i4"), usmq.zeros(4, "f2")
    kernel(4, 1.0, x, y, usmq.local(16), local_size=4)
    with pytest.raises(usmq.LaunchError, match="float32"):
        kernel(4, 1.0, x.astype("f4"), y, usmq.local(16), local_size=4)
    with pytest.raises(usmq.LaunchError, match="dimension"):
        kernel((2, 2), 1.0, x, y, usmq.local(16), local_size=(2, 2))


def test_errors_name_the_line_of_the_source_or_the_fix():
    with pytest.raises(usmq.KernelBuildError, match=r"rtc_\d+\.cpp:3:.*undeclared"):
        built("\n  x[0] = nothing;", "float *x")
    source = f"{HEADER}USMQ_KERNEL(1) void f(float *x) {{}}"
    with pytest.raises(usmq.KernelBuildError, match='defines no kernel "g"; it defines f'):
        usmq.Kernel.from_sycl(source, "g")
    for unmarked in ("void f(float *x) {}", "int other() { return 1; }"):
        with pytest.raises(usmq.KernelBuildError, match=r"write USMQ_KERNEL\(1\) void f\(\.\.\.\)"):
            usmq.Kernel.from_sycl(unmarked, "f")(1, usmq.zeros(1, "f4"))


def test_sycl_headers_declare_the_kernel_on_request():
    source = f"""{HEADER}USMQ_KERNEL(2) void f(int *x) {{
#ifdef USMQ_SYCL_HEADERS
  x[global_id(0) * 3 + global_id(1)] = 100;
#endif
  x[global_id(0) * 3 + global_id(1)] += 10 * global_id(0) + global_id(1);
}}"""
    for options, first in ([], 0), (["-DUSMQ_SYCL_HEADERS"], 100):
        x = usmq.zeros((2, 3), "i4")
        usmq.Kernel.from_sycl(source, "f", options=options)((2, 3), x)
        assert x.tolist() == [[first + 10 * i + j for j in range(3)] for i in range(2)]
