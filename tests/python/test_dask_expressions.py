"""Names in expressions of logical tables are checked by the client, before any task."""

from __future__ import annotations

import pytest

pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")

from usmq.dask._expression import Expression  # noqa: E402
from usmq.dask._words import check_names  # noqa: E402

SCHEMA = pa.schema([("delay", pa.int32()), ("month", pa.int8()), ("f", pa.float64())])


@pytest.mark.parametrize(
    "text",
    [
        "delay[i] > 10 && month[i] == 1",
        "f[i] > 1e5 || f[i] < -.5e-3f || f[i] == 0x1Fp3",
        "sqrt(f[i]) > M_PI",
        "sycl::max<double>(f[i], 2.0) > std::abs(f[i])",
        "static_cast<float>(f[i]) > INFINITY",
        "(uint32_t)delay[i] > 5u",
        "delay[i] == 'a' and not (f[i] > n - i)",
        "sycl::double2(f[i], 1).x() > double2(1).y",
        "[&] { int k = delay[i]; return k > 3; }()",
        "delay[i] > 1'000'000",
        "true ? f[i] : false",
    ],
)
def test_valid_expressions_pass(text: str) -> None:
    assert Expression.of_schema(text, SCHEMA, {}).text == text


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("delya[i] > 10 && month[i] == 1", "delya", "delay"),
        ("delay[i] > limit", "limit", None),
        ("delay[i] > mnth[i]", "mnth", "month"),
        ("delay[j] > 1", "j", None),
        ("delay[i] > 1 && tru", "tru", None),
    ],
)
def test_an_unknown_name_is_named_with_the_columns(text: str, name: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match=r"is unknown.*\(names: delay, month, f\)") as failed:
        Expression.of_schema(text, SCHEMA, {})
    assert str(failed.value).startswith(f"{name!r} in the expression {text!r} is unknown")
    assert (f"did you mean {meant!r}?" in str(failed.value)) == (meant is not None)


def test_names_of_a_reduction_are_its_operands() -> None:
    check_names("a > b ? a : b", "ab", "ab")
    with pytest.raises(ValueError, match=r"'c' in the expression 'a \+ c' is unknown"):
        check_names("a + c", "ab", "ab")
