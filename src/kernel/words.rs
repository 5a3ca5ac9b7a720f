//! The words of a C++ or OpenCL C source: what a compiler reads once comments, directives and literals are gone. Pure.

/// The source without comments, preprocessor lines and the text of literals.
pub(super) fn without_comments(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut line_start = true;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("/*") {
            out.push(' ');
            comment_length(rest)
        } else if rest.starts_with("//") || (c == '#' && line_start) {
            line_length(rest)
        } else if c == '"' && ends_with_raw_prefix(&out) {
            out.push_str("\"\"");
            raw_length(rest)
        } else if c == '"' {
            out.push_str("\"\"");
            literal_length(rest, c)
        } else if c == '\'' && last_word(&out).starts_with(|c: char| c.is_ascii_digit()) {
            // Between the digits of a number.
            1
        } else if c == '\'' {
            out.push('0');
            literal_length(rest, c)
        } else {
            out.push(c);
            c.len_utf8()
        };
        line_start = c == '\n' || (line_start && (c.is_whitespace() || rest.starts_with("/*")));
        rest = &rest[skip..];
    }
    out
}

/// The letters and digits that `code` ends with.
fn last_word(code: &str) -> &str {
    let end = code.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    end.map_or(code, |at| &code[at + code[at..].chars().next().map_or(0, char::len_utf8)..])
}

fn ends_with_raw_prefix(code: &str) -> bool {
    matches!(last_word(code), "R" | "LR" | "uR" | "UR" | "u8R")
}

fn comment_length(rest: &str) -> usize {
    rest.get(2..).and_then(|text| text.find("*/")).map_or(rest.len(), |end| 2 + end + 2)
}

/// Of a comment or directive, up to the newline that ends it: one after a backslash, or inside a directive's comment,
/// does not.
fn line_length(rest: &str) -> usize {
    let directive = rest.starts_with('#');
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        if c == '\n' && !rest[..at].trim_end_matches([' ', '\t', '\r']).ends_with('\\') {
            return at;
        }
        at += if directive && rest[at..].starts_with("/*") {
            comment_length(&rest[at..])
        } else {
            c.len_utf8()
        };
    }
    rest.len()
}

/// From a quote to the next one of its kind that no backslash stands before.
fn literal_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\\' => escaped = !escaped,
            // A newline ends what was no literal, as a stray quote after `#error` would be.
            '\n' if !escaped => return at,
            c if c == quote && !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// `"delimiter( … )delimiter"`.
fn raw_length(rest: &str) -> usize {
    let Some(open) = rest.find('(') else { return rest.len() };
    let end = format!("){}\"", &rest[1..open]);
    rest[open..].find(&end).map_or(rest.len(), |at| open + at + end.len())
}

pub(super) fn tokens(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = source.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = if c.is_ascii_alphanumeric() || c == '_' {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}
