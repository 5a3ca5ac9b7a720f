//! What one-line kernels share: arguments for their parameters, the text that gives each element its name, and
//! the kernels built so far.

use super::arg::{Arg, Held, Value};
use super::broadcast::{Overlap, common_shape, overlap, repeats, strides_in};
use super::build::{Kernel, KernelOptions};
use super::host_args::{Rules, Transfers, Use};
use super::template::{Parameter, Role, Type, supported};
use crate::array::{Array, DType, Shape, Strides, merge_axes};
use crate::device::Queue;
use crate::error::{Error, Result, spelled};
use crate::memory::Access;
use crate::runtime::ForkMutex;
use std::collections::HashMap;
use std::fmt::Write;

/// Optional inputs of a one-line kernel.
///
/// ```
/// use usmq::{Array, Elementwise, ExpressionOptions};
///
/// let options = ExpressionOptions {
///     name: "squares".to_owned(),
///     preamble: "float square(float x) { return x * x; }".to_owned(),
///     ..Default::default()
/// };
/// let x = Array::from_slice(&[1f32, 2.0])?;
/// // SAFETY: work-item i touches element i of x only.
/// let squares = unsafe { Elementwise::new_with("float *x", "x[i] = square(x[i])", options) }?;
/// squares.launch((&x,))?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 4.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ExpressionOptions {
    /// The name of the kernel, for errors and profiles; `elementwise` or `reduction` if empty.
    pub name: String,
    /// Text before the kernel, such as functions that the expression calls.
    pub preamble: String,
    /// Flags for the compiler, such as `-DN=3`.
    pub flags: Vec<String>,
    /// The queue of the first build; the current queue if `None`.
    pub queue: Option<Queue>,
}

/// The parameters of a one-line kernel, and its variants: one for each combination of types, forms of arguments
/// and number of axes.
pub(super) struct Expression {
    pub(super) options: ExpressionOptions,
    /// The parameters as text.
    pub(super) text: String,
    pub(super) parameters: Vec<Parameter>,
    variants: ForkMutex<HashMap<String, Kernel>>,
}

/// The arguments of one launch.
pub(super) struct Bound<'a> {
    /// The common shape of the arrays whose elements the kernel takes.
    pub(super) shape: Shape,
    /// Whether any array determines the shape.
    pub(super) has_shape: bool,
    /// The types of the letters.
    pub(super) letters: Vec<(char, DType)>,
    items: Vec<Item<'a>>,
    /// The merged axes of the shape; empty if position i of each array is element i.
    axes: Shape,
}

/// One argument.
struct Item<'a> {
    parameter: &'a Parameter,
    dtype: DType,
    /// `None` before a launch: then it counts as a contiguous array.
    value: Option<&'a Arg<'a>>,
    /// In the merged axes; `None` for a number and a raw array.
    strides: Option<Strides>,
}

/// A view whose element i is anywhere in memory. `offset` is that of the current element.
const ELEMENTS: &str = "\
template <class T, int N> struct usmq_elements {
  T *start;
  long extents[N], strides[N], item, offset;
  long place(long i) const {
    long at = 0;
    for (int axis = N - 1; axis > 0; --axis) {
      at += i % extents[axis] * strides[axis];
      i /= extents[axis];
    }
    return at + i * strides[0];
  }
  void move(long i) {
    item = i;
    offset = place(i);
  }
  T &operator[](long i) const { return start[i == item ? offset : place(i)]; }
};
";

/// A number in place of the elements of an array.
const REPEATED: &str = "\
template <class T> struct usmq_repeated {
  T value;
  const T &operator[](long) const { return value; }
};
";

const BOOL_NAME: &str = "usmq_bool";

/// An element of a bool array: memory of another library may hold any byte, which C++ must not load as a bool. As in
/// numpy, each byte other than 0 is true.
const BOOL: &str = "\
struct usmq_bool {
  unsigned char byte;
  operator bool() const { return byte != 0; }
  usmq_bool &operator=(bool value) { byte = value; return *this; }
  usmq_bool &operator=(const usmq_bool &other) { return *this = bool(other); }
  template <class T> usmq_bool &operator|=(T x) { return *this = bool(*this | x); }
  template <class T> usmq_bool &operator&=(T x) { return *this = bool(*this & x); }
  template <class T> usmq_bool &operator^=(T x) { return *this = bool(*this ^ x); }
  template <class T> usmq_bool &operator+=(T x) { return *this = bool(*this + x); }
  template <class T> usmq_bool &operator-=(T x) { return *this = bool(*this - x); }
  template <class T> usmq_bool &operator*=(T x) { return *this = bool(*this * x); }
  template <class T> usmq_bool &operator/=(T x) { return *this = bool(*this / x); }
};
";

impl Expression {
    pub(super) fn new(
        kind: &str,
        text: &str,
        parameters: Vec<Parameter>,
        mut options: ExpressionOptions,
    ) -> Result<Self> {
        if options.name.is_empty() {
            kind.clone_into(&mut options.name);
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !options.name.chars().all(is_name) || options.name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::value(format!(
                "{:?} is not a name for a kernel; use letters, digits and _",
                options.name
            )));
        }
        Ok(Self { options, text: text.to_owned(), parameters, variants: ForkMutex::default() })
    }

    pub(super) fn has_letters(&self) -> bool {
        self.parameters.iter().any(|parameter| matches!(parameter.element, Type::Letter(_)))
    }

    pub(super) fn refuse<T>(&self, why: impl std::fmt::Display) -> Result<T> {
        Err(self.error(None, &why))
    }

    fn refuse_argument<T>(&self, parameter: &Parameter, why: impl std::fmt::Display) -> Result<T> {
        Err(self.error(Some(parameter), &why))
    }

    fn error(&self, parameter: Option<&Parameter>, why: &dyn std::fmt::Display) -> Error {
        let name = &self.options.name;
        let Some(parameter) = parameter else {
            return Error::launch(name, None, format!("kernel {name:?}: {why}"));
        };
        let position = self.parameters.iter().position(|other| other.name == parameter.name);
        Error::launch(name, position, format!("kernel {name:?}: argument {}: {why}", parameter.name))
    }

    /// The name of a parameter, and whether it takes an array.
    pub(super) fn parameter(&self, position: usize) -> Option<(&str, bool)> {
        let parameter = self.parameters.get(position)?;
        Some((&parameter.name, parameter.role != Role::Number))
    }

    /// The transfers of memory of the host among the arguments, after checks of all arguments.
    pub(super) fn transfers<'a>(&self, args: &'a [Arg<'a>], queue: &Queue) -> Result<Transfers<'a>> {
        self.check_count(args)?;
        self.check_marks(args)?;
        let uses = self.parameters.iter().map(|parameter| {
            let takes_strides = matches!(parameter.role, Role::Elements { .. });
            Use { access: parameter.access(), takes_strides }
        });
        let refuse = |position: usize, why: &str| self.error(self.parameters.get(position), &why);
        let rules = Rules { uses: uses.collect(), refuse: &refuse };
        let transfers = Transfers::new(&rules, args, queue)?;
        // Copies on the device do not overlap where the memory of the host does.
        self.bind(&transfers.as_on_host(args)?)?;
        Ok(transfers)
    }

    fn check_count(&self, args: &[Arg<'_>]) -> Result<()> {
        if args.len() == self.parameters.len() {
            return Ok(());
        }
        let names: Vec<_> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        self.refuse(format!(
            "takes {} arguments ({}), {} were given",
            names.len(),
            names.join(", "),
            args.len()
        ))
    }

    /// A mark that contradicts the declaration is an error.
    fn check_marks(&self, args: &[Arg<'_>]) -> Result<()> {
        for (parameter, arg) in self.parameters.iter().zip(args) {
            let why = match (arg.marked_access(), parameter.writes()) {
                (Some(Access::Read), true) => {
                    "it is marked as read, but the kernel may write to it; declare it const, or omit the mark"
                }
                (Some(Access::Write | Access::ReadWrite), false) => {
                    "it is marked as written, but the kernel only reads it; declare it without const, or omit the mark"
                }
                _ => continue,
            };
            return self.refuse_argument(parameter, why);
        }
        Ok(())
    }

    /// Checks the arguments of a launch against the parameters and each other.
    pub(super) fn bind<'a>(&'a self, args: &'a [Arg<'a>]) -> Result<Bound<'a>> {
        self.check_count(args)?;
        self.check_marks(args)?;
        let letters = self.letters(args)?;
        let mut items = Vec::with_capacity(args.len());
        for (parameter, value) in self.parameters.iter().zip(args) {
            let dtype = match parameter.element {
                Type::Known(dtype) => dtype,
                Type::Letter(letter) => match letters.iter().find(|(known, _)| *known == letter) {
                    Some((_, dtype)) => *dtype,
                    None => {
                        return self.refuse_argument(
                            parameter,
                            format_args!(
                                "its type {letter} is unknown; pass an array, or a number with a dtype"
                            ),
                        );
                    }
                },
            };
            self.check(parameter, dtype, value)?;
            items.push(Item { parameter, dtype, value: Some(value), strides: None });
        }
        let shapes = items.iter().filter_map(Item::elements).map(Array::shape);
        let has_shape = shapes.clone().next().is_some();
        let Some(shape) = common_shape(shapes) else {
            let list: Vec<_> = items
                .iter()
                .filter_map(|item| Some(format!("{} {:?}", item.parameter.name, item.elements()?.shape())))
                .collect();
            return self.refuse(format!("the shapes do not broadcast: {}", list.join(", ")));
        };
        for item in &mut items {
            item.strides = item.elements().map(|array| strides_in(array, &shape));
        }
        self.check_overlaps(&items, &shape)?;
        let axes = merge(&mut items, &shape);
        Ok(Bound { shape, has_shape, letters, items, axes })
    }

    /// The form for contiguous arrays of one shape, known before a launch if there are no letters.
    pub(super) fn plain(&self) -> Bound<'_> {
        let item = |parameter| Item { parameter, dtype: known(parameter), value: None, strides: None };
        let items = self.parameters.iter().map(item).collect();
        Bound { shape: Shape::new(), has_shape: false, letters: Vec::new(), items, axes: Shape::new() }
    }

    /// The types of the letters, from arrays and from numbers that have a type.
    fn letters(&self, args: &[Arg<'_>]) -> Result<Vec<(char, DType)>> {
        let mut letters: Vec<(char, DType, &str)> = Vec::new();
        for (parameter, arg) in self.parameters.iter().zip(args) {
            let (Type::Letter(letter), Some(dtype)) = (parameter.element, arg.dtype()) else { continue };
            let dtype = match supported(dtype) {
                Ok(dtype) => dtype,
                Err(why) => return self.refuse_argument(parameter, why),
            };
            match letters.iter().find(|(known, ..)| *known == letter) {
                None => letters.push((letter, dtype, &parameter.name)),
                Some((_, known, _)) if *known == dtype => {}
                Some((_, known, first)) => {
                    return self.refuse_argument(
                        parameter,
                        format_args!("{letter} is {dtype} here, but {known} for {first}; cast one of them"),
                    );
                }
            }
        }
        Ok(letters.into_iter().map(|(letter, dtype, _)| (letter, dtype)).collect())
    }

    fn check(&self, parameter: &Parameter, dtype: DType, arg: &Arg<'_>) -> Result<()> {
        let why = match (parameter.role, &arg.0) {
            (_, Value::Host(_)) => {
                const FIX: &str = spelled("usmq.asarray()", "Array::from_slice, or call launch_with_host");
                format!("takes an array on a queue, not memory of the host; copy it with {FIX}")
            }
            (_, Value::Local(_)) => "local memory is not an argument of these kernels".to_owned(),
            (_, Value::Vector(..) | Value::Numbers(_) | Value::Bytes(_)) => {
                "takes an array or a number, not a vector or structure; a Kernel takes those".to_owned()
            }
            (Role::Number, Value::Array(array, _)) => {
                format!("takes a number, not an array of {}; declare it as a pointer", array.dtype())
            }
            (Role::Elements { .. } | Role::Raw { .. }, Value::Array(array, _)) if array.dtype() != dtype => {
                format!("takes elements of {dtype}, not {}", array.dtype())
            }
            (_, Value::Array(array, _)) if parameter.writes() && array.is_readonly() => {
                "the array is read-only, and the kernel may write to it; declare it const".to_owned()
            }
            (Role::Elements { is_const: false }, Value::Typed(..) | Value::Number { .. }) => {
                "takes an array to write to, not a number".to_owned()
            }
            (Role::Raw { .. }, Value::Typed(..) | Value::Number { .. }) => {
                "takes an array, not a number".to_owned()
            }
            (_, Value::Typed(given, _)) if *given != dtype => format!("takes {dtype}, not {given}"),
            // Without a wildcard: launches are safe, so each new kind of value needs a decision.
            (_, Value::Array(..) | Value::Elements(..) | Value::Typed(..) | Value::Number { .. }) => {
                return Ok(());
            }
        };
        self.refuse_argument(parameter, why)
    }

    /// Each work-item may write only to memory that no other work-item uses.
    fn check_overlaps(&self, items: &[Item<'_>], shape: &[usize]) -> Result<()> {
        for (number, item) in items.iter().enumerate().filter(|(_, item)| item.parameter.writes()) {
            let (Some(array), strides) = (item.array(), item.strides.as_deref()) else { continue };
            if strides.is_some_and(|strides| repeats(shape, strides)) {
                let why = format!(
                    "the kernel writes to it, but its shape {:?} repeats elements in the common shape {:?}",
                    array.shape(),
                    &shape
                );
                return self.refuse_argument(item.parameter, why);
            }
            for (other_number, other) in items.iter().enumerate() {
                let Some(memory) = other.array().filter(|_| other_number != number) else { continue };
                if overlap((array, strides), (memory, other.strides.as_deref())) == Overlap::Mixed {
                    return self.refuse_argument(
                        item.parameter,
                        format_args!(
                            "the kernel writes to it, and it overlaps with {}; pass a copy of one of them",
                            other.parameter.name
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    /// The kernel with this text, built for the queue at its first use.
    pub(super) fn variant(&self, text: String, name: &str, queue: &Queue) -> Result<Kernel> {
        if let Some(kernel) = self.variants.lock()?.get(&text) {
            return Ok(kernel.clone());
        }
        let options = KernelOptions {
            flags: self.options.flags.clone(),
            queue: Some(queue.clone()),
            ..KernelOptions::default()
        };
        let kernel = Kernel::from_sycl_with(&text, name, options)?;
        Ok(self.variants.lock()?.entry(text).or_insert(kernel).clone())
    }
}

/// Merges the axes of all items. The result is empty if position i of each array is element i.
fn merge(items: &mut [Item<'_>], shape: &[usize]) -> Shape {
    let strides: Vec<Strides> = items.iter_mut().filter_map(|item| item.strides.take()).collect();
    let (axes, strides) = merge_axes(shape, strides);
    let is_flat = axes.len() <= 1 && strides.iter().all(|strides| strides.iter().all(|stride| *stride == 1));
    let mut strides = strides.into_iter();
    for item in items {
        item.strides = item.elements().is_some().then(|| strides.next().unwrap_or_default());
    }
    if is_flat { Shape::new() } else { axes }
}

fn known(parameter: &Parameter) -> DType {
    match parameter.element {
        Type::Known(dtype) => dtype,
        Type::Letter(_) => DType::F32,
    }
}

impl Item<'_> {
    /// The array whose elements the kernel takes one by one.
    fn elements(&self) -> Option<&Array> {
        if matches!(self.parameter.role, Role::Elements { .. }) { self.array() } else { None }
    }

    fn array(&self) -> Option<&Array> {
        self.value?.array()
    }
}

impl Bound<'_> {
    /// The number of elements.
    pub(super) fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// The text before a kernel: the header, the types of the letters, and the user's preamble.
    pub(super) fn head(&self, preamble: &str) -> String {
        let mut text = String::from("#include <usmq/kernel.h>\n");
        for (letter, dtype) in &self.letters {
            let _ = writeln!(text, "using {letter} = {};", dtype.row().cpp);
        }
        if !preamble.is_empty() {
            let _ = writeln!(text, "#line 1 \"preamble\"\n{preamble}");
        }
        if self.items.iter().any(|item| item.cpp() == BOOL_NAME) {
            text += BOOL;
        }
        if self.items.iter().any(|item| item.is_repeated()) {
            text += REPEATED;
        }
        if !self.axes.is_empty() {
            text += ELEMENTS;
        }
        text
    }

    /// The parameters of the built kernel, each followed by a comma.
    pub(super) fn declarations(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            let (name, cpp) = (&item.parameter.name, item.cpp());
            let is_const = if item.parameter.writes() { "" } else { "const " };
            let _ = match item.parameter.role {
                Role::Number => write!(text, "{cpp} {name}, "),
                Role::Elements { .. } if item.is_repeated() => write!(text, "{cpp} usmq_{name}, "),
                Role::Elements { .. } if !self.axes.is_empty() => {
                    let strides = (0..self.axes.len()).fold(String::new(), |mut all, axis| {
                        let _ = write!(all, "long usmq_{name}_{axis}, ");
                        all
                    });
                    write!(text, "{is_const}{cpp} *usmq_{name}, {strides}")
                }
                Role::Elements { .. } | Role::Raw { .. } => write!(text, "{is_const}{cpp} *{name}, "),
            };
        }
        for axis in 0..self.axes.len() {
            let _ = write!(text, "long usmq_extent_{axis}, ");
        }
        text
    }

    /// The statements that give each argument its name.
    pub(super) fn names(&self) -> String {
        let list = |prefix: &str| {
            (0..self.axes.len()).map(|axis| format!("{prefix}_{axis}")).collect::<Vec<_>>().join(", ")
        };
        let mut text = String::new();
        for item in &self.items {
            let (name, cpp) = (&item.parameter.name, item.cpp());
            if item.is_repeated() {
                let _ = writeln!(text, "  const usmq_repeated<{cpp}> {name}{{usmq_{name}}};");
            } else if item.strides.is_some() && !self.axes.is_empty() {
                let is_const = if item.parameter.writes() { "" } else { "const " };
                let _ = writeln!(
                    text,
                    "  usmq_elements<{is_const}{cpp}, {}> {name}{{usmq_{name}, {{{}}}, {{{}}}}};",
                    self.axes.len(),
                    list("usmq_extent"),
                    list(&format!("usmq_{name}"))
                );
            }
        }
        text
    }

    /// The statements that select element i.
    pub(super) fn moves(&self) -> String {
        let moved = self.items.iter().filter(|item| item.strides.is_some() && !self.axes.is_empty());
        moved.fold(String::new(), |mut text, item| {
            let _ = write!(text, "{}.move(i); ", item.parameter.name);
            text
        })
    }

    /// The arguments of the built kernel, in the order of [`declarations`](Self::declarations).
    pub(super) fn args(&self) -> Vec<Arg<'_>> {
        let mut args = Vec::new();
        for item in &self.items {
            let Some(value) = item.value else { continue };
            let access = Some(item.parameter.access());
            args.push(match (&value.0, item.strides.is_some()) {
                (Value::Array(array, _), true) => Arg(Value::Elements(Held::Borrowed(array), access)),
                (Value::Array(array, _), false) => Arg(Value::Array(Held::Borrowed(array), access)),
                _ => value.clone(),
            });
            if let (Some(strides), false) = (&item.strides, self.axes.is_empty()) {
                args.extend(strides.iter().map(|stride| Arg::from(*stride as i64)));
            }
        }
        args.extend(self.axes.iter().map(|extent| Arg::from(*extent as i64)));
        args
    }
}

impl Item<'_> {
    /// The C++ type of the number, or of the elements in memory.
    fn cpp(&self) -> &'static str {
        let is_number = self.parameter.role == Role::Number || self.is_repeated();
        if self.dtype == DType::Bool && !is_number { BOOL_NAME } else { self.dtype.row().cpp }
    }

    /// A number in place of the elements of an array.
    fn is_repeated(&self) -> bool {
        matches!(self.parameter.role, Role::Elements { .. }) && self.value.is_some() && self.array().is_none()
    }
}
