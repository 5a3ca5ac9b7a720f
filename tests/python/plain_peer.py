"""A package of another author, which uses only dpctl and dpnp."""

import dpnp


def ramp(n, queue):
    """Return 0 to n - 1 on a queue."""
    return dpnp.arange(n, dtype="f4", sycl_queue=queue)


def halved(x):
    """Return a new array with half of each element."""
    return dpnp.asarray(x) / 2


def double(x):
    """Double each element in place."""
    view = dpnp.asarray(x)
    view *= 2
