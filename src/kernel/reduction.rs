//! One-line kernels that combine elements to one value, or to one along an axis.

use super::arg::Arg;
use super::build::Kernel;
use super::expression::{Bound, Expression, ExpressionOptions};
use super::launch::{Launch, queue_of};
use super::launch_args::LaunchArgs;
use super::template::{Type, parameters, result_type};
use crate::array::{Array, DType, Shape};
use crate::device::{Event, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::manager::current_queue;

/// A kernel that maps each element to a value and combines the values: a sum of squares, a maximum, a norm.
///
/// Parameters are as those of [`Elementwise`](crate::Elementwise), and arrays are `const`. `map` is an expression
/// for element `i`; `combine` one of two values `a` and `b`, in any order and grouping; `identity` the value that
/// changes nothing in `combine`, and the result for no element.
///
/// # Examples
/// ```
/// use usmq::{Array, Reduction};
///
/// // SAFETY: work-item i reads element i of x only.
/// let squares = unsafe { Reduction::new("const float *x", "float", "x[i] * x[i]", "a + b", "0") }?;
/// let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
/// assert_eq!(squares.launch(&[(&x).into()])?.to_vec::<f32>()?, [14.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct Reduction {
    expression: Expression,
    result: Type,
    map: String,
    combine: String,
    identity: String,
    post: String,
    is_deterministic: bool,
}

/// Optional inputs of a reduction besides those of every one-line kernel.
///
/// ```
/// use usmq::{Array, Reduction, ReductionOptions};
///
/// let x = Array::from_slice(&[3f32, 4.0])?;
/// let options = ReductionOptions { post: "sqrt(a)".to_owned(), ..Default::default() };
/// // SAFETY: the map reads element i of x only.
/// let norm = unsafe { Reduction::new_with("const float *x", "float", "x[i] * x[i]", "a + b", "0", options) }?;
/// assert_eq!(norm.launch((&x,))?.to_vec::<f32>()?, [5.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ReductionOptions {
    /// An expression of the combined value `a`, such as `sqrt(a)`; `n` is the number of its elements. None if
    /// empty.
    pub post: String,
    /// The same bits on every device: the grouping depends on the sizes only. Otherwise it also depends on the
    /// number of compute units, and is the same in each run on one device.
    pub deterministic: bool,
    /// Name, preamble, flags and queue.
    pub expression: ExpressionOptions,
}

/// The axis and queue of a launch.
///
/// ```
/// use usmq::{Array, Reduction, ReductionLaunch};
///
/// let x = Array::from_slice(&[1i32, 2, 3, 4])?.reshape((2, 2))?;
/// // SAFETY: the map reads element i of x only.
/// let sum = unsafe { Reduction::new("const T *x", "T", "x[i]", "a + b", "0") }?;
/// let rows = ReductionLaunch { axis: Some(1), keepdims: true, ..Default::default() };
/// let sums = sum.launch_with(rows, (&x,))?;
/// assert_eq!((sums.shape(), sums.to_vec::<i32>()?), (&[2, 1][..], vec![3, 7]));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ReductionLaunch<'a> {
    /// The axis to combine along, from the end if negative; all axes if `None`.
    pub axis: Option<isize>,
    /// Keep the combined axes, with extent 1.
    pub keepdims: bool,
    /// The queue; that of the data if `None`.
    pub queue: Option<&'a Queue>,
}

/// Work-items of a group in [`Form::Tree`].
const GROUP: usize = 128;
/// Up to this number of elements for a result, one work-item combines them.
const SHORT: usize = 1024;
/// From this number of results on, one work-item for each is enough work for any device.
const MANY: usize = 8192;
/// Elements that a group combines at least.
const PART: usize = 32 * GROUP;
/// Groups for one result at most, in a deterministic reduction always.
const PARTS: usize = 256;

/// The sizes of a launch: element (o, k, e) of the shape [outer, count, inner] is combined over k.
struct Sizes {
    shape: Shape,
    inner: usize,
    count: usize,
    results: usize,
}

impl Reduction {
    /// A kernel with these parameters, the type of the result, and the expressions of the reduction. Without type
    /// letters it is built now, so that errors appear here.
    ///
    /// # Safety
    /// The expressions read element `i` of each argument only, and `raw` arrays only inside their bounds.
    /// Launches are safe under this promise: they check types and sizes.
    ///
    /// # Errors
    /// [`Error::Value`] for parameters that cannot be read or that allow writes; [`Error::KernelBuild`] with the
    /// compiler's log.
    pub unsafe fn new(params: &str, result: &str, map: &str, combine: &str, identity: &str) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::new_with(params, result, map, combine, identity, ReductionOptions::default()) }
    }

    /// As [`Reduction::new`], with options.
    ///
    /// # Safety
    /// As [`Reduction::new`].
    ///
    /// # Errors
    /// As [`Reduction::new`].
    pub unsafe fn new_with(
        params: &str,
        result: &str,
        map: &str,
        combine: &str,
        identity: &str,
        options: ReductionOptions,
    ) -> Result<Self> {
        let refuse = |why| Error::value(format!("reduction kernel {params:?}: {why}"));
        let read = parameters(params).map_err(refuse)?;
        if let Some(written) = read.iter().find(|parameter| parameter.writes()) {
            return Err(refuse(format!("declare {} const, since a reduction only reads", written.name)));
        }
        if let Some(taken) = read.iter().find(|parameter| matches!(parameter.name.as_str(), "a" | "b")) {
            return Err(refuse(format!(
                "the name {} stands for a value to combine; choose another",
                taken.name
            )));
        }
        let result = result_type(result).map_err(refuse)?;
        let queue = options.expression.queue.clone();
        let expression = Expression::new("reduction", params, read, options.expression)?;
        let letters = expression.parameters.iter().map(|parameter| parameter.element);
        if matches!(result, Type::Letter(_)) && !letters.clone().any(|letter| letter == result) {
            return Err(refuse("no parameter has the type of the result".to_owned()));
        }
        let kernel = Self {
            expression,
            result,
            map: map.to_owned(),
            combine: combine.to_owned(),
            identity: identity.to_owned(),
            post: if options.post.is_empty() { "a".to_owned() } else { options.post },
            is_deterministic: options.deterministic,
        };
        if !kernel.expression.has_letters() {
            let queue = queue.map_or_else(current_queue, Ok)?;
            kernel.variant(&kernel.expression.plain(), "", &queue)?;
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

    /// Combines all elements to an array without axes, in device memory. Returns immediately.
    ///
    /// # Errors
    /// As [`Reduction::launch_with`].
    pub fn launch(&self, args: impl LaunchArgs) -> Result<Array> {
        self.launch_with(ReductionLaunch::default(), args)
    }

    /// Combines the elements along an axis, or all of them.
    ///
    /// # Errors
    /// [`Error::Launch`] if the arguments do not match the parameters or each other, [`Error::Index`] for an axis
    /// that the common shape lacks, [`Error::Placement`] if the arrays are on different queues,
    /// [`Error::KernelBuild`] if the expressions do not build for their types.
    pub fn launch_with(&self, launch: ReductionLaunch<'_>, args: impl LaunchArgs) -> Result<Array> {
        args.with_args(|args| self.launch_args(launch, args))
    }

    fn launch_args(&self, launch: ReductionLaunch<'_>, args: &[Arg<'_>]) -> Result<Array> {
        let bound = self.expression.bind(args)?;
        let sizes = self.sizes(&bound, launch)?;
        let queue = queue_of(Launch { queue: launch.queue, ..Launch::default() }, args)?;
        let prepared = self.prepare(&bound, &sizes, queue)?;
        prepared.submit()?;
        Ok(prepared.result)
    }

    /// As [`Reduction::launch_with`], also with memory of the host ([`Arg::host`]): used in place where the device
    /// reaches it, else copied to the device. Returns after the kernel.
    ///
    /// # Safety
    /// Memory of [`Arg::host`] is as described, and nothing writes to it until the launch returns.
    ///
    /// # Errors
    /// As [`Reduction::launch_with`].
    pub unsafe fn launch_with_host(&self, launch: ReductionLaunch<'_>, args: &[Arg<'_>]) -> Result<Array> {
        if !args.iter().any(Arg::is_host) {
            return self.launch_with(launch, args);
        }
        let queue = queue_of(Launch { queue: launch.queue, ..Launch::default() }, args)?;
        let transfers = self.expression.transfers(args, &queue)?;
        let replaced = transfers.replaced(args)?;
        let bound = self.expression.bind(&replaced)?;
        let sizes = self.sizes(&bound, launch)?;
        let prepared = self.prepare(&bound, &sizes, queue)?;
        transfers.run(|| prepared.submit())?;
        Ok(prepared.result)
    }

    fn sizes(&self, bound: &Bound<'_>, launch: ReductionLaunch<'_>) -> Result<Sizes> {
        if !bound.has_shape {
            return self.expression.refuse("it has no array to combine, except raw ones");
        }
        Sizes::new(&bound.shape, launch)
    }

    fn prepare<'a>(&self, bound: &'a Bound<'_>, sizes: &Sizes, queue: Queue) -> Result<Prepared<'a>> {
        let result = Array::uninit(&sizes.shape[..], self.dtype(bound), UsmKind::Device, &queue)?;
        let to = Arg::from(result.reshape([-1])?);
        let mut args = bound.args();
        let parts = self.parts(sizes, &queue);
        let steps = if parts == 0 {
            args.push(to);
            args.extend([sizes.results, sizes.count, sizes.inner].map(number));
            vec![Step::of_items(self.variant(bound, "", &queue)?, sizes.results, args)]
        } else {
            let partial = Array::uninit([sizes.results * parts], result.dtype(), UsmKind::Device, &queue)?;
            let of_part = sizes.count.div_ceil(parts);
            let mut of_tree = args.clone();
            of_tree.push(Arg::from(partial.clone()));
            of_tree.extend([sizes.count, sizes.inner, of_part].map(number));
            let kernel = self.variant(bound, "_parts", &queue)?;
            let global = vec![sizes.results, parts * GROUP];
            let tree = Step { kernel, global, local: Some([1, GROUP]), args: of_tree };
            args.extend([to, Arg::from(partial)]);
            args.extend([sizes.results, parts, sizes.count].map(number));
            vec![tree, Step::of_items(self.variant(bound, "_last", &queue)?, sizes.results, args)]
        };
        Ok(Prepared { result, steps, queue })
    }

    fn dtype(&self, bound: &Bound<'_>) -> DType {
        match self.result {
            Type::Known(dtype) => dtype,
            Type::Letter(letter) => bound
                .letters
                .iter()
                .find(|(known, _)| *known == letter)
                .map_or(DType::F32, |(_, dtype)| *dtype),
        }
    }

    /// Groups for each result; 0 if one work-item combines the elements of a result.
    fn parts(&self, sizes: &Sizes, queue: &Queue) -> usize {
        if sizes.count <= SHORT || sizes.results >= MANY || queue.device().max_work_group_size() < GROUP {
            return 0;
        }
        let units = queue.device().max_compute_units() as usize;
        let most =
            if self.is_deterministic { PARTS } else { (4 * units / sizes.results.max(1)).clamp(1, PARTS) };
        sizes.count.div_ceil(PART).min(most)
    }

    /// One of three kernels: for whole results, for parts of results by groups, and for the last step.
    fn variant(&self, bound: &Bound<'_>, which: &str, queue: &Queue) -> Result<Kernel> {
        let name = format!("{}{which}", self.name());
        let result = self.dtype(bound).row().cpp;
        let (params, body) = match which {
            "" => {
                (format!("{result} *usmq_to, long usmq_results, long n, long usmq_inner"), self.whole(bound))
            }
            "_parts" => {
                (format!("{result} *usmq_to, long n, long usmq_inner, long usmq_of_part"), self.part(bound))
            }
            _ => (
                format!(
                    "{result} *usmq_to, const {result} *usmq_from, long usmq_results, long usmq_parts, long n"
                ),
                LAST.to_owned(),
            ),
        };
        let dimensions = if which == "_parts" { 2 } else { 1 };
        let text = format!(
            "{}using usmq_result = {result};\nUSMQ_KERNEL({dimensions}) void {name}({}{params}) {{\n{}\
             const auto usmq_combine = [=](usmq_result a, usmq_result b) -> usmq_result {{\n\
             #line 1 \"combine\"\nreturn {};\n}};\n\
             const auto usmq_post = [=](usmq_result a, long n) -> usmq_result {{\n#line 1 \"post\"\nreturn {};\n}};\n\
             usmq_result usmq_value =\n#line 1 \"identity\"\n{};\n{body}}}\n",
            bound.head(&self.expression.options.preamble),
            bound.declarations(),
            bound.names(),
            self.combine,
            self.post,
            self.identity,
        );
        self.expression.variant(text, &name, queue)
    }

    /// Combines element `usmq_k` of result `usmq_o`.
    fn add(&self, bound: &Bound<'_>) -> String {
        format!(
            "const long i = (usmq_o / usmq_inner * n + usmq_k) * usmq_inner + usmq_o % usmq_inner;\n{}\n\
             const usmq_result usmq_mapped =\n#line 1 \"map\"\n{};\n\
             usmq_value = usmq_combine(usmq_value, usmq_mapped);\n",
            bound.moves(),
            self.map
        )
    }

    /// One work-item for each result.
    fn whole(&self, bound: &Bound<'_>) -> String {
        format!(
            "const long usmq_o = global_linear_id();\nif (usmq_o >= usmq_results) return;\n\
             for (long usmq_k = 0; usmq_k < n; ++usmq_k) {{\n{}}}\n\
             usmq_to[usmq_o] = usmq_post(usmq_value, n);\n",
            self.add(bound)
        )
    }

    /// One group for each part of a result: its work-items take every 128th element, and combine by halves.
    fn part(&self, bound: &Bound<'_>) -> String {
        format!(
            "const long usmq_o = global_id(0), usmq_part = group_id(1), usmq_lane = local_id(1);\n\
             const long usmq_end = min(n, (usmq_part + 1) * usmq_of_part);\n\
             for (long usmq_k = usmq_part * usmq_of_part + usmq_lane; usmq_k < usmq_end; usmq_k += {GROUP}) {{\n{}}}\n\
             static local_array<usmq_result, {GROUP}> usmq_tile;\nusmq_tile[usmq_lane] = usmq_value;\nbarrier();\n\
             for (int usmq_half = {GROUP} / 2; usmq_half > 0; usmq_half /= 2) {{\n\
             if (usmq_lane < usmq_half)\n\
             usmq_tile[usmq_lane] = usmq_combine(usmq_tile[usmq_lane], usmq_tile[usmq_lane + usmq_half]);\n\
             barrier();\n}}\n\
             if (usmq_lane == 0) usmq_to[usmq_o * group_count(1) + usmq_part] = usmq_tile[0];\n",
            self.add(bound)
        )
    }
}

/// Combines the parts of each result in their order.
const LAST: &str = "const long usmq_o = global_linear_id();\nif (usmq_o >= usmq_results) return;\n\
    for (long usmq_k = 0; usmq_k < usmq_parts; ++usmq_k)\n\
    usmq_value = usmq_combine(usmq_value, usmq_from[usmq_o * usmq_parts + usmq_k]);\n\
    usmq_to[usmq_o] = usmq_post(usmq_value, n);\n";

/// A size as a parameter of type `long`.
fn number(size: usize) -> Arg<'static> {
    Arg::from(size as i64)
}

/// One kernel of a reduction, with its arguments.
struct Step<'a> {
    kernel: Kernel,
    global: Vec<usize>,
    local: Option<[usize; 2]>,
    args: Vec<Arg<'a>>,
}

impl<'a> Step<'a> {
    /// With one work-item for each result.
    fn of_items(kernel: Kernel, results: usize, args: Vec<Arg<'a>>) -> Self {
        Self { kernel, global: vec![results], local: None, args }
    }
}

/// A reduction that is checked but not submitted. Each step reads what the one before has written.
struct Prepared<'a> {
    result: Array,
    steps: Vec<Step<'a>>,
    queue: Queue,
}

impl Prepared<'_> {
    /// Submits all steps, and returns the event of the last one.
    fn submit(&self) -> Result<Event> {
        let mut last = None;
        for Step { kernel, global, local, args } in &self.steps {
            let local = local.as_ref().map(|local| &local[..]);
            let launch = Launch { global, local, queue: Some(&self.queue) };
            // SAFETY: by the promise of `new` the expressions read element i only, which is inside each array of the
            // common shape; the other accesses are those of the texts above, inside the arrays made for them.
            last = Some(unsafe { kernel.launch_with(launch, args) }?);
        }
        last.map_or_else(|| self.queue.barrier_now(&[]), Ok)
    }
}

impl Sizes {
    fn new(shape: &[usize], launch: ReductionLaunch<'_>) -> Result<Self> {
        let Some(axis) = launch.axis else {
            let kept = if launch.keepdims { shape.len() } else { 0 };
            return Ok(Self {
                shape: Shape::from_elem(1, kept),
                inner: 1,
                count: shape.iter().product(),
                results: 1,
            });
        };
        let ndim = shape.len().cast_signed();
        let from_start = if axis < 0 { axis.saturating_add(ndim) } else { axis };
        if !(0..ndim).contains(&from_start) {
            return Err(Error::no_axis(axis, shape));
        }
        let axis = from_start.unsigned_abs();
        let mut kept = Shape::from(shape);
        if launch.keepdims {
            kept[axis] = 1;
        } else {
            kept.remove(axis);
        }
        let inner: usize = shape[axis + 1..].iter().product();
        Ok(Self { results: kept.iter().product(), shape: kept, inner, count: shape[axis] })
    }
}

impl std::fmt::Debug for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reduction").field("name", &self.name()).finish_non_exhaustive()
    }
}
