"""The work of a round: flights, groups, arrays that meet on one worker, and spilled arrays."""

import sys
from pathlib import Path

import cloudpickle
import numpy as np
import usmq
from usmq._demo_reference import Check, Reference
from usmq._flights import data_folder, load
from usmq.dask import LogicalTable

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import flights_dask

# Workers cannot import these modules.
cloudpickle.register_pickle_by_value(flights_dask)
cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Arrays of 2 MiB: above the size from which workers share memory.
ARRAYS, ELEMENTS = 16, 1 << 18
# Seconds for one result.
PATIENCE = 150


def numbers(number):
    """Make an array on the worker's device."""
    return usmq.arange(number * ELEMENTS, (number + 1) * ELEMENTS, dtype="i8")


def add(left, right):
    """Add two arrays, one of which another worker may have made."""
    left, right = usmq.collocate(left, right)
    total = usmq.empty(left.shape, "i8")
    usmq.elementwise("const long *x, const long *y, long *z", "z[i] = x[i] + y[i]")(
        left, right, total
    )
    return total


def checksum(array):
    """Return a sum that depends on the place of each element."""
    weigh = usmq.reduction("const long *x", "long", "x[i] * (i % 1009 + 1)", "a + b", "0")
    return int(weigh(array))


def expected_checksum(left, right):
    """Return the checksum of the sum of two arrays, from numpy."""
    at = np.arange(ELEMENTS, dtype="i8")
    return int(((left + right) * ELEMENTS + 2 * at) @ (at % 1009 + 1))


def pairs():
    """Return which arrays meet."""
    return [(number, (number + 5) % ARRAYS) for number in range(ARRAYS)]


class Pipeline:
    """The data, the reference, and the result of the first round, whose bits all others repeat."""

    def __init__(self, parts):
        self.flights = load(data_folder(None)).with_reals("f8")
        self.parts = parts
        self.sums = [expected_checksum(left, right) for left, right in pairs()]
        reference = Reference(self.flights)
        self.summary = reference.summarize(reference.great_circle())
        self.first = None

    def run(self, client):
        """Run a round, and check its results; raise AssertionError if one differs."""
        flights, parts = self.flights, self.parts
        # Tasks make the small tables, too: scattered data has no recipe to make it again.
        small = [
            client.submit(usmq.from_arrow, table, pure=False)
            for table in (
                flights.airports.select(["lat", "lon"]),
                flights.airport_of("origin"),
                flights.airport_of("dest"),
            )
        ]
        arrays = [client.submit(numbers, number, pure=False) for number in range(ARRAYS)]
        table = LogicalTable.from_arrow(flights.table, parts)
        table = table.map_partitions(flights_dask.with_miles, *small)
        carriers = len(flights.dictionary("carrier"))
        off = table.reduce(flights_dask.errors, sum, carriers)
        grouped = [table.group_by(keys).aggregate(flights_dask.DELAYS) for keys in ("carrier", [])]
        added = [
            client.submit(add, arrays[left], arrays[right], pure=False) for left, right in pairs()
        ]
        sums = [client.submit(checksum, array, pure=False) for array in added]
        found = *(each.to_arrow() for each in grouped), off.result(timeout=PATIENCE)
        self.check(client.gather(sums), flights_dask.summary(flights, *found))

    def check(self, sums, summary):
        """Compare integers with numpy, and reals with the bits of the first round."""
        assert sums == self.sums, f"sums of the arrays: {sums}, expected {self.sums}"
        if self.first is None:
            check = Check("f8")
            check.summary(summary, self.summary)
            assert not check.problems, check.problems
            self.first = summary
        assert summary.equals(self.first), f"{summary}\ndiffers from the first\n{self.first}"
