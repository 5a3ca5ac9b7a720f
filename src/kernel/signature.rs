//! Reads the parameter list and the dimensions of a kernel from its source. Pure.
//!
//! Not a C++ parser: it recognizes the built-in scalar types of SYCL C++ and OpenCL C, their vectors and pointers to
//! them, also behind macros, names of types that the source defines, and in the instances of a template. A parameter of
//! any other type is [`Param::Unknown`], and a kernel that it cannot find has no signature; neither is an error.

use super::definitions::Token;
use super::macros::expand;
use super::param::{Param, angles, close, is_word, param, split};
use crate::array::{DType, Family};
use crate::device::header;
use std::collections::HashMap;

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
    let instance = expand(name, &[])?;
    let instance: Vec<&str> = instance.iter().map(Token::as_ref).collect();
    let (name, arguments) = match &instance[..] {
        [name, "<", arguments @ .., ">"] => (*name, split(arguments)),
        _ => (name, Vec::new()),
    };
    let starts = (0..tokens.len()).filter(|at| is_definition(&tokens, *at, name));
    let aliases = aliases(&tokens);
    let mut all = starts.map(|start| {
        let mut aliases = aliases.clone();
        let types = template_types(&tokens[..start], &arguments, &aliases)?;
        aliases.extend(types);
        params(&tokens, start, &aliases)
    });
    let mut first = all.next()??;
    let is_same = all.all(|other| other.as_ref() == Some(&first));
    if !source.contains(header::NAME) {
        first = first.into_iter().map(Param::padded).collect();
    }
    is_same.then(|| Signature { params: first, dimensions: dimensions(&tokens, name) })
}

/// The types that the arguments of a template give to its parameters. `before` ends with the template's declaration.
/// `None` if their numbers differ: a specialization, or an overload.
fn template_types<'a>(
    before: &[&'a str],
    arguments: &[&[&'a str]],
    aliases: &Aliases<'a>,
) -> Option<Aliases<'a>> {
    let declaration = before.rsplit(|token| matches!(*token, ";" | "}" | "{")).next()?;
    let list = match declaration {
        ["template", rest @ ..] => split(angles(rest)?.0),
        _ => Vec::new(),
    };
    if list.len() != arguments.len() {
        return (arguments.is_empty()).then(Aliases::new);
    }
    let types = list.into_iter().zip(arguments).filter_map(|(parameter, argument)| match parameter {
        ["typename" | "class", name] => Some((*name, meaning(argument, aliases))),
        _ => None,
    });
    Some(types.collect())
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
        let words = meaning(words, &aliases).filter(|_| is_word(name));
        let known = aliases.entry(name).or_insert_with(|| words.clone());
        if *known != words {
            *known = None;
        }
    }
    aliases
}

/// The words that a name of a type stands for, if they are only words.
fn meaning<'a>(words: &[&'a str], aliases: &Aliases<'a>) -> Option<Vec<&'a str>> {
    let is_plain = words.iter().all(|word| is_word(word) || *word == "::");
    is_plain.then(|| resolved(words, aliases))
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
