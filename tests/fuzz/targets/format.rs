//! Arrow format strings and dtype names, compared with tables of the valid ones.

use super::choices::Choices;
use super::dtype_facts::DTYPES;
use std::sync::Arc;
use usmq::interop::arrow::Field;
use usmq::{DType, Error};

/// Formats without parameters, and how many children they have; `None` is any number.
const PLAIN: [(&str, Option<usize>); 41] = [
    ("n", Some(0)),
    ("b", Some(0)),
    ("c", Some(0)),
    ("C", Some(0)),
    ("s", Some(0)),
    ("S", Some(0)),
    ("i", Some(0)),
    ("I", Some(0)),
    ("l", Some(0)),
    ("L", Some(0)),
    ("e", Some(0)),
    ("f", Some(0)),
    ("g", Some(0)),
    ("z", Some(0)),
    ("Z", Some(0)),
    ("u", Some(0)),
    ("U", Some(0)),
    ("vz", Some(0)),
    ("vu", Some(0)),
    ("tdD", Some(0)),
    ("tdm", Some(0)),
    ("tts", Some(0)),
    ("ttm", Some(0)),
    ("ttu", Some(0)),
    ("ttn", Some(0)),
    ("tDs", Some(0)),
    ("tDm", Some(0)),
    ("tDu", Some(0)),
    ("tDn", Some(0)),
    ("tiM", Some(0)),
    ("tiD", Some(0)),
    ("tin", Some(0)),
    ("+l", Some(1)),
    ("+L", Some(1)),
    ("+vl", Some(1)),
    ("+vL", Some(1)),
    ("+m", Some(1)),
    ("+r", Some(2)),
    ("+s", None),
    ("+us:", Some(0)),
    ("+ud:", Some(0)),
];

const HEADS: [&str; 13] =
    ["d:", "w:", "+w:", "+ud:", "+us:", "tss:", "tsm:", "tsu:", "tsn:", "+", "ts", "t", "D:"];
const TAILS: [&str; 22] = [
    "0",
    "1",
    "7",
    "127",
    "128",
    "38",
    "32",
    "64",
    "128",
    "256",
    "2147483647",
    "2147483648",
    "-1",
    "+1",
    " 1",
    "",
    ",",
    ",,",
    "UTC",
    "é",
    ":",
    "x",
];

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.byte().is_multiple_of(4) {
        return element_type(&mut choices);
    }
    let children = choices.below(4);
    let format = match choices.byte() % 4 {
        0 => choices.text(),
        1 => choices.pick(&PLAIN).0.to_owned(),
        _ => {
            let mut format = choices.pick(&HEADS).to_owned();
            for _ in 0..choices.below(5) {
                format += choices.pick(&TAILS);
                format += choices.pick(&[",", ",", ""]);
            }
            format
        }
    };
    let expected = expected(&format);
    let list = (0..children).filter_map(|_| Field::new("child", "i").ok().map(Arc::new)).collect();
    match (Field::nested("name", &format, list), expected) {
        (Ok(field), Some(count)) => {
            assert!(count.is_none_or(|count| count == children), "{format:?} with {children} children");
            assert_eq!((field.format(), field.children().len()), (&format[..], children));
        }
        (Err(Error::Interop { message: text, .. }), Some(Some(count))) => {
            assert!(count != children && text.contains(&format!("{format:?}")), "{format:?}: {text}");
        }
        (Err(Error::Interop { message: text, .. }), None) => {
            assert!(text.contains(&format!("{format:?}")), "{format:?}: {text}")
        }
        (found, expected) => {
            panic!("{format:?} with {children} children: {found:?}, expected {expected:?}")
        }
    }
}

/// The number of children of a format; `None` if the format is invalid.
fn expected(format: &str) -> Option<Option<usize>> {
    if let Some((_, children)) = PLAIN.iter().find(|(plain, _)| *plain == format) {
        return Some(*children);
    }
    if ["tss:", "tsm:", "tsu:", "tsn:"].iter().any(|head| format.starts_with(head)) {
        return Some(Some(0));
    }
    let (head, rest) = format.split_once(':')?;
    let numbers: Vec<&str> = rest.split(',').collect();
    match (head, &numbers[..]) {
        ("w", [width]) => natural(width, i64::from(i32::MAX)).map(|_| Some(0)),
        ("+w", [length]) => natural(length, i64::from(i32::MAX)).map(|_| Some(1)),
        ("d", [precision, scale]) => decimal(precision, scale, "128"),
        ("d", [precision, scale, bits]) => decimal(precision, scale, bits),
        ("+ud" | "+us", ids) => {
            let known: Option<Vec<_>> = ids.iter().map(|id| natural(id, 127)).collect();
            let mut known = known?;
            known.sort_unstable();
            known.windows(2).all(|pair| pair[0] < pair[1]).then_some(Some(known.len()))
        }
        _ => None,
    }
}

fn decimal(precision: &str, scale: &str, bits: &str) -> Option<Option<usize>> {
    natural(precision, i64::from(i32::MAX))?;
    natural(scale.strip_prefix('-').unwrap_or(scale), i64::from(i32::MAX))?;
    [32, 64, 128, 256].contains(&natural(bits, 256)?).then_some(Some(0))
}

/// Only digits.
fn natural(text: &str, most: i64) -> Option<i64> {
    let mut number = 0i64;
    for c in text.chars() {
        number = number.checked_mul(10)?.checked_add(i64::from("0123456789".find(c)? as u8))?;
    }
    (!text.is_empty() && number <= most).then_some(number)
}

fn element_type(choices: &mut Choices<'_>) {
    let numpy: Vec<_> = DTYPES.into_iter().filter(|(_, _, typestr, ..)| !typestr.is_empty()).collect();
    let text = if choices.flag() {
        choices.text()
    } else {
        let (_, name, typestr, ..) = choices.pick(&numpy);
        let marks = ["<", "=", "|", ">", "", " "];
        match choices.byte() % 3 {
            0 => name.to_owned(),
            1 => format!("{}{}", choices.pick(&marks), &typestr[1..]),
            _ => format!("{}{name}", choices.pick(&marks)),
        }
    };
    // One byte has no order; numpy reads every mark there.
    let known = numpy.iter().find(|(_, name, typestr, ..)| {
        let (mark, short) = typestr.split_at(1);
        let marked = text
            .strip_suffix(short)
            .is_some_and(|found| ["", "<", "=", "|"].contains(&found) || (mark == "|" && found == ">"));
        *name == text || marked
    });
    let extra = match &text[..] {
        "bfloat16" | "bf2" | "<bf2" | "=bf2" | "|bf2" => Some(DType::BF16),
        "?" => Some(DType::Bool),
        "float" => Some(DType::F64),
        "int" => Some(DType::I64),
        "complex" => Some(DType::C128),
        "half" => Some(DType::F16),
        _ => None,
    };
    match (DType::parse(&text), known.map(|row| row.0).or(extra)) {
        (Ok(found), Some(dtype)) => assert_eq!(found, dtype, "{text:?}"),
        // Long text is shortened in errors.
        (Err(Error::Type { message: error, .. }), None) => {
            let start: String = text.chars().take(20).collect();
            let quoted = format!("{start:?}");
            assert!(error.contains(quoted.trim_end_matches('"')), "{error}");
        }
        (found, expected) => panic!("{text:?}: {found:?}, but numpy gives {expected:?}"),
    }
}
