//! Evaluates conditions of `#if`, as far as their names are known. Pure.

use super::param::is_word;

/// The maximum nesting of operators and parentheses; deeper conditions count as unknown.
const DEEPEST: usize = 64;

/// The value of a condition without macros; `is_undefined`: whether a name is certainly not defined, and so is 0.
/// `None` if the value is not known.
pub(super) fn truth(tokens: &[&str], is_undefined: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut parser = Parser { tokens, is_undefined, depth: 0 };
    let value = parser.choice()?;
    if parser.tokens.is_empty() { value.map(|value| value != 0) } else { None }
}

/// Whether a compiler or its own headers may define a macro of this name.
pub(super) fn may_be_predefined(name: &str) -> bool {
    const STARTS: [&str; 8] = ["_", "SYCL", "USMQ_", "CL_", "CLK_", "cl_", "ATOMIC_", "M_"];
    const ENDS: [&str; 6] = ["_MAX", "_MIN", "_DIG", "_EPSILON", "_BIT", "_RADIX"];
    const NAMES: [&str; 9] =
        ["linux", "unix", "NDEBUG", "NULL", "NAN", "INFINITY", "MAXFLOAT", "HUGE_VAL", "HUGE_VALF"];
    STARTS.iter().any(|start| name.starts_with(start))
        || ENDS.iter().any(|end| name.ends_with(end))
        || NAMES.contains(&name)
}

struct Parser<'a, 'b> {
    tokens: &'b [&'a str],
    is_undefined: &'b dyn Fn(&str) -> bool,
    depth: usize,
}

/// `None` for an unknown value.
type Value = Option<i128>;

/// Operators of two characters come first, since the lexer separates them.
const OPERATORS: [(&str, u8); 18] = [
    ("||", 1),
    ("&&", 2),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

impl Parser<'_, '_> {
    fn take(&mut self, expected: &str) -> Option<()> {
        self.tokens = self.tokens.split_first().filter(|(next, _)| **next == expected)?.1;
        Some(())
    }

    /// `a ? b : c`; the outer value is `None` for a text that is not an expression.
    fn choice(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let condition = self.binary(1)?;
        if self.take("?").is_none() {
            self.depth -= 1;
            return Some(condition);
        }
        let yes = self.choice()?;
        self.take(":")?;
        let no = self.choice()?;
        self.depth -= 1;
        Some(condition.and_then(|value| if value == 0 { no } else { yes }))
    }

    fn operator(&self) -> Option<(&'static str, u8)> {
        let is_next = |operator: &str| {
            let mut signs = operator.char_indices().map(|(at, c)| &operator[at..at + c.len_utf8()]);
            let mut tokens = self.tokens.iter();
            signs.all(|sign| tokens.next() == Some(&sign))
        };
        OPERATORS.into_iter().find(|(operator, _)| is_next(operator))
    }

    fn binary(&mut self, least: u8) -> Option<Value> {
        let mut left = self.unary()?;
        while let Some((operator, rank)) = self.operator().filter(|(_, rank)| *rank >= least) {
            self.tokens = &self.tokens[operator.len()..];
            let right = self.binary(rank + 1)?;
            left = apply(operator, left, right);
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Value> {
        let (token, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        let sign: fn(i128) -> Option<i128> = match *token {
            "!" => |value| Some(i128::from(value == 0)),
            "~" => |value| Some(!value),
            "-" => i128::checked_neg,
            "+" => Some,
            "(" => {
                let value = self.choice()?;
                self.take(")")?;
                return Some(value);
            }
            "true" => return Some(Some(1)),
            "false" => return Some(Some(0)),
            name if is_word(name) => return Some((self.is_undefined)(name).then_some(0)),
            number => return self::number(number).map(Some),
        };
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let value = self.unary()?;
        self.depth -= 1;
        Some(value.and_then(sign))
    }
}

fn apply(operator: &str, left: Value, right: Value) -> Value {
    match (operator, left, right) {
        ("&&", Some(0), _) | ("&&", _, Some(0)) => return Some(0),
        ("||", Some(value), _) | ("||", _, Some(value)) if value != 0 => return Some(1),
        _ => {}
    }
    let (a, b) = (left?, right?);
    let truth = |is_true: bool| Some(i128::from(is_true));
    match operator {
        "&&" => truth(a != 0 && b != 0),
        "||" => truth(a != 0 || b != 0),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<=" => truth(a <= b),
        ">=" => truth(a >= b),
        "<" => truth(a < b),
        ">" => truth(a > b),
        "<<" => u32::try_from(b).ok().filter(|bits| *bits < 64).and_then(|bits| a.checked_mul(1 << bits)),
        ">>" => u32::try_from(b).ok().filter(|bits| *bits < 64).map(|bits| a >> bits),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "&" => Some(a & b),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        "%" => a.checked_rem(b),
        _ => None,
    }
}

fn number(text: &str) -> Option<i128> {
    let text = text.trim_end_matches(['u', 'U', 'l', 'L', 'z', 'Z']);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    i128::from(u64::from_str_radix(digits, radix).ok()?).into()
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn value(text: &str) -> Option<bool> {
        truth(&tokens(text), &|name| name == "NO")
    }

    #[test]
    fn conditions_have_the_values_of_the_language() {
        for text in [
            "1",
            "2 > 1",
            "1 + 2 * 3 == 7",
            "(1 + 2) * 3 == 9",
            "1 << 3 == 8",
            "0x10 == 16 && 010 == 8 && 0b11 == 3",
            "!0 && !!2",
            "64 >= 32u && 201703L <= 202002L",
            "7 % 4 == 3 && 7 / 2 == 3 && 10 - 3 - 2 == 5",
            "~0 == -1",
            "(6 & 3) == 2 && (6 | 1) == 7 && (6 ^ 3) == 5",
            "0 ? 0 : 1",
            "NO == 0",
            "true && !false",
            "1 != 2",
        ] {
            assert_eq!(value(text), Some(true), "{text}");
            assert_eq!(value(&format!("!({text})")), Some(false), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_matters_only_if_the_value_depends_on_it() {
        assert_eq!(value("X"), None);
        assert_eq!(value("X == 1"), None);
        assert_eq!(value("X && 0"), Some(false));
        assert_eq!(value("0 && X"), Some(false));
        assert_eq!(value("X || 1"), Some(true));
        assert_eq!(value("X && 1"), None);
        assert_eq!(value("NO && X"), Some(false));
    }

    #[test]
    fn a_text_that_is_no_condition_has_no_value() {
        let nested = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        for text in
            ["", "1 +", "(1", "1)", "1 1", "F(2)", "1 / 0", "\"a\"", "99999999999999999999", "1.5", &nested]
        {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value(&"!".repeat(1000)), None);
    }
}
