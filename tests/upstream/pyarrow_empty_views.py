"""pyarrow: it cannot join or check views of no elements that begin later than at 0."""

from __future__ import annotations

import pyarrow
from outcome import fixed, seen

views = pyarrow.array(["one", "two"], pyarrow.string_view())
empty = pyarrow.Array._import_from_c_capsule(*views.slice(2, 0).__arrow_c_array__())
try:
    empty.validate(full=True)
    pyarrow.concat_arrays([empty, empty])
except pyarrow.ArrowException as error:
    seen(str(error))
except IndexError as error:
    seen(str(error))
fixed("they are valid", "src/interop/arrow/import.rs (the offset of an array without elements)")
