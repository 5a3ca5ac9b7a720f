//! Expands the macros that a source or a compiler flag defines. Pure.
//!
//! Not a complete preprocessor: it includes no files, and it evaluates only the conditions `0`, `1` and
//! whether a macro is defined here. If it cannot determine which branch is compiled, it reads all of them,
//! and drops a macro that they define differently. Unknown macros are not expanded.

use super::definitions::{
    Macro, State, Table, Token, define, from_flags, is_default, is_defined, shared, split_word, truth,
};
use super::lexer::{Piece, pieces, tokens};
use std::rc::Rc;

/// An open conditional.
struct Conditional {
    /// The table at its start.
    before: Table,
    /// The tables at the ends of the branches that may be compiled.
    ends: Vec<Table>,
    /// Whether the whole conditional is inside a branch that is not compiled.
    is_dead: bool,
    /// Whether a branch is certain to be compiled, so that later ones are not.
    is_decided: bool,
    /// Whether the current branch is not compiled.
    is_skipped: bool,
}

/// The maximum nesting of macros; deeper ones are not expanded.
const DEEPEST: usize = 64;

/// The tokens of the code of `source` with expanded macros. `None` if that exceeds the step limit.
pub(super) fn expand(source: &str, flags: &[&str]) -> Option<Vec<Token>> {
    let mut table = from_flags(flags);
    let pieces = pieces(source);
    let mut open: Vec<Conditional> = Vec::new();
    let mut expander = Expander { steps: 16 * source.len() + 100_000 };
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let is_skipped = open.last().is_some_and(|conditional| conditional.is_skipped);
        match piece {
            Piece::Code(text) if !is_skipped => {
                let input = shared(&tokens(text));
                expander.run(&input, &table, 0, &mut out)?;
            }
            Piece::Code(_) => {}
            Piece::Directive(line) => {
                let (word, rest) = split_word(line);
                let condition = match word {
                    "if" => truth(rest, &table),
                    "ifdef" => is_defined(rest, &table),
                    "ifndef" if is_default(rest, &pieces[at + 1..], &table) => Some(true),
                    "ifndef" => is_defined(rest, &table).map(|defined| !defined),
                    _ => None,
                };
                match word {
                    "if" | "ifdef" | "ifndef" => open.push(Conditional {
                        before: table.clone(),
                        ends: Vec::new(),
                        is_dead: is_skipped,
                        is_decided: condition == Some(true),
                        is_skipped: is_skipped || condition == Some(false),
                    }),
                    "elif" | "elifdef" | "elifndef" | "else" => {
                        let Some(conditional) = open.last_mut() else { continue };
                        conditional.next_branch(&mut table);
                        conditional.is_decided |= word == "else";
                    }
                    "endif" => {
                        let Some(conditional) = open.pop() else { continue };
                        conditional.end(&mut table);
                    }
                    "define" if !is_skipped => define(&mut table, rest),
                    "undef" if !is_skipped => {
                        table.insert(split_word(rest).0.into(), State::Undefined);
                    }
                    _ => {}
                }
            }
        }
    }
    Some(out)
}

impl Conditional {
    fn leave_branch(&mut self, table: &mut Table) {
        let end = std::mem::replace(table, self.before.clone());
        if !self.is_skipped {
            self.ends.push(end);
        }
    }

    fn next_branch(&mut self, table: &mut Table) {
        self.leave_branch(table);
        self.is_skipped = self.is_dead || self.is_decided;
    }

    fn end(mut self, table: &mut Table) {
        self.leave_branch(table);
        let mut ends = self.ends;
        if !self.is_decided || ends.is_empty() {
            ends.push(self.before);
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
