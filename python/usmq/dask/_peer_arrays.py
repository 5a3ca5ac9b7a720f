"""Lets dask pickle, send and measure arrays of dpnp and dpctl, which have no own pickle."""

import copyreg
import importlib
import sys
from typing import Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import usmq
from usmq.dask import _shm_transport

# The names of the modules that have these types; those that exist depend on the version.
NAMES = (
    ("dpnp", "ndarray"),
    ("dpnp.tensor", "usm_ndarray"),
    ("dpctl.tensor", "usm_ndarray"),
)


def types() -> dict[str, Any]:
    """Return the types of the modules that this process has imported, by module."""
    found = ((module, getattr(sys.modules.get(module), name, None)) for module, name in NAMES)
    return {module: kind for module, kind in found if kind is not None}


def reduced(array: Any) -> tuple[Any, ...]:
    """Return the pickle of an array: a usmq.Array of the same memory."""
    (module,) = [module for module, kind in types().items() if type(array) is kind][:1]
    own = array.sycl_queue == usmq.dpctl_queue()
    return restored, (module, own, usmq.asarray(array))


def restored(module: str, own: bool, array: usmq.Array) -> Any:
    """Return the array of a pickle, in the memory of a usmq.Array.

    It is on the default queue of its library, where that library's new arrays are, or on the
    current queue of usmq if it was on that of the sender (`own`).
    """
    found = importlib.import_module(module).asarray(array)
    return found if own else found.to_device(found.sycl_device)


def dumps(array: Any, context: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """Store an array in shared memory, as an Array of usmq; otherwise dask falls back to pickle."""
    _, (module, own, same) = reduced(array)
    header, frames = _shm_transport.dumps(same, context)
    return {"header": header, "module": module, "own": own}, frames


def loads(header: dict[str, Any], frames: list[Any]) -> Any:
    """Read an array from the shared memory of its sender."""
    # Other libraries do not use host memory in place.
    array = _shm_transport.loads(header["header"], frames, permitted=False)
    return restored(header["module"], header["own"], array)


def register() -> None:
    """Register the types that this process has imported, once each."""
    for kind in types().values():
        if kind not in copyreg.dispatch_table:
            copyreg.pickle(kind, reduced)
            dask_serialize.register(kind)(dumps)
            dask_deserialize.register(kind)(loads)
            sizeof.register(kind)(lambda array: int(array.nbytes) + 100)


for _package in ("dpnp", "dpctl"):
    for _registry in (sizeof, dask_serialize, dask_deserialize):
        # dask calls it when it first sees a type of the package.
        _registry.register_lazy(_package)(register)
