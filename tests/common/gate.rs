//! A command that runs until the test lets it end, so that what follows it is in flight for as long as a test needs.

use usmq::{Array, DType, Elementwise, Event, Queue, Result, UsmKind};

/// A kernel that holds up its queue; the kernel ends at `open`, or when this is dropped.
pub struct Gate {
    is_open: Array,
    pub event: Event,
}

impl Gate {
    pub fn new(queue: &Queue) -> Result<Self> {
        let is_open = Array::uninit([1], DType::U32, UsmKind::Host, queue)?;
        is_open.copy_from_slice(&[0u32])?;
        // SAFETY: one work-item reads the one element of its array.
        let wait = unsafe {
            Elementwise::new("unsigned *is_open", "while (*(volatile unsigned *)is_open == 0) {}")
        }?;
        let event = wait.launch((&is_open,))?;
        Ok(Self { is_open, event })
    }

    pub fn open(&self) {
        // SAFETY: host memory that lives as long as `self`; the kernel reads it until it is 1.
        unsafe { (self.is_open.address() as *mut u32).write_volatile(1) };
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
