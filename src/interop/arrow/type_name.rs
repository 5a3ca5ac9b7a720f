//! Names of Arrow types, as `int32`, `string` and `list<item: float>`, for format strings and back. Pure.
//!
//! Source: Arrow columnar format, "Format strings" of the C data interface; the names are those that pyarrow prints.

use super::layout::Layout;
use super::schema::Field;
use crate::error::{Error, Result};

/// Types whose format has no parameter. The first name of a format is the one that is printed.
const PLAIN: [(&str, &str); 39] = [
    ("n", "null"),
    ("b", "bool"),
    ("c", "int8"),
    ("s", "int16"),
    ("i", "int32"),
    ("l", "int64"),
    ("C", "uint8"),
    ("S", "uint16"),
    ("I", "uint32"),
    ("L", "uint64"),
    ("e", "halffloat"),
    ("f", "float"),
    ("g", "double"),
    ("z", "binary"),
    ("Z", "large_binary"),
    ("u", "string"),
    ("U", "large_string"),
    ("vz", "binary_view"),
    ("vu", "string_view"),
    ("tdD", "date32[day]"),
    ("tdm", "date64[ms]"),
    ("tts", "time32[s]"),
    ("ttm", "time32[ms]"),
    ("ttu", "time64[us]"),
    ("ttn", "time64[ns]"),
    ("tDs", "duration[s]"),
    ("tDm", "duration[ms]"),
    ("tDu", "duration[us]"),
    ("tDn", "duration[ns]"),
    ("tiM", "month_interval"),
    ("tiD", "day_time_interval"),
    ("tin", "month_day_nano_interval"),
    ("e", "float16"),
    ("f", "float32"),
    ("g", "float64"),
    ("u", "utf8"),
    ("U", "large_utf8"),
    ("tdD", "date32"),
    ("tdm", "date64"),
];

const UNITS: [(&str, &str); 4] = [("s", "s"), ("m", "ms"), ("u", "us"), ("n", "ns")];

impl Field {
    /// The name of the type, as `int32`, `timestamp[us, tz=UTC]`, `list<item: float>` or
    /// `dictionary<values=string, indices=int8, ordered=0>`.
    ///
    /// ```
    /// use usmq::interop::arrow::Field;
    ///
    /// assert_eq!(Field::new("miles", "g")?.type_name(), "double");
    /// assert_eq!(Field::new("when", "tsu:UTC")?.type_name(), "timestamp[us, tz=UTC]");
    /// # Ok::<(), usmq::Error>(())
    /// ```
    #[must_use]
    pub fn type_name(&self) -> String {
        let name = self.bare_type_name();
        let Some(values) = self.dictionary() else { return name };
        format!(
            "dictionary<values={}, indices={name}, ordered={}>",
            values.type_name(),
            u8::from(self.is_ordered())
        )
    }

    /// The name of the type without the dictionary.
    fn bare_type_name(&self) -> String {
        let format = self.format();
        if let Some((_, name)) = PLAIN.iter().find(|(plain, _)| *plain == format) {
            return (*name).to_owned();
        }
        let (head, rest) = format.split_once(':').unwrap_or((format, ""));
        let item = || self.children().first().map(|child| child.member()).unwrap_or_default();
        match (head, self.layout) {
            (_, Layout::FixedList(width)) => format!("fixed_size_list<{}>[{width}]", item()),
            ("+l", _) => format!("list<{}>", item()),
            ("+L", _) => format!("large_list<{}>", item()),
            ("+vl", _) => format!("list_view<{}>", item()),
            ("+vL", _) => format!("large_list_view<{}>", item()),
            ("+s", _) => format!("struct<{}>", self.members()),
            ("+m", _) => match self.children().first().map(|entries| entries.children()) {
                Some([key, value]) => format!("map<{}, {}>", key.type_name(), value.type_name()),
                _ => "map".to_owned(),
            },
            ("+r", _) => {
                let members = self.children().iter();
                let members = members.map(|child| format!("{}: {}", child.name(), child.type_name()));
                format!("run_end_encoded<{}>", members.collect::<Vec<_>>().join(", "))
            }
            ("+ud" | "+us", _) => {
                let kind = if head == "+ud" { "dense_union" } else { "sparse_union" };
                let members = self.children().iter().zip(self.type_ids());
                let members: Vec<_> = members.map(|(child, id)| format!("{}={id}", child.member())).collect();
                format!("{kind}<{}>", members.join(", "))
            }
            ("d", Layout::Fixed(bytes)) => {
                let mut numbers = rest.split(',');
                let (precision, scale) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
                format!("decimal{}({precision}, {scale})", bytes * 8)
            }
            ("w", _) => format!("fixed_size_binary[{rest}]"),
            _ => match head.strip_prefix("ts").and_then(unit_name) {
                Some(unit) if rest.is_empty() => format!("timestamp[{unit}]"),
                Some(unit) => format!("timestamp[{unit}, tz={rest}]"),
                // Every format that a field can have is above.
                None => format.to_owned(),
            },
        }
    }

    /// `name: type`, as a part of the name of a nested type.
    fn member(&self) -> String {
        let null = if self.is_nullable() { "" } else { " not null" };
        format!("{}: {}{null}", self.name(), self.type_name())
    }

    fn members(&self) -> String {
        self.children().iter().map(|child| child.member()).collect::<Vec<_>>().join(", ")
    }
}

fn unit_name(letter: &str) -> Option<&'static str> {
    UNITS.iter().find(|(own, _)| *own == letter).map(|(_, name)| *name)
}

/// The format string of a type without children.
///
/// # Errors
/// [`Error::Type`] for other names.
pub(super) fn format_named(name: &str) -> Result<String> {
    let spaceless: String = name.chars().filter(|letter| *letter != ' ').collect();
    if let Some((format, _)) = PLAIN.iter().find(|(_, plain)| *plain == spaceless) {
        return Ok((*format).to_owned());
    }
    let format = parameters(&spaceless).and_then(|(head, parts)| match (head, &parts[..]) {
        ("timestamp", [unit]) => Some(format!("ts{}:", unit_letter(unit)?)),
        ("timestamp", [unit, zone]) => {
            Some(format!("ts{}:{}", unit_letter(unit)?, zone.strip_prefix("tz=")?))
        }
        ("fixed_size_binary", [width]) => Some(format!("w:{width}")),
        ("decimal32", [precision, scale]) => Some(format!("d:{precision},{scale},32")),
        ("decimal64", [precision, scale]) => Some(format!("d:{precision},{scale},64")),
        ("decimal128", [precision, scale]) => Some(format!("d:{precision},{scale}")),
        ("decimal256", [precision, scale]) => Some(format!("d:{precision},{scale},256")),
        _ => None,
    });
    format.filter(|format| Layout::parse(format).is_ok()).ok_or_else(|| {
        Error::wrong_type(format!(
            "Arrow type {name:?} is not known or has children; expected a name such as \"int32\", \"bool\", \"string\", \
             \"date32[day]\", \"timestamp[us, tz=UTC]\", \"duration[ns]\" or \"decimal128(10, 2)\""
        ))
    })
}

/// `head[a,b]` or `head(a,b)`.
fn parameters(name: &str) -> Option<(&str, Vec<&str>)> {
    let open = name.find(['[', '('])?;
    let (head, rest) = name.split_at(open);
    let inside = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.or_else(|| rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')))?;
    Some((head, inside.split(',').collect()))
}

fn unit_letter(name: &str) -> Option<&'static str> {
    UNITS.iter().find(|(_, own)| *own == name).map(|(letter, _)| *letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn names_of_types_without_children_read_back() {
        for format in [
            "n",
            "b",
            "c",
            "l",
            "C",
            "e",
            "f",
            "g",
            "z",
            "U",
            "vu",
            "tdD",
            "ttn",
            "tDm",
            "tin",
            "tss:",
            "tsn:UTC",
            "tsu:Europe/Berlin",
            "d:10,2",
            "d:9,-2,32",
            "d:76,0,256",
            "w:42",
        ] {
            let name = Field::new("x", format).unwrap().type_name();
            assert_eq!(format_named(&name).unwrap(), format, "{name}");
        }
        for wrong in
            ["", "int", "i", "list<item: float>", "timestamp", "timestamp[x]", "decimal128(1)", "w:1"]
        {
            let error = format_named(wrong).expect_err(wrong).to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn nested_types_name_their_children() {
        let item = Arc::new(Field::new("item", "f").unwrap());
        let name = |format: &str, children: &[&Arc<Field>]| {
            Field::nested("x", format, children.iter().map(|child| Arc::clone(child)).collect())
                .unwrap()
                .type_name()
        };
        assert_eq!(name("+l", &[&item]), "list<item: float>");
        assert_eq!(name("+w:3", &[&item]), "fixed_size_list<item: float>[3]");
        assert_eq!(
            name("+s", &[&Arc::new(item.not_null()), &item]),
            "struct<item: float not null, item: float>"
        );
        assert_eq!(name("+ud:0,5", &[&item, &item]), "dense_union<item: float=0, item: float=5>");
    }
}
