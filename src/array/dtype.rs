//! The table of element types: names, sizes, and their codes and spellings in other libraries. Pure.

use crate::error::{Error, Result};
use std::fmt;

/// The family of a numeric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
}

/// One type's facts. `None`: it cannot be expressed there.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) short_name: &'static str,
    pub(crate) typestr: Option<&'static str>,
    pub(crate) itemsize: usize,
    pub(crate) family: Family,
    /// DLPack's code. Source: `DLDataTypeCode` in `dlpack/dlpack.h`, version 1.3.
    pub(crate) dlpack: u8,
    /// Arrow's format string of one number per value. Source: "Format strings" of the C data interface.
    pub(crate) arrow: Option<&'static str>,
    /// The buffer protocol's format; complex numbers as numpy writes them. Source: PEP 3118 and Python's `struct`.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "only Python has the protocol"))]
    pub(crate) buffer: Option<&'static str>,
    /// The C++ type in the kernels of `cast_kernel.rs`, and the text that declares it.
    pub(crate) cpp: &'static str,
    pub(crate) cpp_prelude: &'static str,
    /// Its spellings as one word in SYCL C++ and OpenCL C, without namespaces.
    pub(crate) words: &'static [&'static str],
}

/// Makes [`DType`], [`DType::ALL`] and the rows from the table. "" stands for `None`.
macro_rules! dtypes {
    ($($dtype:ident $name:literal $short:literal $typestr:literal $itemsize:literal $family:ident $dlpack:literal
       $arrow:literal $buffer:literal $cpp:literal $(+ $prelude:ident)? $(, $($word:literal)+)?;)*) => {
        /// The type of an array's elements. All are little-endian.
        ///
        /// ```
        /// use usmq::DType;
        ///
        /// assert_eq!(DType::parse("f4")?, DType::F32);
        /// assert_eq!((DType::F32.name(), DType::F32.itemsize()), ("float32", 4));
        /// # Ok::<(), usmq::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // Each name says all there is.
        pub enum DType {
            $($dtype,)*
        }

        impl DType {
            /// Every type.
            pub const ALL: [Self; ROWS.len()] = [$(Self::$dtype,)*];

            fn from_name(text: &str) -> Option<Self> {
                match text {
                    $($name => Some(Self::$dtype),)*
                    _ => None,
                }
            }

            fn from_short_name(text: &str) -> Option<Self> {
                match text {
                    $($short => Some(Self::$dtype),)*
                    _ => None,
                }
            }
        }

        /// In the order of the enum.
        const ROWS: &[Row] = &[$(Row {
            name: $name,
            short_name: $short,
            typestr: optional($typestr),
            itemsize: $itemsize,
            family: Family::$family,
            dlpack: $dlpack,
            arrow: optional($arrow),
            buffer: optional($buffer),
            cpp: $cpp,
            cpp_prelude: [$($prelude,)? ""][0],
            words: &[$($($word,)+)?],
        },)*];
    };
}

const fn optional(text: &'static str) -> Option<&'static str> {
    if text.is_empty() { None } else { Some(text) }
}

// Sorted as numpy promotes them: `DType` has this order.
dtypes! {
    // DType, name, short name, typestr, bytes, family, DLPack, Arrow, buffer, C++ in casts + its prelude, words in kernels
    Bool "bool"       "b1"  "|b1"   1 Bool     6  ""   "?"  "bool",                            "bool";
    I8   "int8"       "i1"  "|i1"   1 Signed   0  "c"  "b"  "signed char",                     "int8_t";
    I16  "int16"      "i2"  "<i2"   2 Signed   0  "s"  "h"  "short",                           "int16_t";
    I32  "int32"      "i4"  "<i4"   4 Signed   0  "i"  "i"  "int",                             "int32_t";
    I64  "int64"      "i8"  "<i8"   8 Signed   0  "l"  "l"  "long",                            "int64_t" "ptrdiff_t"
                                                                                               "ssize_t" "intptr_t";
    U8   "uint8"      "u1"  "|u1"   1 Unsigned 1  "C"  "B"  "unsigned char",                   "uint8_t" "uchar" "byte";
    U16  "uint16"     "u2"  "<u2"   2 Unsigned 1  "S"  "H"  "unsigned short",                  "uint16_t" "ushort";
    U32  "uint32"     "u4"  "<u4"   4 Unsigned 1  "I"  "I"  "unsigned int",                    "uint32_t" "uint";
    U64  "uint64"     "u8"  "<u8"   8 Unsigned 1  "L"  "L"  "unsigned long",                   "uint64_t" "size_t"
                                                                                               "ulong" "uintptr_t";
    F16  "float16"    "f2"  "<f2"   2 Float    2  "e"  "e"  "_Float16",                        "half" "_Float16";
    BF16 "bfloat16"   "bf2" ""      2 Float    4  ""   ""   "usmq_bfloat16" + BFLOAT16,        "bfloat16";
    F32  "float32"    "f4"  "<f4"   4 Float    2  "f"  "f"  "float",                           "float";
    F64  "float64"    "f8"  "<f8"   8 Float    2  "g"  "d"  "double",                          "double";
    C64  "complex64"  "c8"  "<c8"   8 Complex  5  ""   "Zf" "usmq_complex<float>" + COMPLEX;
    C128 "complex128" "c16" "<c16" 16 Complex  5  ""   "Zd" "usmq_complex<double>" + COMPLEX;
}

/// SYCL's own type adds device images that crash libsycl 9 when it looks them up in its disk cache.
const BFLOAT16: &str = "\
struct usmq_bfloat16 {
  unsigned short bits;
  usmq_bfloat16() = default;
  explicit usmq_bfloat16(float value) {
    unsigned all = __builtin_bit_cast(unsigned, value);
    bool nan = (all & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? all >> 16 | 0x40u : (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  }
  explicit operator float() const { return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16); }
};
";

const COMPLEX: &str = "\
template <typename T> struct usmq_complex {
  T re, im;
  template <typename U> static usmq_complex of(U real) { return {static_cast<T>(real), T(0)}; }
  template <typename U> static usmq_complex of(usmq_complex<U> z) { return {static_cast<T>(z.re), static_cast<T>(z.im)}; }
};
";

impl DType {
    pub(crate) const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The type whose row this is true of.
    pub(crate) fn find(is: impl Fn(&Row) -> bool) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| is(dtype.row()))
    }

    /// numpy's name, as `float32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The letter and size, as `f4`.
    #[must_use]
    pub const fn short_name(self) -> &'static str {
        self.row().short_name
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn itemsize(self) -> usize {
        self.row().itemsize
    }

    /// The string of `__sycl_usm_array_interface__` and numpy's array interface, as `<f4` or `|b1`; `None`
    /// for bfloat16, which neither can express.
    #[must_use]
    pub const fn typestr(self) -> Option<&'static str> {
        self.row().typestr
    }

    pub(crate) const fn family(self) -> Family {
        self.row().family
    }

    /// Parses a name, a short name or a type string: `float32`, `f4`, `<f4`, `=f4`, `>i1`.
    ///
    /// # Errors
    /// [`Error::Type`] for any other type, including big-endian ones.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.strip_prefix(['<', '=', '|']).unwrap_or(text);
        // One byte has no byte order.
        let of_byte = || Self::from_short_name(text.strip_prefix('>')?).filter(|dtype| dtype.itemsize() == 1);
        Self::from_short_name(bare)
            .or_else(|| Self::from_name(text))
            .or_else(of_byte)
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
                let hint = unsupported(text);
                // Other libraries' text may be long.
                let text = match text.char_indices().nth(40) {
                    Some((end, _)) => format!("{}…", &text[..end]),
                    None => text.to_owned(),
                };
                Error::wrong_type(format!(
                    "dtype {text:?} is not supported{hint}; supported: {}",
                    names.join(", ")
                ))
            })
    }
}

/// The way out for a type of numpy that no array has.
fn unsupported(text: &str) -> &'static str {
    let starts = |names: &[&str]| {
        names.iter().any(|name| text.trim_start_matches(['<', '>', '=', '|']).starts_with(name))
    };
    if starts(&["M8", "m8", "datetime64", "timedelta64"]) {
        " (usmq arrays keep no unit of time: pass the times as 64-bit integers, x.view('i8'))"
    } else if starts(&["O", "object"]) {
        " (its elements are Python objects: convert them first, as x.astype('float64'))"
    } else if starts(&["U", "S", "a", "str", "bytes", "StringDType", "T"]) {
        " (its elements are text: usmq arrays hold numbers, and Arrow columns hold text)"
    } else if starts(&[
        "f16",
        "f12",
        "g",
        "longdouble",
        "float128",
        "c32",
        "c24",
        "G",
        "clongdouble",
        "complex256",
    ]) {
        " (no device has it: convert it first, as x.astype('float64'))"
    } else if text.starts_with('>') {
        " (big-endian data must be converted first)"
    } else {
        ""
    }
}

/// As [`DType::parse`].
impl std::str::FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
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
    fn every_spelling_of_a_type_reads_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
            assert_eq!(DType::parse(dtype.short_name()).unwrap(), dtype);
            if let Some(typestr) = dtype.typestr() {
                assert_eq!(DType::parse(typestr).unwrap(), dtype);
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
