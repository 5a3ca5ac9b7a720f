//! Launches a kernel: checks the arguments, selects the queue, and orders the launch with other uses of its data.

use super::arg::{Arg, shown};
use super::build::Kernel;
use super::debug::Report;
use super::host_args::{Rules, Transfers, Use};
use super::launch_args::LaunchArgs;
use super::param::Param;
use super::slots::{expected, misfit};
use crate::array::{Array, IntoShape};
use crate::device::submit::{Extents, KernelArg, KernelArgs};
use crate::device::{Device, Event, Program, Queue, Slot};
use crate::error::{Error, Result};
use crate::memory::{Access, Operand, is_capturing, ordered, refuse};
use crate::placement::{follow, usable_from};
use crate::trace::{Kind, Label};
use smallvec::SmallVec;

/// The nd-range and queue of a launch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'a> {
    /// Global work-items in one to three dimensions; the last dimension varies fastest.
    pub global: &'a [usize],
    /// Work-items of a work-group; the runtime chooses if `None`. Required with
    /// [`Arg::local`](crate::Arg::local).
    pub local: Option<&'a [usize]>,
    /// The queue; that of the data if `None`.
    pub queue: Option<&'a Queue>,
}

/// A launch that is checked but not submitted.
pub(crate) struct Prepared<'a> {
    kernel: &'a Kernel,
    launch: Launch<'a>,
    args: &'a [Arg<'a>],
    queue: Queue,
    program: Program,
    bound: KernelArgs,
    operands: SmallVec<[Operand<'a>; 6]>,
    extents: Extents,
}

impl<'a> Prepared<'a> {
    fn new(
        kernel: &'a Kernel,
        launch: Launch<'a>,
        args: &'a [Arg<'a>],
        queue: Queue,
        program: Program,
    ) -> Self {
        let (bound, operands) = (KernelArgs::default(), SmallVec::new());
        Self { kernel, launch, args, queue, program, bound, operands, extents: Extents::default() }
    }

    /// Converts and checks arguments and ranges. In place: a launch takes microseconds, and moving the arguments is part
    /// of them.
    fn bind(&mut self, report: Option<&'a Report>) -> Result<()> {
        let Self { kernel, launch, args, ref queue, ref program, .. } = *self;
        kernel.bind(launch, args, kernel.0.slots(program).as_deref(), &mut self.bound)?;
        for (position, arg) in args.iter().enumerate() {
            if let Some(array) = arg.array() {
                self.operands.push((array.allocation(), arg.access(kernel.param(position))));
            }
        }
        if let Some(report) = report {
            report.bind(&mut self.bound);
            self.operands.push((report.memory().allocation(), Access::ReadWrite));
        }
        self.extents = kernel.extents(launch, queue.device(), program)?;
        kernel.check_local_memory(args, queue.device(), program)
    }

    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Submits the launch in the order of its operands.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub(crate) unsafe fn submit(&self) -> Result<Event> {
        let label = Label { kind: Kind::Kernel, name: Some(&self.kernel.0.name), bytes: 0 };
        if is_capturing() {
            self.args.iter().filter_map(Arg::array).for_each(Array::touch);
        }
        ordered(&self.queue, &self.operands, |after| {
            if self.extents.global.contains(&0) {
                // Without work-items nothing is launched, but the event still represents the order.
                return self.queue.barrier_now(after);
            }
            // SAFETY: the caller's promise for the kernel; `prepare` has checked count, types and
            // reachability of the arguments, and the operands' logs keep their memory until the event is
            // complete.
            unsafe { self.queue.submit(&self.program, self.extents, &self.bound, label, after) }
        })
        .map_err(|error| self.kernel.explain(error, self.launch, self.args, &self.bound, self.queue.device()))
    }
}

/// The queue of a launch: the given one, if all arrays are usable from it, or that of the arrays.
pub(super) fn queue_of(launch: Launch<'_>, args: &[Arg<'_>]) -> Result<Queue> {
    let arrays: SmallVec<[&Array; 6]> = args.iter().filter_map(Arg::array).collect();
    match launch.queue {
        Some(queue) => usable_from(queue, &arrays).map(|()| queue.clone()),
        None => follow(&arrays),
    }
}

impl Kernel {
    /// Launches the kernel with `global` work-items on the queue that its arrays share. Returns immediately.
    ///
    /// The arguments are a tuple of arrays and numbers, or a slice of [`Arg`]; see [`LaunchArgs`]. The range has one to
    /// three dimensions: `n`, `[n, m]`, `(n, m, k)`.
    ///
    /// The launch follows all work that its arrays depend on. The arrays live until it is complete, even if
    /// they are dropped earlier.
    ///
    /// # Safety
    /// The kernel does with these arguments what its signature declares: it stays inside its arrays, does not
    /// write to read-only ones, and keeps no pointer. No compiler can check that. Memory of [`Arg::host`] is as
    /// described, and only the kernel uses it until the launch returns.
    ///
    /// # Errors
    /// [`Error::Launch`] if arguments or ranges do not match the kernel, or if a debug build has accessed memory
    /// outside of its arrays; [`Error::Placement`] if its arrays are on different queues.
    pub unsafe fn launch(&self, global: impl IntoShape, args: impl LaunchArgs) -> Result<Event> {
        let global = global.into_shape();
        let launch = Launch { global: global.as_ref(), ..Launch::default() };
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(launch, args) }
    }

    /// As [`Kernel::launch`], with an explicit work-group size or queue.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::Placement`] also if an array is not usable from the given queue.
    pub unsafe fn launch_with(&self, launch: Launch<'_>, args: impl LaunchArgs) -> Result<Event> {
        // SAFETY: the caller's promise.
        args.with_args(|args| unsafe { self.launch_args(launch, args) })
    }

    /// As [`Kernel::launch_with`].
    ///
    /// # Safety
    /// As there.
    unsafe fn launch_args(&self, launch: Launch<'_>, args: &[Arg<'_>]) -> Result<Event> {
        if args.iter().any(Arg::is_host) {
            // SAFETY: the caller's promise.
            return unsafe { self.launch_with_host(launch, args) };
        }
        let queue = queue_of(launch, args)?;
        let program = self.0.program(&queue)?;
        let report = self.report(args, &queue)?;
        if report.is_some() {
            refuse(|| format!("a launch of the debug build of {:?}", self.name()))?;
        }
        let mut prepared = Prepared::new(self, launch, args, queue, program);
        prepared.bind(report.as_ref())?;
        // SAFETY: the caller's promise.
        let event = unsafe { prepared.submit() }?;
        if let (Some(report), Some(debug)) = (&report, self.debug_params()) {
            event.wait()?;
            report.check(self.name(), debug, args, launch.global)?;
        }
        Ok(event)
    }

    /// As [`Kernel::launch_with`], with memory of the host among the arguments.
    ///
    /// # Safety
    /// As there.
    unsafe fn launch_with_host(&self, launch: Launch<'_>, args: &[Arg<'_>]) -> Result<Event> {
        let queue = queue_of(launch, args)?;
        let program = self.0.program(&queue)?;
        let access = |(position, arg): (usize, &Arg<'_>)| arg.access(self.param(position));
        let uses = args.iter().enumerate().map(access);
        let uses = uses.map(|access| Use { access, takes_strides: false }).collect();
        let refuse = |position, why: &str| self.argument_error(position, why);
        let rules = Rules { uses, refuse: &refuse };
        let transfers = Transfers::new(&rules, args, &queue)?;
        let replaced = transfers.replaced(args)?;
        let report = self.report(&replaced, &queue)?;
        let mut prepared = Prepared::new(self, launch, &replaced, queue, program);
        prepared.bind(report.as_ref())?;
        // SAFETY: the caller's promise.
        let event = transfers.run(|| unsafe { prepared.submit() })?;
        if let (Some(report), Some(debug)) = (&report, self.debug_params()) {
            report.check(self.name(), debug, &replaced, launch.global)?;
        }
        Ok(event)
    }

    /// The report of a launch of a debug build.
    fn report(&self, args: &[Arg<'_>], queue: &Queue) -> Result<Option<Report>> {
        self.debug_params().map(|debug| Report::new(debug, args, queue)).transpose()
    }

    /// Prepares the launch up to its submission, after the kernel was built for its queue. Takes no lock that
    /// a thread holds while it submits, waits or frees, so a caller may hold the GIL. `None` also for a debug
    /// build and for memory of the host, whose launches wait.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn prepare_built<'a>(
        &'a self,
        launch: Launch<'a>,
        args: &'a [Arg<'a>],
    ) -> Result<Option<Prepared<'a>>> {
        if self.is_debug() || args.iter().any(|arg| arg.host_arg().is_some()) {
            return Ok(None);
        }
        let queue = queue_of(launch, args)?;
        let Some(program) = self.0.built_program(&queue)? else { return Ok(None) };
        let mut prepared = Prepared::new(self, launch, args, queue, program);
        prepared.bind(None)?;
        Ok(Some(prepared))
    }

    fn param(&self, position: usize) -> Option<&Param> {
        self.params()?.get(position)
    }

    fn refuse_count<T>(&self, expected: usize, given: usize) -> Result<T> {
        let list = self.params().map_or(String::new(), |params| {
            format!(" ({})", params.iter().map(Param::to_string).collect::<Vec<_>>().join(", "))
        });
        let name = &self.0.name;
        let message = format!("kernel {name:?} takes {expected} arguments{list}, {given} were given");
        Err(Error::launch(name, None, message))
    }

    fn refuse<T>(&self, why: String) -> Result<T> {
        Err(Error::launch(&self.0.name, None, format!("kernel {:?}: {why}", self.0.name)))
    }

    fn check_local_memory(&self, args: &[Arg<'_>], device: &Device, program: &Program) -> Result<()> {
        let limit = device.local_mem_size();
        let of_args = args.iter().filter_map(Arg::local_bytes).fold(0, usize::saturating_add) as u64;
        let of_source = program.groups().local_memory;
        if of_args.saturating_add(of_source) <= limit {
            return Ok(());
        }
        let parts = match (of_source, of_args) {
            (0, _) => format!("{of_args} bytes of local memory"),
            (_, 0) => format!("{of_source} bytes of local memory in its source"),
            _ => format!("{of_source} bytes of local memory in its source and {of_args} in arguments"),
        };
        self.refuse(format!(
            "{parts} are more than the {limit} that a work-group of {device} has; declare smaller arrays, or use global \
             memory"
        ))
    }

    /// Checks the ranges of a launch. Source: SYCL 2020, section 4.9.4.2.
    fn extents(&self, launch: Launch<'_>, device: &Device, program: &Program) -> Result<Extents> {
        let Launch { global, local, .. } = launch;
        if !(1..=3).contains(&global.len()) {
            return self.refuse(format!("a range has 1 to 3 dimensions, not {}", global.len()));
        }
        if let Some(declared) = self.0.dimensions.filter(|declared| *declared != global.len()) {
            let plural = if declared == 1 { "dimension" } else { "dimensions" };
            return self.refuse(format!(
                "declared for {declared} {plural}, but range {global:?} has {}; give one extent for each",
                global.len()
            ));
        }
        let is_unknown = self.0.dimensions.is_none() && self.0.asks_dimensions && global.len() > 1;
        if is_unknown && !device.backend().capabilities().work_dimensions {
            return self.refuse(format!(
                "usmq does not see its declaration in the source, and {} does not tell kernels how many dimensions a range \
                 has, so global_id would be wrong; build it with the option -DUSMQ_DIMENSIONS={}",
                device.backend(),
                global.len()
            ));
        }
        let product =
            |extents: &[usize]| extents.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        if product(global).is_none_or(|items| isize::try_from(items).is_err()) {
            return self.refuse(format!("range {global:?} has more work-items than fit in a size_t"));
        }
        if let Some(local) = local {
            self.check_local(global, local, device)?;
        }
        match self.0.groups.groups((global, local), program.groups()) {
            Ok(groups) => Ok(Extents { local: groups.unwrap_or_default(), ..Extents::range(global) }),
            Err(why) => self.refuse(why),
        }
    }

    fn check_local(&self, global: &[usize], local: &[usize], device: &Device) -> Result<()> {
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
        let items = local.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        if items.is_none_or(|items| items > most) {
            return self.refuse(format!(
                "local range {local:?} has more than the {most} work-items that a work-group of {device} can have"
            ));
        }
        Ok(())
    }

    /// Converts the arguments for the shim, and checks each against its parameter and the built kernel.
    fn bind(
        &self,
        launch: Launch<'_>,
        args: &[Arg<'_>],
        slots: Option<&[Slot]>,
        bound: &mut KernelArgs,
    ) -> Result<()> {
        if let Some(params) = self.params().filter(|params| params.len() != args.len()) {
            return self.refuse_count(params.len(), args.len());
        }
        let is_sycl = self.0.is_sycl();
        let is_group = is_sycl && slots.is_some_and(|slots| slots.len() == args.len());
        for (position, arg) in args.iter().enumerate() {
            if let Err(why) = arg.bind(self.param(position), is_group, bound) {
                return self.refuse_argument(position, &(why + &self.0.why_unknown(position)));
            }
            if let (Some(bytes), None) = (arg.local_bytes(), launch.local) {
                return self.refuse_argument(
                    position,
                    &format!("{bytes} bytes of local memory for each work-group need a local_size; give one"),
                );
            }
        }
        let Some(slots) = slots else { return Ok(()) };
        let expected = expected(bound, slots, is_sycl);
        if expected != args.len() {
            return self.refuse_count(expected, args.len());
        }
        if let Some((position, taken)) = misfit(bound, slots, is_sycl) {
            let given = listed(&args[position], &bound[position]);
            return self
                .refuse_argument(position, &format!("got {given}, but the built kernel takes {taken}"));
        }
        Ok(())
    }

    fn refuse_argument<T>(&self, position: usize, why: &str) -> Result<T> {
        Err(self.argument_error(position, why))
    }

    fn argument_error(&self, position: usize, why: &str) -> Error {
        let name = &self.0.name;
        Error::launch(name, Some(position), format!("kernel {name:?}, argument {position}: {why}"))
    }

    /// Adds kernel, sizes and arguments to an error of the runtime, which names none of them.
    fn explain(
        &self,
        error: Error,
        launch: Launch<'_>,
        args: &[Arg<'_>],
        bound: &[KernelArg],
        device: &Device,
    ) -> Error {
        let Error::Sycl { operation, code, message } = error else { return error };
        let list = args.iter().zip(bound).enumerate();
        let list: Vec<_> = list
            .map(|(position, (arg, bound))| format!("argument {position}: {}", listed(arg, bound)))
            .collect();
        let Launch { global, local, .. } = launch;
        let sizes = local.map_or(String::new(), |local| format!(" in groups of {local:?}"));
        let name = &self.0.name;
        let launch = format!("kernel {name:?} over {global:?}{sizes} with {}", list.join(", "));
        // These are about the arguments and the range; others, such as a lost device, are not the caller's
        // fault.
        let is_refused = matches!(&code[..], "nd_range" | "kernel_argument")
            || REFUSALS.iter().any(|part| message.contains(part));
        if is_refused {
            let message = format!(
                "{launch}: the driver refused the launch ({message}); compare arguments and sizes with the kernel's \
                 declaration, or give params="
            );
            return Error::launch(name, None, message);
        }
        if message.contains("OUT_OF_RESOURCES") {
            let local = device.local_mem_size();
            let message = format!(
                "{launch}: the driver has too few resources for a work-group ({message}); use less local memory (a \
                 work-group of {device} has {local} bytes), or pass a smaller local_size"
            );
            return Error::launch(name, None, message);
        }
        Error::Sycl { operation: format!("{operation} ({launch})"), code, message }
    }
}

/// Parts of UR's names for errors about the arguments or the range.
const REFUSALS: [&str; 5] = [
    "INVALID_KERNEL_ARG",
    "INVALID_ARGUMENT",
    "INVALID_WORK_GROUP",
    "INVALID_WORK_DIMENSION",
    "INVALID_GLOBAL",
];

/// An argument with its value and its size in bytes.
fn listed(arg: &Arg<'_>, bound: &KernelArg) -> String {
    let shown = shown(arg);
    match bound.slot() {
        Slot::Bytes(bytes) if arg.array().is_some() => format!("{shown} (a pointer of {bytes} bytes)"),
        Slot::Bytes(1) => format!("{shown} (1 byte)"),
        Slot::Bytes(bytes) => format!("{shown} ({bytes} bytes)"),
        _ => shown,
    }
}
