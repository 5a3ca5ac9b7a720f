//! Reads the parameter list and the dimensions of a kernel from its source and the files that it includes. Pure.
//!
//! Not a C++ parser: it recognizes the built-in scalar types of SYCL C++ and OpenCL C, their vectors and pointers to
//! them, also behind macros and names of types, and in the instances of a template. A parameter of
//! any other type is [`Param::Unknown`], and a kernel that it cannot find has no signature; neither is an error.

use super::aliases::{Aliases, Place, View};
use super::definitions::Token;
use super::includes::IncludedFiles;
use super::macros::{Expanded, expand};
use super::param::{Param, angles, close, is_word, param, split};
use super::work_groups::DeclaredGroups;
use crate::array::{DType, Family};
use crate::device::header;
use std::collections::HashMap;

/// The parameters and dimensions in a kernel's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub params: Vec<Param>,
    /// The text of each parameter.
    pub texts: Vec<String>,
    /// Of the range, if the kernel is declared for a fixed number.
    pub dimensions: Option<usize>,
    pub(super) groups: DeclaredGroups,
}

/// The signature of the function `name`, if the source or a file that it includes has a readable definition. `flags` are
/// the compiler's, which may define macros. Of several different definitions, such as in the branches of an `#if`, none
/// is used: the wrong one would pass arguments with the wrong type.
pub(crate) fn read_signature(
    source: &str,
    name: &str,
    flags: &[&str],
    files: &IncludedFiles,
) -> Option<Signature> {
    // Large headers can exceed the limit of the expansion.
    let Expanded { tokens, is_own } =
        expand(source, flags, files).or_else(|| expand(source, flags, &IncludedFiles::default()))?;
    let tokens: Vec<&str> = tokens.iter().map(Token::as_ref).collect();
    let instance = expand(name, &[], &IncludedFiles::default())?.tokens;
    let instance: Vec<&str> = instance.iter().map(Token::as_ref).collect();
    let (name, arguments) = match &instance[..] {
        [name, "<", arguments @ .., ">"] => (*name, split(arguments)),
        _ => (name, Vec::new()),
    };
    let mut starts: Vec<usize> = (0..tokens.len()).filter(|at| is_definition(&tokens, *at, name)).collect();
    // A function of an included file may have the name of the source's kernel.
    if starts.iter().any(|start| is_own[*start]) {
        starts.retain(|start| is_own[*start]);
    }
    let aliases = Aliases::new(&tokens);
    let mut all = starts.into_iter().map(|start| {
        let place = Place::of(&tokens, start);
        let mut view = aliases.at(&place);
        view.parameters = template_types(&tokens[..start], &arguments, &view)?;
        params(&tokens, start, &view)
    });
    let (mut first, texts) = all.next()??;
    let is_same = all.all(|other| other.is_some_and(|(other, _)| other == first));
    if !source.contains(header::NAME) {
        first = first.into_iter().map(Param::padded).collect();
    }
    let (dimensions, groups) = (dimensions(&tokens, name), declared_groups(&tokens, name));
    is_same.then_some(Signature { params: first, texts, dimensions, groups })
}

/// The types that the arguments of a template give to its parameters. `before` ends with the template's declaration.
/// `None` if their numbers differ: a specialization, or an overload.
fn template_types<'a>(
    before: &[&'a str],
    arguments: &[&[&'a str]],
    view: &View<'a, '_>,
) -> Option<HashMap<&'a str, Option<Vec<&'a str>>>> {
    let declaration = before.rsplit(|token| matches!(*token, ";" | "}" | "{")).next()?;
    let list = match declaration {
        ["template", rest @ ..] => split(angles(rest)?.0),
        _ => Vec::new(),
    };
    if arguments.is_empty() {
        return Some(HashMap::new());
    }
    let default = |parameter: &[&'a str]| -> Option<Vec<&'a str>> {
        let at = parameter.iter().position(|token| *token == "=")?;
        Some(parameter[at + 1..].to_vec())
    };
    let mut types = HashMap::new();
    for (number, parameter) in list.iter().enumerate() {
        let argument =
            arguments.get(number).map(|argument| argument.to_vec()).or_else(|| default(parameter))?;
        if let ["typename" | "class", name, ..] = parameter {
            types.insert(*name, view.meaning(&argument));
        }
    }
    (arguments.len() <= list.len()).then_some(types)
}

/// The kernels that the source and the files that it includes define, in their order.
pub(super) fn defined_kernels(source: &str, flags: &[&str], files: &IncludedFiles) -> Vec<String> {
    let expanded = expand(source, flags, files).unwrap_or_default();
    let tokens: Vec<&str> = expanded.tokens.iter().map(Token::as_ref).collect();
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

/// The parameters of a definition, each with its text.
fn params<'a>(tokens: &[&'a str], start: usize, view: &View<'a, '_>) -> Option<(Vec<Param>, Vec<String>)> {
    let list = &tokens[start + 2..close(tokens, start + 1)?];
    if list.is_empty() || list == ["void"] {
        return Some((Vec::new(), Vec::new()));
    }
    Some(split(list).into_iter().map(|tokens| (param(&view.resolved(tokens)), tokens.join(" "))).unzip())
}

/// The text before `name` in each of its declarations.
fn declarations<'t, 'a>(tokens: &'t [&'a str], name: &'t str) -> impl Iterator<Item = &'t [&'a str]> {
    let is_declared = move |at: &usize| tokens[*at] == name && tokens.get(at + 1) == Some(&"(");
    let starts = (0..tokens.len()).filter(is_declared);
    starts.filter_map(|at| tokens[..at].rsplit(|token| matches!(*token, ";" | "}" | "{")).next())
}

/// The limits of work-groups in all declarations of `name`.
fn declared_groups(tokens: &[&str], name: &str) -> DeclaredGroups {
    let all: Vec<&str> = declarations(tokens, name).flatten().copied().collect();
    DeclaredGroups::of(&all)
}

/// The dimensions on which the declarations of `name` agree. The property may be on one of several.
fn dimensions(tokens: &[&str], name: &str) -> Option<usize> {
    let mut all = declarations(tokens, name).filter_map(declared_dimensions);
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
