//! Threads of rayon: each task runs in the scope of its creator, or with a queue of its own.

use rayon::prelude::*;
use usmq::prelude::*;
use usmq::{Error, Scope};

pub(crate) fn main() -> usmq::Result<()> {
    // SAFETY: work-item i touches element i of x only.
    let double = unsafe { Elementwise::new("int *x", "x[i] *= 2") }?;
    let task = |number: i32| -> usmq::Result<i32> {
        let x = Array::full(1000, number)?; // on the current queue of this thread
        double.launch((&x,))?;
        Ok(x.to_vec::<i32>()?[999])
    };

    // A scope belongs to a thread; `Scope::capture` takes it along.
    let doubled = with_queue("cpu", || {
        let scope = Scope::capture();
        (0..32).into_par_iter().map(|number| scope.enter(|| task(number))).collect::<usmq::Result<Vec<_>>>()
    })?;
    assert_eq!(doubled, (0..32).map(|number| 2 * number).collect::<Vec<_>>());

    // Two queues, so that the tasks of one do not wait for those of the other.
    let queues = [Queue::get("cpu")?, Queue::builder("cpu").uncached().build()?];
    let sum: i32 = (0..32)
        .into_par_iter()
        .map(|number: i32| queues[number as usize % 2].with(|| task(number)))
        .try_reduce(|| 0, |a, b| Ok::<_, Error>(a + b))?;
    println!("{sum}");
    assert_eq!(sum, 992);
    Ok(())
}
