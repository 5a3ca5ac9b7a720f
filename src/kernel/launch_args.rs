//! The arguments of a launch as callers write them: a tuple of values, or arguments in a slice.

use super::arg::Arg;

/// The arguments of a launch: a tuple of up to 16 values that convert into [`Arg`], such as `(2f32, &x, &y)`, or a
/// slice or vector of [`Arg`]. `()` for none.
///
/// ```
/// use usmq::{Array, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {
///   size_t i = global_id(0);
///   y[i] += a * x[i];
/// }"#;
/// let axpy = Kernel::from_sycl(source, "axpy")?;
/// let (x, y) = (Array::from_slice(&[1f32, 2.0])?, Array::zeros::<f32>(2)?);
/// // SAFETY: with 2 work-items axpy touches the 2 elements of x and y only.
/// unsafe { axpy.launch(x.size(), (2f32, &x, &y)) }?;
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of kernel arguments",
    note = "pass a tuple, such as `(2f32, &x, &y)`, of types that implement `Into<usmq::Arg>`"
)]
pub trait LaunchArgs {
    /// Calls `use_args` with the arguments.
    fn with_args<R>(self, use_args: impl FnOnce(&[Arg<'_>]) -> R) -> R;
}

/// Types that hold arguments already.
macro_rules! lists {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<$($generic)*> LaunchArgs for $type {
            fn with_args<R>(self, use_args: impl FnOnce(&[Arg<'_>]) -> R) -> R {
                use_args(&self[..])
            }
        }
    )*};
}

lists! {
    ['a] &'a [Arg<'a>];
    ['a, const N: usize] &'a [Arg<'a>; N];
    [] Vec<Arg<'_>>;
    ['a] &'a Vec<Arg<'_>>;
}

macro_rules! implement {
    ($($name:ident)*) => {
        impl<'a, $($name: Into<Arg<'a>>),*> LaunchArgs for ($($name,)*) {
            fn with_args<R>(self, use_args: impl FnOnce(&[Arg<'_>]) -> R) -> R {
                let ($($name,)*) = self;
                use_args(&[$($name.into()),*])
            }
        }
    };
}

#[allow(non_camel_case_types, reason = "one name stands for the value and its type")]
mod of_tuples {
    use super::{Arg, LaunchArgs};
    use crate::array::tuples;

    tuples!(implement: () a b c d e f g h i j k l m n o p);
}
