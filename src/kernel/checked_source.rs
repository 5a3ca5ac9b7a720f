//! Replaces pointers in a kernel's source by checked ones, for debug builds. Pure.
//!
//! Not a C++ parser: it recognizes pointers in the parameters of functions, in declarations and in casts. Any other
//! pointer stays plain, and so do those that macros and included files declare; a checked pointer converts to them.

use super::lexer::located;
use super::param::{Param, close, is_word, param};
use std::ops::Range;

/// The class of checked pointers.
const HEADER: &str = include_str!("../../python/usmq/include/usmq/debug.h");

/// A source with checked pointers, and the parameters of its kernel.
#[derive(Debug)]
pub(super) struct CheckedSource {
    pub(super) text: String,
    pub(super) params: Vec<CheckedParam>,
}

/// A parameter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedParam {
    pub(super) name: String,
    /// Whether an array for it is a checked pointer.
    pub(super) is_checked: bool,
    /// Whether the built kernel counts it as four arguments.
    pub(super) is_accessor: bool,
}

/// The text with checked pointers, or why the parameters of the kernel cannot be read.
pub(super) fn checked_source(source: &str, name: &str) -> Result<CheckedSource, String> {
    let mut rewriter = Rewriter::new(source, name);
    rewriter.run();
    let text = rewriter.edited();
    let params = rewriter.params.unwrap_or_else(|| {
        Err("debug needs the definition of the kernel in the source itself, not in a macro or an included file"
            .to_owned())
    })?;
    Ok(CheckedSource { text: format!("{HEADER}\n#line 1\n{text}"), params })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Namespace,
    Class,
    Function,
}

/// A pointer type at a place where a type is certain.
struct Pointer {
    /// The tokens of the type that it points to.
    pointee: Range<usize>,
    /// The first token after the star and its qualifiers.
    end: usize,
    is_const: bool,
}

struct Rewriter<'a> {
    source: &'a str,
    /// The function that is the kernel.
    name: &'a str,
    starts: Vec<usize>,
    tokens: Vec<&'a str>,
    /// Replacements of parts of the source, in any order.
    edits: Vec<(Range<usize>, String)>,
    params: Option<Result<Vec<CheckedParam>, String>>,
    /// The first token of the current statement.
    statement: usize,
}

/// The function of a list of parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    Kernel,
    /// A kernel that is a template: the runtime's compiler crashes on parameters of types that depend on its own.
    Template,
    Helper,
}

impl<'a> Rewriter<'a> {
    fn new(source: &'a str, name: &'a str) -> Self {
        let (starts, tokens) = located(source).into_iter().unzip();
        let name = name.split('<').next().unwrap_or(name);
        let name = name.rsplit("::").next().unwrap_or(name).trim();
        Self { source, name, starts, tokens, edits: Vec::new(), params: None, statement: 0 }
    }

    fn token(&self, at: usize) -> &'a str {
        self.tokens.get(at).copied().unwrap_or("")
    }

    fn before(&self, at: usize) -> &'a str {
        at.checked_sub(1).map_or("", |at| self.token(at))
    }

    /// The bytes of these tokens.
    fn bytes(&self, tokens: Range<usize>) -> Range<usize> {
        let start = self.starts[tokens.start];
        let last = tokens.end.max(tokens.start + 1) - 1;
        start..self.starts[last] + self.tokens[last].len()
    }

    fn text(&self, tokens: Range<usize>) -> &'a str {
        &self.source[self.bytes(tokens)]
    }

    fn edited(&mut self) -> String {
        self.edits.sort_by_key(|(range, _)| range.start);
        let (mut text, mut done) = (String::with_capacity(2 * self.source.len()), 0);
        for (range, replacement) in &self.edits {
            // A type inside of another replaced one.
            if range.start < done {
                continue;
            }
            text.push_str(&self.source[done..range.start]);
            text.push_str(replacement);
            done = range.end;
        }
        text.push_str(&self.source[done..]);
        text
    }

    fn run(&mut self) {
        let mut scopes = vec![Scope::Namespace];
        for at in 0..self.tokens.len() {
            let scope = scopes.last().copied().unwrap_or(Scope::Namespace);
            match self.token(at) {
                "{" => scopes.push(self.scope_of(self.statement..at, scope)),
                "}" if scopes.len() > 1 => _ = scopes.pop(),
                "(" => self.parenthesis(at, scope),
                "static_cast" | "reinterpret_cast" | "const_cast" => self.named_cast(at),
                _ => {}
            }
            let starts_statement = match self.before(at) {
                ";" | "{" | "}" | "" => true,
                "(" => at > 1 && matches!(self.token(at - 2), "for" | "if" | "while"),
                _ => false,
            };
            if starts_statement {
                self.statement = at;
                if scope != Scope::Class {
                    self.declaration(at);
                }
            }
        }
    }

    /// The scope that a brace after these tokens opens.
    fn scope_of(&self, statement: Range<usize>, outer: Scope) -> Scope {
        let words = &self.tokens[statement.start.min(statement.end)..statement.end];
        let is_class = words.iter().any(|word| matches!(*word, "struct" | "class" | "union" | "enum"));
        if is_class && !words.contains(&"(") {
            Scope::Class
        } else if outer == Scope::Namespace
            && (words.contains(&"namespace") || matches!(words, ["extern", "\"C\""]))
        {
            Scope::Namespace
        } else {
            Scope::Function
        }
    }

    /// Handles the parameters of a function, or a cast.
    fn parenthesis(&mut self, open: usize, scope: Scope) {
        let Some(end) = close(&self.tokens, open) else { return };
        let before = self.before(open);
        let mut next = end + 1;
        while matches!(self.token(next), "const" | "noexcept" | "mutable") {
            next += 1;
        }
        if self.token(next) == "->" {
            while !matches!(self.token(next), "{" | ";" | "") {
                next += 1;
            }
        }
        let has_body = self.token(next) == "{";
        let is_control = matches!(before, "if" | "for" | "while" | "switch" | "catch");
        let is_function = is_word(before)
            && !is_control
            && scope != Scope::Function
            && (has_body || self.token(next) == ";");
        let is_lambda = before == "]" && has_body;
        if is_function || is_lambda {
            let is_kernel = is_function && has_body && before == self.name;
            let function = match is_kernel {
                true if self.tokens[self.statement..open].contains(&"template") => Function::Template,
                true => Function::Kernel,
                false => Function::Helper,
            };
            let (params, copies) = match self.parameters(open + 1..end, function) {
                Ok((params, copies)) => (Ok(params), copies),
                Err(why) => (Err(why), String::new()),
            };
            if is_kernel {
                let body = self.bytes(next..next + 1).end;
                self.edits.push((body..body, copies));
                self.params = Some(match self.params.take() {
                    Some(Ok(other)) if Ok(&other) != params.as_ref() => {
                        Err("debug needs one definition of the kernel; the source has several".to_owned())
                    }
                    Some(Err(why)) => Err(why),
                    _ => params,
                });
            }
            return;
        }
        let is_operand = matches!(before, "return" | "case" | "")
            || !(is_word(before) || matches!(before, ")" | "]" | ">"));
        let applies = is_word(self.token(end + 1)) || matches!(self.token(end + 1), "(" | "&" | "*" | "\"\"");
        if let Some(pointer) =
            self.pointer(open + 1).filter(|pointer| pointer.end == end && is_operand && applies)
        {
            self.replace(&pointer);
        }
    }

    /// `static_cast<float *>(` becomes `pointer<float>(`.
    fn named_cast(&mut self, at: usize) {
        let Some(pointer) = self.pointer(at + 2) else { return };
        if self.token(at + 1) == "<" && self.token(pointer.end) == ">" {
            let replacement = self.spelled(&pointer);
            let bytes = self.bytes(at..pointer.end + 1);
            self.edits.push((bytes, replacement));
        }
    }

    /// A declaration of variables or of a function that returns a pointer.
    fn declaration(&mut self, start: usize) {
        let mut at = start;
        // Words, macros and attributes may precede the type.
        let pointer = loop {
            let word = self.token(at);
            if is_statement(word) {
                return;
            }
            let next = match word {
                "template" => self.angles(at + 1),
                "[" => close(&self.tokens, at).map(|end| end + 1),
                "\"C\"" => Some(at + 1),
                _ if !is_word(word) => None,
                _ => {
                    if let Some(pointer) = self.pointer(at) {
                        break pointer;
                    }
                    let list = (self.token(at + 1) == "(").then(|| close(&self.tokens, at + 1));
                    list.map_or(Some(at + 1), |end| end.map(|end| end + 1))
                }
            };
            let Some(next) = next else { return };
            at = next;
        };
        let Some(others) = self.declarators(pointer.end) else { return };
        self.replace(&pointer);
        for star in others {
            let bytes = self.bytes(star);
            self.edits.push((bytes, String::new()));
        }
    }

    /// The stars of the declarators after the first, which begins here; `None` unless all are plain pointers.
    fn declarators(&self, name: usize) -> Option<Vec<Range<usize>>> {
        let mut others = Vec::new();
        if !is_word(self.token(name)) {
            return None;
        }
        let mut at = name + 1;
        match (self.token(at), self.token(at + 1)) {
            ("=", next) if next != "=" => {}
            // A function, or one variable.
            ("(", _) => return Some(others),
            (";" | "," | "{", _) => {}
            _ => return None,
        }
        loop {
            match self.token(at) {
                "(" | "[" | "{" => at = close(&self.tokens, at)?,
                "," => {
                    let end = self.qualifiers(at + 2).0;
                    if self.token(at + 1) != "*" || !is_word(self.token(end)) || self.token(end + 1) == "[" {
                        return None;
                    }
                    others.push(at + 1..end);
                    at = end;
                }
                ";" | "" | ")" | "}" => return Some(others),
                _ => {}
            }
            at += 1;
        }
    }

    /// Replaces the pointers of a list of parameters. For the kernel, returns them all, and statements for its body.
    fn parameters(
        &mut self,
        list: Range<usize>,
        function: Function,
    ) -> Result<(Vec<CheckedParam>, String), String> {
        let (mut params, mut copies) = (Vec::new(), String::new());
        let is_kernel = function != Function::Helper;
        for (number, part) in self.split(list).into_iter().enumerate() {
            if self.tokens[part.clone()] == ["void"] {
                continue;
            }
            let end = part.clone().find(|at| self.token(*at) == "=").unwrap_or(part.end);
            let part = part.start..end;
            let is_accessor = self.tokens[part.clone()].contains(&"local_accessor");
            let before = self.edits.len();
            let (name, is_checked) = match self.parameter(part.clone(), function == Function::Kernel) {
                Some(found) => found,
                None if is_kernel => {
                    return Err(format!(
                        "debug cannot read parameter {number} of the kernel, `{}`; write it without a macro or attribute",
                        self.text(part)
                    ));
                }
                None => continue,
            };
            if let (Function::Template, Some((_, checked))) = (function, self.edits.get(before)) {
                if !name.is_empty() {
                    copies += &format!(" {} {name}(usmq_{number});", checked.trim_end());
                }
                self.edits.truncate(before);
                let bytes = self.bytes(part);
                self.edits.push((bytes, format!("usmq::debug::address usmq_{number}")));
            }
            params.push(CheckedParam { name: name.to_owned(), is_checked, is_accessor });
        }
        Ok((params, copies))
    }

    /// Replaces a parameter's type if it is a pointer. Returns its name, and whether it is checked.
    fn parameter(&mut self, part: Range<usize>, is_kernel: bool) -> Option<(&'a str, bool)> {
        let mut start = part.start;
        while self.token(start) == "[" {
            start = close(&self.tokens, start)? + 1;
        }
        if let Some(pointer) = self.pointer(start) {
            let name = pointer.end + usize::from(self.token(pointer.end) == "&");
            if name == part.end {
                self.replace(&pointer);
                return Some(("", true));
            }
            if name + 1 == part.end && is_word(self.token(name)) {
                self.replace(&pointer);
                return Some((self.token(name), true));
            }
        }
        let words = &self.tokens[start..part.end];
        let stars = words.iter().filter(|token| **token == "*").count();
        if words.first() == Some(&"decltype") && is_word(self.token(part.end - 1)) {
            return Some((self.token(part.end - 1), false));
        }
        if words.contains(&"(") {
            return None;
        }
        if let (0, Some(open)) = (stars, words.iter().position(|token| *token == "[")) {
            let (name, open) = (start + open.checked_sub(1)?, start + open);
            let pointee = start..name;
            if pointee.is_empty() || close(&self.tokens, open)? + 1 != part.end {
                return Some(("", false));
            }
            let replacement = format!("usmq::debug::pointer<{}>", self.text(pointee.clone()));
            let (pointee, brackets) = (self.bytes(pointee), self.bytes(open..part.end));
            self.edits.push((pointee, replacement));
            self.edits.push((brackets, String::new()));
            return Some((self.token(name), true));
        }
        let name = part.end.checked_sub(1)?;
        let is_plain = words.iter().all(|token| is_word(token) || *token == "::");
        // Its name may be missing, and its type one of several words.
        let is_known = !matches!(param(words), Param::Unknown) || words.contains(&"auto");
        let type_words = start..name;
        if is_kernel && is_plain && !is_known && !type_words.is_empty() && self.token(name - 1) != "::" {
            // The name of its type may stand for a pointer.
            let replacement = format!("usmq::debug::argument_t<{}>", self.text(type_words.clone()));
            let bytes = self.bytes(type_words);
            self.edits.push((bytes, replacement));
            return Some((self.token(name), true));
        }
        Some((if words.len() > 1 && is_word(self.token(name)) { self.token(name) } else { "" }, false))
    }

    /// The pointer type that begins here: `const float *`, with one star, to a type that has a size.
    fn pointer(&self, start: usize) -> Option<Pointer> {
        let mut at = start;
        let (mut has_name, mut is_builtin) = (false, false);
        loop {
            match self.token(at) {
                "const" | "volatile" | "struct" | "typename" => {}
                "unsigned" | "signed" | "long" | "short" | "int" | "char" | "double"
                    if !has_name || is_builtin =>
                {
                    (has_name, is_builtin) = (true, true);
                }
                "::" if is_word(self.token(at + 1)) => {
                    has_name = true;
                    at += 1;
                }
                "<" if has_name && !is_builtin => {
                    at = self.angles(at)?;
                    continue;
                }
                "*" if has_name => break,
                "void" => return None,
                word if is_word(word) && !has_name && !is_statement(word) => has_name = true,
                _ => return None,
            }
            at += 1;
        }
        let (end, is_const) = self.qualifiers(at + 1);
        (self.token(end) != "*").then_some(Pointer { pointee: start..at, end, is_const })
    }

    /// The end of the qualifiers after a star, and whether they have a `const`.
    fn qualifiers(&self, mut at: usize) -> (usize, bool) {
        let mut is_const = false;
        while matches!(self.token(at), "const" | "volatile" | "restrict" | "__restrict" | "__restrict__") {
            is_const |= self.token(at) == "const";
            at += 1;
        }
        (at, is_const)
    }

    fn spelled(&self, pointer: &Pointer) -> String {
        let pointee = pointer.pointee.clone();
        let constant = if pointer.is_const { "const " } else { "" };
        if self.tokens[pointee.clone()].contains(&"auto") {
            return format!("{constant}auto");
        }
        format!("{constant}usmq::debug::pointer<{}>", self.text(pointee))
    }

    fn replace(&mut self, pointer: &Pointer) {
        let bytes = self.bytes(pointer.pointee.start..pointer.end);
        let mut replacement = self.spelled(pointer);
        let after = self.source[bytes.end..].chars().next();
        if after.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            replacement.push(' ');
        }
        self.edits.push((bytes, replacement));
    }

    /// The first token after the `>` that closes the `<` here.
    fn angles(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for at in open..self.tokens.len() {
            match self.token(at) {
                "<" => depth += 1,
                ">" => depth = depth.checked_sub(1)?,
                ";" | "{" | "}" => return None,
                _ => {}
            }
            if depth == 0 {
                return (at > open).then_some(at + 1);
            }
        }
        None
    }

    /// The parts between the commas of a list.
    fn split(&self, list: Range<usize>) -> Vec<Range<usize>> {
        let (mut parts, mut start, mut depth) = (Vec::new(), list.start, 0i32);
        for at in list.clone() {
            match self.token(at) {
                "(" | "[" | "{" | "<" => depth += 1,
                ")" | "]" | "}" | ">" => depth -= 1,
                "," if depth == 0 => {
                    parts.push(start..at);
                    start = at + 1;
                }
                _ => {}
            }
        }
        parts.push(start..list.end);
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// Whether a statement that begins with this word declares no pointer.
fn is_statement(word: &str) -> bool {
    matches!(
        word,
        "return"
            | "else"
            | "case"
            | "throw"
            | "do"
            | "goto"
            | "delete"
            | "new"
            | "using"
            | "typedef"
            | "if"
            | "for"
            | "while"
            | "switch"
            | "break"
            | "continue"
            | "default"
            | "sizeof"
            | "operator"
            | "public"
            | "private"
            | "protected"
            | "namespace"
            | "class"
            | "union"
            | "enum"
            | "asm"
            | "static_assert"
            | "co_return"
            | "friend"
    )
}

#[cfg(test)]
#[path = "checked_source_tests.rs"]
mod tests;
