//! Builds a kernel for one context and device, once.

use super::header::{self, Spelling};
use super::program::{Code, Program, Slot, Unit};
use super::{Context, Device};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::Handle;
use crate::trace::recorder;
use cxx::UniquePtr;
use std::sync::Arc;

/// The context and device of a build.
struct BuildTarget<'a> {
    context: &'a Context,
    device: &'a Device,
}

impl Program {
    /// The kernel `name` for this context and device, from the cache or newly built.
    pub(crate) fn get(
        context: &Context,
        device: &Device,
        code: &Code,
        name: &Arc<str>,
        options: &Arc<[String]>,
    ) -> Result<Self> {
        let unit = Unit { device: device.id(), code: code.clone(), options: options.clone() };
        let (key, target) = ((unit, name.clone()), BuildTarget { context, device });
        let kernels = &context.built().kernels;
        if let Some(built) = kernels.lock()?.get(&key) {
            return Ok(built.clone());
        }
        let begun = recorder::begin();
        let span = tracing::debug_span!(target: "usmq", "build", name = &**name, %device);
        let raw = span.in_scope(|| target.kernel(&key.0, name));
        code.guard_exit();
        let raw = raw.map_err(|error| match error {
            Error::Sycl { message, .. } => target.failure(name, message),
            other => other,
        })?;
        recorder::built(begun, name, device);
        // Some backends do not report them; then only the source declares the kernel's parameters.
        let ask_driver = device.capabilities().argument_sizes;
        let slots = ffi::kernel_slots(&raw, ask_driver)
            .ok()
            .map(|codes| codes.into_iter().map(Slot::from_code).collect());
        let built = Self::new(raw, slots);
        Ok(kernels.lock()?.entry(key).or_insert(built).clone())
    }
}

impl BuildTarget<'_> {
    fn kernel(&self, unit: &Unit, name: &str) -> Result<UniquePtr<ffi::Kernel>> {
        match &unit.code {
            Code::Sycl(source) => self.kernel_of_source(unit, source, name),
            Code::OpenCl(source) => self.kernel_of_opencl(unit, source, name),
            Code::SpirV(module) => self.kernel_of_module(unit, module, name),
        }
    }

    fn no_compiler(&self, language: &str) -> String {
        format!("{} has no compiler for {language}; use SYCL source here", self.device)
    }

    /// A kernel from OpenCL C. On OpenCL the driver builds it, elsewhere the kernel compiler of the runtime.
    fn kernel_of_opencl(&self, unit: &Unit, source: &str, name: &str) -> Result<UniquePtr<ffi::Kernel>> {
        const BUILDING: &str = "building OpenCL C";
        let (context, device, options) = (self.context.raw()?, self.device.raw()?, unit.options.to_vec());
        if self.device.capabilities().opencl_c {
            return ffi::kernel_from_opencl(context, device, source, name, &options).during(BUILDING);
        }
        if !ffi::device_builds_opencl(device).during(BUILDING)? {
            return Err(self.failure(name, self.no_compiler("OpenCL C")));
        }
        let make = || ffi::bundle_from_opencl(context, device, source, &options).during(BUILDING);
        self.kernel_in(&*self.bundle(unit, make)?, name)
    }

    /// A kernel from SPIR-V. The kernel compiler of the runtime builds it if it accepts SPIR-V for the device,
    /// else the driver.
    fn kernel_of_module(&self, unit: &Unit, module: &[u8], name: &str) -> Result<UniquePtr<ffi::Kernel>> {
        const BUILDING: &str = "building SPIR-V";
        let (context, device) = (self.context.raw()?, self.device.raw()?);
        if ffi::device_builds_spirv(device).during(BUILDING)? {
            let make = || ffi::bundle_from_spirv(context, device, module).during(BUILDING);
            return self.kernel_in(&*self.bundle(unit, make)?, name);
        }
        if !self.device.capabilities().native_spirv {
            return Err(self.failure(name, self.no_compiler("SPIR-V")));
        }
        ffi::kernel_from_spirv(context, device, module, name).during(BUILDING)
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
    fn kernel_of_source(&self, unit: &Unit, source: &str, name: &str) -> Result<UniquePtr<ffi::Kernel>> {
        let bundle = self.bundle(unit, || self.compile(unit, source, ""))?;
        let kernel = ffi::bundle_kernel(bundle.get()?, name).during("looking up a kernel")?;
        if !kernel.is_null() {
            return Ok(kernel);
        }
        let named = Handle::new(self.compile(unit, source, name)?);
        let kernel = ffi::bundle_kernel(named.get()?, name).during("looking up a kernel")?;
        if kernel.is_null() {
            return Err(self.failure(name, "the source compiles but has no kernel of this name".to_owned()));
        }
        Ok(kernel)
    }

    fn bundle(
        &self,
        unit: &Unit,
        make: impl FnOnce() -> Result<UniquePtr<ffi::Bundle>>,
    ) -> Result<Arc<Handle<ffi::Bundle>>> {
        let bundles = &self.context.built().bundles;
        if let Some(bundle) = bundles.lock()?.get(unit) {
            return Ok(bundle.clone());
        }
        let bundle = Arc::new(Handle::new(make()?));
        Ok(bundles.lock()?.entry(unit.clone()).or_insert(bundle).clone())
    }

    fn compile(&self, unit: &Unit, source: &str, registered: &str) -> Result<UniquePtr<ffi::Bundle>> {
        // A header of the source may include it, too; then the trial is left out.
        let spelling = if source.contains(header::NAME) {
            header::spelling(|spelling| self.accepts(spelling))?
        } else {
            header::found().unwrap_or(Spelling::Attributes)
        };
        self.compile_with(spelling, source, &unit.options, registered)
    }

    fn compile_with(
        &self,
        spelling: Spelling,
        source: &str,
        options: &[String],
        registered: &str,
    ) -> Result<UniquePtr<ffi::Bundle>> {
        let (context, device) = (self.context.raw()?, self.device.raw()?);
        let include = ffi::IncludeFile { name: header::PLACE, text: &spelling.text() };
        let options = [options, &[header::FOLDER.to_owned()]].concat();
        ffi::bundle_from_sycl(context, device, source, include, &options, registered)
            .during("building SYCL source")
    }

    /// Whether the trial kernels of the device header build.
    fn accepts(&self, spelling: Spelling) -> bool {
        let bundle = self.compile_with(spelling, header::TRIAL, &[], "");
        bundle.is_ok_and(|bundle| {
            let kernel =
                |name: &&str| ffi::bundle_kernel(&bundle, name).is_ok_and(|kernel| !kernel.is_null());
            header::TRIAL_KERNELS.iter().all(kernel)
        })
    }

    fn failure(&self, name: &str, log: String) -> Error {
        Error::KernelBuild { name: name.to_owned(), device: self.device.to_string(), log }
    }
}
