//! Kernels with a promise about their accesses and types of parameters, whose launches are therefore safe.

use super::arg::Arg;
use super::broadcast::{Overlap, overlap};
use super::build::Kernel;
use super::launch::Launch;
use super::param::Param;
use crate::array::{Array, Element, IntoShape};
use crate::device::Event;
use crate::error::{Error, Result};
use std::fmt;
use std::marker::PhantomData;

/// Marks an array parameter of a [`TypedKernel`] that the kernel only reads.
///
/// ```
/// use usmq::{Array, In, Out, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void f(const int *x, int *y) { y[global_id(0)] = x[global_id(0)]; }"#;
/// // SAFETY: work-item i reads x[i] and writes y[i].
/// let f = unsafe { Kernel::from_sycl(source, "f")?.typed::<(In<i32>, Out<i32>)>() }?;
/// let (x, y) = (Array::from_slice(&[1, 2])?, Array::zeros::<i32>(2)?);
/// f.launch(2, (&x.as_readonly(), &y))?;
/// assert_eq!(y.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct In<T: Element>(PhantomData<T>);

/// Marks an array parameter of a [`TypedKernel`] that the kernel writes without reading it.
///
/// ```
/// use usmq::{Array, Out, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void f(int *y) { y[global_id(0)] = 3; }"#;
/// // SAFETY: work-item i writes y[i].
/// let f = unsafe { Kernel::from_sycl(source, "f")?.typed::<(Out<i32>,)>() }?;
/// let y = Array::zeros::<i32>(2)?;
/// f.launch(2, (&y,))?;
/// assert!(f.launch(2, (&y.as_readonly(),)).is_err());
/// assert_eq!(y.to_vec::<i32>()?, [3, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct Out<T: Element>(PhantomData<T>);

/// Marks an array parameter of a [`TypedKernel`] that the kernel reads and writes.
///
/// ```
/// use usmq::{Array, InOut, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void f(int *x) { x[global_id(0)] += 1; }"#;
/// // SAFETY: work-item i reads and writes x[i].
/// let f = unsafe { Kernel::from_sycl(source, "f")?.typed::<(InOut<i32>,)>() }?;
/// let x = Array::from_slice(&[1, 2])?;
/// f.launch(2, (&x,))?;
/// assert_eq!(x.to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct InOut<T: Element>(PhantomData<T>);

/// One parameter of a [`TypedKernel`]: an element type for a number, [`In`], [`Out`] or [`InOut`] for an array.
pub trait TypedParam: private::Param {
    /// The argument that a launch takes.
    type Value<'a>: Into<Arg<'a>>;
}

/// The parameters of a [`TypedKernel`], as a tuple of up to 12 [`TypedParam`].
pub trait TypedParams: private::Params {
    /// The arguments that a launch takes.
    type Values<'a>;

    #[doc(hidden)]
    fn bind(values: Self::Values<'_>) -> Vec<Arg<'_>>;
}

mod private {
    use super::Param as Declared;

    pub trait Param {
        const TYPE: Declared;
    }

    pub trait Params {
        const TYPES: &'static [Declared];
    }
}

impl<T: Element> private::Param for T {
    const TYPE: Param = Param::Scalar(T::DTYPE);
}

impl<T: Element> TypedParam for T {
    type Value<'a> = T;
}

macro_rules! arrays {
    ($($name:ident $access:ident;)*) => {$(
        impl<T: Element> private::Param for $name<T> {
            const TYPE: Param = Param::$access(Some(T::DTYPE));
        }

        impl<T: Element> TypedParam for $name<T> {
            type Value<'a> = &'a Array;
        }
    )*};
}

arrays! {
    In Read;
    Out Write;
    InOut ReadWrite;
}

macro_rules! implement {
    ($($name:ident)*) => {
        impl<$($name: TypedParam),*> private::Params for ($($name,)*) {
            const TYPES: &'static [Param] = &[$($name::TYPE),*];
        }

        impl<$($name: TypedParam),*> TypedParams for ($($name,)*) {
            type Values<'a> = ($($name::Value<'a>,)*);

            fn bind(values: Self::Values<'_>) -> Vec<Arg<'_>> {
                let ($($name,)*) = values;
                vec![$($name.into()),*]
            }
        }
    };
}

#[allow(non_camel_case_types, reason = "one name stands for the value and its type")]
mod of_tuples {
    use super::{Arg, Param, TypedParam, TypedParams, private};
    use crate::array::tuples;

    tuples!(implement: (a) b c d e f g h i j k l);
}

/// A kernel whose launches are safe: [`Kernel::typed`] takes the promise about its accesses once, and each launch
/// checks types, sizes and overlaps.
///
/// ```
/// use usmq::{Array, In, InOut, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {
///   size_t i = global_id(0);
///   y[i] += a * x[i];
/// }"#;
/// // SAFETY: work-item i reads x[i] and y[i], and writes y[i], and nothing else.
/// let axpy = unsafe { Kernel::from_sycl(source, "axpy")?.typed::<(f32, In<f32>, InOut<f32>)>() }?;
/// let (x, y) = (Array::from_slice(&[1f32, 2.0])?, Array::zeros::<f32>(2)?);
/// axpy.launch(2, (3.0, &x, &y))?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0]);
/// assert!(axpy.launch(3, (3.0, &x, &y)).is_err(), "x has 2 elements");
/// assert!(axpy.launch(2, (3.0, &y, &y)).is_err(), "the written array overlaps another one");
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct TypedKernel<P> {
    kernel: Kernel,
    params: PhantomData<fn(P)>,
}

impl Kernel {
    /// This kernel with typed parameters, for safe launches.
    ///
    /// # Safety
    /// In a launch over `n` work-items, in one to three dimensions, the work-item with the global linear number `i`
    ///
    /// - touches of each array argument element `i` only: it reads those of [`In`], writes those of [`Out`], reads and
    ///   writes those of [`InOut`], and writes an [`Out`] element whether or not it was set before,
    /// - touches no other memory, keeps no pointer, and has defined behaviour for each value of its numbers and
    ///   elements.
    ///
    /// # Errors
    /// [`Error::Launch`] if the parameters that usmq reads from the source differ.
    pub unsafe fn typed<P: TypedParams>(&self) -> Result<TypedKernel<P>> {
        if let Some(params) = self.params() {
            check_params(self.name(), params, P::TYPES)?;
        }
        Ok(TypedKernel { kernel: self.clone(), params: PhantomData })
    }
}

impl<P: TypedParams> TypedKernel<P> {
    /// The kernel without types.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Launches the kernel on the queue that its arrays share. Returns immediately.
    ///
    /// # Errors
    /// [`Error::Launch`] if an array has another element type, fewer elements than the range, strides, or no
    /// permission for a write, or if a written array overlaps another argument; [`Error::Placement`] if the arrays are
    /// on different queues.
    pub fn launch(&self, global: impl IntoShape, values: P::Values<'_>) -> Result<Event> {
        let global = global.into_shape();
        self.launch_with(Launch { global: global.as_ref(), ..Launch::default() }, values)
    }

    /// As [`TypedKernel::launch`], with an explicit work-group size or queue.
    ///
    /// # Errors
    /// As [`TypedKernel::launch`].
    pub fn launch_with(&self, launch: Launch<'_>, values: P::Values<'_>) -> Result<Event> {
        let mut args = P::bind(values);
        let items = launch.global.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        for (position, (arg, param)) in args.iter_mut().zip(P::TYPES).enumerate() {
            let (Some(Some(dtype)), Some(array)) = (param.pointee(), arg.array()) else { continue };
            if array.dtype() != dtype {
                return self
                    .refuse(position, format_args!("takes elements of {dtype}, not {}", array.dtype()));
            }
            // More than fit in a number are refused with the range.
            if let Some(items) = items.filter(|items| *items > array.size()) {
                return self.refuse(
                    position,
                    format_args!(
                        "the range {:?} has {items} work-items, but the array has {} elements",
                        launch.global,
                        array.size()
                    ),
                );
            }
            arg.mark(param.access());
        }
        self.check_overlaps(&args)?;
        // SAFETY: by the promise of `typed`, each work-item touches only the element with its number. The array has it,
        // as was just checked; `launch_with` refuses strided arrays; and no other argument shares a written one.
        unsafe { self.kernel.launch_with(launch, &args) }
    }

    fn check_overlaps(&self, args: &[Arg<'_>]) -> Result<()> {
        for (position, arg) in args.iter().enumerate() {
            let Some(array) = arg.array().filter(|_| arg.access(None).writes()) else { continue };
            for (other, memory) in args.iter().enumerate().filter_map(|(at, arg)| Some((at, arg.array()?))) {
                if other != position && overlap((array, None), (memory, None)) != Overlap::None {
                    return self.refuse(
                        position,
                        format_args!(
                            "the kernel writes to it, and it overlaps argument {other}; pass a copy"
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    fn refuse<T>(&self, position: usize, why: impl fmt::Display) -> Result<T> {
        let name = self.kernel.name();
        let message = format!("kernel {name:?}, argument {position}: {why}");
        Err(Error::launch(name, Some(position), message))
    }
}

/// Compares the types with the parameters of the source.
fn check_params(name: &str, params: &[Param], types: &[Param]) -> Result<()> {
    if params.len() != types.len() {
        let message = format!(
            "kernel {name:?} has {} parameters, not {}; give typed() one type for each",
            params.len(),
            types.len()
        );
        return Err(Error::launch(name, None, message));
    }
    for (position, (param, given)) in params.iter().zip(types).enumerate() {
        let fits = match (param, given) {
            (Param::Unknown, _) => true,
            (Param::Scalar(known), Param::Scalar(dtype)) => known == dtype,
            // An input may be a pointer that is not const.
            (Param::Read(known), Param::Read(dtype))
            | (
                Param::Write(known) | Param::ReadWrite(known),
                Param::Read(dtype) | Param::Write(dtype) | Param::ReadWrite(dtype),
            ) => known.is_none() || known == dtype,
            _ => false,
        };
        if !fits {
            let message = format!(
                "kernel {name:?}, parameter {position}: typed() was given {given}, but the kernel takes {param}"
            );
            return Err(Error::launch(name, Some(position), message));
        }
    }
    Ok(())
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), params: PhantomData }
    }
}

impl<P> fmt::Debug for TypedKernel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedKernel").field(&self.kernel).finish()
    }
}
