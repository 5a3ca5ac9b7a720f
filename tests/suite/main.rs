//! The suites without process-wide state, in one binary, which is linked once. Run a suite by its name:
//! `cargo test --features arrow --test suite placement::`. Suites that fork, change a setting of the process or
//! compare its memory have their own binaries.

#[path = "../common/arrays.rs"]
mod arrays;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/dtype_facts.rs"]
mod dtype_facts;
#[path = "../common/spirv.rs"]
mod spirv;
#[path = "../common/structs.rs"]
mod structs;

mod arrow;
mod arrow_order;
mod arrow_random;
mod arrow_release;
mod arrow_soundness;
mod arrow_streams;
mod arrow_writes;
mod axpy;
mod build_script;
mod builders;
mod capture;
mod conversions;
mod dlpack;
mod dtypes;
mod errors;
mod futures;
mod host;
mod host_views;
mod interrupt;
mod kernel_debug;
mod kernel_values;
mod kernels;
mod launches;
mod one_line;
mod order;
mod placement;
mod replay_launches;
mod scopes;
mod suai;
mod task;
mod threads;
