//! Reads the parameter list and the dimensions of a kernel from its source. Pure.
//!
//! Not a C++ parser: it recognizes the built-in scalar types of SYCL C++ and OpenCL C and pointers to them,
//! also behind macros and names of types that the source defines. A parameter of any other type is [`Param::Unknown`], and a
//! kernel that it cannot find has no signature; neither is an error.

use super::definitions::Token;
use super::macros::expand;
use crate::array::{DType, Family};
use crate::memory::Access;
use std::collections::HashMap;
use std::fmt;

/// One parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A number passed by value.
    Scalar(DType),
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
            Self::Read(dtype) => format!("const {} *", pointee(dtype)),
            Self::Write(dtype) | Self::ReadWrite(dtype) => format!("{} *", pointee(dtype)),
            Self::Local | Self::LocalAccessor { .. } | Self::WorkGroupMemory => "local memory".to_owned(),
            Self::Unknown => "?".to_owned(),
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
            Self::Read(dtype) => write!(f, "{} (read-only)", pointer(dtype)),
            Self::Write(dtype) => write!(f, "{} (write-only)", pointer(dtype)),
            Self::ReadWrite(dtype) => f.write_str(&pointer(dtype)),
            Self::Local | Self::LocalAccessor { .. } | Self::WorkGroupMemory => f.write_str("local memory"),
            Self::Unknown => f.write_str("a value of unknown type"),
        }
    }
}

/// The parameters and dimensions in a kernel's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub params: Vec<Param>,
    /// Of the range, if the kernel is declared for a fixed number.
    pub dimensions: Option<usize>,
}

/// The signature of the function `name`, if the source has a readable definition. `flags` are the compiler's,
/// which may define macros. Of several different definitions, such as in the branches of an `#if`, none is
/// used: the wrong one would pass arguments with the wrong type.
pub(crate) fn read_signature(source: &str, name: &str, flags: &[&str]) -> Option<Signature> {
    let expanded = expand(source, flags)?;
    let tokens: Vec<&str> = expanded.iter().map(Token::as_ref).collect();
    let starts = (0..tokens.len()).filter(|at| is_definition(&tokens, *at, name));
    let aliases = aliases(&tokens);
    let mut all = starts.map(|start| params(&tokens, start, &aliases));
    let first = all.next()??;
    let is_same = all.all(|other| other.as_ref() == Some(&first));
    is_same.then(|| Signature { params: first, dimensions: dimensions(&tokens, name) })
}

/// The kernels that the source defines, in its order.
pub(super) fn defined_kernels(source: &str, flags: &[&str]) -> Vec<String> {
    let expanded = expand(source, flags).unwrap_or_default();
    let tokens: Vec<&str> = expanded.iter().map(Token::as_ref).collect();
    let is_opencl = |at: usize| {
        let declaration = tokens[..at].rsplit(|token| matches!(*token, ";" | "}" | "{")).next();
        declaration.is_some_and(|words| words.iter().any(|word| matches!(*word, "kernel" | "__kernel")))
    };
    let mut names: Vec<String> = (0..tokens.len())
        .filter(|at| is_word(tokens[*at]) && is_definition(&tokens, *at, tokens[*at]))
        .filter(|at| declared_dimensions(&tokens[..*at]).is_some() || is_opencl(*at))
        .map(|at| tokens[at].to_owned())
        .collect();
    names.dedup();
    names
}

fn params<'a>(tokens: &[&'a str], start: usize, aliases: &Aliases<'a>) -> Option<Vec<Param>> {
    let list = &tokens[start + 2..close(tokens, start + 1)?];
    if list.is_empty() || list == ["void"] {
        return Some(Vec::new());
    }
    Some(split(list).into_iter().map(|tokens| param(&resolved(tokens, aliases))).collect())
}

/// The words for which a name of a type stands; `None` if it has several meanings, or one that is not only words: with
/// `using p = float *`, `const p x` is not a pointer to const.
type Aliases<'a> = HashMap<&'a str, Option<Vec<&'a str>>>;

/// The names that `using` and `typedef` define anywhere in the source.
fn aliases<'a>(tokens: &[&'a str]) -> Aliases<'a> {
    let mut aliases = Aliases::new();
    for statement in tokens.split(|token| matches!(*token, ";" | "{" | "}")) {
        let (name, words) = match statement {
            ["using", name, "=", words @ ..] => (*name, words),
            ["typedef", words @ .., name] => (*name, words),
            _ => continue,
        };
        let is_plain = is_word(name) && words.iter().all(|word| is_word(word) || *word == "::");
        let words = is_plain.then(|| resolved(words, &aliases));
        let known = aliases.entry(name).or_insert_with(|| words.clone());
        if *known != words {
            *known = None;
        }
    }
    aliases
}

/// The tokens with the words of each alias in its place. A name of several meanings stays, and is no known type.
fn resolved<'a>(tokens: &[&'a str], aliases: &Aliases<'a>) -> Vec<&'a str> {
    let mut resolved = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        // After the type, the word is the name of the parameter.
        let is_type = at == 0 || !is_word(tokens[at - 1]) || tokens[at - 1] == "const";
        match aliases.get(token) {
            Some(Some(words)) if is_type => resolved.extend(words),
            _ => resolved.push(*token),
        }
    }
    resolved
}

/// The dimensions on which the declarations of `name` agree. The property may be on one of several.
fn dimensions(tokens: &[&str], name: &str) -> Option<usize> {
    let is_declared = |at: &usize| tokens[*at] == name && tokens.get(at + 1) == Some(&"(");
    let mut all = (0..tokens.len()).filter(is_declared).filter_map(|at| declared_dimensions(&tokens[..at]));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// `n` of `nd_range_kernel<n>`, of `USMQ_KERNEL(n)`, or of the attribute that it expands to, in the declaration that ends here.
fn declared_dimensions(before: &[&str]) -> Option<usize> {
    let declaration = before.rsplit(|token| matches!(*token, ";" | "}" | "{")).next()?;
    let is_mark =
        |token: &&str| matches!(*token, "nd_range_kernel" | "USMQ_KERNEL" | "\"sycl-nd-range-kernel\"");
    let at = declaration.iter().rposition(is_mark)?;
    let (sign, after) = declaration.get(at + 1..)?.split_first()?;
    let end = if *sign == "<" { ">" } else { ")" };
    // `N` from a macro is often in parentheses.
    let number = match after {
        ["(", number, ")", next, ..] | [number, next, ..] if *next == end => number,
        _ => return None,
    };
    number.trim_end_matches(['u', 'U', 'l', 'L', 'z', 'Z']).parse().ok()
}

/// Whether a function definition named `name` starts here: preceded by a type, followed by a list and a body.
fn is_definition(tokens: &[&str], at: usize, name: &str) -> bool {
    tokens[at] == name
        && tokens.get(at + 1) == Some(&"(")
        && at > 0
        && (is_word(tokens[at - 1]) || tokens[at - 1] == ")" || tokens[at - 1] == "*")
        && close(tokens, at + 1).is_some_and(|end| tokens.get(end + 1) == Some(&"{"))
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Position of the bracket that closes the one at `open`.
fn close(tokens: &[&str], open: usize) -> Option<usize> {
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

/// Splits the list at its top-level commas.
pub(super) fn split<'a>(list: &'a [&'a str]) -> Vec<&'a [&'a str]> {
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

pub(super) fn param(tokens: &[&str]) -> Param {
    if tokens.contains(&"work_group_memory") || tokens.contains(&"local_memory") {
        return Param::WorkGroupMemory;
    }
    if let Some(at) = tokens.iter().position(|token| *token == "local_accessor") {
        return local_accessor(&tokens[at + 1..]);
    }
    let tokens = tokens.split(|token| *token == "=").next().unwrap_or(tokens);
    let (mut words, mut stars, mut constant, mut local) = (Vec::new(), 0, false, false);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            // `float x[]` is a pointer; `[[attribute]]` precedes the type and is ignored.
            "[" => {
                let Some(end) = close(tokens, at) else { return Param::Unknown };
                stars += usize::from(!words.is_empty());
                at = end;
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
    let dtype = words_to_type(&words);
    match (stars, dtype) {
        (0, Some(Pointee::Number(dtype))) => Param::Scalar(dtype),
        (1, _) if local => Param::Local,
        (1, Some(pointee)) => {
            let dtype = if let Pointee::Number(dtype) = pointee { Some(dtype) } else { None };
            if constant { Param::Read(dtype) } else { Param::ReadWrite(dtype) }
        }
        _ => Param::Unknown,
    }
}

/// Parses from the `<` of its element type and dimensions; the default is one dimension.
fn local_accessor(after: &[&str]) -> Param {
    let inside = after.split_first().filter(|(sign, _)| **sign == "<").map(|(_, inside)| inside);
    let mut depth = 1usize;
    let end = inside.unwrap_or_default().iter().position(|token| {
        match *token {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let (Some(inside), Some(end)) = (inside, end) else {
        return Param::LocalAccessor { element: None, dimensions: None };
    };
    let list = split(&inside[..end]);
    let element = list.first().and_then(|element| match param(element) {
        Param::Scalar(element) => Some(element),
        _ => None,
    });
    let dimensions = match list.get(1) {
        None => Some(1),
        Some([number]) => number.parse().ok(),
        Some(_) => None,
    };
    Param::LocalAccessor { element, dimensions }
}

enum Pointee {
    Number(DType),
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
            DType::find(|row| row.words.contains(&name)).map(Pointee::Number)
        }
        _ => None,
    }
}

/// Merges the given parameters with those in the source; an error if they contradict each other.
///
/// Unreadable parameters are not compared: an unknown word may be a type, or a macro for several parameters.
pub(super) fn reconcile(given: Vec<Param>, read: &[Param]) -> Result<Vec<Param>, String> {
    if given.len() != read.len() {
        if read.contains(&Param::Unknown) {
            return Ok(given);
        }
        let list = read.iter().map(Param::to_string).collect::<Vec<_>>().join(", ");
        return Err(format!(
            "params has {} parameters, but the source has {} ({list})",
            given.len(),
            read.len()
        ));
    }
    given
        .into_iter()
        .zip(read)
        .enumerate()
        .map(|(position, (given, read))| {
            let refuse = || format!("parameter {position} is {read} in the source, but {given} in params");
            reconcile_one(&given, read).ok_or_else(refuse)
        })
        .collect()
}

fn reconcile_one(given: &Param, read: &Param) -> Option<Param> {
    match (given, read) {
        (given, Param::Unknown) => Some(given.clone()),
        (Param::Unknown, read) => Some(read.clone()),
        // Python has one marker for all kinds of local memory.
        (Param::Local, Param::WorkGroupMemory | Param::LocalAccessor { .. }) => Some(read.clone()),
        (given, read) if given == read => Some(given.clone()),
        // The caller decides how the kernel accesses its memory, whether const or not.
        (given, read) => {
            let (element, pointee) = (given.pointee()?, read.pointee()?);
            let fits = element.zip(pointee).is_none_or(|(element, pointee)| carries(pointee, element));
            fits.then(|| given.clone())
        }
    }
}

/// Whether elements of a type have the memory layout that the kernel takes: the same type, the same bits, or
/// the parts of complex numbers.
fn carries(pointee: DType, element: DType) -> bool {
    let (size, families) = (pointee.itemsize(), (pointee.family(), element.family()));
    let bits = pointee.family() == Family::Unsigned && size == element.itemsize();
    let parts = families == (Family::Float, Family::Complex) && 2 * size == element.itemsize();
    pointee == element || bits || parts
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
