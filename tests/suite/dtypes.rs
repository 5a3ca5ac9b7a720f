//! Each element type against its specifications, both ways: name, type string, DLPack and Arrow.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::common::default_queue;
use crate::dtype_facts::DTYPES;
use dlpark::ffi::DLManagedTensorVersioned as Theirs;
use usmq::interop::arrow::Column;
use usmq::interop::dlpack::{DLManagedTensorVersioned, Export, ForeignTensor, Import, export, import};
use usmq::{Array, DType, Error, Result, UsmKind};

#[test]
fn names_type_strings_and_sizes_are_those_of_numpy() {
    assert_eq!(DTYPES.map(|row| row.0), DType::ALL);
    for (dtype, name, typestr, (_, bits), _) in DTYPES {
        assert_eq!((dtype.name(), dtype.typestr().unwrap_or_default()), (name, typestr));
        assert_eq!(8 * dtype.itemsize(), usize::from(bits), "{dtype}");
        for spelling in [name, typestr, typestr.trim_start_matches(['<', '|']), dtype.short_name()] {
            assert_eq!(DType::parse(spelling).ok(), (!spelling.is_empty()).then_some(dtype), "{spelling:?}");
        }
    }
}

#[test]
fn codes_and_bits_are_those_of_dlpack() -> Result<()> {
    let queue = default_queue()?;
    for (dtype, .., (code, bits), _) in DTYPES {
        let array = Array::uninit([2], dtype, UsmKind::Shared, &queue)?;
        let ours = export::<DLManagedTensorVersioned>(&array, Export::default())?.into_raw();
        // SAFETY: a fresh tensor with this layout, whose owner dlpark is from here on.
        let theirs = unsafe { dlpark::Managed::<Theirs>::from_raw(ours.cast()) }.unwrap();
        let found = theirs.validate().unwrap().dtype();
        assert_eq!((found.code.0, found.bits, found.lanes), (code, bits, 1), "{dtype}");
        // SAFETY: as above, the other way.
        let back = unsafe { ForeignTensor::<DLManagedTensorVersioned>::from_raw(theirs.into_raw().cast()) }?;
        assert_eq!(import(back, Import::default())?.dtype(), dtype);
    }
    Ok(())
}

#[test]
fn format_strings_are_those_of_arrow() -> Result<()> {
    let queue = default_queue()?;
    for (dtype, .., format) in DTYPES {
        let array = Array::uninit([2], dtype, UsmKind::Shared, &queue)?;
        match Column::from_array("x", &array) {
            Ok(column) => {
                assert_eq!(column.field().format(), format, "{dtype}");
                assert!(column.is_numeric());
                assert_eq!(column.values()?.dtype(), dtype);
            }
            Err(Error::Interop { message: text, .. }) => assert!(format.is_empty(), "{text}"),
            Err(other) => return Err(other),
        }
    }
    Ok(())
}
