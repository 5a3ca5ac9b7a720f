//! arrow-rs: refuses run ends whose field is flagged nullable, though they hold no nulls.

use arrow_array::types::Int32Type;
use arrow_array::{Array, Int32Array, RunArray};
use arrow_schema::{DataType, Field};
use std::process::exit;
use std::sync::Arc;

fn main() {
    let (ends, values) = (Int32Array::from(vec![2, 3]), Int32Array::from(vec![1, 2]));
    let Ok(good) = RunArray::<Int32Type>::try_new(&ends, &values) else {
        println!("not tried: arrow-rs made no array");
        exit(77)
    };
    let field = |name| Arc::new(Field::new(name, DataType::Int32, true));
    let loose = DataType::RunEndEncoded(field("run_ends"), field("values"));
    match good.to_data().into_builder().data_type(loose).build() {
        Err(error) => println!("seen: {error}"),
        Ok(_) => {
            println!(
                "fixed: it is valid; remove the workaround in src/interop/arrow/arrow_rs.rs (with_sound_run_ends)"
            );
            exit(1)
        }
    }
}
