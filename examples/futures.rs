//! Asynchronous code: events and reads as futures, a queue for each task, callbacks.

use futures::executor::block_on;
use usmq::prelude::*;

const LARGE: usize = 1 << 20;

/// Runs on the current queue of the task, whichever thread polls it.
async fn count(square: &Elementwise, value: f32) -> usmq::Result<f32> {
    let x = Array::full(LARGE, value)?;
    let event = square.launch((&x,))?;
    event.on_complete(move || println!("the kernel for {value} is complete"));
    event.await?; // blocks no thread
    let values = x.to_vec_async::<f32>().await?;
    Ok(values.iter().sum::<f32>() / LARGE as f32)
}

pub(crate) fn main() -> usmq::Result<()> {
    // SAFETY: work-item i touches element i of x only.
    let square = unsafe { Elementwise::new("float *x", "x[i] *= x[i]") }?;
    let (first, second) = (Queue::get("cpu")?, Queue::builder("cpu").uncached().build()?);
    let tasks = async {
        let three = count(&square, 3.0).in_queue(&first);
        let four = count(&square, 4.0).in_queue(&second);
        let (three, four) = futures::future::join(three, four).await;
        Ok::<_, usmq::Error>([three?, four?])
    };
    let means = block_on(tasks)?;
    println!("{means:?}");
    assert_eq!(means, [9.0, 16.0]);
    Ok(())
}
