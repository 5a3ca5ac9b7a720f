"""Errors name the cause and the fix, also where the first sign points elsewhere."""

import pytest
import usmq


class Shows:
    """An object with the array interface of another one, changed."""

    def __init__(self, x, **changes):
        self.x = x
        self.__sycl_usm_array_interface__ = dict(x.__sycl_usm_array_interface__) | changes


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("count", [1 << 19, 1 << 28, 1 << 38])
def test_a_view_beyond_its_allocation_is_refused_as_such(kind, count):
    x = usmq.zeros(100_000, "f4", usm_type=kind)
    with pytest.raises(usmq.InteropError) as caught:
        usmq.asarray(Shows(x, shape=(count,), strides=None))
    text = str(caught.value)
    assert "allocation" in text
    assert "ends" in text
    assert "context" not in text


def test_a_pointer_that_is_not_usm_still_blames_the_context():
    x = usmq.zeros(3)
    with pytest.raises(usmq.InteropError, match=r"is not USM of .*must name the queue or context"):
        usmq.asarray(Shows(x, data=(4096, False)))


def test_a_wrong_entry_is_named_with_the_interface():
    x = usmq.zeros(3)
    wrong = {"strides": 1, "shape": 3, "data": 5, "typestr": 4, "offset": "0"}
    for key, value in wrong.items():
        text = rf'__sycl_usm_array_interface__\["{key}"\] must be .*, not '
        with pytest.raises((TypeError, ValueError), match=text):
            usmq.asarray(Shows(x, **{key: value}))


def test_a_huge_type_string_is_shortened():
    x = usmq.zeros(3)
    for call in (
        lambda: usmq.asarray(Shows(x, typestr="x" * 100_000)),
        lambda: usmq.zeros(3, "é" * 100_000),
        lambda: usmq.DType(">" + "f" * 100_000),
    ):
        with pytest.raises(TypeError, match=r"dtype .*…") as caught:
            call()
        assert len(str(caught.value)) < 500
