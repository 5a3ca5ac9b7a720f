//! Sizes as text: `512MiB`, `2 GB`. Pure.

use crate::error::{Error, Result};

const UNITS: [(&str, u64); 11] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// The number of bytes of a text such as `"512MiB"`, `"1.5 GiB"`, `"2 GB"` or `"4096"`. Units of 1024 have an `i`; case
/// does not matter.
///
/// ```
/// use usmq::memory::{parse_size, set_limit};
///
/// assert_eq!(parse_size("1.5 GiB")?, 3 << 29);
/// set_limit(Some(parse_size("64 GB")?), None, None)?;
/// # set_limit(None, None, None)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Value`] for other text; it lists the units.
pub fn parse_size(text: &str) -> Result<u64> {
    let bare = text.trim();
    let end = bare.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(bare.len());
    let (number, unit) = (&bare[..end], bare[end..].trim_start());
    let factor = if unit.is_empty() {
        Some(1)
    } else {
        UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
    };
    factor.and_then(|factor| scaled(number, factor)).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        let dots = if shown.len() < text.len() { "…" } else { "" };
        let units = UNITS.map(|(name, _)| name).join(", ");
        Error::value(format!(
            "{:?} is not a size below 2**64 bytes; expected a number with one of the units {units}, as \"512MiB\" or \
             \"1.5 GB\"",
            shown + dots
        ))
    })
}

/// `number` times `factor`, rounded down to bytes. Exact: a float has fewer digits than a size.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let parse = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    // Further digits are below one byte of the largest unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let below = parse(fraction)?.checked_mul(factor.into())? / 10u128.pow(fraction.len() as u32);
    let bytes = parse(whole)?.checked_mul(factor.into())?.checked_add(below)?;
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("2 GB", 2_000_000_000),
            (" 1.5GiB ", 3 << 29),
            ("1kb", 1000),
            ("1kib", 1024),
            (".5 KiB", 512),
            ("1.0000000000000000001 PiB", 1 << 50),
            ("18446744073709551615 B", u64::MAX),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn other_text_is_refused_with_the_units() {
        for text in
            ["", "MiB", "1 G", "-1", "+1", "1e9", "1.2.3", ".", "1 MiB 2", "nan", "16384 PiB", "é", "1,5 GB"]
        {
            let error = parse_size(text).expect_err(text).to_string();
            assert!(error.contains("GiB") && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
