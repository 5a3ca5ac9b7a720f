//! Choose a device once; arrays carry that choice with them.
//!
//! Current queue, unified shared memory and zero-copy interoperation between libraries, over SYCL (oneAPI
//! DPC++).
//!
//! ```
//! use usmq::{Array, Kernel, with_queue};
//!
//! const SOURCE: &str = r#"
//! #include <usmq/kernel.h>
//! USMQ_KERNEL(1) void axpy(float a, const float *x, float *y, size_t n) {
//!   size_t i = global_id(0);
//!   if (i < n) y[i] += a * x[i];
//! }"#;
//!
//! with_queue("cpu", || -> usmq::Result<()> {
//!     let x = Array::from_slice(&[1f32, 2.0, 3.0])?; // on the scoped queue
//!     let y = Array::zeros::<f32>([3])?;
//!     let axpy = Kernel::from_sycl(SOURCE, "axpy")?;
//!     // SAFETY: axpy writes y[0..n] only.
//!     unsafe { axpy.launch(3, (2f32, &x, &y, 3usize)) }?;
//!     assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]); // waits for what it must, nothing else
//!     Ok(())
//! })?;
//! # Ok::<(), usmq::Error>(())
//! ```
//!
//! # Where work runs
//!
//! Name a queue by a filter string such as `"cpu"` or `"gpu:1"`, by a [`Device`] or by a [`Queue`].
//! Precedence: explicit argument > queue of the data > innermost scope > process default > SYCL's default
//! device. See [`with_queue`], [`set_default_queue`], [`QueueManager`] and [`follow`].
//!
//! # Order
//!
//! Each allocation records its last uses. A command waits for them on the device; the host waits only where
//! it reads data or passes its own memory to a device. Memory lives until the last command that uses it is
//! complete, even if every handle is dropped earlier.
//!
//! # Safety
//!
//! Launching a kernel is `unsafe`, since a kernel can write anywhere, and so is importing raw handles or
//! memory from another library. Everything else is safe: no safe function can access freed memory, from any
//! thread, and no C++ exception crosses into Rust.
//!
//! # Environment variables
//!
//! The first device query, such as [`devices`] or [`current_queue`], sets `OCL_ICD_FILENAMES`,
//! `SYCL_CACHE_PERSISTENT` and `SYCL_CACHE_DIR` with `setenv` where they are not set, and puts usmq's layer
//! ([`layers`]) first in `OPENCL_LAYERS`, since the runtime reads its settings there. `setenv` is not thread-safe: another thread that reads or writes the environment
//! through libc at that moment, as name resolution does, may crash. Call [`devices`] before starting such
//! threads, or set `OCL_ICD_FILENAMES`, `SYCL_CACHE_PERSISTENT` and `USMQ_WAIT_LAYER=0` before the process
//! starts; usmq then sets nothing.
//!
//! # Features
//!
//! `arrow`: columns and tables from and to arrow-rs. `cuda`: memory of CUDA devices, through a driver that is
//! loaded at run time. Not for Rust applications: `python`, the extension module, and `c-library`,
//! libusmq.so.0.

mod array;
mod capi;
mod capture;
mod completion;
mod device;
pub mod doctor;
mod error;
mod ffi;
pub mod interop;
mod kernel;
mod manager;
pub mod memory;
mod placement;
pub mod profile;
#[cfg(feature = "python")]
mod python;
mod runtime;
mod task;
mod trace;

pub use array::{
    Array, ArrayBuilder, DType, Element, Extent, HostMemory, HostView, HostViewMut, Index, IndexPart,
    Indices, IntoNewShape, IntoShape, ReadFuture, Scalar,
};
pub use capture::{Graph, capture, capture_with};
/// The first call in a process of this or any other function that needs a device may call `setenv`, which is
/// not thread-safe; see [Environment variables](crate#environment-variables).
#[doc(inline)]
pub use device::devices;
pub use device::{
    Aspect, Backend, Context, Device, DeviceFilter, DeviceProperties, DeviceType, Elapsed, Event,
    EventFuture, MemoryKind, Partition, Platform, PlatformProblem, PointerInfo, Priority, Queue,
    QueueProperties, Selector, Timer, Timestamps, UsmKind, VectorWidths, clear_kernel_cache, layers,
    platform_problems, platforms, set_kernel_cache_limit,
};
pub use doctor::doctor;
pub use error::{Error, Result};
pub use kernel::{
    Arg, Elementwise, ElementwiseLaunch, ExpressionOptions, In, InOut, Kernel, KernelField, KernelOptions,
    KernelStruct, Launch, LaunchArgs, Out, Param, Reduction, ReductionLaunch, ReductionOptions, TypedKernel,
    TypedParam, TypedParams,
};
pub use manager::{
    InQueue, QueueBuilder, QueueManager, Scope, Scoped, Target, current_queue, set_default_queue, with_queue,
};
#[cfg(feature = "python")]
pub(crate) use placement::usable_from;
pub use placement::{
    Action, Plan, PlanTarget, Step, collocate, collocate_all, concatenate, explain, follow, stack,
};
#[cfg(usmq_faults)]
#[doc(hidden)]
pub use runtime::faults;
pub use runtime::{Layers, with_interrupt};
pub use task::{FromTaskArg, Task, TaskArg, TaskContext, TaskMemory};
#[cfg(feature = "arrow")]
#[doc(no_inline)]
pub use {arrow_array, arrow_schema};
/// Element types of other crates, in the versions that usmq uses.
#[doc(no_inline)]
pub use {
    half::{self, bf16, f16},
    num_complex::{self, Complex, Complex32, Complex64},
};

/// The names that most programs use: `use usmq::prelude::*;`. Without `Error` and `Result`, which other crates have, too.
///
/// ```
/// use usmq::prelude::*;
///
/// let sum = Queue::get("cpu")?.with(|| -> usmq::Result<f32> {
///     let x = Array::full((2, 3), 1f32)?;
///     Ok(x.to_vec::<f32>()?.iter().sum())
/// })?;
/// assert_eq!(sum, 6.0);
/// # Ok::<(), usmq::Error>(())
/// ```
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::{
        Arg, Array, DType, Device, Element, Elementwise, Event, In, InOut, InQueue, Index, Kernel,
        KernelStruct, Launch, Out, Queue, Reduction, UsmKind, collocate, current_queue, follow, with_queue,
    };
}

/// Internals that `tests/fuzz` calls; not part of the public API.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod fuzzing {
    use crate::device::{Backend, Candidate, Selector};

    #[must_use]
    pub fn choose(selector: &Selector, devices: &[(&str, &str, i32)]) -> Option<usize> {
        let candidate = |&(backend, device_type, score): &(&str, _, _)| {
            let backend = Backend::from_name(backend);
            Candidate { backend, device_type, score }
        };
        selector.choose(&devices.iter().map(candidate).collect::<Vec<_>>())
    }

    #[must_use]
    pub fn signature(source: &str, name: &str) -> Option<(Vec<crate::Param>, Option<usize>)> {
        let files = crate::kernel::IncludedFiles::default();
        crate::kernel::read_signature(source, name, &[], &files).map(|found| (found.params, found.dimensions))
    }
}

/// Compiles and runs the Rust code of the pages in `cargo test --doc`.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/tutorial-rust.md")]
    mod tutorial {}
    #[doc = include_str!("../docs/building.md")]
    mod building {}
    #[doc = include_str!("../docs/howto/scope.md")]
    mod scope {}
    #[doc = include_str!("../docs/howto/collocate.md")]
    mod collocate {}
    #[doc = include_str!("../docs/howto/host-data.md")]
    mod host_data {}
    #[doc = include_str!("../docs/howto/tasks.md")]
    mod tasks {}
    #[doc = include_str!("../docs/howto/capture.md")]
    mod capture {}
    #[doc = include_str!("../docs/howto/threads.md")]
    mod threads {}
    #[doc = include_str!("../docs/profile.md")]
    mod profile {}
    #[doc = include_str!("../docs/howto/errors.md")]
    mod errors {}
    #[doc = include_str!("../docs/howto/one-line-kernels.md")]
    mod one_line_kernels {}
    #[doc = include_str!("../docs/coming-from.md")]
    mod coming_from {}
}
