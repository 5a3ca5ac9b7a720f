//! The macros that a source or a compiler flag defines, and the conditions that test them. Pure.

use super::condition::may_be_predefined;
use super::lexer::{Piece, tokens};
use std::collections::HashMap;
use std::rc::Rc;

pub(super) type Token = Rc<str>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Macro {
    /// The names of the parameters; `None` for an object-like macro.
    pub(super) params: Option<Vec<Token>>,
    pub(super) is_variadic: bool,
    pub(super) body: Vec<Token>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum State {
    Defined(Rc<Macro>),
    Undefined,
    /// Defined in one branch, and undefined or defined differently in another.
    Uncertain,
}

pub(super) type Table = HashMap<Token, State>;

/// The table of macros that `-D` and `-U` define.
pub(super) fn from_flags(flags: &[&str]) -> Table {
    let mut table = Table::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let mut value = |prefix: &str| match flag.strip_prefix(prefix)?.trim_start() {
            "" => flags.next().copied(),
            value => Some(value),
        };
        if let Some(value) = value("-D") {
            let (name, body) = value.split_once('=').unwrap_or((value, "1"));
            define(&mut table, &format!("{name} {body}"));
        } else if let Some(value) = value("-U") {
            table.insert(split_word(value).0.into(), State::Undefined);
        }
    }
    table
}

/// Adds the definition that follows `#define`.
pub(super) fn define(table: &mut Table, text: &str) {
    let (name, rest) = split_word(text);
    if name.is_empty() {
        return;
    }
    let state = parse(rest).map_or(State::Uncertain, |parsed| State::Defined(Rc::new(parsed)));
    table.insert(name.into(), state);
}

fn parse(rest: &str) -> Option<Macro> {
    // Only a parenthesis directly after the name begins parameters.
    let Some(list) = rest.strip_prefix('(') else {
        return Some(Macro { params: None, is_variadic: false, body: shared(&tokens(rest)) });
    };
    let (list, body) = list.split_once(')')?;
    let mut params: Vec<Token> = list.split(',').map(|param| param.trim().into()).collect();
    if list.trim().is_empty() {
        params.clear();
    }
    let is_variadic = params.last().is_some_and(|last| &**last == "...");
    if is_variadic {
        params.pop();
    }
    let body = shared(&tokens(body));
    let is_plain = params.iter().all(|param| is_word(param) && split_word(param).1.is_empty());
    (is_plain && !body.iter().any(|token| &**token == "__VA_OPT__")).then_some(Macro {
        params: Some(params),
        is_variadic,
        body,
    })
}

/// Whether `#ifndef name` only sets a default: the definition follows, and none precedes it here.
pub(super) fn is_default(name: &str, rest: &[Piece], table: &Table) -> bool {
    let name = split_word(name).0;
    let next = rest.iter().find_map(|piece| match piece {
        Piece::Code(text) if text.trim().is_empty() => None,
        Piece::Code(_) => Some(""),
        Piece::Directive(line) => Some(line.as_str()),
    });
    let (word, defined) = split_word(next.unwrap_or(""));
    !table.contains_key(name) && word == "define" && split_word(defined).0 == name
}

/// Whether a macro of this name is defined. `is_complete`: no other file can define one.
pub(super) fn is_defined(name: &str, table: &Table, is_complete: bool) -> Option<bool> {
    let name = split_word(name).0;
    match table.get(name) {
        Some(State::Defined(_)) => Some(true),
        Some(State::Undefined) => Some(false),
        None if is_complete && !may_be_predefined(name) => Some(false),
        Some(State::Uncertain) | None => None,
    }
}

/// The condition with 1 or 0 for each `defined name`, or a name of no known value.
pub(super) fn with_definitions(condition: &str, table: &Table, is_complete: bool) -> Vec<Token> {
    const UNKNOWN: &str = "__unknown";
    let words = tokens(condition);
    let mut out = Vec::with_capacity(words.len());
    let mut rest = &words[..];
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let name = match (*word, after) {
            ("defined", ["(", name, ")", after @ ..] | [name, after @ ..]) => {
                rest = after;
                *name
            }
            _ => {
                out.push(Token::from(*word));
                continue;
            }
        };
        let value = is_defined(name, table, is_complete);
        out.push(value.map_or(UNKNOWN, |is_defined| if is_defined { "1" } else { "0" }).into());
    }
    out
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Splits a text after its first word; the rest of `A (x)` begins with a blank.
pub(super) fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

pub(super) fn shared(tokens: &[&str]) -> Vec<Token> {
    tokens.iter().map(|token| Token::from(*token)).collect()
}
