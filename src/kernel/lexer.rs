//! Splits a C++ or OpenCL C source into code, directives and tokens; removes comments and literals. Pure.

/// A part of a source, without its comments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Code between directives. Literals keep their text only if it is a plain name.
    Code(String),
    /// A preprocessor directive in one line, without its `#`. `#include` has its file's name in quotes or angles.
    Directive(String),
}

/// The pieces of a source in their order.
pub(super) fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut line_start = true;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("/*") {
            code.push(' ');
            comment_length(rest)
        } else if rest.starts_with("//") {
            line_length(rest)
        } else if c == '#' && line_start {
            let length = line_length(rest);
            pieces.push(Piece::Code(std::mem::take(&mut code)));
            pieces.push(Piece::Directive(directive(&rest[1..length])));
            length
        } else if c == '\\' && splice_length(rest) > 0 {
            splice_length(rest)
        } else if c == '"' && ends_with_raw_prefix(&code) {
            code.push_str("\"\"");
            raw_length(rest)
        } else if c == '"' {
            let length = literal_length(rest, c);
            code.push_str(plain_literal(&rest[..length]));
            length
        } else if c == '\'' && last_word(&code).starts_with(|c: char| c.is_ascii_digit()) {
            // A digit separator.
            1
        } else if c == '\'' {
            code.push('0');
            literal_length(rest, c)
        } else {
            code.push(c);
            c.len_utf8()
        };
        line_start = c == '\n' || (line_start && (c.is_whitespace() || rest.starts_with("/*")));
        rest = &rest[skip..];
    }
    pieces.push(Piece::Code(code));
    pieces
}

/// Whether the source has input for a compiler: code, or a directive such as `#include`.
pub(super) fn has_code(source: &str) -> bool {
    pieces(source).iter().any(|piece| {
        let (Piece::Code(text) | Piece::Directive(text)) = piece;
        !text.trim().is_empty()
    })
}

/// A directive's text without comments and line continuations.
fn directive(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let splice = splice_length(rest);
        if splice == 0 {
            line.push(c);
        }
        rest = &rest[splice.max(if splice == 0 { c.len_utf8() } else { 0 })..];
    }
    // The name of a file is not a literal: a `//` in it begins no comment.
    if let Some(name) =
        line.trim_start().strip_prefix("include").and_then(|rest| file_name(rest.trim_start()))
    {
        return format!("include {name}");
    }
    // The `#` of the line was removed, so a directive inside it is not recognized.
    let found = pieces(&format!("0{line}")).into_iter().next();
    let Some(Piece::Code(code)) = found else { return String::new() };
    code[1..].trim().to_owned()
}

/// The name in quotes or angles with which the text begins.
fn file_name(text: &str) -> Option<&str> {
    let close = match text.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    let end = text[1..].find(close)?;
    Some(&text[..end + 2])
}

/// The length of a backslash and the newline after it, including blanks between them; 0 without one.
fn splice_length(rest: &str) -> usize {
    let Some(after) = rest.strip_prefix('\\') else { return 0 };
    let blank = after.len() - after.trim_start_matches([' ', '\t', '\r']).len();
    if after[blank..].starts_with('\n') { 1 + blank + 1 } else { 0 }
}

/// The literal itself if it is a plain name, such as that of an attribute; else an empty one.
fn plain_literal(literal: &str) -> &str {
    let name = literal.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if name.is_some_and(is_plain) { literal } else { "\"\"" }
}

/// The trailing letters and digits of `code`.
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

/// The length of a comment or directive, up to its newline; newlines after a backslash, or inside a
/// directive's comment, do not end it.
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

/// The length from a quote to the next unescaped one of its kind.
fn literal_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\\' => escaped = !escaped,
            // A newline ends an invalid literal, such as a stray quote after `#error`.
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

/// Words, literals and punctuation; of the operators with several characters only `::` is one token.
pub(super) fn tokens(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = source.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = if c.is_ascii_alphanumeric() || c == '_' {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if c == '"' {
            rest[1..].find('"').map_or(1, |end| end + 2)
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

/// The tokens of the code with their positions, without comments and directives. A literal is one token, and so are
/// `::` and `->`.
pub(super) fn located(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut at, mut line_start) = (0, true);
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let is_comment = rest.starts_with("/*");
        let (length, is_token) = if is_comment {
            (comment_length(rest), false)
        } else if rest.starts_with("//") || (c == '#' && line_start) {
            (line_length(rest), false)
        } else if splice_length(rest) > 0 {
            (splice_length(rest), false)
        } else if c.is_ascii_digit() {
            (rest.find(|c: char| !is_part(c) && !matches!(c, '.' | '\'')).unwrap_or(rest.len()), true)
        } else if word > 0 && rest[word..].starts_with('"') && ends_with_raw_prefix(&rest[..word]) {
            (word + raw_length(&rest[word..]), true)
        } else if word > 0 {
            (word, true)
        } else if matches!(c, '"' | '\'') {
            (literal_length(rest, c), true)
        } else if rest.starts_with("::") || rest.starts_with("->") {
            (2, true)
        } else {
            (c.len_utf8(), !c.is_whitespace())
        };
        if is_token {
            found.push((at, &rest[..length]));
        }
        line_start = c == '\n' || (line_start && (c.is_whitespace() || is_comment));
        at += length.max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use Piece::*;

    #[test]
    fn directives_are_separate_joined_and_without_comments() {
        let source = "int a; // x\n  # define F(x) \\\n x /* y\n z */ + 1 // end\nint \\\nb = \"no name!\";";
        let expected = [
            Code("int a; \n  ".to_owned()),
            Directive("define F(x)  x   + 1".to_owned()),
            Code("\nint b = \"\";".to_owned()),
        ];
        assert_eq!(pieces(source), expected);
        assert_eq!(pieces("#a #b"), [Code(String::new()), Directive("a #b".to_owned()), Code(String::new())]);
        assert_eq!(pieces("##b").len(), 3);
    }

    #[test]
    fn the_name_of_an_included_file_is_kept() {
        for (source, expected) in [
            ("#include \"my types.h\" // why", "include \"my types.h\""),
            ("# include<a//b.h>", "include <a//b.h>"),
            ("#include MACRO /* why */", "include MACRO"),
            ("#include \"open", "include \"\""),
        ] {
            let directive = pieces(source).into_iter().nth(1);
            assert_eq!(directive, Some(Directive(expected.to_owned())), "{source}");
        }
    }

    #[test]
    fn a_source_of_blanks_and_comments_has_no_code() {
        for text in ["", " \n\t", "// x", "/* x */ // y\n", "#", "#\n # // x\n", "/* open", "\\\n"] {
            assert!(!has_code(text), "{text:?}");
        }
        for text in ["int x;", "#include \"kernels.h\"", "/* x */ ;"] {
            assert!(has_code(text), "{text:?}");
        }
    }

    #[test]
    fn located_tokens_skip_comments_and_directives() {
        let source = "a /* x */ -> b; // c\n # define F \\\n d\n1'000.5 \"e f\" R\"(g \" h)\" 'i' std::j";
        let texts: Vec<_> = located(source).into_iter().map(|(_, text)| text).collect();
        let expected = ["a", "->", "b", ";", "1'000.5", "\"e f\"", "R\"(g \" h)\"", "'i'", "std", "::", "j"];
        assert_eq!(texts, expected);
        assert!(located(source).iter().all(|(at, text)| source[*at..].starts_with(text)));
        assert_eq!(located("\u{e9} \"open").len(), 2);
    }

    #[test]
    fn a_string_literal_is_one_token() {
        let Some(Code(code)) = pieces("f(\"a-b\", 2u)").into_iter().next() else { panic!("no code") };
        assert_eq!(tokens(&code), ["f", "(", "\"a-b\"", ",", "2u", ")"]);
        assert_eq!(tokens("\" a"), ["\"", "a"]);
    }
}
