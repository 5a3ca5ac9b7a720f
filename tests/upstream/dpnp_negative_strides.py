"""dpnp: `asarray` refuses negative strides in `__sycl_usm_array_interface__`, its own ones too."""

from __future__ import annotations

from dpnp import tensor
from outcome import fixed, seen


class Shows:
    """The interface of an array, as another library shows it."""

    def __init__(self, array: tensor.usm_ndarray) -> None:
        self.array = array
        self.__sycl_usm_array_interface__ = dict(array.__sycl_usm_array_interface__)


backwards = Shows(tensor.arange(6)[::-1])
try:
    taken = tensor.asarray(backwards)
except ValueError as error:
    seen(str(error))
assert tensor.asnumpy(taken).tolist() == [5, 4, 3, 2, 1, 0], taken
fixed("the array is taken", "src/python/suai.rs (usm_ndarray)")
