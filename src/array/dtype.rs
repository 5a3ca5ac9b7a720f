//! Element types: names, sizes and their names in other libraries. Pure.

use crate::error::{Error, Result};
use std::fmt;

/// The type of an array's elements. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // Each name says all there is.
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
}

/// The family of a numeric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
}

/// One row per type: name, short name (numpy's letter and size in bytes), C++ name in kernels, size.
const TABLE: [(DType, &str, &str, &str, usize); 15] = [
    (DType::Bool, "bool", "b1", "bool", 1),
    (DType::I8, "int8", "i1", "signed char", 1),
    (DType::I16, "int16", "i2", "short", 2),
    (DType::I32, "int32", "i4", "int", 4),
    (DType::I64, "int64", "i8", "long", 8),
    (DType::U8, "uint8", "u1", "unsigned char", 1),
    (DType::U16, "uint16", "u2", "unsigned short", 2),
    (DType::U32, "uint32", "u4", "unsigned int", 4),
    (DType::U64, "uint64", "u8", "unsigned long", 8),
    (DType::F16, "float16", "f2", "sycl::half", 2),
    (DType::BF16, "bfloat16", "bf2", "usmq_bfloat16", 2),
    (DType::F32, "float32", "f4", "float", 4),
    (DType::F64, "float64", "f8", "double", 8),
    (DType::C64, "complex64", "c8", "usmq_complex<float>", 8),
    (DType::C128, "complex128", "c16", "usmq_complex<double>", 16),
];

impl DType {
    /// Every type.
    pub const ALL: [Self; 15] = [
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::C64,
        Self::C128,
    ];

    const fn row(self) -> &'static (Self, &'static str, &'static str, &'static str, usize) {
        &TABLE[self as usize]
    }

    /// numpy's name, as `float32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// The letter and size, as `f4`.
    #[must_use]
    pub const fn short_name(self) -> &'static str {
        self.row().2
    }

    /// The type's spelling in the kernels of `cast_kernel.rs`.
    pub(crate) const fn cpp_name(self) -> &'static str {
        self.row().3
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn itemsize(self) -> usize {
        self.row().4
    }

    /// The string of `__sycl_usm_array_interface__` and numpy's array interface, as `<f4` or `|b1`; `None`
    /// for bfloat16, which neither can express.
    #[must_use]
    pub fn typestr(self) -> Option<String> {
        let order = if self.itemsize() == 1 { '|' } else { '<' };
        (self != Self::BF16).then(|| format!("{order}{}", self.short_name()))
    }

    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Bool => Family::Bool,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => Family::Signed,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Family::Unsigned,
            Self::F16 | Self::BF16 | Self::F32 | Self::F64 => Family::Float,
            Self::C64 | Self::C128 => Family::Complex,
        }
    }

    /// Parses a name, a short name or a type string: `float32`, `f4`, `<f4`, `=f4`, `>i1`.
    ///
    /// # Errors
    /// [`Error::Type`] for any other type, including big-endian ones.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.strip_prefix(['<', '=', '|']).unwrap_or(text);
        // One byte has no byte order.
        let byte = text.strip_prefix('>').unwrap_or(bare);
        let found = TABLE
            .iter()
            .find(|row| row.1 == text || row.2 == bare || (row.4 == 1 && row.2 == byte))
            .map(|row| row.0);
        found
            .or(match text {
                "?" => Some(Self::Bool),
                "float" => Some(Self::F64),
                "int" => Some(Self::I64),
                "complex" => Some(Self::C128),
                "half" => Some(Self::F16),
                _ => None,
            })
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
                let hint =
                    if text.starts_with('>') { " (big-endian data must be converted first)" } else { "" };
                Error::Type(format!("dtype {text:?} is not supported{hint}; supported: {}", names.join(", ")))
            })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (dtype, row) in DType::ALL.iter().zip(TABLE) {
            assert_eq!(*dtype, row.0);
            assert_eq!(dtype.name(), row.1);
        }
    }

    #[test]
    fn every_spelling_of_a_type_reads_back() {
        for dtype in DType::ALL {
            assert_eq!(DType::parse(dtype.name()).unwrap(), dtype);
            assert_eq!(DType::parse(dtype.short_name()).unwrap(), dtype);
            if let Some(typestr) = dtype.typestr() {
                assert_eq!(DType::parse(&typestr).unwrap(), dtype);
            }
            // Only one byte is the same in both byte orders.
            assert_eq!(DType::parse(&format!(">{}", dtype.short_name())).is_ok(), dtype.itemsize() == 1);
        }
    }

    #[test]
    fn other_types_are_refused_by_name() {
        for text in [">f4", "O", "S3", "U1", "V8", "M8[ns]", "f16", "", "float32 ", "i3"] {
            let error = DType::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
