//! A kernel: its source and its builds.

use super::build_log::with_advice;
use super::checked_source::{CheckedParam, CheckedSource, checked_source};
use super::debug;
use super::definitions::Token;
use super::device_lack::{DeviceFacts, lack, with_capability};
use super::includes::IncludedFiles;
use super::lexer::{has_code, tokens};
use super::macros::expand;
use super::module::{prints_text, refuse_module};
use super::param::Param;
use super::signature::{Signature, defined_kernels, read_signature, reconcile};
use super::slots::agree;
use super::work_groups::DeclaredGroups;
use crate::device::{Code, ContextKey, Device, Includes, Program, Queue, Slot};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::runtime::ForkMutex;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// A function that runs on a device. Cheap to clone.
///
/// A kernel is defined by its source. It is built immediately for the current queue, so that errors appear
/// where the source is given, and again at the first launch in another context. A kernel keeps its builds for
/// devices' default contexts for the life of the process, and at most four builds for other contexts. Builds
/// are also cached on disk.
///
/// ```
/// use usmq::{Array, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void square(int *x) { x[global_id(0)] *= x[global_id(0)]; }"#;
/// let square = Kernel::from_sycl(source, "square")?;
/// let x = Array::from_slice(&[1i32, 2, 3])?;
/// // SAFETY: with 3 work-items square touches the 3 elements of x only.
/// unsafe { square.launch(3, (&x,)) }?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 4, 9]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) name: Arc<str>,
    code: Code,
    options: Arc<[String]>,
    params: Option<Vec<Param>>,
    /// Of parameters whose type is unknown, for errors.
    unknown: Unknown,
    /// Of the range, if the kernel is declared for a fixed number.
    pub(super) dimensions: Option<usize>,
    /// Whether the device header asks the driver for them at run time.
    pub(super) asks_dimensions: bool,
    /// The limits of its work-groups in the source.
    pub(super) groups: DeclaredGroups,
    /// The parameters of a debug build.
    debug: Option<Box<[CheckedParam]>>,
    /// The builds of this kernel so far; usually one entry. A program keeps its context alive in the runtime,
    /// so the key stays unique.
    built: ForkMutex<SmallVec<[Built; 1]>>,
}

/// The parameters and included files that usmq could not read.
#[derive(Default)]
struct Unknown {
    /// The text of each parameter in the source.
    texts: Vec<String>,
    /// Why usmq has not read all included files.
    files: String,
}

struct Built {
    context: ContextKey,
    is_process_lifetime: bool,
    device: Device,
    program: Program,
}

/// Number of cached builds for non-default contexts. Other libraries' contexts recur, and their end is not
/// reported.
const PASSING: usize = 4;

/// Optional inputs of a kernel besides source and name.
///
/// ```
/// use usmq::{Array, Kernel, KernelOptions};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void set(int *x) { x[global_id(0)] = VALUE; }"#;
/// let options = KernelOptions { flags: vec!["-DVALUE=3".to_owned()], ..KernelOptions::default() };
/// let set = Kernel::from_sycl_with(source, "set", options)?;
/// let x = Array::zeros::<i32>(2)?;
/// // SAFETY: with 2 work-items set writes the 2 elements of x only.
/// unsafe { set.launch(2, (&x,)) }?;
/// assert_eq!(x.to_vec::<i32>()?, [3, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Flags for the compiler, such as `-O0` or `-DN=3`.
    pub flags: Vec<String>,
    /// The parameters, if they cannot be read from the source; they must agree with those that can.
    pub params: Option<Vec<Param>>,
    /// The queue of the first build; the current queue if `None`.
    pub queue: Option<Queue>,
    /// Whether launches check that the kernel stays inside its arrays, for SYCL C++. Such a launch waits for the
    /// kernel. An access outside of an array is [`Error::Launch`] and changes no memory.
    pub debug: bool,
}

impl Inner {
    pub(super) fn is_sycl(&self) -> bool {
        matches!(self.code, Code::Sycl(_))
    }

    /// The arguments of a build as its driver counts them. A checked pointer counts as a pointer.
    pub(super) fn slots<'a>(&self, program: &'a Program) -> Option<Cow<'a, [Slot]>> {
        let slots = program.slots()?;
        Some(match &self.debug {
            Some(debug) => debug::plain_slots(slots, debug, self.params.as_deref()).into(),
            None => slots.into(),
        })
    }

    /// The existing build for this queue.
    pub(super) fn built_program(&self, queue: &Queue) -> Result<Option<Program>> {
        let (key, device) = (queue.context().key(), queue.device());
        let is_it = |built: &&Built| built.context == key && built.device == *device;
        Ok(self.built.lock()?.iter().find(is_it).map(|built| built.program.clone()))
    }

    /// The build for this queue, from the cache or new.
    pub(super) fn program(&self, queue: &Queue) -> Result<Program> {
        if let Some(program) = self.built_program(queue)? {
            return Ok(program);
        }
        let (context, device) = (queue.context(), queue.device());
        let key = context.key();
        let includes = match &self.code {
            Code::Sycl(source) | Code::OpenCl(source) => {
                let files = IncludedFiles::read(source, &self.code.flags(&self.options));
                if let Some(why) = files.refused() {
                    return Err(build_error(&self.name, device, why.to_owned()));
                }
                files.stamp()
            }
            Code::SpirV(module) => Includes { contents: 0, is_complete: true, prints: prints_text(module) },
        };
        let program = Program::get(context, device, &self.code, &self.name, &self.options, includes);
        let program = program.map_err(|error| match error {
            Error::KernelBuild { name, device, log } => Error::KernelBuild {
                log: with_capability(self.advised(&name, log, queue.device())),
                name,
                device,
            },
            other => other,
        })?;
        let is_process_lifetime = context.is_process_lifetime();
        let new =
            Built { context: key, is_process_lifetime, device: device.clone(), program: program.clone() };
        let mut built = self.built.lock()?;
        built.push(new);
        let passing = built.iter().filter(|built| !built.is_process_lifetime).count();
        let oldest = built.iter().position(|built| !built.is_process_lifetime && passing > PASSING);
        let gone = oldest.map(|oldest| built.remove(oldest));
        drop(built);
        drop(gone);
        Ok(program)
    }
}

impl Inner {
    /// The log of a failed build, with the kernels of the source if none has this name, and the fix if it is
    /// known.
    fn advised(&self, name: &str, log: String, device: &Device) -> String {
        let (Code::Sycl(source) | Code::OpenCl(source)) = &self.code else { return log };
        let flags = self.code.flags(&self.options);
        let files = IncludedFiles::read(source, &flags);
        let defined = defined_kernels(source, &flags, &files);
        // A kernel may also come from a macro that this search does not know.
        let is_unmarked = || {
            let missing = [
                format!("use of undeclared identifier '{name}'"),
                format!("not a SYCL free function as '{name}'"),
            ];
            self.is_sycl() && missing.iter().any(|text| log.contains(text))
        };
        let log = if defined.iter().any(|defined| defined == name) {
            if log == Program::LEFT_OUT { self.lack(source, &flags, &files, device) } else { log }
        } else if !defined.is_empty() {
            format!("the source defines no kernel {name:?}; it defines {}\n{log}", defined.join(", "))
        } else if is_unmarked() {
            format!(
                "the source defines no kernel; include usmq/kernel.h, and write USMQ_KERNEL(1) void {name}(...) for a \
                 range of one dimension\n{log}"
            )
        } else {
            log
        };
        if self.is_sycl() { with_advice(log) } else { log }
    }

    /// Why the program of a source lacks a kernel that the source defines.
    fn lack(&self, source: &str, flags: &[&str], files: &IncludedFiles, device: &Device) -> String {
        let (Ok(properties), Ok(aspects)) = (device.properties(), device.aspect_names()) else {
            return Program::LEFT_OUT.to_owned();
        };
        let expanded = expand(source, flags, files).unwrap_or_default();
        let tokens: Vec<&str> = expanded.tokens.iter().map(Token::as_ref).collect();
        let facts = DeviceFacts {
            name: device.to_string(),
            sub_groups: &properties.sub_group_sizes,
            most_in_group: device.max_work_group_size(),
            aspects,
        };
        lack(&tokens, &facts)
    }

    /// Why the type of this parameter is unknown, as the end of an error; empty if it is not.
    pub(super) fn why_unknown(&self, position: usize) -> String {
        let is_unknown =
            self.params.as_ref().and_then(|params| params.get(position)) == Some(&Param::Unknown);
        let Some(text) = self.unknown.texts.get(position).filter(|_| is_unknown) else {
            return String::new();
        };
        let separator = if self.unknown.files.is_empty() { "" } else { "; " };
        format!("; usmq cannot read the type in `{text}`{separator}{}", self.unknown.files)
    }
}

impl Kernel {
    /// A kernel from SYCL C++: the free function `name`, declared as a kernel by `USMQ_KERNEL` of
    /// `usmq/kernel.h` or `SYCL_EXT_ONEAPI_FUNCTION_PROPERTY` of `sycl/sycl.hpp`. Built for the current queue.
    ///
    /// The compiler runs in this process, so a source that crashes it ends the process. It also reads the files that the
    /// source includes. Do not build sources that you do not trust.
    ///
    /// Source: the SYCL extensions `sycl_ext_oneapi_kernel_compiler_sycl` and
    /// `sycl_ext_oneapi_free_function_kernels`.
    ///
    /// # Errors
    /// [`Error::KernelBuild`] with the compiler's log, or for a source without code.
    pub fn from_sycl(source: &str, name: &str) -> Result<Self> {
        Self::from_sycl_with(source, name, KernelOptions::default())
    }

    /// As [`Kernel::from_sycl`], with options.
    ///
    /// # Errors
    /// As [`Kernel::from_sycl`]; [`Error::Value`] for parameters that contradict the source or the built
    /// kernel, or for text with a NUL.
    pub fn from_sycl_with(source: &str, name: &str, options: KernelOptions) -> Result<Self> {
        let build = |checked| Self::build(Code::Sycl(source.into()), name, checked, options.clone());
        if !options.debug {
            return build(None);
        }
        let why = match checked_source(source, name) {
            Ok(checked) => match build(Some(checked)) {
                Err(Error::KernelBuild { log, .. }) => format!("{}\n{log}", debug::ADVICE),
                other => return other,
            },
            Err(why) => why,
        };
        // An error of the source itself has precedence.
        build(None)?;
        Err(build_error(name, options.queue.map_or_else(current_queue, Ok)?.device(), why))
    }

    /// A kernel from OpenCL C, for devices whose driver or runtime compiles it, in this process; see
    /// [`Kernel::from_sycl`].
    ///
    /// # Errors
    /// As [`Kernel::from_sycl_with`].
    pub fn from_opencl(source: &str, name: &str, options: KernelOptions) -> Result<Self> {
        refuse_debug(&options)?;
        Self::build(Code::OpenCl(source.into()), name, None, options)
    }

    /// A kernel from a SPIR-V module, for devices whose runtime or driver accepts SPIR-V.
    ///
    /// # Safety
    /// The module is valid, and a form that the driver accepts, as compilers write it. usmq checks its frame, its ids and
    /// its kernels, but a driver may crash, or worse, on any other mistake in a module. The cache on disk keeps the built
    /// program.
    ///
    /// # Errors
    /// [`Error::KernelBuild`] for bytes that are not a SPIR-V module, for a module that the driver rejects,
    /// and for one without this kernel; [`Error::Value`] for parameters that contradict the built kernel.
    pub unsafe fn from_spirv(module: &[u8], name: &str, options: KernelOptions) -> Result<Self> {
        refuse_debug(&options)?;
        Self::build(Code::SpirV(module.into()), name, None, options)
    }

    /// Builds the code, or in its place the checked source of a debug build.
    fn build(code: Code, name: &str, checked: Option<CheckedSource>, options: KernelOptions) -> Result<Self> {
        if name.is_empty() || name.trim() != name {
            return Err(Error::value(format!("{name:?} is not a kernel name")));
        }
        no_zero(name, "its name", name.as_bytes())?;
        if let Code::Sycl(source) | Code::OpenCl(source) = &code {
            no_zero(name, "its source", source.as_bytes())?;
        }
        for flag in &options.flags {
            no_zero(name, "an option", flag.as_bytes())?;
        }
        let queue = options.queue.map_or_else(current_queue, Ok)?;
        let (read, files, has_header) = signature(&code, name, &options.flags);
        let texts = read.as_ref().map_or(Vec::new(), |read| read.texts.clone());
        let is_given = options.params.is_some();
        let dimensions = read.as_ref().and_then(|read| read.dimensions);
        let groups = read.as_ref().map_or_else(DeclaredGroups::default, |read| read.groups);
        let params = match (options.params, read) {
            (Some(params), Some(read)) => Some(reconcile(params, &read.params).map_err(|why| {
                Error::value(format!("kernel {name:?}: {why}; omit params that the source declares"))
            })?),
            (given, read) => given.or(read.map(|read| read.params)),
        };
        check_code(&code, name).map_err(|log| build_error(name, queue.device(), log))?;
        let mut flags = options.flags;
        // The device header then knows which dimension of the range is which, also in other functions.
        if let Some(dimensions) = dimensions.filter(|_| has_header) {
            flags.push(format!("-DUSMQ_DIMENSIONS={dimensions}"));
        }
        let asks_dimensions = has_header && !flags.iter().any(|flag| flag.contains("USMQ_DIMENSIONS"));
        let (code, debug) = match checked {
            Some(CheckedSource { text, params }) => (Code::Sycl(text.into()), Some(params.into())),
            None => (code, None),
        };
        let mut inner = Inner {
            name: name.into(),
            code,
            options: flags.into(),
            params,
            unknown: Unknown { texts, files },
            dimensions,
            asks_dimensions,
            groups,
            debug,
            built: ForkMutex::default(),
        };
        let program = inner.program(&queue)?;
        if let (Some(params), Some(slots)) = (&inner.params, inner.slots(&program))
            && let Err(why) = agree(params, &slots, inner.is_sycl())
        {
            if is_given {
                return Err(Error::value(format!(
                    "kernel {name:?}: params do not match the built kernel: {why}; give params of the kernel's types"
                )));
            }
            // A header may define a name differently, or hide a parameter; the built kernel has precedence.
            inner.params = None;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// The function's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Name and parameters: `axpy(float32, const float32 *, float32 *)`; `axpy(?)` if the parameters are unknown.
    #[must_use]
    pub fn signature(&self) -> String {
        let params = self.params().map_or("?".to_owned(), |params| {
            params.iter().map(Param::declaration).collect::<Vec<_>>().join(", ")
        });
        format!("{}({params})", self.0.name)
    }

    /// The number of dimensions of its range, if the kernel declares it.
    #[must_use]
    pub fn dimensions(&self) -> Option<usize> {
        self.0.dimensions
    }

    /// Whether its launches check that it stays inside its arrays.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        self.0.debug.is_some()
    }

    /// The parameters of a debug build.
    pub(super) fn debug_params(&self) -> Option<&[CheckedParam]> {
        self.0.debug.as_deref()
    }

    /// The parameters, if given or read from the source.
    #[must_use]
    pub fn params(&self) -> Option<&[Param]> {
        self.0.params.as_deref()
    }
}

/// The signature in the code, why usmq has not read all included files, and whether the device header is one of them.
fn signature(code: &Code, name: &str, flags: &[String]) -> (Option<Signature>, String, bool) {
    let (Code::Sycl(source) | Code::OpenCl(source)) = code else { return (None, String::new(), false) };
    let flags = code.flags(flags);
    let files = IncludedFiles::read(source, &flags);
    let has_header = matches!(code, Code::Sycl(_)) && files.has_device_header();
    (read_signature(source, name, &flags, &files), files.why_unread(), has_header)
}

/// Checks a source or module before it reaches a compiler or driver, which may read past its end, or crash.
fn check_code(code: &Code, name: &str) -> Result<(), String> {
    match code {
        Code::Sycl(source) | Code::OpenCl(source) if !has_code(source) => Err(format!(
            "the source has no code: {}; pass the text of the kernel",
            if source.is_empty() { "it is empty" } else { "it is only blanks and comments" }
        )),
        Code::Sycl(source) | Code::OpenCl(source) if deepest(source) > DEEPEST_BRACKETS => Err(format!(
            "the source has more than {DEEPEST_BRACKETS} brackets inside each other, on which compilers crash; divide the \
             expression"
        )),
        Code::SpirV(module) => refuse_module(module, name),
        _ => Ok(()),
    }
}

fn build_error(name: &str, device: &Device, log: String) -> Error {
    Error::KernelBuild { name: name.to_owned(), device: device.to_string(), log }
}

/// The compilers return an error from 256 on, and overflow their stack at some thousands.
const DEEPEST_BRACKETS: usize = 1000;

/// How many brackets are open at once at most.
fn deepest(source: &str) -> usize {
    let (mut open, mut most) = (0usize, 0);
    for token in tokens(source) {
        match token {
            "(" | "[" | "{" => open += 1,
            ")" | "]" | "}" => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn refuse_debug(options: &KernelOptions) -> Result<()> {
    if options.debug {
        return Err(Error::value("debug is for kernels from SYCL C++; use Kernel::from_sycl_with"));
    }
    Ok(())
}

/// Compilers and drivers take C strings, which end at the first zero: the rest would be silently truncated.
fn no_zero(name: &str, what: &str, text: &[u8]) -> Result<()> {
    match text.iter().position(|byte| *byte == 0) {
        Some(at) => Err(Error::value(format!("kernel {name:?}: {what} has a NUL character at byte {at}"))),
        None => Ok(()),
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.0.name)
            .field("params", &self.params())
            .field("is_debug", &self.is_debug())
            .finish_non_exhaustive()
    }
}
