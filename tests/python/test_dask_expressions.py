"""Names in expressions of logical tables are checked by the client, before any task."""

import re
from pathlib import Path

import pytest
import usmq

pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")

from usmq.dask._expression import Expression  # noqa: E402
from usmq.dask._words import check_names, kernel_names  # noqa: E402

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema(
    [("delay", pa.int32()), ("month", pa.int8()), ("f", pa.float64()), ("log", pa.int8())]
)


@pytest.mark.parametrize(
    "text",
    [
        "delay[i] > 10 && month[i] == 1",
        "f[i] > 1e5 || f[i] < -.5e-3f || f[i] == 0x1Fp3",
        "sqrt(f[i]) > __FLT_MAX__",
        "max(f[i], 2.0) > abs(f[i])",
        "usmq::max(f[i], 2.0) > ::abs(f[i])",
        "usmq :: detail::real(f[i]) > 1",
        "static_cast<float>(f[i]) > __builtin_inff()",
        "(uint32_t)delay[i] > 5u",
        "delay[i] == 'a' and not (f[i] > n - i)",
        "double2{f[i], 1}.x > (double2{1, 2} * 2).y",
        "bit_cast<unsigned>(delay[i]) > 1",
        "[&] { int k = delay[i]; return k > 3; }()",
        "[&] { int k(delay[i]), l = 1; if (k > l) return true; return bool(k); }()",
        "[&] { auto twice = [](auto x) { return 2 * x; }; return twice(f[i]) > sqrt(2); }()",
        "[&] { struct S { int of(int x) { return x; } } s; return s.of(1) == S().of(1) + f[i]; }()",
        "({ vec<float, 2> p{1, 2}; length(p) > f[i]; })",
        "delay[i] > 1'000'000",
        "true ? f[i] : false",
        "log(f[i]) > log(delay[i])",
        "log[i] > sqrt(log[i])",
    ],
)
def test_valid_expressions_pass_and_build(text):
    made = Expression.of_schema(text, SCHEMA, {})
    table = usmq.from_arrow(SCHEMA.empty_table())
    assert made.text == text
    assert made.mask(table).tolist() == []


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("delya[i] > 10 && month[i] == 1", "delya", "delay"),
        ("delay[i] > limit", "limit", None),
        ("delay[i] > mnth[i]", "mnth", "month"),
        ("delay[j] > 1", "j", None),
        ("delay[i] > 1 && tru", "tru", None),
        ("f[i] > M_PI", "M_PI", None),
        ("(ptrdiff_t)f[i] > 1", "ptrdiff_t", None),
    ],
)
def test_an_unknown_name_is_named_with_the_columns(text, name, meant):
    with pytest.raises(ValueError, match=r"is unknown.*\(names: delay, month, f, log\)") as failed:
        Expression.of_schema(text, SCHEMA, {})
    assert str(failed.value).startswith(f"{name!r} in the expression {text!r} is unknown")
    assert (f"did you mean {meant!r}?" in str(failed.value)) == (meant is not None)


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("sqr(f[i]) > 1", "sqr", "sqrt"),
        ("f[i] > 1 && isnam (f[i])", "isnam", "isnan"),
        ("usmq::sqr(f[i]) > 1", "sqr", "sqrt"),
        ("::sqr(f[i]) > 1", "sqr", "sqrt"),
        ("sqrtf(f[i]) > 1", "sqrtf", "sqrt"),
        ("n(f[i]) > 1", "n", None),
        ("double2{f[i], sqr(2)}.x > 1", "sqr", "sqrt"),
        ("[&] { double k = sqr(f[i]); return k > 1; }()", "sqr", "sqrt"),
        ("[&] { if (f[i] > 1) return not sqr(f[i]); return false; }()", "sqr", "sqrt"),
    ],
)
def test_an_unknown_function_is_named(text, name, meant):
    with pytest.raises(
        ValueError, match=r"is unknown.*\(functions: those of usmq/kernel\.h\)$"
    ) as f:
        Expression.of_schema(text, SCHEMA, {})
    assert str(f.value).startswith(f"the function {name!r} in the expression {text!r} is unknown")
    assert (f"did you mean {meant!r}?" in str(f.value)) == (meant is not None)


@pytest.mark.parametrize("text", ["std::abs(f[i]) > 1", "f[i] > sycl::max<double>(1, 2)"])
def test_the_error_for_another_namespace_says_that_none_is_needed(text):
    with pytest.raises(ValueError, match=r"'(std|sycl)' in .* is unknown; .* need no namespace"):
        Expression.of_schema(text, SCHEMA, {})


@pytest.mark.parametrize("text", ["delay(i) > 1", "delay > 1", "log(log[i]) > 1", "f[i] > delay"])
def test_a_column_without_an_index_is_named(text):
    with pytest.raises(ValueError, match=r"uses the column '(delay|log)' without an index"):
        Expression.of_schema(text, SCHEMA, {})


def test_a_member_may_have_the_name_of_a_column():
    columns = {"x": (0, "f", pa.float64())}
    assert Expression.of("double2{x[i], 1}.x", columns, {}).columns == (("x", 0, "f", "f8"),)


def test_the_names_of_functions_are_those_of_the_header():
    names = sorted(kernel_names() - {"detail"})
    preamble = "".join(f"using ::{name};" for name in names)
    # Each exists, or this does not build.
    usmq.elementwise("int *x", "x[i] = 0", preamble=f"namespace names {{ {preamble} }}")
    page = (ROOT / "docs" / "howto" / "kernels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:position|work-group|atomics|mathematics) .*", page, re.MULTILINE)
    written = {name for row in rows for name in re.findall(r"`([a-z]\w+)(?:\([^`]*)?`", row)}
    assert {"global_id", "group_any", "atomic_add", "rsqrt", "clamp"} <= written
    assert written <= {*names}


def test_names_of_a_reduction_are_its_operands():
    check_names("a > b ? a : b", "ab", "ab")
    with pytest.raises(ValueError, match=r"'c' in the expression 'a \+ c' is unknown"):
        check_names("a + c", "ab", "ab")
    with pytest.raises(ValueError, match=r"the function 'mx' in the .* did you mean 'max'\?"):
        check_names("mx(a, b)", "ab", "ab")
