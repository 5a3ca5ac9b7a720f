//! The backends of SYCL, and the one table of decisions that depend on them.

use crate::error::{Error, Result};
use std::fmt;

/// A backend of SYCL. Source: SYCL 2020, section 4.1, and the backend documents of DPC++.
///
/// ```
/// use usmq::Backend;
///
/// assert_eq!("level_zero".parse::<Backend>()?, Backend::LevelZero);
/// println!("{}", usmq::current_queue()?.device().backend());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// OpenCL.
    OpenCl,
    /// Level Zero.
    LevelZero,
    /// CUDA.
    Cuda,
    /// HIP.
    Hip,
    /// Kernels compiled for the host.
    NativeCpu,
    /// A backend that usmq does not know.
    Other,
}

/// The properties of a backend that select a mechanism in usmq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// A host thread can complete an event, so a proxy event orders commands of two contexts. On other
    /// backends libsycl orders them.
    pub user_events: bool,
    /// The driver holds a command back until the events that it waits for are complete, and keeps these. Level Zero's gives
    /// it to the engine, which stops there, and does not know who waits for an event.
    pub holds_waiting_commands: bool,
    /// A command may start only when its queue is flushed (OpenCL 3.0, section 5.15).
    pub needs_flush: bool,
    /// One command can copy between device memory of two devices of a context that have no peer access. A Level Zero
    /// command may use only memory that its own device can access. The OpenCL adapter stages such a copy and frees its
    /// buffer in an event callback, which hangs.
    pub direct_copies: bool,
    /// A sub-device works in the context of its root device. In OpenCL it must be in the context itself.
    pub parts_share_context: bool,
    /// `sycl_ext_oneapi_peer_access` can be queried. Other adapters abort the process on that query.
    pub peer_access: bool,
    /// The driver reports the range and the device of a pointer (`clGetMemAllocInfoINTEL`). The OpenCL
    /// adapter itself reports the first device of a context for every pointer. Level Zero's driver names a pool of the adapter,
    /// which holds several allocations.
    pub pointer_info: bool,
    /// The driver compiles OpenCL C, and its program becomes a SYCL kernel.
    pub opencl_c: bool,
    /// Where the driver does not: the library with which libsycl does, and its package. It may be missing.
    pub opencl_c_library: Option<(&'static str, &'static str)>,
    /// The driver accepts a SPIR-V module, and its program becomes a SYCL kernel.
    pub native_spirv: bool,
    /// The driver returns a built program and takes it back in another process.
    pub program_binaries: bool,
    /// The driver rejects an argument of a wrong size, which reveals the sizes of a kernel's arguments.
    pub argument_sizes: bool,
    /// The driver suggests a work-group size for a range (`cl_khr_suggested_local_work_size`).
    pub suggests_work_groups: bool,
    /// A kernel can ask for the dimensions of its range (SPIR-V's built-in `WorkDim`). A Level Zero launch has no such number;
    /// Intel's driver counts the dimensions up to the last one with more than one item.
    pub work_dimensions: bool,
    /// A SYCL graph is the better way to submit many commands. The OpenCL CPU driver takes up to twice as long for one
    /// as for its commands, and with Level Zero its submission waits for the one before.
    pub prefers_graphs: bool,
    /// The platform, by name, of an adapter whose submissions of a SYCL graph wait for the events of earlier ones again, when
    /// these events may stand for other work (docs/upstream.md).
    pub no_graphs_on: Option<&'static str>,
}

const NONE: Capabilities = Capabilities {
    user_events: false,
    holds_waiting_commands: false,
    needs_flush: false,
    direct_copies: false,
    parts_share_context: false,
    peer_access: false,
    pointer_info: false,
    opencl_c: false,
    opencl_c_library: None,
    native_spirv: false,
    program_binaries: false,
    argument_sizes: false,
    suggests_work_groups: false,
    work_dimensions: false,
    prefers_graphs: false,
    no_graphs_on: None,
};

/// Backends whose drivers copy between devices without peer access.
const WITH_COPIES: Capabilities =
    Capabilities { direct_copies: true, peer_access: true, prefers_graphs: true, ..NONE };

const LEVEL_ZERO: Capabilities = Capabilities {
    user_events: true,
    needs_flush: true,
    parts_share_context: true,
    opencl_c_library: Some(("libocloc.so", "intel-ocloc")),
    peer_access: true,
    no_graphs_on: Some("Intel(R) oneAPI Unified Runtime over Level-Zero"), // adapter v1
    ..NONE
};

const OPENCL: Capabilities = Capabilities {
    user_events: true,
    holds_waiting_commands: true,
    needs_flush: true,
    pointer_info: true,
    opencl_c: true,
    native_spirv: true,
    program_binaries: true,
    argument_sizes: true,
    suggests_work_groups: true,
    work_dimensions: true,
    ..NONE
};

/// Name and capabilities of each backend.
const TABLE: [(Backend, &str, Capabilities); 6] = [
    (Backend::OpenCl, "opencl", OPENCL),
    (Backend::LevelZero, "level_zero", LEVEL_ZERO),
    (Backend::Cuda, "cuda", WITH_COPIES),
    (Backend::Hip, "hip", WITH_COPIES),
    (Backend::NativeCpu, "native_cpu", NONE),
    (Backend::Other, "other", NONE),
];

impl Backend {
    /// The backends that a filter string can name.
    pub(super) const IN_FILTERS: [Self; 4] = [Self::OpenCl, Self::LevelZero, Self::Cuda, Self::Hip];

    /// The backends that a user can name.
    pub(super) const NAMED: [Self; 5] =
        [Self::OpenCl, Self::LevelZero, Self::Cuda, Self::Hip, Self::NativeCpu];

    /// `opencl`, `level_zero`, `cuda`, `hip`, `native_cpu` or `other`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    pub(crate) const fn capabilities(self) -> &'static Capabilities {
        &self.row().2
    }

    /// The table is in the order of the enum.
    const fn row(self) -> &'static (Self, &'static str, Capabilities) {
        &TABLE[self as usize]
    }

    /// The backend with this name in the shim.
    pub(crate) fn from_name(name: &str) -> Self {
        TABLE.iter().find(|(_, known, _)| *known == name).map_or(Self::Other, |(backend, ..)| *backend)
    }
}

impl std::str::FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        TABLE.iter().find(|(_, name, _)| *name == text).map(|(backend, ..)| *backend).ok_or_else(|| {
            let names = TABLE.map(|(_, name, _)| name).join(", ");
            Error::value(format!("unknown backend {text:?}; expected {names}"))
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_has_a_table_row_and_a_name() {
        for (backend, name, capabilities) in TABLE {
            assert_eq!(backend.name(), name);
            assert_eq!(*backend.capabilities(), capabilities);
            assert_eq!(Backend::from_name(name), backend);
            assert_eq!(name.parse::<Backend>().unwrap(), backend);
        }
        assert_eq!(Backend::from_name("a new one"), Backend::Other);
        let error = "vulkan".parse::<Backend>().unwrap_err().to_string();
        assert!(error.starts_with("unknown backend \"vulkan\"; expected opencl, level_zero"), "{error}");
    }

    /// One row per decision, so that no change of the table is accidental.
    #[test]
    fn decisions_match_the_documented_table() {
        let list = |decision: fn(&Capabilities) -> bool| -> Vec<&str> {
            TABLE.iter().filter(|row| decision(&row.2)).map(|row| row.1).collect()
        };
        let discrete = ["level_zero", "cuda", "hip"];
        assert_eq!(list(|can| can.user_events), ["opencl", "level_zero"]);
        assert_eq!(list(|can| can.holds_waiting_commands), ["opencl"]);
        assert_eq!(list(|can| can.needs_flush), ["opencl", "level_zero"]);
        assert_eq!(list(|can| can.direct_copies), ["cuda", "hip"]);
        assert_eq!(list(|can| can.peer_access), discrete);
        assert_eq!(list(|can| can.pointer_info), ["opencl"]);
        assert_eq!(list(|can| can.opencl_c), ["opencl"]);
        assert_eq!(list(|can| can.native_spirv), ["opencl"]);
        assert_eq!(list(|can| can.program_binaries), ["opencl"]);
        assert_eq!(list(|can| can.argument_sizes), ["opencl"]);
        assert_eq!(list(|can| can.suggests_work_groups), ["opencl"]);
        assert_eq!(list(|can| can.opencl_c_library.is_some()), ["level_zero"]);
        assert_eq!(list(|can| can.work_dimensions), ["opencl"]);
        assert_eq!(list(|can| can.parts_share_context), ["level_zero"]);
        assert_eq!(list(|can| can.prefers_graphs), ["cuda", "hip"]);
        assert_eq!(list(|can| can.no_graphs_on.is_some()), ["level_zero"]);
    }
}
