//! The arguments of a task, and the types that its function may request.

use crate::array::{Array, Scalar};
use crate::interop::arrow::{Column, Table};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// One argument of a task.
///
/// ```
/// use usmq::{Array, TaskArg};
///
/// let args = [TaskArg::from(3i32), "text".into(), Array::zeros::<f32>(2)?.into()];
/// assert!(matches!(args, [TaskArg::Number(_), TaskArg::Text(_), TaskArg::Array(_)]));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum TaskArg {
    /// An array.
    Array(Array),
    /// A column.
    Column(Column),
    /// A table.
    Table(Table),
    /// A number, which converts to the requested type if it fits.
    Number(Scalar),
    /// A text.
    Text(String),
    /// Anything else; see [`TaskContext::object`](super::TaskContext::object).
    Object(Arc<dyn Any + Send + Sync>),
}

/// For errors: `an array, float32[3] (device USM, …)`.
impl fmt::Display for TaskArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(array) => write!(f, "an array, {array}"),
            Self::Column(column) => column.fmt(f),
            Self::Table(table) => table.fmt(f),
            Self::Number(Scalar::Bool(value)) => write!(f, "the truth value {value}"),
            Self::Number(number) => write!(f, "the number {number}"),
            Self::Text(text) => write!(f, "the text {text:?}"),
            Self::Object(_) => f.write_str("an object of another type"),
        }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $arg:expr),+ $(,)?) => {$(
        impl From<$type> for TaskArg {
            fn from($value: $type) -> Self {
                $arg
            }
        }
    )+};
}

from!(
    Array => |array| Self::Array(array),
    &Array => |array| Self::Array(array.clone()),
    Column => |column| Self::Column(column),
    &Column => |column| Self::Column(column.clone()),
    Table => |table| Self::Table(table),
    &Table => |table| Self::Table(table.clone()),
    Scalar => |number| Self::Number(number),
    bool => |value| Self::Number(Scalar::Bool(value)),
    f32 => |value| Self::Number(Scalar::Float(value.into())),
    f64 => |value| Self::Number(Scalar::Float(value)),
    String => |text| Self::Text(text),
    &str => |text| Self::Text(text.to_owned()),
);

/// A type that a task's function may request with [`TaskContext::arg`](super::TaskContext::arg).
///
/// ```
/// use usmq::{FromTaskArg, Task, TaskArg};
///
/// struct Name(String);
///
/// impl FromTaskArg for Name {
///     const NAME: &'static str = "name";
///
///     fn from_arg(arg: TaskArg) -> Option<Self> {
///         String::from_arg(arg).filter(|text| !text.is_empty()).map(Self)
///     }
/// }
///
/// let name = Task::new("greet").arg("usmq").run(|task| task.arg::<Name>())?;
/// assert_eq!(name.0, "usmq");
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait FromTaskArg: Sized {
    /// The type's name in errors.
    const NAME: &'static str;

    /// The value, if the argument is of this type and in its range.
    fn from_arg(arg: TaskArg) -> Option<Self>;
}

macro_rules! take {
    ($($type:ty, $name:literal, $variant:ident);+ $(;)?) => {$(
        impl FromTaskArg for $type {
            const NAME: &'static str = $name;

            fn from_arg(arg: TaskArg) -> Option<Self> {
                if let TaskArg::$variant(value) = arg { Some(value) } else { None }
            }
        }
    )+};
}

take!(
    Array, "array", Array;
    Column, "column", Column;
    Table, "table", Table;
    Scalar, "number", Number;
    String, "text", Text;
);

macro_rules! whole {
    ($($type:ident)+) => {$(
        impl From<$type> for TaskArg {
            fn from(value: $type) -> Self {
                Self::Number(Scalar::Int(value as i128))
            }
        }

        impl FromTaskArg for $type {
            const NAME: &'static str = stringify!($type);

            fn from_arg(arg: TaskArg) -> Option<Self> {
                if let TaskArg::Number(Scalar::Int(value)) = arg { value.try_into().ok() } else { None }
            }
        }
    )+};
}

whole!(i8 i16 i32 i64 u8 u16 u32 u64 usize isize);

impl FromTaskArg for bool {
    const NAME: &'static str = "bool";

    fn from_arg(arg: TaskArg) -> Option<Self> {
        if let TaskArg::Number(Scalar::Bool(value)) = arg { Some(value) } else { None }
    }
}

impl FromTaskArg for f64 {
    const NAME: &'static str = "f64";

    fn from_arg(arg: TaskArg) -> Option<Self> {
        match arg {
            TaskArg::Number(Scalar::Float(value)) => Some(value),
            TaskArg::Number(Scalar::Int(value)) => Some(value as Self),
            _ => None,
        }
    }
}

impl FromTaskArg for f32 {
    const NAME: &'static str = "f32";

    fn from_arg(arg: TaskArg) -> Option<Self> {
        f64::from_arg(arg).map(|value| value as Self)
    }
}

/// As the text for errors.
impl fmt::Debug for TaskArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskArg({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_convert_only_to_types_that_hold_them() {
        assert_eq!(u8::from_arg(255u64.into()), Some(255));
        assert_eq!(u8::from_arg(256u64.into()), None);
        assert_eq!(usize::from_arg((-1i32).into()), None);
        assert_eq!(i32::from_arg(1.0.into()), None, "a real number does not convert to an integer");
        assert_eq!(f64::from_arg(2i32.into()), Some(2.0), "a whole number is a real one");
        assert_eq!(i32::from_arg(true.into()), None, "a bool does not convert to an integer");
        assert_eq!(bool::from_arg(true.into()), Some(true));
        assert_eq!(bool::from_arg(1i32.into()), None);
        assert_eq!(f32::from_arg("1".into()), None);
        assert_eq!(String::from_arg("x".into()).as_deref(), Some("x"));
        assert_eq!(u64::from_arg(u64::MAX.into()), Some(u64::MAX));
    }
}
