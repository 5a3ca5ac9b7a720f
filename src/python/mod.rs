//! The Python extension `usmq._core`: names, conversions, exceptions, the GIL. All other logic is in the Rust
//! crate.

mod argument;
mod array;
mod array_interface;
mod arrow;
mod asarray;
mod buffer;
mod capsule;
mod capture;
mod capture_scope;
mod classes;
mod comparison;
mod context;
mod create;
mod cuda;
mod device;
mod dlpack;
mod dlpack_c_api;
mod doctor;
mod dpctl_memory;
mod dpctl_order;
mod dtype;
mod errors;
mod expression;
mod gil;
mod host;
mod host_view;
mod index;
mod interruption;
mod join;
mod kernel;
mod like;
mod lines;
mod memory;
mod numpy;
mod owner;
mod pickle;
mod placement;
mod platform;
mod profile;
mod protocol;
mod queue;
mod scalar;
mod scope;
mod structure;
mod suai;
mod submitter;
mod target;
mod task;
mod timer;

use pyo3::prelude::*;

/// The extension module of usmq. The package re-exports its public names.
#[pymodule(name = "_core", gil_used = false)]
mod core {
    #[pymodule_export]
    use super::{
        arrow::import::from_arrow,
        arrow::stream::DeviceStream,
        arrow::view::{ColumnView, TableView},
        asarray::asarray,
        capture::{Graph, capture},
        classes::{Array, Column, Context, Device, Event, Field, Queue, Table},
        create::{arange, empty, full, ones, zeros},
        cuda::CudaArray,
        dlpack::from_dlpack,
        doctor::{DoctorFinding, DoctorReport, examine},
        dtype::DType,
        expression::{Elementwise, Reduction, elementwise, reduction},
        host_view::ArrayView,
        join::{concatenate, expand_dims, squeeze, stack},
        kernel::{Kernel, Local, Mark, clear_kernel_cache, local, read, set_kernel_cache_limit, write},
        like::{empty_like, full_like, ones_like, zeros_like},
        memory::{
            live_allocations, memory_stats, record_allocations, set_memory_limit, set_relief, trim_memory,
        },
        pickle::{
            fill_frame, observe_pickles, pack_in_place, restore_array, restore_column, restore_field,
            restore_queue, restore_table,
        },
        placement::{Plan, Step, collocate, explain, follow},
        platform::{Platform, devices, layers, platform_problems, platforms},
        profile::{Profile, ProfileEvent, profile, watch_calls},
        queue::{PointerInfo, dpctl_queue, pointer_info},
        scope::{QueueManager, UseQueue, current_queue, set_default_queue, use_queue},
        suai::Lent,
        task::{TaskContext, TaskMemory, run_task},
        timer::Timer,
    };

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::capi::refuse_a_second()?;
        crate::runtime::exit::watch_this_thread();
        super::gil::note_main_thread(module.py())?;
        super::errors::classes(module.py())?;
        super::scope::global(module.py())?;
        super::owner::prepare(module.py())?;
        super::kernel::describe_kernels(module.py())?;
        super::device::share_environment(module.py())?;
        crate::capi::scopes_of(&super::context::Contexts);
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add_function(wrap_pyfunction!(super::device::prepare_emulation, module)?)?;
        module.add_function(wrap_pyfunction!(super::dpctl_order::_finish_commands, module)?)?;
        module.add_function(wrap_pyfunction!(super::dpctl_memory::_knows_owners_of, module)?)?;
        module.add_function(wrap_pyfunction!(super::device::runtime_libraries, module)?)
    }
}
