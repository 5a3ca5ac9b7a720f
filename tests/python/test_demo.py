"""The demo on tables small enough to check by eye; `make demo` runs it on those of a year."""

import zipfile

import pyarrow as pa
import pytest
import usmq
from pyarrow import csv
from usmq import _flights

# LAX has no coordinates, and XXX is missing.
AIRPORTS = """faa,name,lat,lon
JFK,John F Kennedy Intl,40.639751,-73.778925
LAX,Los Angeles Intl,NA,NA
BOS,General Edward Lawrence Logan Intl,42.364347,-71.005181
"""
AIRLINES = "carrier,name\nB6,JetBlue Airways\nAA,American Airlines Inc.\n"
# ZZ is not in the list of airlines, and none of its delays is known.
FLIGHTS = """year,carrier,origin,dest,arr_delay,distance
2013,B6,JFK,BOS,10,187
2013,AA,JFK,BOS,-4,187
2013,B6,BOS,JFK,NA,187
2013,B6,JFK,XXX,20,
2013,ZZ,JFK,LAX,,2475
2013,AA,JFK,BOS,1,
2013,AA,BOS,JFK,0,187
2013,B6,JFK,BOS,,187
2013,B6,BOS,JFK,3,187
"""
COMPLETE = """carrier,origin,dest,arr_delay,distance
B6,JFK,BOS,10,187
AA,BOS,JFK,-4,187
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "airports.csv").write_text(AIRPORTS)
    (tmp_path / "airlines.csv").write_text(AIRLINES)
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    return tmp_path


def row(text, carrier):
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [carrier]]
    return line.split()[-5:]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_missing_numbers_and_airports_are_counted_but_not_averaged(folder, run_python, dtype):
    if dtype == "f8" and "fp64" not in usmq.current_queue().device.aspects:
        pytest.skip("the device has no fp64")
    arguments = ("demo", "--require-dpnp", "--dtype", dtype, "--data", str(folder))
    text = run_python(None, "-m", "usmq", *arguments).stdout
    assert "5 columns, 9 rows" in text
    assert "carrier, origin, dest as dictionaries" in text
    assert "returns all 45 values" in text
    assert row(text, "AA")[:4] == ["3", "0", "-1.00", "1"]
    assert row(text, "B6")[:4] == ["5", "2", "11.00", "1"]
    assert row(text, "ZZ") == ["1", "1", "nan", "1", "nan"]
    assert row(text, "all")[:4] == ["9", "3", "5.00", "3"]
    assert "does not list LAX (1), XXX (1)" in text


def test_columns_without_nulls_are_read_from_zip_files(folder, run_python):
    (folder / "flights.csv").unlink()
    with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", COMPLETE)
    text = run_python(None, "-m", "usmq", "demo", "--data", str(folder)).stdout
    assert row(text, "all")[:4] == ["2", "0", "3.00", "0"]


@pytest.mark.parametrize(
    ("flights", "why"),
    [
        ("carrier,origin,dest,arr_delay,distance\n", "no flights"),
        ("carrier,origin,dest,arr_delay\nB6,JFK,BOS,1\n", "distance"),
        ("carrier,origin,dest,arr_delay,distance\nB6,JFK,BOS,soon,187\n", "soon"),
    ],
)
def test_unusable_tables_are_a_one_line_error(folder, run_python, flights, why):
    (folder / "flights.csv").write_text(flights)
    done = run_python(None, "-m", "usmq", "demo", "--data", str(folder), check=False)
    assert done.returncode == 1
    assert why in done.stderr
    assert str(folder) in done.stderr
    assert "Traceback" not in done.stderr


def test_pyarrow_does_not_read_from_python_objects(folder, monkeypatch):
    """Its thread may release a Python source during shutdown and abort: once in 70 failures."""
    sources = []
    read = csv.read_csv

    def spy(source, **options):
        sources.append(source)
        return read(source, **options)

    monkeypatch.setattr(csv, "read_csv", spy)
    _flights.load(folder)
    assert [type(source) for source in sources] == [pa.BufferReader] * 3


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_a_missing_package_is_named_with_its_extra(run_python, package):
    code = f"""
import sys
sys.modules[{package!r}] = None
from usmq.demo import main
print(main([]))
"""
    done = run_python(code)
    assert done.stdout.split() == ["1"]
    assert f"{package} is not installed: pip install 'usmq[demo]'" in done.stderr
