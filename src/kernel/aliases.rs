//! The names of types that `using` and `typedef` define, and the scopes in which they do. Pure.

use super::param::is_word;
use crate::array::DType;
use std::collections::HashMap;

/// A part of a scope's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope<'a> {
    /// A namespace or a class.
    Named(&'a str),
    /// The body that begins at this token.
    Block(usize),
}

type Path<'a> = Vec<Scope<'a>>;

/// The words for which a name of a type stands; `None` if it has several meanings, or one that a declaration cannot
/// contain in its place: with `using p = float *`, `const p x` is not a pointer to const.
pub(super) type Meaning<'a> = Option<Vec<&'a str>>;

/// The names of types in a source.
#[derive(Default)]
pub(super) struct Aliases<'a> {
    found: HashMap<&'a str, Vec<(Path<'a>, Meaning<'a>)>>,
}

/// The names that a declaration can use: those of types, of its scope, and the parameters of its template.
pub(super) struct View<'a, 'b> {
    pub(super) aliases: &'b Aliases<'a>,
    scope: &'b [Scope<'a>],
    pub(super) parameters: HashMap<&'a str, Meaning<'a>>,
}

/// The scope of a token.
pub(super) struct Place<'a>(Path<'a>);

impl<'a> Place<'a> {
    pub(super) fn of(tokens: &[&'a str], at: usize) -> Self {
        Self(scan(&tokens[..at], |_, _| {}))
    }
}

impl<'a> Aliases<'a> {
    pub(super) fn new(tokens: &[&'a str]) -> Self {
        let mut aliases = Self::default();
        scan(tokens, |statement, path| {
            let start = statement.iter().position(|word| matches!(*word, "using" | "typedef" | "template"));
            let (name, words) = match start.map(|at| &statement[at..]) {
                Some(["using", name, "=", words @ ..]) => (*name, words),
                Some(["typedef", words @ .., name]) => (*name, words),
                _ => return,
            };
            if !is_word(name) {
                return;
            }
            let meaning = aliases.within(path).meaning(words);
            aliases.found.entry(name).or_default().push((path.to_vec(), meaning));
        });
        aliases
    }

    pub(super) fn at<'b>(&'b self, place: &'b Place<'a>) -> View<'a, 'b> {
        self.within(&place.0)
    }

    fn within<'b>(&'b self, scope: &'b [Scope<'a>]) -> View<'a, 'b> {
        View { aliases: self, scope, parameters: HashMap::new() }
    }

    /// The meaning on which the definitions in these scopes agree; the outer value is `None` without any.
    fn agreed(&self, name: &str, is_in: impl Fn(&[Scope<'a>]) -> bool) -> Option<&Meaning<'a>> {
        let mut all =
            self.found.get(name)?.iter().filter(|(path, _)| is_in(path)).map(|(_, meaning)| meaning);
        let first = all.next()?;
        if all.all(|other| other == first) { Some(first) } else { Some(&None) }
    }
}

impl<'a> View<'a, '_> {
    /// The words that a type stands for, if a declaration can contain them in its place.
    pub(super) fn meaning(&self, words: &[&'a str]) -> Meaning<'a> {
        let mut depth = 0usize;
        for word in words {
            match *word {
                "<" => depth += 1,
                ">" => depth = depth.checked_sub(1)?,
                "::" => {}
                "," if depth > 0 => {}
                number if depth > 0 && number.starts_with(|c: char| c.is_ascii_digit()) => {}
                word if is_word(word) => {}
                _ => return None,
            }
        }
        (depth == 0 && !words.is_empty()).then(|| self.resolved(words))
    }

    /// The tokens of a parameter with the words of each name of a type in its place. A name with several
    /// meanings stays, so its type counts as unknown.
    pub(super) fn resolved(&self, tokens: &[&'a str]) -> Vec<&'a str> {
        const BEFORE_TYPES: [&str; 16] = [
            "const",
            "volatile",
            "restrict",
            "global",
            "local",
            "constant",
            "private",
            "__global",
            "__local",
            "__constant",
            "__private",
            "__restrict",
            "__restrict__",
            "typename",
            "struct",
            "register",
        ];
        let mut resolved = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            // After the type, the word is the name of the parameter.
            let is_type = at == 0 || !is_word(tokens[at - 1]) || BEFORE_TYPES.contains(&tokens[at - 1]);
            let length = qualified(&tokens[at..]);
            let name = &tokens[at..at + length.max(1)];
            match self.lookup(name) {
                Some(Some(words)) if is_type && length > 0 => resolved.extend(words),
                _ => resolved.extend(name),
            }
            at += length.max(1);
        }
        resolved
    }

    fn lookup<'s>(&'s self, name: &[&str]) -> Option<&'s Meaning<'a>> {
        let found = self.definition(name)?;
        // Headers of the system define built-in names by words of the compiler.
        let is_internal = |words: &Vec<&str>| words.iter().any(|word| word.starts_with("__"));
        let is_built_in =
            || name.last().is_some_and(|last| DType::find(|row| row.words.contains(last)).is_some());
        if found.as_ref().is_none_or(is_internal) && is_built_in() { None } else { Some(found) }
    }

    fn definition<'s>(&'s self, name: &[&str]) -> Option<&'s Meaning<'a>> {
        let (last, outer) = name.split_last()?;
        let path: Vec<&str> = outer.iter().copied().filter(|word| *word != "::").collect();
        if !path.is_empty() {
            let ends = |scope: &[Scope<'a>]| {
                let tail = scope.len().checked_sub(path.len()).map(|start| &scope[start..]);
                tail.is_some_and(|tail| {
                    tail.iter().zip(&path).all(|(part, name)| *part == Scope::Named(name))
                })
            };
            return self.aliases.agreed(last, ends);
        }
        if !outer.is_empty() {
            return self.aliases.agreed(last, <[_]>::is_empty);
        }
        if let Some(meaning) = self.parameters.get(*last) {
            return Some(meaning);
        }
        let enclosing = (0..=self.scope.len()).rev().map(|length| &self.scope[..length]);
        // A name of no enclosing scope may come from a `using namespace`.
        let is_visible = |scope: &[Scope<'a>]| scope.iter().all(|part| matches!(part, Scope::Named(_)));
        enclosing
            .filter_map(|scope| self.aliases.agreed(last, |path| path == scope))
            .next()
            .or_else(|| self.aliases.agreed(last, is_visible))
    }
}

/// The number of tokens of a name such as `a::b`, from its start.
fn qualified(tokens: &[&str]) -> usize {
    let mut length = usize::from(tokens.first() == Some(&"::"));
    while tokens.get(length).is_some_and(|word| is_word(word)) {
        length += 1;
        if tokens.get(length) != Some(&"::") {
            return length;
        }
        length += 1;
    }
    0
}

/// Calls `visit` with each statement and its scope. Returns the scope at the end.
fn scan<'a>(tokens: &[&'a str], mut visit: impl FnMut(&[&'a str], &[Scope<'a>])) -> Path<'a> {
    let mut path = Path::new();
    // The length of the path outside of each open brace.
    let mut outer = Vec::new();
    let mut start = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => {
                outer.push(path.len());
                path.extend(opened(&tokens[start..at], at));
            }
            "}" => path.truncate(outer.pop().unwrap_or(0)),
            ";" => visit(&tokens[start..at], &path),
            _ => continue,
        }
        start = at + 1;
    }
    path
}

/// The scope that a brace opens after this text.
fn opened<'a>(before: &[&'a str], at: usize) -> Path<'a> {
    if let ["extern", language] | [.., "extern", language] = before
        && language.starts_with('"')
    {
        return Path::new();
    }
    if let Some(start) = before.iter().position(|word| *word == "namespace") {
        let names = before[start + 1..].iter().filter(|word| is_word(word) && **word != "inline");
        return names.map(|name| Scope::Named(name)).collect();
    }
    let class = before.iter().position(|word| matches!(*word, "struct" | "class" | "union"));
    match class.and_then(|start| before.get(start + 1)).filter(|name| is_word(name)) {
        Some(name) if !before.contains(&"(") => vec![Scope::Named(name)],
        _ => vec![Scope::Block(at)],
    }
}
