//! Two GPUs: a kernel on each, and a copy between them.
//!
//! On a machine without two GPUs: `USMQ_EMULATE_GPUS=2 cargo run --example two_gpus`

use usmq::prelude::*;
use usmq::{Action, explain};

pub(crate) fn main() -> usmq::Result<()> {
    let (first, second) = (Queue::get("gpu:0")?, Queue::get("gpu:1")?);
    // SAFETY: work-item i touches element i of x only.
    let scale = unsafe { Elementwise::new("float a, float *x", "x[i] *= a") }?;
    let x = Array::builder(4).queue(&first).fill(1f32).build()?;
    let y = Array::builder(4).queue(&second).fill(2f32).build()?;
    scale.launch((10f32, &x))?; // on gpu:0, where x is
    scale.launch((10f32, &y))?; // on gpu:1, at the same time

    let plan = explain(&[&x], Some(&second))?;
    println!("{plan}");
    assert!(plan.steps.iter().all(|step| step.action != Action::Keep));
    let x = collocate(&x, &second)?; // comes after the kernel, without a wait here
    println!("{} {:?} {:?}", x.device().name(), x.to_vec::<f32>()?, y.to_vec::<f32>()?);
    assert_eq!((x.to_vec::<f32>()?, y.to_vec::<f32>()?), (vec![10.0; 4], vec![20.0; 4]));
    Ok(())
}
