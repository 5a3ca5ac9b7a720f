//! Runs the trial kernels of the device header: a spelling that compiles must also count work-items as numpy does.

use super::kernel_args::KernelArgs;
use super::{Context, Device, UsmKind};
use crate::error::{During, Error, Result};
use crate::ffi::Extents;
use crate::ffi::{self, EventStatus};
use crate::runtime::{CountedWait, checks, emulator};
use std::time::Duration;

/// One kernel for each number of dimensions, in one source. Each work-item writes its number to the element at its
/// position, or 0 if its ids contradict each other.
pub(super) const SOURCE: &str = "#include <usmq/kernel.h>\n\
    void put(size_t *x, size_t at) {\n\
      bool fits = at < 24;\n\
      for (int d = 0; d < 3; ++d)\n\
        fits = fits && group_id(d) * local_size(d) + local_id(d) == global_id(d);\n\
      x[fits ? at : 0] = fits ? global_linear_id() + 1 : 0;\n\
    }\n\
    USMQ_KERNEL(1) void usmq_trial_1(size_t *x) { put(x, global_id(0)); }\n\
    USMQ_KERNEL(2) void usmq_trial_2(size_t *x) { put(x, global_id(0) * 6 + global_id(1)); }\n\
    USMQ_KERNEL(3) void usmq_trial_3(size_t *x) { put(x, (global_id(0) * 3 + global_id(1)) * 4 + global_id(2)); }\n";

/// The kernels and their ranges.
const KERNELS: [(&str, [usize; 3]); 3] =
    [("usmq_trial_1", [24, 1, 1]), ("usmq_trial_2", [4, 6, 1]), ("usmq_trial_3", [2, 3, 4])];
const ITEMS: usize = 24;
const BYTES: usize = ITEMS * size_of::<u64>();

/// Device memory for one trial, outside of the pools and their statistics.
struct Memory {
    address: usize,
    pool: cxx::UniquePtr<ffi::UsmPool>,
    budget: cxx::UniquePtr<ffi::UsmBudget>,
}

impl Memory {
    fn new(context: &Context, device: &Device) -> Result<Self> {
        const DURING: &str = "allocating memory for the trial of usmq/kernel.h";
        let budget = ffi::budget_new().during(DURING)?;
        // SAFETY: `free` drops the budget last; the fields are dropped in their order, the pool first.
        let pool = unsafe { ffi::pool_new(UsmKind::Device.code(), device.raw()?, context.raw()?, &budget) };
        let pool = pool.during(DURING)?;
        let address = ffi::block_alloc(&pool, BYTES);
        if address == 0 {
            return Err(Error::value(format!("{DURING} failed")));
        }
        Ok(Self { budget, pool, address })
    }

    /// Frees the memory, which no command uses any more.
    fn free(self) {
        let Self { budget, pool, address } = self;
        // SAFETY: the block came from this pool with this size, and the queue was waited for.
        unsafe { ffi::block_free(&pool, address, BYTES) };
        ffi::budget_free(&budget, |_| ());
        drop(pool);
    }
}

/// Whether the trial kernels of this bundle give the right ids. Not run on emulated GPUs, which are parts of a device
/// that the compiler knows, and count commands for faults on demand.
pub(super) fn runs(context: &Context, device: &Device, bundle: &ffi::Bundle) -> Result<bool> {
    const DURING: &str = "running the trial of usmq/kernel.h";
    let mut kernels = Vec::with_capacity(KERNELS.len());
    for (name, _) in KERNELS {
        let kernel = ffi::bundle_kernel(bundle, name).during(DURING)?;
        if kernel.is_null() {
            return Ok(false);
        }
        kernels.push(kernel);
    }
    if std::env::var_os(emulator::GPUS).is_some() {
        return Ok(true);
    }
    checks::submits();
    checks::waits(|| false);
    let _counted = CountedWait::begin()?;
    let queue = ffi::queue_new(context.raw()?, device.raw()?, true, false, ffi::PriorityCode::Normal)
        .during(DURING)?;
    let memory = Memory::new(context, device)?;
    let mut is_right = true;
    for (dimensions, (kernel, (_, global))) in (1..).zip(kernels.iter().zip(KERNELS)) {
        let mut found = [0u64; ITEMS];
        let extents = Extents { dimensions, global, local: [0; 3] };
        let mut args = KernelArgs::default();
        args.pointer(memory.address);
        let mut run = || {
            // SAFETY: the memory lives until the queue was waited for, below.
            unsafe { ffi::queue_memset(&queue, memory.address, 0, BYTES, &[]) }?;
            // SAFETY: as above; the kernel writes inside the `BYTES` of its one argument, even with wrong ids.
            unsafe { ffi::queue_launch(&queue, kernel, &extents, &args, args.more(), &[]) }?;
            // SAFETY: as above, also for `found`.
            let copy =
                unsafe { ffi::queue_memcpy(&queue, found.as_mut_ptr().addr(), memory.address, BYTES, &[]) }?;
            // Needs no permission to wait inside the driver (`driver_wait`).
            ffi::queue_flush(&queue)?;
            while matches!(ffi::event_status(&copy)?, EventStatus::Submitted | EventStatus::Running) {
                std::thread::sleep(Duration::from_micros(20));
            }
            ffi::event_wait(&copy)
        };
        run().or_else(|error| ffi::queue_join(&queue).and(Err(error))).during(DURING)?;
        is_right &= (1..).zip(found).all(|(expected, found)| found == expected);
    }
    memory.free();
    Ok(is_right)
}
