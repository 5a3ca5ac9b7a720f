//! The text of elements: the rules and the layout of `numpy.array2string` with its default options. Pure.

use super::{DType, Family, Number, element_of, with_element};
use num_complex::Complex;

/// Arrays of more elements are shortened.
pub(super) const THRESHOLD: usize = 1000;
/// Elements at each end of a shortened axis.
pub(super) const EDGE: usize = 3;
/// Columns of one line, for the bare elements.
pub(super) const WIDTH: usize = 75;
/// The largest number of digits after the decimal point.
const PRECISION: usize = 8;

/// Number of positions of an axis that the text of an array shows, and whether it leaves some out.
pub(super) fn shown(extent: usize, is_shortened: bool) -> (usize, bool) {
    if is_shortened && extent > 2 * EDGE { (2 * EDGE, true) } else { (extent, false) }
}

/// The elements, which `bytes` holds in C order, as nested lists. `shape` is that of the array; of a shortened
/// one, `bytes` holds only the elements that [`shown`] counts.
pub(super) fn nested(
    bytes: &[u8],
    dtype: DType,
    shape: &[usize],
    is_shortened: bool,
    lines: Lines,
) -> String {
    if shape.contains(&0) {
        return "[]".to_owned();
    }
    let words = words(bytes, dtype, shape.is_empty());
    let Lines { separator, indent, width } = lines;
    let mut rows = Rows { words: words.into_iter(), shape, is_shortened, separator };
    rows.axis(0, indent + 1, width)
}

/// The form of nested lists.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// The text between two elements.
    pub(super) separator: &'static str,
    /// Columns before the first bracket.
    pub(super) indent: usize,
    /// Columns of one line.
    pub(super) width: usize,
}

/// A single element, as numpy prints a scalar.
pub(crate) fn single(bytes: &[u8], dtype: DType) -> String {
    match read(bytes, dtype) {
        Elements::Words(words) => words.into_iter().next().unwrap_or_default(),
        Elements::Real(values) => values.first().map(Real::as_python).unwrap_or_default(),
        Elements::Complex(re, im) => match (re.first(), im.first()) {
            (Some(re), Some(im)) => as_python_complex(re, im),
            _ => String::new(),
        },
    }
}

/// The text of each element, all aligned.
fn words(bytes: &[u8], dtype: DType, is_single: bool) -> Vec<String> {
    match read(bytes, dtype) {
        Elements::Words(words) if is_single => words,
        Elements::Words(words) => {
            // numpy aligns truth values even if all are True.
            let least = if dtype.family() == Family::Bool { "False".len() } else { 0 };
            let width = words.iter().map(String::len).max().unwrap_or(0).max(least);
            words.into_iter().map(|word| format!("{word:>width$}")).collect()
        }
        Elements::Real(values) => {
            let format = RealFormat::fit(&values, false);
            values.iter().map(|value| format.text(value)).collect()
        }
        Elements::Complex(re, im) => {
            let (left, right) = (RealFormat::fit(&re, false), RealFormat::fit(&im, true));
            let pair = |(re, im): (&Real, &Real)| {
                let imaginary = right.text(im);
                let digits = imaginary.trim_end();
                format!("{}{digits}j{}", left.text(re), &imaginary[digits.len()..])
            };
            re.iter().zip(&im).map(pair).collect()
        }
    }
}

/// Lays out the words of all elements.
struct Rows<'a> {
    words: std::vec::IntoIter<String>,
    shape: &'a [usize],
    is_shortened: bool,
    separator: &'a str,
}

impl Rows<'_> {
    /// The text of one list of this axis, on lines of `width` columns. The caller has written `indent` columns.
    fn axis(&mut self, axis: usize, indent: usize, width: usize) -> String {
        let Some(extent) = self.shape.get(axis) else { return self.words.next().unwrap_or_default() };
        let (count, has_gap) = shown(*extent, self.is_shortened);
        let is_row = axis + 1 == self.shape.len();
        // Each closing bracket takes a column.
        let room = width.saturating_sub(self.separator.trim_end().len().max(1));
        let newlines = "\n".repeat((self.shape.len() - axis).saturating_sub(1).max(1));
        let (mut text, mut line) = (String::from("["), indent);
        for position in 0..count {
            let gap = has_gap && position == EDGE;
            for is_gap in [true, false] {
                if is_gap && !gap {
                    continue;
                }
                let word = if is_gap {
                    "...".to_owned()
                } else {
                    self.axis(axis + 1, indent + 1, width.saturating_sub(1))
                };
                let is_first = position == 0;
                if is_row {
                    if !is_first {
                        text.push_str(self.separator);
                        line += self.separator.len();
                    }
                    if line + word.len() > room && line > indent {
                        text.truncate(text.trim_end().len());
                        text.push('\n');
                        text.push_str(&" ".repeat(indent));
                        line = indent;
                    }
                    line += word.len();
                } else if !is_first {
                    text.push_str(self.separator.trim_end());
                    text.push_str(&newlines);
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&word);
            }
        }
        text.push(']');
        text
    }
}

/// Elements, by the way in which they are formatted.
enum Elements {
    Words(Vec<String>),
    Real(Vec<Real>),
    Complex(Vec<Real>, Vec<Real>),
}

fn read(bytes: &[u8], dtype: DType) -> Elements {
    fn all<T: Number>(bytes: &[u8]) -> impl Iterator<Item = T> {
        bytes.chunks_exact(size_of::<T>()).filter_map(element_of::<T>)
    }
    match dtype {
        // As in numpy, each byte other than 0 is true: uninitialised memory may hold one.
        DType::Bool => {
            let truth = |byte: &u8| if *byte == 0 { "False" } else { "True" }.to_owned();
            Elements::Words(bytes.iter().map(truth).collect())
        }
        DType::F16 => {
            let round = |value| f64::from(half::f16::from_f64(value));
            Elements::Real(all::<half::f16>(bytes).map(|value| Real::short(value.into(), round, 3)).collect())
        }
        DType::BF16 => {
            let round = |value| f64::from(half::bf16::from_f64(value));
            Elements::Real(
                all::<half::bf16>(bytes).map(|value| Real::short(value.into(), round, 2)).collect(),
            )
        }
        DType::F32 => Elements::Real(all::<f32>(bytes).map(Real::single).collect()),
        DType::F64 => Elements::Real(all::<f64>(bytes).map(Real::double).collect()),
        DType::C64 => all::<Complex<f32>>(bytes)
            .fold(Elements::Complex(Vec::new(), Vec::new()), |found, value| {
                found.and(Real::single(value.re), Real::single(value.im))
            }),
        DType::C128 => all::<Complex<f64>>(bytes)
            .fold(Elements::Complex(Vec::new(), Vec::new()), |found, value| {
                found.and(Real::double(value.re), Real::double(value.im))
            }),
        whole => Elements::Words(
            with_element!(whole, T => all::<T>(bytes).map(|value| value.to_string()).collect()),
        ),
    }
}

impl Elements {
    fn and(mut self, re: Real, im: Real) -> Self {
        if let Self::Complex(left, right) = &mut self {
            left.push(re);
            right.push(im);
        }
        self
    }
}

/// A floating-point number of any width.
struct Real {
    value: f64,
    /// The fewest decimal digits that identify the number in its own type, and the exponent of the first.
    digits: String,
    exponent: i32,
    /// Rounds to the number's own type, in which numpy compares.
    round: fn(f64) -> f64,
    /// Decimal digits that the type holds.
    held: i32,
}

impl Real {
    fn new(value: f64, shortest: &str, round: fn(f64) -> f64, held: i32) -> Self {
        let mantissa = shortest.split_once('e').map_or(shortest, |(mantissa, _)| mantissa);
        let count = mantissa.chars().filter(char::is_ascii_digit).count();
        // Of two texts as short, Rust's may not be the nearest to the number, or the even one.
        let (digits, exponent) = exact(value, count.saturating_sub(1));
        Self { value, digits, exponent, round, held }
    }

    fn single(value: f32) -> Self {
        Self::new(value.into(), &format!("{value:e}"), |value| f64::from(value as f32), 6)
    }

    fn double(value: f64) -> Self {
        Self::new(value, &format!("{value:e}"), |value| value, 15)
    }

    /// A number of 16 bits: Rust prints them with the digits of a wider type.
    fn short(value: f64, round: fn(f64) -> f64, held: i32) -> Self {
        let is_enough = |text: &String| text.parse().is_ok_and(|read: f64| round(read) == value);
        let texts = (0..PRECISION).map(|digits| format!("{value:.digits$e}"));
        let shortest = texts.into_iter().find(is_enough).unwrap_or_else(|| format!("{value:e}"));
        Self::new(value, &shortest, round, held)
    }

    /// Digits after the first, at most [`PRECISION`], and the exponent.
    fn scientific(&self) -> (usize, i32) {
        if self.digits.len() <= PRECISION + 1 {
            return (self.digits.len() - 1, self.exponent);
        }
        let (digits, exponent) = exact(self.value, PRECISION);
        (digits.trim_end_matches('0').len().saturating_sub(1), exponent)
    }

    /// The digits before and after the decimal point, the latter without zeros at the end.
    fn positional(&self, precision: usize) -> (String, String) {
        let after = self.digits.len() as i32 - 1 - self.exponent;
        if after > precision as i32 {
            let text = format!("{:.precision$}", self.value.abs());
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            return (whole.to_owned(), fraction.trim_end_matches('0').to_owned());
        }
        let (whole, fraction) = match usize::try_from(self.exponent) {
            Ok(exponent) if self.digits.len() > exponent => {
                let (whole, fraction) = self.digits.split_at(exponent + 1);
                (whole.to_owned(), fraction.to_owned())
            }
            Ok(exponent) => (format!("{:0<width$}", self.digits, width = exponent + 1), String::new()),
            Err(_) => {
                let zeros = "0".repeat(self.exponent.unsigned_abs() as usize - 1);
                ("0".to_owned(), zeros + &self.digits)
            }
        };
        (whole, fraction.trim_end_matches('0').to_owned())
    }

    fn sign(&self, plus: bool) -> &'static str {
        match (self.value.is_sign_negative() && !self.value.is_nan(), plus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        }
    }

    /// `nan`, `inf` and `-inf`; None for a finite number.
    fn special(&self, plus: bool) -> Option<String> {
        let name = if self.value.is_nan() { "nan" } else { "inf" };
        (!self.value.is_finite()).then(|| format!("{}{name}", self.sign(plus)))
    }

    /// As Python prints a float, and numpy a number of another width.
    fn as_python(&self) -> String {
        self.python(".0")
    }

    fn python(&self, whole_end: &str) -> String {
        if let Some(name) = self.special(false) {
            return name;
        }
        let sign = self.sign(false);
        // Python's limit for 64 bits.
        let limit = if self.held < 15 { self.held } else { 16 };
        if self.value != 0.0 && !(-4..limit).contains(&self.exponent) {
            let (first, rest) = self.digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            return format!("{sign}{first}{point}{rest}e{}", exponent_text(self.exponent, 2));
        }
        let (whole, fraction) = self.positional(i32::MAX as usize);
        if fraction.is_empty() {
            format!("{sign}{whole}{whole_end}")
        } else {
            format!("{sign}{whole}.{fraction}")
        }
    }
}

/// The digits of a finite number, rounded to `precision` after the first, and the exponent.
fn exact(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{:.precision$e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.chars().filter(char::is_ascii_digit).collect(), exponent.parse().unwrap_or(0))
}

/// As Python prints a complex number: `(1+2j)`, `2j`.
fn as_python_complex(re: &Real, im: &Real) -> String {
    let (imaginary, plus) = (im.python(""), if im.sign(true) == "+" { "+" } else { "" });
    if re.value == 0.0 && re.value.is_sign_positive() {
        return format!("{imaginary}j");
    }
    format!("({}{plus}{imaginary}j)", re.python(""))
}

fn exponent_text(exponent: i32, digits: usize) -> String {
    format!("{}{:0>digits$}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// The common format of real numbers.
struct RealFormat {
    is_scientific: bool,
    /// Digits after the decimal point.
    precision: usize,
    /// Columns before the decimal point and after it.
    left: usize,
    right: usize,
    /// Digits of the exponent.
    exponent: usize,
    /// Whether positive numbers have a sign.
    plus: bool,
}

impl RealFormat {
    fn fit(values: &[Real], plus: bool) -> Self {
        let finite = || values.iter().filter(|value| value.value.is_finite());
        let mut format = Self {
            is_scientific: is_scientific(finite()),
            precision: 0,
            left: 0,
            right: 0,
            exponent: 0,
            plus,
        };
        for value in finite() {
            let sign = value.sign(plus).len();
            if format.is_scientific {
                let (digits, exponent) = value.scientific();
                format.precision = format.precision.max(digits);
                format.left = format.left.max(sign + 1);
                format.exponent = format.exponent.max(exponent_text(exponent, 2).len() - 1);
            } else {
                let (whole, fraction) = value.positional(PRECISION);
                format.precision = PRECISION;
                format.left = format.left.max(sign + whole.len());
                format.right = format.right.max(fraction.len());
            }
        }
        if format.is_scientific {
            // `e`, the sign and the digits of the exponent.
            format.right = format.precision + 2 + format.exponent;
        }
        if values.iter().any(|value| !value.value.is_finite()) {
            // numpy leaves room for "nan", and for "inf" with its sign.
            let has_sign = plus || values.iter().any(|value| value.value == f64::NEG_INFINITY);
            let widest = "inf".len() + usize::from(has_sign);
            format.left = format.left.max(widest.saturating_sub(format.right + 1));
        }
        format
    }

    fn text(&self, value: &Real) -> String {
        if let Some(name) = value.special(self.plus) {
            return format!("{name:>width$}", width = self.left + self.right + 1);
        }
        let sign = value.sign(self.plus);
        if self.is_scientific {
            // All numbers have as many digits, beyond those that identify them if need be.
            let (digits, exponent) = exact(value.value, self.precision);
            let (first, rest) = digits.split_at(1);
            let (whole, left) = (format!("{sign}{first}"), self.left);
            return format!("{whole:>left$}.{rest}e{}", exponent_text(exponent, self.exponent));
        }
        let (whole, fraction) = value.positional(self.precision);
        let (whole, left, right) = (format!("{sign}{whole}"), self.left, self.right);
        format!("{whole:>left$}.{fraction:<right$}")
    }
}

/// Whether numpy 2.3 and newer print numbers with exponents: some are very large or small, or they differ much.
fn is_scientific<'a>(finite: impl Iterator<Item = &'a Real>) -> bool {
    let mut range: Option<(&Real, f64, f64)> = None;
    for value in finite.filter(|value| value.value != 0.0) {
        let size = value.value.abs();
        let (_, least, most) = range.unwrap_or((value, size, size));
        range = Some((value, least.min(size), most.max(size)));
    }
    let Some((kind, least, most)) = range else { return false };
    let limit = (kind.round)(10f64.powi(kind.held.min(PRECISION as i32)));
    most >= limit || least < (kind.round)(1e-4) || (kind.round)(most / least) > 1000.0
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
