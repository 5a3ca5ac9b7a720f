"""Computes the results of the demo's kernels with numpy, and compares both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usmq._flights import ALL, Flights

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int32]

EARTH_RADIUS_MILES = 3958.7613
# Columns of the summary: numbers of flights, and means in minutes and miles.
COUNTS = ("flights", "delays", "errors")
MEANS = ("mean_delay", "mean_error")
# The number of differences shown per result; the others are counted.
SHOWN = 3


class Reference:
    """The flights as plain columns, one entry per flight, numbered without Arrow's dictionaries.

    ``carrier`` numbers ``carriers``, which are sorted; ``origin`` and ``dest`` number the airports
    and are -1 for one that airports.csv does not list: ``unlisted`` counts those. An unknown
    number is NaN.
    """

    def __init__(self, flights: Flights) -> None:
        table, airports = flights.table, flights.airports
        carrier, origin, dest = (
            table[name].cast("string").to_pylist() for name in ("carrier", "origin", "dest")
        )
        listed = airports["faa"].to_pylist()
        ends = Counter(origin) + Counter(dest)
        self.unlisted = {code: ends[code] for code in sorted(ends.keys() - set(listed))}
        self.carriers = sorted(set(carrier))
        self.carrier = _numbers(carrier, self.carriers)
        self.origin, self.dest = _numbers(origin, listed), _numbers(dest, listed)
        self.lat, self.lon = (np.radians(airports[name].to_numpy()) for name in ("lat", "lon"))
        self.recorded: Floats = table["distance"].to_numpy()
        self.delay: Floats = table["arr_delay"].to_numpy()

    def sorted_delays(self) -> Floats:
        """Sort the delays that are known."""
        return np.sort(self.delay[~np.isnan(self.delay)])

    def great_circle(self) -> Floats:
        """Compute the miles of every flight (haversine); NaN where an end has no coordinates."""
        lat, lon = self.lat, self.lon
        a, b = self.origin, self.dest
        h = (
            np.sin((lat[b] - lat[a]) / 2) ** 2
            + np.cos(lat[a]) * np.cos(lat[b]) * np.sin((lon[b] - lon[a]) / 2) ** 2
        )
        miles = 2 * EARTH_RADIUS_MILES * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
        return np.where((a < 0) | (b < 0), np.nan, miles)

    def summarize(self, miles: Floats) -> dict[str, list[Any]]:
        """Sum up delays and distance errors per carrier, and for all; the columns by name."""
        error = np.abs(miles - self.recorded)
        members = [self.carrier == number for number in range(len(self.carriers))]
        members.append(np.ones_like(self.carrier, dtype=bool))
        summary: dict[str, list[Any]] = {name: [] for name in (*COUNTS, *MEANS)}
        for flown in members:
            delays = self.delay[flown & ~np.isnan(self.delay)]
            errors = error[flown & ~np.isnan(error)]
            means = [found.mean() if found.size else np.nan for found in (delays, errors)]
            row = (int(flown.sum()), delays.size, errors.size, *means)
            for column, value in zip(summary.values(), row, strict=True):
                column.append(value)
        return {"carrier": [*self.carriers, ALL]} | summary


class Check:
    """Compares results in reals of ``dtype``, "f4" or "f8", with numpy's; keeps the differences."""

    def __init__(self, dtype: str) -> None:
        self.numbers = 0
        self.values = 0
        self.problems: list[str] = []
        # In f32 a longitude of 74 degrees has an error of a foot; sines and sums increase it.
        self.rtol, self.atol, self.mean_rtol = {
            "f8": (1e-9, 0.0, 1e-9),
            "f4": (1e-4, 5e-3, 1e-3),
        }[dtype]

    def table(self, what: str, found: Any, wanted: Any) -> None:
        """Compare a pyarrow table copied back from the device with the uploaded one."""
        self.values += wanted.num_rows * wanted.num_columns
        if found.schema != wanted.schema:
            self.problems.append(f"{what}: schema {found.schema}, sent was {wanted.schema}")
            return
        for name in wanted.column_names:
            if not found[name].equals(wanted[name]):
                self.problems.append(f"{what}: {name} is not the column that was sent")

    def distances(self, found: Floats, wanted: Floats) -> None:
        """Compare miles, flight by flight."""
        self._compare("distance", found, wanted, self.rtol, self.atol)

    def summary(self, found: Any, wanted: dict[str, list[Any]]) -> None:
        """Compare a pyarrow table: the counts, which must be equal, and the means."""
        labels = wanted["carrier"]
        if found["carrier"].to_pylist() != labels:
            self.problems.append(f"carriers {found['carrier'].to_pylist()}, numpy has {labels}")
            return
        for name in (*COUNTS, *MEANS):
            rtol = self.mean_rtol if name in MEANS else 0.0
            self._compare(name, found[name].to_numpy(), np.array(wanted[name]), rtol, labels=labels)

    def total(self, what: str, found: float, wanted: float) -> None:
        """Compare a sum of integers; only its magnitude can cause rounding."""
        self._compare(what, np.array([found]), np.array([wanted]), self.mean_rtol)

    def same(self, what: str, found: NDArray[Any], wanted: NDArray[Any]) -> None:
        """Compare numbers that were moved, not computed: they must be equal."""
        self._compare(what, found, wanted)

    def _compare(
        self,
        what: str,
        found: NDArray[Any],
        wanted: NDArray[Any],
        rtol: float = 0.0,
        atol: float = 0.0,
        labels: Sequence[str] = (),
    ) -> None:
        self.numbers += wanted.size
        if found.shape != wanted.shape:
            self.problems.append(f"{what}: shape {found.shape}, numpy has {wanted.shape}")
            return
        wrong = np.flatnonzero(~np.isclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True))
        for row in wrong[:SHOWN]:
            label = labels[row] if labels else f"row {row}"
            self.problems.append(f"{what} of {label}: {found[row]}, numpy has {wanted[row]}")
        if wrong.size > SHOWN:
            self.problems.append(f"{what}: {wrong.size - SHOWN:,} more differ")


def _numbers(codes: Iterable[str], known: Sequence[str]) -> Ints:
    number = {code: place for place, code in enumerate(known)}
    return np.fromiter((number.get(code, -1) for code in codes), dtype=np.int32)
