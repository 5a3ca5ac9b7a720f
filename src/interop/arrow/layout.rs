//! Maps a format string to an array's memory layout: its buffers and their sizes. Pure.
//!
//! Source: Arrow columnar format, "Format strings" of the C data interface and "Buffer listing for each layout".

use crate::array::DType;
use crate::error::{Error, Result};

/// The physical layout of one array, without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Null,
    /// One bit per value.
    Bits,
    /// Bytes per value.
    Fixed(usize),
    /// Offsets into bytes; with 64 bits if `large`.
    Bytes {
        large: bool,
    },
    /// 16-byte views into any number of buffers.
    Views,
    /// Offsets into one child.
    List {
        large: bool,
    },
    /// Offsets and sizes into one child.
    ListView {
        large: bool,
    },
    /// This many values of one child each.
    FixedList(usize),
    /// One child per field.
    Struct,
    /// Type ids, and for a dense one offsets; one child per id.
    Union {
        dense: bool,
        children: usize,
    },
    /// Two children: run ends and values.
    RunEnds,
}

/// One buffer of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// One bit per value, absent without nulls.
    Validity,
    /// One bit per value.
    Bits,
    /// Bytes per value.
    Values(usize),
    /// Bytes per offset, one more than there are values.
    Offsets(usize),
    /// Bytes up to the last offset.
    Tail,
}

impl Layout {
    pub(super) fn parse(format: &str) -> Result<Self> {
        let unknown = || Error::interop(format!("Arrow format string {format:?} is not known"));
        if let Some(number) = DType::find(|row| row.arrow == Some(format)) {
            return Ok(Self::Fixed(number.itemsize()));
        }
        let (head, rest) = format.split_once(':').map_or((format, None), |(head, rest)| (head, Some(rest)));
        Ok(match (head, rest) {
            ("n", None) => Self::Null,
            ("b", None) => Self::Bits,
            ("tdD" | "tts" | "ttm" | "tiM", None) => Self::Fixed(4),
            ("tdm" | "ttu" | "ttn" | "tDs" | "tDm" | "tDu" | "tDn" | "tiD", None) => Self::Fixed(8),
            ("tss" | "tsm" | "tsu" | "tsn", Some(_)) => Self::Fixed(8),
            ("tin", None) => Self::Fixed(16),
            ("d", Some(rest)) => Self::Fixed(decimal_bytes(rest).ok_or_else(unknown)?),
            ("w", Some(rest)) => Self::Fixed(extent(rest).ok_or_else(unknown)?),
            ("z" | "u", None) => Self::Bytes { large: false },
            ("Z" | "U", None) => Self::Bytes { large: true },
            ("vz" | "vu", None) => Self::Views,
            ("+l" | "+m", None) => Self::List { large: false },
            ("+L", None) => Self::List { large: true },
            ("+vl", None) => Self::ListView { large: false },
            ("+vL", None) => Self::ListView { large: true },
            ("+w", Some(rest)) => Self::FixedList(extent(rest).ok_or_else(unknown)?),
            ("+s", None) => Self::Struct,
            ("+ud", Some(rest)) => Self::Union { dense: true, children: type_ids(rest).ok_or_else(unknown)? },
            ("+us", Some(rest)) => {
                Self::Union { dense: false, children: type_ids(rest).ok_or_else(unknown)? }
            }
            ("+r", None) => Self::RunEnds,
            _ => return Err(unknown()),
        })
    }

    /// The buffers in order. Views have more after these: the data buffers, and one with their sizes.
    pub(super) fn parts(self) -> &'static [Part] {
        use Part::{Bits, Offsets, Tail, Validity, Values};
        match self {
            Self::Null | Self::RunEnds => &[],
            Self::Bits => &[Validity, Bits],
            Self::Fixed(1) => &[Validity, Values(1)],
            Self::Fixed(2) => &[Validity, Values(2)],
            Self::Fixed(4) => &[Validity, Values(4)],
            Self::Fixed(8) => &[Validity, Values(8)],
            // The layout has the width of the values.
            Self::Fixed(_) => &[Validity, Values(0)],
            Self::Bytes { large: false } => &[Validity, Offsets(4), Tail],
            Self::Bytes { large: true } => &[Validity, Offsets(8), Tail],
            Self::Views => &[Validity, Values(16)],
            Self::List { large: false } => &[Validity, Offsets(4)],
            Self::List { large: true } => &[Validity, Offsets(8)],
            Self::ListView { large: false } => &[Validity, Values(4), Values(4)],
            Self::ListView { large: true } => &[Validity, Values(8), Values(8)],
            Self::FixedList(_) | Self::Struct => &[Validity],
            Self::Union { dense: true, .. } => &[Values(1), Values(4)],
            Self::Union { dense: false, .. } => &[Values(1)],
        }
    }

    /// Bytes that `values` values need from the start of the buffer; `None` if the offsets define the size.
    pub(super) fn bytes(self, part: Part, values: usize) -> Option<usize> {
        match (part, self) {
            (Part::Validity | Part::Bits, _) => Some(values.div_ceil(8)),
            (Part::Values(_), Self::Fixed(width)) => values.checked_mul(width),
            (Part::Values(width), _) => values.checked_mul(width),
            (Part::Offsets(width), _) => values.checked_add(1)?.checked_mul(width),
            (Part::Tail, _) => None,
        }
    }

    /// Number of children of this layout; `None` for any number.
    pub(super) fn children(self) -> Option<usize> {
        match self {
            Self::List { .. } | Self::ListView { .. } | Self::FixedList(_) => Some(1),
            Self::RunEnds => Some(2),
            Self::Union { children, .. } => Some(children),
            Self::Struct => None,
            _ => Some(0),
        }
    }

    pub(super) fn has_validity(self) -> bool {
        self.parts().first() == Some(&Part::Validity)
    }
}

/// The element type of the values for kernels, and the number of elements per value.
pub(super) fn values_type(format: &str, layout: Layout) -> Option<(DType, usize)> {
    if let Some(number) = DType::find(|row| row.arrow == Some(format)) {
        return Some((number, 1));
    }
    let dtype = match format {
        "tdD" | "tts" | "ttm" | "tiM" => DType::I32,
        // Days and milliseconds.
        "tiD" => return Some((DType::I32, 2)),
        _ => match (format.as_bytes(), layout) {
            ([b't', ..], Layout::Fixed(8)) => DType::I64,
            ([b'd', ..], Layout::Fixed(4)) => DType::I32,
            ([b'd', ..], Layout::Fixed(8)) => DType::I64,
            // Little-endian words, the lowest first.
            ([b'd', ..], Layout::Fixed(width)) => return Some((DType::U64, width / 8)),
            (_, Layout::Fixed(width)) => return Some((DType::U8, width)),
            (_, Layout::Views) => return Some((DType::U8, 16)),
            _ => return None,
        },
    };
    Some((dtype, 1))
}

/// `precision,scale` or `precision,scale,bits`.
fn decimal_bytes(rest: &str) -> Option<usize> {
    let mut numbers = rest.split(',');
    let (precision, scale) = (numbers.next()?, numbers.next()?);
    extent(precision)?;
    extent(scale.strip_prefix('-').unwrap_or(scale))?;
    let bits = numbers.next().map_or(Some(128), extent)?;
    (numbers.next().is_none() && matches!(bits, 32 | 64 | 128 | 256)).then_some(bits / 8)
}

/// Parses a number of bytes or values that cannot overflow when multiplied by a plausible length. Digits
/// only, because Rust also accepts a sign.
fn extent(rest: &str) -> Option<usize> {
    let digits = rest.bytes().all(|byte| byte.is_ascii_digit());
    rest.parse::<i32>().ok().filter(|_| digits).and_then(|number| usize::try_from(number).ok())
}

/// `0,1,5`: ids from 0 to 127, each once.
fn type_ids(rest: &str) -> Option<usize> {
    if rest.is_empty() {
        return Some(0);
    }
    let mut seen = [false; 128];
    let mut count = 0;
    for id in rest.split(',') {
        let id = extent(id).filter(|id| *id < seen.len())?;
        if std::mem::replace(&mut seen[id], true) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_string_has_its_layout() {
        for (format, layout) in [
            ("n", Layout::Null),
            ("b", Layout::Bits),
            ("g", Layout::Fixed(8)),
            ("tsu:Europe/Berlin", Layout::Fixed(8)),
            ("tsn:", Layout::Fixed(8)),
            ("d:9,2,32", Layout::Fixed(4)),
            ("d:38,10", Layout::Fixed(16)),
            ("d:9,-2", Layout::Fixed(16)),
            ("d:76,0,256", Layout::Fixed(32)),
            ("w:42", Layout::Fixed(42)),
            ("w:0", Layout::Fixed(0)),
            ("U", Layout::Bytes { large: true }),
            ("vu", Layout::Views),
            ("+m", Layout::List { large: false }),
            ("+vL", Layout::ListView { large: true }),
            ("+w:3", Layout::FixedList(3)),
            ("+ud:0,5,127", Layout::Union { dense: true, children: 3 }),
            ("+us:", Layout::Union { dense: false, children: 0 }),
            ("+r", Layout::RunEnds),
        ] {
            assert_eq!(Layout::parse(format).unwrap(), layout, "{format}");
        }
        for wrong in [
            "",
            "x",
            "i:",
            "w:",
            "w:-1",
            "w:-0",
            "w:+1",
            "+w:+3",
            "d:-9,2",
            "d:9,+2",
            "d:9,2,+32",
            "+ud:+1",
            "w:9999999999",
            "d:",
            "d:1",
            "d:1,2,3",
            "d:9,2,128,0",
            "tss",
            "ts",
            "+",
            "+w:x",
            "+ud",
            "+ud:0,0",
            "+ud:128",
            "+ud:-1",
            "+ud:0,",
            "+s:",
            "+xx",
            "é",
        ] {
            let text = Layout::parse(wrong).unwrap_err().to_string();
            assert!(text.contains(wrong), "{text}");
        }
    }

    #[test]
    fn buffer_sizes_cover_all_values() {
        let bytes = |layout: Layout, values| -> Vec<_> {
            layout.parts().iter().map(|part| layout.bytes(*part, values)).collect()
        };
        assert_eq!(bytes(Layout::Bits, 9), [Some(2), Some(2)]);
        assert_eq!(bytes(Layout::Fixed(42), 2), [Some(1), Some(84)]);
        assert_eq!(bytes(Layout::Bytes { large: false }, 0), [Some(0), Some(4), None]);
        assert_eq!(bytes(Layout::Bytes { large: true }, usize::MAX), [Some(1 << 61), None, None]);
        assert_eq!(bytes(Layout::Fixed(8), usize::MAX), [Some(1 << 61), None]);
        assert_eq!(bytes(Layout::ListView { large: false }, 3), [Some(1), Some(12), Some(12)]);
    }
}
