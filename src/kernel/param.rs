//! Reads one parameter of a kernel from its tokens. Pure.

use crate::array::DType;
use crate::memory::Access;
use std::fmt;

/// One parameter of a kernel.
///
/// ```
/// use usmq::{DType, Kernel, Param};
///
/// let source = "#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void f(float a, const int *x) {}";
/// let f = Kernel::from_sycl(source, "f")?;
/// assert_eq!(f.params(), Some(&[Param::Scalar(DType::F32), Param::Read(Some(DType::I32))][..]));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A number passed by value.
    Scalar(DType),
    /// A small vector passed by value, such as `float4`.
    Vector {
        /// The type of its elements.
        element: DType,
        /// The number of its elements.
        count: usize,
        /// Its size in bytes. SYCL and OpenCL C give vectors of three elements the size of four.
        bytes: usize,
    },
    /// A pointer to elements that the kernel only reads. `None`: of any type.
    Read(Option<DType>),
    /// A pointer to elements that the kernel writes without reading them.
    Write(Option<DType>),
    /// A pointer to elements that the kernel may read and write.
    ReadWrite(Option<DType>),
    /// Local memory of the work-group, as a pointer, or in a form that the source does not show.
    Local,
    /// Local memory of the work-group, as a `local_accessor`.
    LocalAccessor {
        /// The element type, if it is a built-in one.
        element: Option<DType>,
        /// The number of dimensions, if the source shows it.
        dimensions: Option<usize>,
    },
    /// Local memory of the work-group, as a `work_group_memory`.
    WorkGroupMemory,
    /// A type that usmq does not know: the argument must have a type.
    Unknown,
}

impl Param {
    /// The form for a signature: `const float32 *`.
    pub(super) fn declaration(&self) -> String {
        let pointee = |dtype: &Option<DType>| dtype.map_or("void", DType::name);
        match self {
            Self::Scalar(dtype) => dtype.name().to_owned(),
            Self::Vector { element, count, .. } => format!("{element}[{count}]"),
            Self::Read(dtype) => format!("const {} *", pointee(dtype)),
            Self::Write(dtype) | Self::ReadWrite(dtype) => format!("{} *", pointee(dtype)),
            Self::Local | Self::LocalAccessor { .. } | Self::WorkGroupMemory => "local memory".to_owned(),
            Self::Unknown => "?".to_owned(),
        }
    }

    /// With the size of vectors in SYCL and OpenCL C.
    pub(super) fn padded(self) -> Self {
        match self {
            Self::Vector { element, count: 3, .. } => {
                Self::Vector { element, count: 3, bytes: 4 * element.itemsize() }
            }
            other => other,
        }
    }

    pub(super) fn access(&self) -> Access {
        match self {
            Self::Read(_) => Access::Read,
            Self::Write(_) => Access::Write,
            _ => Access::ReadWrite,
        }
    }

    /// The element type of a pointer, `None` inside for any type; `None` for other parameters.
    pub(super) fn pointee(&self) -> Option<Option<DType>> {
        match self {
            Self::Read(dtype) | Self::Write(dtype) | Self::ReadWrite(dtype) => Some(*dtype),
            _ => None,
        }
    }
}

impl fmt::Display for Param {
    /// The form for errors: `a pointer to float32 (read-only)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = |dtype: &Option<DType>| {
            dtype.map_or("a pointer".to_owned(), |dtype| format!("a pointer to {dtype}"))
        };
        match self {
            Self::Scalar(dtype) => write!(f, "{dtype}"),
            Self::Vector { element, count, .. } => write!(f, "a vector of {count} {element}"),
            Self::Read(dtype) => write!(f, "{} (read-only)", pointer(dtype)),
            Self::Write(dtype) => write!(f, "{} (write-only)", pointer(dtype)),
            Self::ReadWrite(dtype) => f.write_str(&pointer(dtype)),
            Self::Local | Self::LocalAccessor { .. } | Self::WorkGroupMemory => f.write_str("local memory"),
            Self::Unknown => f.write_str("a value of unknown type"),
        }
    }
}

/// Reads a parameter. A vector counts as padded only if `sycl` precedes it; see [`Param::padded`].
pub(super) fn param(tokens: &[&str]) -> Param {
    if tokens.contains(&"work_group_memory") || tokens.contains(&"local_memory") {
        return Param::WorkGroupMemory;
    }
    if let Some(at) = tokens.iter().position(|token| *token == "local_accessor") {
        return local_accessor(&tokens[at + 1..]);
    }
    let tokens = tokens.split(|token| *token == "=").next().unwrap_or(tokens);
    let (mut words, mut stars, mut constant, mut local) = (Vec::new(), 0, false, false);
    let mut vector = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            // `float x[]` is a pointer; `[[attribute]]` precedes the type and is ignored.
            "[" => {
                let Some(end) = close(tokens, at) else { return Param::Unknown };
                stars += usize::from(!words.is_empty());
                at = end;
            }
            "vec" if tokens.get(at + 1) == Some(&"<") => {
                let Some((list, length)) = angles(&tokens[at + 1..]) else { return Param::Unknown };
                vector = match split(list)[..] {
                    [element, [count]] => scalar(element).zip(count.parse().ok()),
                    _ => None,
                };
                if vector.is_none() {
                    return Param::Unknown;
                }
                at += 1 + length;
            }
            "*" => stars += 1,
            // Of two consts only the one of the pointed-to type counts.
            "const" => constant |= stars == 0,
            "constant" | "__constant" => constant = true,
            "local" | "__local" => local = true,
            "volatile" | "restrict" | "__restrict" | "__restrict__" | "global" | "__global" | "private"
            | "__private" | "std" | "sycl" | "usmq" | "::" | "ext" | "oneapi" => {}
            word if is_word(word) => words.push(word),
            _ => return Param::Unknown,
        }
        at += 1;
    }
    let pointee = match vector {
        Some((element, count)) if words.len() <= 1 => Some(Pointee::Vector(element, count)),
        Some(_) => None,
        None => words_to_type(&words),
    };
    match (stars, pointee) {
        (0, Some(Pointee::Number(dtype))) => Param::Scalar(dtype),
        (0, Some(Pointee::Vector(element, count))) => {
            let vector = Param::Vector { element, count, bytes: count * element.itemsize() };
            if tokens.contains(&"sycl") { vector.padded() } else { vector }
        }
        (1, _) if local => Param::Local,
        // With `struct`, type and name, these are at most three words. More may be a macro.
        (1, pointee) if pointee.is_some() || (1..=3).contains(&words.len()) => {
            let dtype = if let Some(Pointee::Number(dtype)) = pointee { Some(dtype) } else { None };
            if constant { Param::Read(dtype) } else { Param::ReadWrite(dtype) }
        }
        _ => Param::Unknown,
    }
}

/// The built-in type that these tokens are.
fn scalar(tokens: &[&str]) -> Option<DType> {
    if let Param::Scalar(dtype) = param(tokens) { Some(dtype) } else { None }
}

/// The tokens between the `<` at the start and its `>`, and the position of the latter.
pub(super) fn angles<'a, 'b>(tokens: &'a [&'b str]) -> Option<(&'a [&'b str], usize)> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "<" => depth += 1,
            ">" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some((tokens.get(1..at)?, at));
        }
    }
    None
}

/// Parses from the `<` of its element type and dimensions; the default is one dimension.
fn local_accessor(after: &[&str]) -> Param {
    let list = angles(after).filter(|(list, _)| !list.is_empty()).map(|(list, _)| split(list));
    let Some(list) = list else { return Param::LocalAccessor { element: None, dimensions: None } };
    let element = list.first().and_then(|element| scalar(element));
    let dimensions = match list.get(1) {
        None => Some(1),
        Some([number]) => number.parse().ok(),
        Some(_) => None,
    };
    Param::LocalAccessor { element, dimensions }
}

enum Pointee {
    Number(DType),
    /// Of this many elements.
    Vector(DType, usize),
    Void,
}

/// The type of words such as `unsigned long n` or `float`; the parameter's name may be missing. Built-in
/// words may have any order, as in `int short unsigned`.
fn words_to_type(words: &[&str]) -> Option<Pointee> {
    let (mut sign, mut longs, mut base, mut int) = (None, 0, None, false);
    let mut names = 0;
    for word in words {
        match *word {
            "unsigned" => sign = Some(false),
            "signed" => sign = Some(true),
            "long" => longs += 1,
            "int" => int = true,
            "char" | "short" | "double" if base.is_none() => base = Some(*word),
            other if base.is_none() && sign.is_none() && longs == 0 && !int => base = Some(other),
            _ => names += 1,
        }
    }
    if names > 1 {
        return None;
    }
    let pick = |a, b| Some(Pointee::Number(if sign.unwrap_or(true) { a } else { b }));
    match (base, longs, int) {
        (None, 1 | 2, _) => pick(DType::I64, DType::U64),
        (None, 0, _) if int || sign.is_some() => pick(DType::I32, DType::U32),
        (Some("char"), 0, false) => pick(DType::I8, DType::U8),
        (Some("short"), 0, _) => pick(DType::I16, DType::U16),
        (Some("void"), 0, false) => Some(Pointee::Void),
        (Some(name), 0, false) if sign.is_none() => {
            DType::find(|row| row.words.contains(&name)).map(Pointee::Number).or_else(|| vector(name))
        }
        _ => None,
    }
}

/// The vector with a name such as `float4`.
fn vector(name: &str) -> Option<Pointee> {
    let element = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let count = name[element.len()..].parse().ok().filter(|count| [2, 3, 4, 8, 16].contains(count))?;
    match words_to_type(&[element])? {
        Pointee::Number(element) => Some(Pointee::Vector(element, count)),
        _ => None,
    }
}

/// Splits the list at its top-level commas.
pub(super) fn split<'a, 'b>(list: &'a [&'b str]) -> Vec<&'a [&'b str]> {
    let mut depth = 0i32;
    list.split(|token| {
        match *token {
            "(" | "[" | "<" => depth += 1,
            ")" | "]" | ">" => depth -= 1,
            _ => {}
        }
        depth == 0 && *token == ","
    })
    .collect()
}

pub(super) fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Position of the bracket that closes the one at `open`.
pub(super) fn close(tokens: &[&str], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}
