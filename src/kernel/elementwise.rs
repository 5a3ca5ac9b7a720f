//! One-line kernels that compute each element from those at the same place.

use super::arg::Arg;
use super::build::Kernel;
use super::expression::{Bound, Expression, ExpressionOptions};
use super::launch::{Launch, queue_of};
use super::launch_args::LaunchArgs;
use super::template::{Role, parameters};
use crate::device::{Event, Queue, padded};
use crate::error::{Error, Result};
use crate::manager::current_queue;

/// A kernel that runs one expression for each element: `y[i] += a * x[i]`. Arrays broadcast, and may be strided
/// views.
///
/// In the expression, `i` is the number of the element in C order and `n` the number of elements, both of type
/// `long`. The functions of `usmq/kernel.h` are available. A parameter is
///
/// - a number: `float a`,
/// - an array, used as `x[i]`: `const float *x` to read it, `float *y` also to write to it. A number may take the
///   place of a `const` array,
/// - an array, used as a whole at any index: `raw const float *table`. It must be contiguous,
///
/// with a built-in type or a capital letter, such as `T`, that stands for the type of the arguments.
///
/// # Examples
/// ```
/// use usmq::{Array, Elementwise};
///
/// // SAFETY: work-item i touches element i of x and y only.
/// let axpy = unsafe { Elementwise::new("float a, const float *x, float *y", "y[i] += a * x[i]") }?;
/// let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
/// let y = Array::zeros::<f32>([3])?;
/// axpy.launch(&[2f32.into(), (&x).into(), (&y).into()])?;
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct Elementwise {
    expression: Expression,
    operation: String,
}

/// The size and queue of a launch.
///
/// ```
/// use usmq::{Array, Elementwise, ElementwiseLaunch};
///
/// let x = Array::zeros::<i32>(4)?;
/// // SAFETY: work-item i writes element i of x, which is `raw`, so its size does not decide.
/// let set = unsafe { Elementwise::new("raw int *x", "x[i] = 7") }?;
/// set.launch_with(ElementwiseLaunch { size: Some(2), ..Default::default() }, (&x,))?;
/// assert_eq!(x.to_vec::<i32>()?, [7, 7, 0, 0]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ElementwiseLaunch<'a> {
    /// The number of elements, if no array gives it: all arrays are `raw`.
    pub size: Option<usize>,
    /// The queue; that of the data if `None`.
    pub queue: Option<&'a Queue>,
}

impl Elementwise {
    /// A kernel with these parameters and this statement for element `i`. Without type letters it is built now,
    /// so that errors appear here.
    ///
    /// # Safety
    /// Work-item `i` touches element `i` of each argument only, and a `raw` array only inside its bounds, and two
    /// work-items never the same element of a `raw` array if one of them writes to it without an atomic
    /// operation. Launches are safe under this promise: they check types, sizes and overlaps.
    ///
    /// # Errors
    /// [`Error::Value`] for parameters that cannot be read; [`Error::KernelBuild`] with the compiler's log.
    pub unsafe fn new(params: &str, operation: &str) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::new_with(params, operation, ExpressionOptions::default()) }
    }

    /// As [`Elementwise::new`], with options.
    ///
    /// # Safety
    /// As [`Elementwise::new`].
    ///
    /// # Errors
    /// As [`Elementwise::new`].
    pub unsafe fn new_with(params: &str, operation: &str, options: ExpressionOptions) -> Result<Self> {
        let read = parameters(params)
            .map_err(|why| Error::value(format!("elementwise kernel {params:?}: {why}")))?;
        let queue = options.queue.clone();
        let expression = Expression::new("elementwise", params, read, options)?;
        let kernel = Self { expression, operation: operation.to_owned() };
        if !kernel.expression.has_letters() {
            let queue = queue.map_or_else(current_queue, Ok)?;
            kernel.expression.variant(kernel.text(&kernel.expression.plain()), kernel.name(), &queue)?;
        }
        Ok(kernel)
    }

    /// The name of the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.expression.options.name
    }

    /// The name of the parameter with this number, and whether it takes an array.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn parameter(&self, position: usize) -> Option<(&str, bool)> {
        self.expression.parameter(position)
    }

    /// The parameters, as they were given.
    #[must_use]
    pub fn params(&self) -> &str {
        &self.expression.text
    }

    /// Runs the expression for each element of the common shape of the arrays. Returns immediately.
    ///
    /// # Errors
    /// [`Error::Launch`] if the arguments do not match the parameters or each other, [`Error::Placement`] if the
    /// arrays are on different queues, [`Error::KernelBuild`] if the expression does not build for their types.
    pub fn launch(&self, args: impl LaunchArgs) -> Result<Event> {
        self.launch_with(ElementwiseLaunch::default(), args)
    }

    /// As [`Elementwise::launch`], with an explicit size or queue.
    ///
    /// # Errors
    /// As [`Elementwise::launch`].
    pub fn launch_with(&self, launch: ElementwiseLaunch<'_>, args: impl LaunchArgs) -> Result<Event> {
        args.with_args(|args| self.launch_args(launch, args))
    }

    fn launch_args(&self, launch: ElementwiseLaunch<'_>, args: &[Arg<'_>]) -> Result<Event> {
        let bound = self.expression.bind(args)?;
        let size = self.size(&bound, launch.size)?;
        let queue = queue_of(Launch { queue: launch.queue, ..Launch::default() }, args)?;
        self.prepare(&bound, size, queue)?.submit()
    }

    /// As [`Elementwise::launch_with`], also with memory of the host ([`Arg::host`]): used in place where the device
    /// reaches it, else copied to the device and, unless its parameter is `const`, back. Returns after that.
    ///
    /// ```
    /// use usmq::{Arg, Elementwise, ElementwiseLaunch, HostMemory};
    ///
    /// // SAFETY: work-item i touches element i of x and y only.
    /// let add = unsafe { Elementwise::new("const float *x, float *y", "y[i] += x[i]") }?;
    /// let (x, mut y) = ([1f32, 2.0], [10f32, 20.0]);
    /// let args = [HostMemory::from_slice(&x), HostMemory::from_slice_mut(&mut y)];
    /// let args = args.map(|memory| Arg::host(memory, None));
    /// // SAFETY: both arrays live until the launch returns, and nothing else uses them.
    /// unsafe { add.launch_with_host(ElementwiseLaunch::default(), &args) }?;
    /// assert_eq!(y, [11.0, 22.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Safety
    /// Memory of [`Arg::host`] is as described, and only the kernel uses it until the launch returns.
    ///
    /// # Errors
    /// As [`Elementwise::launch`].
    pub unsafe fn launch_with_host(&self, launch: ElementwiseLaunch<'_>, args: &[Arg<'_>]) -> Result<Event> {
        if !args.iter().any(Arg::is_host) {
            return self.launch_with(launch, args);
        }
        let queue = queue_of(Launch { queue: launch.queue, ..Launch::default() }, args)?;
        let transfers = self.expression.transfers(args, &queue)?;
        let replaced = transfers.replaced(args)?;
        let bound = self.expression.bind(&replaced)?;
        let size = self.size(&bound, launch.size)?;
        let prepared = self.prepare(&bound, size, queue)?;
        transfers.run(|| prepared.submit())
    }

    fn prepare<'a>(&self, bound: &'a Bound<'_>, size: usize, queue: Queue) -> Result<Prepared<'a>> {
        let kernel = self.expression.variant(self.text(bound), self.name(), &queue)?;
        let mut args = bound.args();
        args.push(Arg::from(size as i64));
        Ok(Prepared { kernel, size, args, queue })
    }

    fn size(&self, bound: &Bound<'_>, given: Option<usize>) -> Result<usize> {
        let has_raw =
            self.expression.parameters.iter().any(|parameter| matches!(parameter.role, Role::Raw { .. }));
        match given {
            None if bound.has_shape => Ok(bound.size()),
            None => {
                let why = if has_raw { "all its arrays are raw" } else { "it has no array" };
                self.expression.refuse(format_args!("its size is unknown, since {why}; give size"))
            }
            Some(size) if bound.has_shape && size != bound.size() => self.expression.refuse(format_args!(
                "size is {size}, but the arrays have {} elements; omit size",
                bound.size()
            )),
            Some(size) if i64::try_from(size).is_err() => {
                self.expression.refuse(format_args!("size {size} is more than the address space"))
            }
            Some(size) => Ok(size),
        }
    }

    fn text(&self, bound: &Bound<'_>) -> String {
        format!(
            "{}USMQ_KERNEL(1) void {}({}long n) {{\n  const long i = global_linear_id();\n  if (i >= n) return;\n\
             {}  {}\n#line 1 \"operation\"\n{};\n}}\n",
            bound.head(&self.expression.options.preamble),
            self.name(),
            bound.declarations(),
            bound.names(),
            bound.moves(),
            self.operation,
        )
    }
}

/// A launch that is checked but not submitted.
struct Prepared<'a> {
    kernel: Kernel,
    size: usize,
    args: Vec<Arg<'a>>,
    queue: Queue,
}

impl Prepared<'_> {
    fn submit(&self) -> Result<Event> {
        let launch = Launch { global: &[padded(self.size)], local: None, queue: Some(&self.queue) };
        // SAFETY: by the promise of `new`, work-item i touches element i of each argument only, and those from `size` on
        // return at once. `bind` has checked types and overlaps, and the element is inside each array, since they have the
        // common shape.
        unsafe { self.kernel.launch_with(launch, &self.args) }
    }
}

impl std::fmt::Debug for Elementwise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elementwise").field("name", &self.name()).finish_non_exhaustive()
    }
}
