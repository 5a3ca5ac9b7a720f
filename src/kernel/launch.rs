//! A kernel and its launch: checked, on the queue of its data, in order with everything else that uses it.

use super::arg::{Arg, describe};
use super::given::agreed;
use super::signature::{Param, Signature, read_signature};
use crate::array::Array;
use crate::device::command::{Extents, KernelArg};
use crate::device::record::Label;
use crate::device::{Code, ContextKey, Device, Event, Kind, Program, Queue};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::memory::{Operand, ordered};
use crate::placement::{follow, usable_from};
use crate::runtime::Lock;
use smallvec::SmallVec;
use std::sync::Arc;

/// A function that runs on a device. Cheap to clone.
///
/// A kernel is its source: it is built at once for the queue at hand, so that errors show where the source is, and
/// again at the first launch in another context. Builds for a device's default context are kept for the process, others
/// as long as the context is in use; those of SYCL C++ also on disk, by the runtime.
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    code: Code,
    options: Arc<[String]>,
    signature: Option<Signature>,
    /// What this kernel was built for so far; nearly always one entry. A program keeps its context in the runtime, so
    /// the key stays its own.
    built: Lock<SmallVec<[Built; 1]>>,
}

struct Built {
    context: ContextKey,
    is_kept: bool,
    device: Device,
    program: Program,
}

/// For how many contexts that may go a kernel remembers what was built: other libraries' come back, and nobody says when
/// they are gone.
const PASSING: usize = 4;

/// What is given with a kernel besides source and name.
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Flags for the compiler, as `-O0` or `-DN=3`.
    pub flags: Vec<String>,
    /// The parameters, where they cannot be read from the source; elsewhere they must agree with it.
    pub params: Option<Vec<Param>>,
    /// Where to build first; the current queue when `None`.
    pub queue: Option<Queue>,
}

/// Where and how a launch runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'a> {
    /// Work-items in one to three dimensions, the last one fastest.
    pub global: &'a [usize],
    /// Work-items of a work-group; the runtime chooses when `None`.
    pub local: Option<&'a [usize]>,
    /// The queue; that of the data when `None`.
    pub queue: Option<&'a Queue>,
}

impl Kernel {
    /// A kernel from SYCL C++: the free function `name`, declared as a kernel by
    /// `SYCL_EXT_ONEAPI_FUNCTION_PROPERTY`. Built for the current queue.
    ///
    /// Source: the SYCL extensions `sycl_ext_oneapi_kernel_compiler_sycl` and `sycl_ext_oneapi_free_function_kernels`.
    ///
    /// # Errors
    /// [`Error::KernelBuild`] with the compiler's log.
    pub fn from_sycl(source: &str, name: &str) -> Result<Self> {
        Self::from_sycl_with(source, name, KernelOptions::default())
    }

    /// As [`Kernel::from_sycl`], with options.
    ///
    /// # Errors
    /// As [`Kernel::from_sycl`]; [`Error::Value`] for parameters that contradict the source, or a text with a NUL.
    pub fn from_sycl_with(source: &str, name: &str, options: KernelOptions) -> Result<Self> {
        Self::build(Code::Sycl(source.into()), name, read_signature(source, name), options)
    }

    /// A kernel from OpenCL C, for devices of the `opencl` backend.
    ///
    /// # Errors
    /// As [`Kernel::from_sycl_with`].
    pub fn from_opencl(source: &str, name: &str, options: KernelOptions) -> Result<Self> {
        Self::build(Code::OpenCl(source.into()), name, read_signature(source, name), options)
    }

    /// A kernel from a SPIR-V module, for devices of the `opencl` backend.
    ///
    /// # Errors
    /// [`Error::KernelBuild`] when the driver does not take the module or it has no such kernel.
    pub fn from_spirv(module: &[u8], name: &str, options: KernelOptions) -> Result<Self> {
        Self::build(Code::SpirV(module.into()), name, None, options)
    }

    fn build(code: Code, name: &str, read: Option<Signature>, options: KernelOptions) -> Result<Self> {
        if name.is_empty() || name.trim() != name {
            return Err(Error::Value(format!("{name:?} is no name of a kernel")));
        }
        no_zero(name, "its name", name.as_bytes())?;
        if let Code::Sycl(source) | Code::OpenCl(source) = &code {
            no_zero(name, "its source", source.as_bytes())?;
        }
        for flag in &options.flags {
            no_zero(name, "an option", flag.as_bytes())?;
        }
        let signature = match (options.params, read) {
            (Some(params), Some(Signature { params: read, dimensions })) => {
                let params = agreed(params, &read).map_err(|why| {
                    Error::Value(format!("kernel {name:?}: {why}; what the source says needs no params"))
                })?;
                Some(Signature { params, dimensions })
            }
            (Some(params), None) => Some(Signature { params, dimensions: None }),
            (None, read) => read,
        };
        let queue = options.queue.map_or_else(current_queue, Ok)?;
        let kernel = Self(Arc::new(Inner {
            name: name.into(),
            code,
            options: options.flags.into(),
            signature,
            built: Lock::default(),
        }));
        kernel.program(&queue)?;
        Ok(kernel)
    }

    /// The function's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The parameters, if they were given or could be read from the source.
    #[must_use]
    pub fn params(&self) -> Option<&[Param]> {
        self.0.signature.as_ref().map(|signature| &signature.params[..])
    }

    /// Starts the kernel with `global` work-items on the queue that its arrays share. Returns at once.
    ///
    /// The launch comes after everything that its arrays wait for, and they live until it is complete, also when they
    /// are dropped before.
    ///
    /// # Safety
    /// The kernel does with these arguments what its signature says: it stays inside its arrays, does not write what
    /// is marked as read, and keeps no pointer. No compiler can check that.
    ///
    /// # Errors
    /// [`Error::Launch`] when arguments or ranges are not what the kernel takes, [`Error::Placement`] when its arrays
    /// are on different queues.
    pub unsafe fn launch(&self, global: impl AsRef<[usize]>, args: &[Arg]) -> Result<Event> {
        let launch = Launch { global: global.as_ref(), ..Launch::default() };
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(launch, args) }
    }

    /// As [`Kernel::launch`], with a work-group size or a queue of the caller's choice.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::Placement`] also when an array is not usable from the queue given.
    pub unsafe fn launch_with(&self, launch: Launch<'_>, args: &[Arg]) -> Result<Event> {
        let arrays: SmallVec<[&Array; 6]> = args.iter().filter_map(Arg::array).collect();
        let queue = match launch.queue {
            Some(queue) => {
                usable_from(queue, &arrays)?;
                queue.clone()
            }
            None => follow(&arrays)?,
        };
        let program = self.program(&queue)?;
        self.check_count(args, &program)?;
        let bound = self.bind(args)?;
        let operands: SmallVec<[Operand<'_>; 6]> = args
            .iter()
            .enumerate()
            .filter_map(|(position, arg)| Some((arg.array()?.allocation(), arg.access(self.param(position)))))
            .collect();
        let extents = self.extents(launch, queue.device())?;
        self.check_local_memory(args, queue.device())?;
        let label = Label { kind: Kind::Kernel, name: Some(&self.0.name), bytes: 0 };
        ordered(&queue, &operands, |after| {
            if extents.global.contains(&0) {
                // No work-items: nothing to launch, but the event still stands for the order.
                return queue.barrier(after);
            }
            // SAFETY: the caller's promise for the kernel; count, types and reachability of the arguments were
            // checked above, and the operands' logs keep their memory until the event is complete.
            unsafe { queue.submit(&program, extents, &bound, label, after) }
        })
    }

    fn param(&self, position: usize) -> Option<&Param> {
        self.params()?.get(position)
    }

    fn program(&self, queue: &Queue) -> Result<Program> {
        let (context, device) = (queue.context(), queue.device());
        let key = context.key();
        let is_it = |built: &&Built| built.context == key && built.device == *device;
        if let Some(built) = self.0.built.lock()?.iter().find(is_it) {
            return Ok(built.program.clone());
        }
        let program = Program::get(context, device, &self.0.code, &self.0.name, &self.0.options)?;
        let is_kept = context.is_kept();
        let new = Built { context: key, is_kept, device: device.clone(), program: program.clone() };
        let mut built = self.0.built.lock()?;
        built.push(new);
        let passing = built.iter().filter(|built| !built.is_kept).count();
        let oldest = built.iter().position(|built| !built.is_kept && passing > PASSING);
        let gone = oldest.map(|oldest| built.remove(oldest));
        drop(built);
        drop(gone);
        Ok(program)
    }

    fn check_count(&self, args: &[Arg], program: &Program) -> Result<()> {
        let expected = match self.params() {
            Some(params) => params.len(),
            None => program.num_args().map_or(args.len(), |count| count as usize),
        };
        if args.len() == expected {
            return Ok(());
        }
        let list = self.params().map_or(String::new(), |params| {
            format!(" ({})", params.iter().map(describe).collect::<Vec<_>>().join(", "))
        });
        Err(Error::Launch(format!(
            "kernel {:?} takes {expected} arguments{list}, {} were given",
            self.0.name,
            args.len()
        )))
    }

    fn refuse<T>(&self, why: String) -> Result<T> {
        Err(Error::Launch(format!("kernel {:?}: {why}", self.0.name)))
    }

    fn check_local_memory(&self, args: &[Arg], device: &Device) -> Result<()> {
        let bytes = args.iter().fold(0usize, |sum, arg| sum.saturating_add(arg.local_bytes()));
        if bytes as u64 > device.local_mem_size() {
            return self.refuse(format!(
                "{bytes} bytes of local memory are more than the {} of {device}",
                device.local_mem_size()
            ));
        }
        Ok(())
    }

    /// Checks the ranges of a launch. Source: SYCL 2020, section 4.9.4.2.
    fn extents(&self, launch: Launch<'_>, device: &Device) -> Result<Extents> {
        let Launch { global, local, .. } = launch;
        if !(1..=3).contains(&global.len()) {
            return self.refuse(format!("a range has 1 to 3 dimensions, not {}", global.len()));
        }
        if let Some(declared) = self.0.signature.as_ref().and_then(|signature| signature.dimensions)
            && declared != global.len()
        {
            return self.refuse(format!(
                "it is declared for {declared} dimensions, and {global:?} has {}",
                global.len()
            ));
        }
        let product =
            |extents: &[usize]| extents.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        if product(global).is_none_or(|items| isize::try_from(items).is_err()) {
            return self.refuse(format!("a range of {global:?} has more work-items than can be counted"));
        }
        let mut extents = Extents::range(global);
        let Some(local) = local else { return Ok(extents) };
        if local.len() != global.len() {
            return self
                .refuse(format!("global range {global:?} and local range {local:?} differ in dimensions"));
        }
        if local.contains(&0) {
            return self.refuse(format!("local range {local:?}: a work-group has at least one work-item"));
        }
        if global.iter().zip(local).any(|(all, group)| all % group != 0) {
            return self.refuse(format!("local range {local:?} does not divide global range {global:?}"));
        }
        let most = device.max_work_group_size();
        if product(local).is_none_or(|items| items > most) {
            return self.refuse(format!(
                "local range {local:?} has more than the {most} work-items that a work-group of {device} can have"
            ));
        }
        extents.local = [1; 3];
        extents.local[..local.len()].copy_from_slice(local);
        Ok(extents)
    }

    fn bind(&self, args: &[Arg]) -> Result<SmallVec<[KernelArg; 8]>> {
        args.iter()
            .enumerate()
            .map(|(position, arg)| {
                arg.bind(self.param(position)).map_err(|why| {
                    Error::Launch(format!("kernel {:?}, argument {position}: {why}", self.0.name))
                })
            })
            .collect()
    }
}

/// Compilers and drivers take texts of C, which end at the first zero: what follows would be cut off unsaid.
fn no_zero(name: &str, what: &str, text: &[u8]) -> Result<()> {
    match text.iter().position(|byte| *byte == 0) {
        Some(at) => Err(Error::Value(format!("kernel {name:?}: {what} has a NUL character at byte {at}"))),
        None => Ok(()),
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.0.name)
            .field("params", &self.params())
            .finish_non_exhaustive()
    }
}
