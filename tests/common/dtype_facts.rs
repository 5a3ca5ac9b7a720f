//! Facts about the element types, from their specifications and not from usmq: numpy's names and type strings,
//! `DLDataTypeCode` of DLPack 1.3, and the format strings of Arrow's C data interface. "" means that there is none.

use usmq::DType;

/// Type, numpy's name, type string, DLPack's code and bits, Arrow's format.
pub const DTYPES: [(DType, &str, &str, (u8, u8), &str); 15] = [
    (DType::Bool, "bool", "|b1", (6, 8), ""),
    (DType::I8, "int8", "|i1", (0, 8), "c"),
    (DType::I16, "int16", "<i2", (0, 16), "s"),
    (DType::I32, "int32", "<i4", (0, 32), "i"),
    (DType::I64, "int64", "<i8", (0, 64), "l"),
    (DType::U8, "uint8", "|u1", (1, 8), "C"),
    (DType::U16, "uint16", "<u2", (1, 16), "S"),
    (DType::U32, "uint32", "<u4", (1, 32), "I"),
    (DType::U64, "uint64", "<u8", (1, 64), "L"),
    (DType::F16, "float16", "<f2", (2, 16), "e"),
    (DType::BF16, "bfloat16", "", (4, 16), ""),
    (DType::F32, "float32", "<f4", (2, 32), "f"),
    (DType::F64, "float64", "<f8", (2, 64), "g"),
    (DType::C64, "complex64", "<c8", (5, 64), ""),
    (DType::C128, "complex128", "<c16", (5, 128), ""),
];
