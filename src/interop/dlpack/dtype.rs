//! DLPack's data types. Pure.

use super::abi::DLDataType;
use crate::array::DType;
use crate::error::{Error, Result};

pub(super) fn to_dlpack(dtype: DType) -> DLDataType {
    DLDataType { code: dtype.row().dlpack, bits: (8 * dtype.itemsize()) as u8, lanes: 1 }
}

pub(super) fn read(dtype: DLDataType) -> Result<DType> {
    DType::ALL.into_iter().find(|known| to_dlpack(*known) == dtype).ok_or_else(|| {
        let DLDataType { code, bits, lanes } = dtype;
        Error::interop(format!(
            "DLPack type of code {code}, {bits} bits and {lanes} lanes has no usmq dtype; have its producer cast it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_round_trips() {
        for dtype in DType::ALL {
            assert_eq!(read(to_dlpack(dtype)).unwrap(), dtype);
        }
        for (code, bits, lanes) in [(0, 4, 1), (2, 8, 1), (2, 32, 4), (3, 64, 1), (17, 4, 1), (6, 1, 1)] {
            assert!(read(DLDataType { code, bits, lanes }).is_err());
        }
    }
}
