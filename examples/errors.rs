//! Errors: one variant for each case that a program handles differently; the text has the request, the finding and the
//! fix.

use usmq::prelude::*;
use usmq::{Error, Partition};

/// A GPU if there is one, else the CPU.
fn best_queue() -> usmq::Result<Queue> {
    match Queue::get("gpu") {
        Err(Error::DeviceNotFound { visible, .. }) => {
            println!("no GPU; visible: {visible}");
            Queue::get("cpu")
        }
        found => found,
    }
}

pub(crate) fn main() -> usmq::Result<()> {
    best_queue()?;

    // The compiler's log is a field.
    match Kernel::from_sycl(
        "#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void wrong(int *x) { x[0] = y; }",
        "wrong",
    ) {
        Err(Error::KernelBuild { log, .. }) => {
            println!("{}", log.lines().next().unwrap_or_default());
            assert!(log.contains("undeclared identifier 'y'"));
        }
        built => println!("built: {built:?}"),
    }

    // Arrays on different queues: the error lists both, and its text names the fix.
    let x = Array::full(2, 1f32)?;
    let halves = x.device().sub_devices(&Partition::Equally(1));
    if let Ok([half, ..]) = halves.as_deref() {
        let y = Array::builder::<f32>(2).queue(&Queue::get(half)?).fill(2.0).build()?;
        // SAFETY: work-item i touches element i of x and y only.
        let add = unsafe { Elementwise::new("const float *x, float *y", "y[i] += x[i]") }?;
        match add.launch((&x, &y)) {
            Err(Error::Placement { queues, .. }) => {
                println!("{queues:?}");
                assert_eq!(queues.len(), 2);
            }
            other => println!("not expected: {other:?}"),
        }
        add.launch((&collocate(&x, y.queue())?, &y))?;
        assert_eq!(y.to_vec::<f32>()?, [3.0; 2]);
    }

    // Values and types.
    assert!(matches!(x.reshape((3, 3)), Err(Error::Value { .. })));
    assert!(matches!(x.to_vec::<i32>(), Err(Error::Type { .. })));
    let past = x.index(7);
    assert!(matches!(past, Err(Error::Index { index: Some(7), extent: Some(2), axis: Some(0), .. })));
    Ok(())
}
