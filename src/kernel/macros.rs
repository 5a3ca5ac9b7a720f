//! Expands the macros that a source, a file that it includes or a compiler flag defines. Pure.
//!
//! Not a complete preprocessor: it knows only the files that usmq has found. If it cannot determine which branch of a
//! conditional is compiled, it reads all of them, and drops a macro that they define differently. Unknown macros are not
//! expanded.

use super::condition::truth;
use super::definitions::{
    Macro, State, Table, Token, define, from_flags, is_default, is_defined, shared, split_word,
    with_definitions,
};
use super::includes::IncludedFiles;
use super::lexer::{Piece, pieces, tokens};
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

/// The maximum nesting of macros; deeper ones are not expanded.
const DEEPEST: usize = 64;
/// The maximum nesting of included files; deeper ones are not read.
const DEEPEST_FILE: usize = 64;

/// The tokens of a source and of the files that it includes.
#[derive(Default)]
pub(super) struct Expanded {
    pub(super) tokens: Vec<Token>,
    /// Whether each token is from the source itself.
    pub(super) is_own: Vec<bool>,
}

/// The tokens of the code of `source` and of the files that it includes, with expanded macros. `None` if that exceeds
/// the step limit.
pub(super) fn expand(source: &str, flags: &[&str], files: &IncludedFiles) -> Option<Expanded> {
    let own = pieces(source);
    let mut reader = Reader {
        files,
        table: from_flags(flags),
        is_complete: files.is_whole(),
        open: Vec::new(),
        expander: Expander { steps: 16 * (source.len() + files.length()) + 100_000 },
        once: HashSet::new(),
        out: Expanded::default(),
    };
    reader.file(&own, None, 0)?;
    Some(reader.out)
}

struct Reader<'a> {
    files: &'a IncludedFiles,
    table: Table,
    /// Whether no other file can define a macro.
    is_complete: bool,
    open: Vec<Conditional>,
    expander: Expander,
    /// Files with `#pragma once` that were read.
    once: HashSet<&'a Path>,
    out: Expanded,
}

impl<'a> Reader<'a> {
    /// Reads the pieces of a file; of the source itself without a path.
    fn file(&mut self, pieces: &[Piece], path: Option<&'a Path>, depth: usize) -> Option<()> {
        let outer = self.open.len();
        self.expander.spend(1 + pieces.len())?;
        for (at, piece) in pieces.iter().enumerate() {
            let is_skipped = self.open.last().is_some_and(|conditional| conditional.is_skipped);
            match piece {
                Piece::Code(text) if !is_skipped => {
                    let input = shared(&tokens(text));
                    self.expander.run(&input, &self.table, 0, &mut self.out.tokens)?;
                    self.out.is_own.resize(self.out.tokens.len(), path.is_none());
                }
                Piece::Code(_) => {}
                Piece::Directive(line) => {
                    let (word, rest) = split_word(line);
                    match word {
                        "if" | "ifdef" | "ifndef" => {
                            let condition = match word {
                                "ifndef" if is_default(rest, &pieces[at + 1..], &self.table) => Some(true),
                                _ => self.condition(word, rest)?,
                            };
                            if condition.is_none() && !is_skipped {
                                // For the copies of the table.
                                self.expander.spend(3 * self.table.len())?;
                            }
                            self.open.push(Conditional::new(condition, is_skipped, &self.table));
                        }
                        "elif" | "elifdef" | "elifndef" | "else" if self.open.len() > outer => {
                            let condition =
                                if word == "else" { Some(true) } else { self.condition(&word[2..], rest)? };
                            if let Some(conditional) = self.open.last_mut() {
                                conditional.next_branch(condition, &mut self.table);
                            }
                        }
                        "endif" if self.open.len() > outer => self.close(),
                        "define" if !is_skipped => define(&mut self.table, rest),
                        "undef" if !is_skipped => {
                            self.table.insert(split_word(rest).0.into(), State::Undefined);
                        }
                        "include" if !is_skipped && depth < DEEPEST_FILE => {
                            let folder = path.and_then(Path::parent).unwrap_or(Path::new(""));
                            if let Some(file) = self.files.file(folder, rest.trim_start())
                                && !self.once.contains(&*file.path)
                            {
                                self.file(&file.pieces, Some(&file.path), depth + 1)?;
                            }
                        }
                        "pragma" if !is_skipped && rest.trim() == "once" => self.once.extend(path),
                        _ => {}
                    }
                }
            }
        }
        while self.open.len() > outer {
            self.close();
        }
        Some(())
    }

    fn close(&mut self) {
        if let Some(conditional) = self.open.pop() {
            conditional.end(&mut self.table);
        }
    }

    /// The value of a condition, if it can be determined; the outer value is `None` beyond the step limit.
    fn condition(&mut self, word: &str, rest: &str) -> Option<Option<bool>> {
        let is_complete = self.is_complete;
        let defined = |name| is_defined(name, &self.table, is_complete);
        match word {
            "ifdef" => return Some(defined(rest)),
            "ifndef" => return Some(defined(rest).map(|defined| !defined)),
            _ => {}
        }
        let input = with_definitions(rest, &self.table, is_complete);
        let mut expanded = Vec::new();
        self.expander.run(&input, &self.table, 0, &mut expanded)?;
        let words: Vec<&str> = expanded.iter().map(Token::as_ref).collect();
        Some(truth(&words, &|name| is_defined(name, &self.table, is_complete) == Some(false)))
    }
}

/// An open conditional.
struct Conditional {
    /// The table before the first branch that may or may not be compiled.
    before: Option<Table>,
    /// The tables at the ends of the branches that may be compiled.
    ends: Vec<Table>,
    /// Whether no later branch is compiled: one is certain to be, or the whole conditional is not compiled.
    is_decided: bool,
    /// Whether the current branch is not compiled.
    is_skipped: bool,
}

impl Conditional {
    fn new(condition: Option<bool>, is_dead: bool, table: &Table) -> Self {
        let mut new = Self { before: None, ends: Vec::new(), is_decided: is_dead, is_skipped: is_dead };
        new.begin(condition, table);
        new
    }

    fn begin(&mut self, condition: Option<bool>, table: &Table) {
        self.is_skipped = self.is_decided || condition == Some(false);
        if self.is_skipped {
            return;
        }
        self.is_decided = condition == Some(true);
        if !self.is_decided && self.before.is_none() {
            self.before = Some(table.clone());
        }
    }

    fn leave_branch(&mut self, table: &mut Table) {
        if let (Some(before), false) = (&self.before, self.is_skipped) {
            self.ends.push(std::mem::replace(table, before.clone()));
        }
    }

    fn next_branch(&mut self, condition: Option<bool>, table: &mut Table) {
        self.leave_branch(table);
        self.begin(condition, table);
    }

    fn end(mut self, table: &mut Table) {
        self.leave_branch(table);
        let Some(before) = self.before else { return };
        let mut ends = self.ends;
        if !self.is_decided || ends.is_empty() {
            ends.push(before);
        }
        let Some(mut merged) = ends.pop() else { return };
        for other in ends {
            for (name, state) in &other {
                if merged.get(name) != Some(state) {
                    merged.insert(name.clone(), State::Uncertain);
                }
            }
            for (name, state) in &mut merged {
                if !other.contains_key(name) {
                    *state = State::Uncertain;
                }
            }
        }
        *table = merged;
    }
}

struct Expander {
    /// The remaining number of tokens to process: macros can double a text at each level.
    steps: usize,
}

/// The macros that a token comes from, which are not expanded in it again.
type Hidden = Option<Rc<Origin>>;

/// The arguments of a macro use, and the number of tokens up to its closing parenthesis.
type Arguments = (Vec<Vec<Token>>, usize);

struct Origin {
    name: Token,
    depth: usize,
    outer: Hidden,
}

impl Expander {
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(steps)?;
        Some(())
    }

    fn run(&mut self, input: &[Token], table: &Table, depth: usize, out: &mut Vec<Token>) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        // The remaining tokens, the next one last.
        let mut rest: Vec<(Token, Hidden)> = input.iter().rev().map(|token| (token.clone(), None)).collect();
        while let Some((token, hidden)) = rest.pop() {
            self.steps = self.steps.checked_sub(1)?;
            let body = match table.get(&token) {
                Some(State::Defined(found)) if !is_hidden(&hidden, &token) => {
                    self.replacement(found, &mut rest, table, depth)?
                }
                _ => None,
            };
            let Some(body) = body else {
                out.push(token);
                continue;
            };
            self.steps = self.steps.checked_sub(body.len())?;
            let nested = hidden.as_ref().map_or(0, |origin| origin.depth) + 1;
            if nested > DEEPEST {
                return None;
            }
            let origin = Some(Rc::new(Origin { name: token, depth: nested, outer: hidden }));
            rest.extend(body.into_iter().rev().map(|token| (token, origin.clone())));
        }
        Some(())
    }

    /// The expansion of this macro use, whose arguments are taken from `rest`; the inner value is `None` if
    /// it is not a use.
    fn replacement(
        &mut self,
        found: &Macro,
        rest: &mut Vec<(Token, Hidden)>,
        table: &Table,
        depth: usize,
    ) -> Option<Option<Vec<Token>>> {
        let Some(params) = &found.params else {
            return Some(Some(substitute(found, &[], &[])));
        };
        let Some((mut args, used)) = self.arguments(rest)? else { return Some(None) };
        if params.is_empty() && !found.is_variadic && args.len() == 1 && args[0].is_empty() {
            args.clear();
        }
        let fits = if found.is_variadic { args.len() >= params.len() } else { args.len() == params.len() };
        if !fits {
            return Some(None);
        }
        if found.is_variadic {
            let others = args.split_off(params.len());
            args.push(others.join(&Token::from(",")));
        }
        let mut expanded = Vec::with_capacity(args.len());
        for arg in &args {
            let mut out = Vec::new();
            self.run(arg, table, depth + 1, &mut out)?;
            expanded.push(out);
        }
        rest.truncate(rest.len() - used);
        Some(Some(substitute(found, &args, &expanded)))
    }

    /// The following arguments in parentheses, and the number of tokens that they occupy.
    fn arguments(&mut self, rest: &[(Token, Hidden)]) -> Option<Option<Arguments>> {
        let mut depth = 0usize;
        let mut args = vec![Vec::new()];
        for (used, (token, _)) in rest.iter().rev().enumerate() {
            self.steps = self.steps.checked_sub(1)?;
            match (&**token, depth) {
                ("(", 0) => depth = 1,
                (_, 0) => return Some(None),
                (")", 1) => return Some(Some((args, used + 1))),
                (",", 1) => args.push(Vec::new()),
                (sign, _) => {
                    match sign {
                        "(" => depth += 1,
                        ")" => depth -= 1,
                        _ => {}
                    }
                    if let Some(last) = args.last_mut() {
                        last.push(token.clone());
                    }
                }
            }
        }
        Some(None)
    }
}

/// The body with parameters replaced by arguments: expanded ones, except beside `##`.
fn substitute(found: &Macro, args: &[Vec<Token>], expanded: &[Vec<Token>]) -> Vec<Token> {
    let body = &found.body;
    let sign = |at: usize| body.get(at).is_some_and(|token| &**token == "#");
    let position = |token: &Token| {
        let params = found.params.as_ref()?;
        let rest = (found.is_variadic && &**token == "__VA_ARGS__").then_some(params.len());
        params.iter().position(|param| param == token).or(rest)
    };
    let mut out: Vec<Token> = Vec::new();
    let (mut at, mut joins) = (0, false);
    while let Some(token) = body.get(at) {
        if sign(at) && sign(at + 1) {
            (joins, at) = (true, at + 2);
            continue;
        }
        if sign(at) && body.get(at + 1).is_some_and(|next| position(next).is_some()) {
            (joins, at) = (false, at + 2);
            out.push("\"\"".into());
            continue;
        }
        at += 1;
        let part = match position(token) {
            Some(number) if joins || (sign(at) && sign(at + 1)) => &args[number][..],
            Some(number) => &expanded[number][..],
            None => std::slice::from_ref(token),
        };
        match (out.last(), part.split_first()) {
            (Some(last), first) if joins && &**last == "," => match first {
                // `, ## __VA_ARGS__`: the comma is dropped without arguments.
                None => _ = out.pop(),
                Some(_) => out.extend_from_slice(part),
            },
            (Some(last), Some((first, others))) if joins => {
                let joined = format!("{last}{first}");
                out.pop();
                out.push(joined.into());
                out.extend_from_slice(others);
            }
            _ => out.extend_from_slice(part),
        }
        joins = false;
    }
    out
}

fn is_hidden(hidden: &Hidden, name: &Token) -> bool {
    let mut next = hidden;
    while let Some(origin) = next {
        if origin.name == *name {
            return true;
        }
        next = &origin.outer;
    }
    false
}

#[cfg(test)]
#[path = "macros_tests.rs"]
mod tests;
