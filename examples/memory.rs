//! Memory: USM kinds, views, slices of the host, statistics and limits.

use usmq::memory::{set_limit, stats, trim};
use usmq::{Array, Error, Queue, UsmKind};

pub(crate) fn main() -> usmq::Result<()> {
    let queue = Queue::get("cpu")?;
    let x = Array::builder::<f32>((2, 3)).kind(UsmKind::Shared).queue(&queue).build()?;
    x.reshape(-1)?.host_view_mut::<f32>()?.copy_from_slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);

    // Views share the memory.
    let corner = x.index((.., 1..3))?;
    corner.fill(9f32)?;
    let mut values = [0f32; 6];
    x.copy_to_slice(&mut values)?;
    println!("{values:?}");
    assert_eq!(values, [0.0, 9.0, 9.0, 3.0, 9.0, 9.0]);

    // While a view of the host lives, no command writes to the memory.
    let view = x.host_view::<f32>()?;
    assert!(matches!(corner.fill(1f32), Err(Error::HostView { .. })));
    println!("sum {}", view.iter().sum::<f32>());
    drop(view);

    // Freed memory is kept for the next allocation, up to a limit.
    drop((x, corner));
    for (kind, found) in stats(Some(queue.device()))? {
        println!("{kind}: {} bytes used, {} reserved", found.used, found.reserved);
    }
    set_limit(Some(1 << 20), Some(queue.device()), Some(UsmKind::Device))?;
    let large = Array::builder::<u8>(2 << 20).queue(&queue).build();
    set_limit(None, Some(queue.device()), Some(UsmKind::Device))?;
    println!("{}", large.as_ref().err().map_or(String::new(), Error::to_string));
    assert!(matches!(large, Err(Error::Allocation { .. })));
    trim(None)
}
