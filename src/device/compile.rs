//! Builds a kernel for one context and device, once.

use super::binary_cache::{self, Key};
use super::header;
use super::kernel_cache;
use super::program::{Code, GroupSizes, Includes, Program, Slot, Unit};
use super::{Context, Device};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::{Handle, exit};
use crate::trace::recorder;
use cxx::UniquePtr;
use once_cell::sync::OnceCell;
use std::sync::Arc;

/// The context and device of a build.
struct BuildTarget<'a> {
    context: &'a Context,
    device: &'a Device,
}

impl Program {
    /// The log if the program of a source that compiles lacks the kernel: the source does not define it, or the device
    /// cannot run it.
    pub(crate) const LEFT_OUT: &str = "the source compiles but has no kernel of this name";

    /// The kernel `name` for this context and device, from the cache or newly built. `includes`: the files that the
    /// code includes.
    pub(crate) fn get(
        context: &Context,
        device: &Device,
        code: &Code,
        name: &Arc<str>,
        options: &Arc<[String]>,
        includes: Includes,
    ) -> Result<Self> {
        let device = &device.for_builds_in(context)?;
        let unit = Unit { device: device.id(), code: code.clone(), options: options.clone(), includes };
        let target = BuildTarget { context, device };
        let key = (context.key(), unit);
        if let Some(built) = kernel_cache::kernel(&key, name)? {
            return Ok(built);
        }
        // The end of the process destroys the compiler, so it waits for a build.
        let _building = exit::Building::begin()?;
        let begun = recorder::begin();
        let span = tracing::debug_span!(target: "usmq", "build", name = &**name, %device);
        let raw = span.in_scope(|| target.kernel(&key.1, name));
        let (raw, is_own) = raw.map_err(|error| match error {
            Error::Sycl { message, .. } => target.failure(name, message),
            other => other,
        })?;
        recorder::built(begun, name, device);
        // Some backends do not report them; then only the source declares the kernel's parameters.
        let ask_driver = device.capabilities().argument_sizes;
        let slots = ffi::kernel_slots(&raw, ask_driver)
            .ok()
            .map(|codes| codes.into_iter().map(Slot::from_code).collect());
        // Some backends do not report these, either.
        let mut groups =
            ffi::kernel_group_sizes(&raw, device.raw()?).map(GroupSizes::from_driver).unwrap_or_default();
        if ask_driver {
            groups.local_memory = ffi::kernel_local_memory(&raw, device.raw()?).unwrap_or(0);
        }
        let built = Self::new(raw, slots, groups, includes.prints);
        kernel_cache::add_kernel(key, name, built, is_own)
    }
}

/// The variables that change the code which the compilers of Intel's drivers generate. Those read them once, too.
fn compiler_settings() -> &'static [u8] {
    const NAMES: [&str; 3] = ["CL_CONFIG_", "IGC_", "VC_"];
    static SETTINGS: OnceCell<Vec<u8>> = OnceCell::new();
    SETTINGS.get_or_init(|| {
        let is_one = |name: &[u8]| NAMES.iter().any(|start| name.starts_with(start.as_bytes()));
        let all = std::env::vars_os().filter(|(name, _)| is_one(name.as_encoded_bytes()));
        let mut all: Vec<_> = all
            .map(|(name, value)| [name.as_encoded_bytes(), b"=", value.as_encoded_bytes(), b"\0"].concat())
            .collect();
        all.sort_unstable();
        all.concat()
    })
}

/// A kernel, and whether it was compiled for itself, without the bundle of its unit.
type Compiled = (UniquePtr<ffi::Kernel>, bool);

impl BuildTarget<'_> {
    fn kernel(&self, unit: &Unit, name: &str) -> Result<Compiled> {
        match &unit.code {
            Code::Sycl(source) => self.kernel_of_source(unit, source, name),
            Code::OpenCl(source) => self.kernel_of_opencl(unit, source, name),
            Code::SpirV(module) => self.kernel_of_module(unit, module, name),
        }
    }

    fn no_compiler(&self, language: &str, library: Option<(&str, &str)>) -> String {
        let device = self.device;
        match library {
            Some((library, package)) => format!(
                "{language} for {device} needs the library {library}, which was not found; install the package {package}, \
                 or use SYCL source"
            ),
            None => format!("{device} has no compiler for {language}; use SYCL source here"),
        }
    }

    /// A kernel from OpenCL C. On OpenCL the driver builds it, elsewhere the kernel compiler of the runtime.
    fn kernel_of_opencl(&self, unit: &Unit, source: &str, name: &str) -> Result<Compiled> {
        const BUILDING: &str = "building OpenCL C";
        let (context, device, options) = (self.context.raw()?, self.device.raw()?, unit.options.to_vec());
        if self.device.capabilities().opencl_c {
            return self.kept_on_disk(unit, name, || {
                let mut program = Vec::new();
                ffi::kernel_from_opencl(context, device, source, name, &options, &mut program)
                    .during(BUILDING)
                    .map(|kernel| ((kernel, true), program))
            });
        }
        if !ffi::device_builds_opencl(device).during(BUILDING)? {
            return Err(
                self.failure(name, self.no_compiler("OpenCL C", self.device.capabilities().opencl_c_library))
            );
        }
        let make = || ffi::bundle_from_opencl(context, device, source, &options).during(BUILDING);
        Ok((self.kernel_in(&*self.bundle(unit, make)?, name)?, false))
    }

    /// A kernel from SPIR-V. The kernel compiler of the runtime builds it if it accepts SPIR-V for the device,
    /// else the driver.
    fn kernel_of_module(&self, unit: &Unit, module: &[u8], name: &str) -> Result<Compiled> {
        const BUILDING: &str = "building SPIR-V";
        let (context, device) = (self.context.raw()?, self.device.raw()?);
        if ffi::device_builds_spirv(device).during(BUILDING)? {
            let make = || ffi::bundle_from_spirv(context, device, module).during(BUILDING);
            return self.kept_on_disk(unit, name, || {
                let kernel = self.kernel_in(&*self.bundle(unit, make)?, name)?;
                let has_program = self.device.capabilities().program_binaries;
                let program =
                    has_program.then(|| ffi::kernel_binary(&kernel, context, device).ok()).flatten();
                Ok(((kernel, false), program.unwrap_or_default()))
            });
        }
        if !self.device.capabilities().native_spirv {
            return Err(self.failure(name, self.no_compiler("SPIR-V", None)));
        }
        self.kept_on_disk(unit, name, || {
            let mut program = Vec::new();
            ffi::kernel_from_spirv(context, device, module, name, &mut program)
                .during(BUILDING)
                .map(|kernel| ((kernel, true), program))
        })
    }

    /// The kernel from a program that a process has kept on disk. Without one, or if the driver does not accept it any
    /// more, builds the kernel and keeps the program that `build` returns with it, unless that is empty.
    fn kept_on_disk(
        &self,
        unit: &Unit,
        name: &str,
        build: impl FnOnce() -> Result<(Compiled, Vec<u8>)>,
    ) -> Result<Compiled> {
        let (context, device) = (self.context.raw()?, self.device.raw()?);
        let has_binaries = self.device.capabilities().program_binaries && unit.includes.is_complete;
        let key = if has_binaries { self.key(unit) } else { None };
        let Some(key) = key else { return Ok(build()?.0) };
        let load = |program: Vec<u8>| {
            ffi::kernel_from_binary(context, device, &program, name, &unit.options.to_vec()).ok()
        };
        if let Some(kernel) = binary_cache::load(&key).and_then(load) {
            return Ok((kernel, true));
        }
        let (built, program) = build()?;
        binary_cache::store(&key, &program);
        Ok(built)
    }

    /// Everything that determines the program of a unit. None if the driver's version is unknown.
    fn key(&self, unit: &Unit) -> Option<Key> {
        let versions = ffi::device_versions(self.device.raw().ok()?).ok()?;
        let (kind, code): (&str, &[u8]) = match &unit.code {
            Code::Sycl(_) => return None,
            Code::OpenCl(source) => ("OpenCL C", source.as_bytes()),
            Code::SpirV(module) => ("SPIR-V", module),
        };
        let includes = unit.includes.contents.to_le_bytes();
        let fixed = [kind.as_bytes(), code, &includes, versions.as_bytes(), compiler_settings()];
        Some(Key::new(fixed.into_iter().chain(unit.options.iter().map(String::as_bytes))))
    }

    fn kernel_in(&self, bundle: &Handle<ffi::Bundle>, name: &str) -> Result<UniquePtr<ffi::Kernel>> {
        let kernel = ffi::bundle_kernel(bundle.get()?, name).during("looking up a kernel")?;
        if kernel.is_null() {
            return Err(self.failure(name, "the built program has no kernel of this name".to_owned()));
        }
        Ok(kernel)
    }

    /// A kernel with an `extern "C"` name is found by that name. Any other, a C++ function or a template
    /// instance, must be registered before the build, which then serves this name only.
    fn kernel_of_source(&self, unit: &Unit, source: &str, name: &str) -> Result<Compiled> {
        let bundle = self.bundle(unit, || self.compile(unit, source, ""))?;
        let kernel = ffi::bundle_kernel(bundle.get()?, name).during("looking up a kernel")?;
        if !kernel.is_null() {
            return Ok((kernel, false));
        }
        let named = Handle::new(self.compile(unit, source, name)?);
        let kernel = ffi::bundle_kernel(named.get()?, name).during("looking up a kernel")?;
        if kernel.is_null() {
            return Err(self.failure(name, Program::LEFT_OUT.to_owned()));
        }
        Ok((kernel, true))
    }

    fn bundle(
        &self,
        unit: &Unit,
        make: impl FnOnce() -> Result<UniquePtr<ffi::Bundle>>,
    ) -> Result<Arc<Handle<ffi::Bundle>>> {
        let key = (self.context.key(), unit.clone());
        if let Some(bundle) = kernel_cache::bundle(&key)? {
            return Ok(bundle);
        }
        kernel_cache::add_bundle(key, Arc::new(Handle::new(make()?)))
    }

    fn compile(&self, unit: &Unit, source: &str, registered: &str) -> Result<UniquePtr<ffi::Bundle>> {
        let (context, device) = (self.context.raw()?, self.device.raw()?);
        let include = ffi::IncludeFile { name: header::PLACE, text: header::TEXT };
        let options = [&unit.options[..], &[header::FOLDER.to_owned()]].concat();
        ffi::bundle_from_sycl(context, device, source, include, &options, registered)
            .during("building SYCL source")
    }

    fn failure(&self, name: &str, log: String) -> Error {
        Error::KernelBuild { name: name.to_owned(), device: self.device.to_string(), log }
    }
}
