//! arrow-rs: an imported column of no text whose only offset is not 0 is invalid.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use std::process::exit;

fn main() {
    let builder = ArrayData::builder(DataType::Utf8).len(0).add_buffer(Buffer::from_slice_ref([5_i32]));
    let valid = builder.add_buffer(Buffer::from(b"hello".as_slice())).build();
    let (Ok(text), Ok(schema)) = (valid, FFI_ArrowSchema::try_from(&DataType::Utf8)) else {
        println!("not tried: arrow-rs made no array");
        exit(77)
    };
    // SAFETY: both are of one valid array.
    let imported = unsafe { from_ffi(FFI_ArrowArray::new(&text), &schema) };
    match imported.and_then(|data| data.validate_full()) {
        Err(error) => println!("seen: valid before the export, then: {error}"),
        Ok(()) => {
            println!("fixed: it is valid; remove the workaround in src/interop/arrow/arrow_rs.rs (tidy)");
            exit(1)
        }
    }
}
