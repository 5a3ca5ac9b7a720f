//! The parameters of one-line kernels: `float a, const T *x, raw const int *table`. Pure.

use super::lexer::tokens;
use super::param::{Param, param, split};
use crate::array::{DType, Family};
use crate::memory::Access;

/// A parameter of a one-line kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) element: Type,
    pub(super) role: Role,
}

/// The element type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Known(DType),
    /// A capital letter, whose type the arguments determine.
    Letter(char),
}

/// How a kernel uses a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A number, the same for each work-item.
    Number,
    /// The elements of an array, or with `const` a number in place of each.
    Elements { is_const: bool },
    /// A pointer to the first element of an array, which is used as a whole.
    Raw { is_const: bool },
}

impl Parameter {
    /// Whether the kernel may write to the argument.
    pub(super) fn writes(&self) -> bool {
        matches!(self.role, Role::Elements { is_const: false } | Role::Raw { is_const: false })
    }

    /// The access to its array. No mark of an argument changes it: launches are safe, and a mark may be wrong.
    pub(super) fn access(&self) -> Access {
        if self.writes() { Access::ReadWrite } else { Access::Read }
    }
}

/// The parameters in this text, or why it has none.
pub(super) fn parameters(text: &str) -> Result<Vec<Parameter>, String> {
    let list = tokens(text);
    if list.is_empty() {
        return Err("it has no parameters; give them as in \"float a, const float *x, float *y\"".to_owned());
    }
    let mut found: Vec<Parameter> = Vec::new();
    for part in split(&list) {
        let parameter = parameter(part).map_err(|why| format!("parameter `{}`: {why}", part.join(" ")))?;
        if found.iter().any(|other| other.name == parameter.name) {
            return Err(format!("two parameters have the name {}", parameter.name));
        }
        found.push(parameter);
    }
    Ok(found)
}

fn parameter(tokens: &[&str]) -> Result<Parameter, String> {
    const FORM: &str = "write it as `float a`, `const float *x`, `float *y` or `raw const float *table`";
    let (is_raw, tokens) = match tokens.split_first() {
        Some((&"raw", rest)) => (true, rest),
        _ => (false, tokens),
    };
    let Some((name, declared)) =
        tokens.split_last().filter(|(name, declared)| is_name(name) && !declared.is_empty())
    else {
        return Err(format!("its name is missing; {FORM}"));
    };
    if matches!(*name, "i" | "n") || name.starts_with("usmq_") {
        return Err(format!("the name {name} has a meaning of its own in these kernels; choose another"));
    }
    let letter = declared.iter().find(|token| is_letter(token));
    let plain: Vec<&str> =
        declared.iter().map(|token| if is_letter(token) { "float" } else { *token }).collect();
    let (dtype, role) = match (param(&plain), is_raw) {
        (Param::Scalar(dtype), false) => (dtype, Role::Number),
        (Param::Read(Some(dtype)), false) => (dtype, Role::Elements { is_const: true }),
        (Param::ReadWrite(Some(dtype)), false) => (dtype, Role::Elements { is_const: false }),
        (Param::Read(Some(dtype)), true) => (dtype, Role::Raw { is_const: true }),
        (Param::ReadWrite(Some(dtype)), true) => (dtype, Role::Raw { is_const: false }),
        (Param::Scalar(_), true) => return Err(format!("raw is for pointers; {FORM}")),
        _ => {
            return Err(format!(
                "its type must be a number or a pointer to numbers, with a built-in type or a capital letter; {FORM}"
            ));
        }
    };
    let element = match letter.and_then(|letter| letter.chars().next()) {
        Some(letter) => Type::Letter(letter),
        None => Type::Known(supported(dtype)?),
    };
    Ok(Parameter { name: (*name).to_owned(), element, role })
}

/// The type of a result, such as `float` or `T`.
pub(super) fn result_type(text: &str) -> Result<Type, String> {
    match (text.trim(), param(&tokens(text))) {
        (letter, _) if is_letter(letter) => Ok(Type::Letter(letter.chars().next().unwrap_or('T'))),
        (_, Param::Scalar(dtype)) => supported(dtype).map(Type::Known),
        _ => Err(format!("the result type {text:?} is neither a built-in number nor a capital letter")),
    }
}

/// Kernels compute with types that the compiler has.
pub(super) fn supported(dtype: DType) -> Result<DType, String> {
    if dtype.family() == Family::Complex || dtype == DType::BF16 {
        return Err(format!("the compiler has no arithmetic for {dtype}; use a kernel from SYCL source"));
    }
    Ok(dtype)
}

fn is_name(token: &str) -> bool {
    let mut chars = token.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_letter(token: &str) -> bool {
    matches!(token.as_bytes(), [b'A'..=b'Z'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Parameter {
        parameters(text).unwrap().remove(0)
    }

    #[test]
    fn each_form_of_a_parameter_is_read() {
        let known = Type::Known;
        let cases = [
            ("float a", known(DType::F32), Role::Number),
            ("unsigned long long n1", known(DType::U64), Role::Number),
            ("size_t count", known(DType::U64), Role::Number),
            ("const float *x", known(DType::F32), Role::Elements { is_const: true }),
            ("float const* __restrict x", known(DType::F32), Role::Elements { is_const: true }),
            ("half *x", known(DType::F16), Role::Elements { is_const: false }),
            ("T x", Type::Letter('T'), Role::Number),
            ("const T *x", Type::Letter('T'), Role::Elements { is_const: true }),
            ("raw const int *x", known(DType::I32), Role::Raw { is_const: true }),
            ("raw U *x", Type::Letter('U'), Role::Raw { is_const: false }),
        ];
        for (text, element, role) in cases {
            let found = one(text);
            assert_eq!((found.element, found.role), (element, role), "{text}");
        }
        assert_eq!(parameters("float a, const T *x,\n T *y").unwrap().len(), 3);
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            ("", "no parameters"),
            ("float", "name is missing"),
            ("float a,", "name is missing"),
            ("float *", "name is missing"),
            ("float i", "meaning of its own"),
            ("float usmq_x", "meaning of its own"),
            ("float a, int a", "two parameters have the name a"),
            ("thing a", "must be a number or a pointer"),
            ("float **x", "must be a number or a pointer"),
            ("void *x", "must be a number or a pointer"),
            ("raw float x", "raw is for pointers"),
            ("bfloat16 *x", "no arithmetic for bfloat16"),
        ];
        for (text, why) in cases {
            let found = parameters(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
        assert_eq!(result_type(" T "), Ok(Type::Letter('T')));
        assert_eq!(result_type("unsigned int"), Ok(Type::Known(DType::U32)));
        assert!(result_type("float *").is_err() && result_type("TT").is_err());
    }
}
