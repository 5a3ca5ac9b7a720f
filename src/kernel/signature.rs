//! The parameter list of a kernel, read from its source. Pure.
//!
//! Not a C++ parser: it knows the built-in scalar types of SYCL C++ and OpenCL C and pointers to them. A parameter of
//! any other type is [`Param::Unknown`], and a kernel it cannot find has no signature; both are no errors.

use super::words::{tokens, without_comments};
use crate::array::DType;
use crate::memory::Access;

/// One parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A number passed by value.
    Scalar(DType),
    /// A pointer to elements that the kernel only reads. `None`: of any type.
    Read(Option<DType>),
    /// A pointer to elements that the kernel sets without reading them.
    Write(Option<DType>),
    /// A pointer to elements that the kernel may read and write.
    ReadWrite(Option<DType>),
    /// Local memory of the work-group, as a pointer or a `local_accessor`.
    Local,
    /// Local memory of the work-group, as a `work_group_memory`.
    WorkGroupMemory,
    /// A type that usmq does not know: the argument must bring its own.
    Unknown,
}

impl Param {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Read(_) => Access::Read,
            Self::Write(_) => Access::Write,
            _ => Access::ReadWrite,
        }
    }

    /// What a pointer points to, `None` inside for anything; `None` for other parameters.
    pub(super) fn pointee(&self) -> Option<Option<DType>> {
        match self {
            Self::Read(dtype) | Self::Write(dtype) | Self::ReadWrite(dtype) => Some(*dtype),
            _ => None,
        }
    }
}

/// What a kernel's definition says of its launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub params: Vec<Param>,
    /// Of the range, when the kernel is declared for one number of them.
    pub dimensions: Option<usize>,
}

/// The signature of the function `name`, if the source defines one that can be read. Of several that differ, as in the
/// branches of an `#if`, none is taken: the wrong one would have arguments passed as what they are not.
pub(crate) fn read_signature(source: &str, name: &str) -> Option<Signature> {
    let code = without_comments(source);
    let tokens = tokens(&code);
    let starts = (0..tokens.len()).filter(|at| is_definition(&tokens, *at, name));
    let mut all = starts.map(|start| signature(&tokens, start));
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

fn signature(tokens: &[&str], start: usize) -> Option<Signature> {
    let list = &tokens[start + 2..close(tokens, start + 1)?];
    let params = if list.is_empty() || list == ["void"] {
        Vec::new()
    } else {
        split(list).into_iter().map(param).collect()
    };
    Some(Signature { params, dimensions: dimensions(&tokens[..start]) })
}

/// `N` of the `nd_range_kernel<N>` in the declaration that ends here.
fn dimensions(before: &[&str]) -> Option<usize> {
    let declaration = before.rsplit(|token| matches!(*token, ";" | "}")).next()?;
    let at = declaration.iter().rposition(|token| *token == "nd_range_kernel")?;
    match declaration.get(at + 1..at + 4)? {
        ["<", number, ">"] => number.parse().ok(),
        _ => None,
    }
}

/// Whether a function definition named `name` starts here: a type before, a list and a body after.
fn is_definition(tokens: &[&str], at: usize, name: &str) -> bool {
    tokens[at] == name
        && tokens.get(at + 1) == Some(&"(")
        && at > 0
        && (is_word(tokens[at - 1]) || tokens[at - 1] == ")" || tokens[at - 1] == "*")
        && close(tokens, at + 1).is_some_and(|end| tokens.get(end + 1) == Some(&"{"))
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Position of the bracket that closes the one at `open`.
fn close(tokens: &[&str], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The list at its top-level commas.
fn split<'a>(list: &'a [&'a str]) -> Vec<&'a [&'a str]> {
    let mut depth = 0i32;
    list.split(|token| {
        match *token {
            "(" | "[" | "<" => depth += 1,
            ")" | "]" | ">" => depth -= 1,
            _ => {}
        }
        depth == 0 && *token == ","
    })
    .collect()
}

fn param(tokens: &[&str]) -> Param {
    if tokens.contains(&"work_group_memory") {
        return Param::WorkGroupMemory;
    }
    if tokens.contains(&"local_accessor") {
        return Param::Local;
    }
    let tokens = tokens.split(|token| *token == "=").next().unwrap_or(tokens);
    let (mut words, mut stars, mut constant, mut local) = (Vec::new(), 0, false, false);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            // `float x[]` is a pointer; `[[attribute]]` stands before the type and says nothing to us.
            "[" => {
                let Some(end) = close(tokens, at) else { return Param::Unknown };
                stars += usize::from(!words.is_empty());
                at = end;
            }
            "*" => stars += 1,
            // Of two consts only the one of what is pointed to counts.
            "const" => constant |= stars == 0,
            "constant" | "__constant" => constant = true,
            "local" | "__local" => local = true,
            "volatile" | "restrict" | "__restrict" | "__restrict__" | "global" | "__global" | "private"
            | "__private" | "std" | "sycl" | "::" | "ext" | "oneapi" => {}
            word if is_word(word) => words.push(word),
            _ => return Param::Unknown,
        }
        at += 1;
    }
    let dtype = words_to_type(&words);
    match (stars, dtype) {
        (0, Some(Pointee::Number(dtype))) => Param::Scalar(dtype),
        (1, _) if local => Param::Local,
        (1, Some(pointee)) => {
            let dtype = if let Pointee::Number(dtype) = pointee { Some(dtype) } else { None };
            if constant { Param::Read(dtype) } else { Param::ReadWrite(dtype) }
        }
        _ => Param::Unknown,
    }
}

enum Pointee {
    Number(DType),
    Void,
}

/// The type of words like `unsigned long n` or `float`; the parameter's name may be missing. Built-in words may stand in
/// any order, as in `int short unsigned`.
fn words_to_type(words: &[&str]) -> Option<Pointee> {
    let (mut sign, mut longs, mut base, mut int) = (None, 0, None, false);
    let mut names = 0;
    for word in words {
        match *word {
            "unsigned" => sign = Some(false),
            "signed" => sign = Some(true),
            "long" => longs += 1,
            "int" => int = true,
            "char" | "short" | "double" if base.is_none() => base = Some(*word),
            other if base.is_none() && sign.is_none() && longs == 0 && !int => base = Some(other),
            _ => names += 1,
        }
    }
    if names > 1 {
        return None;
    }
    let pick = |a, b| Some(Pointee::Number(if sign.unwrap_or(true) { a } else { b }));
    match (base, longs, int) {
        (None, 1 | 2, _) => pick(DType::I64, DType::U64),
        (None, 0, _) if int || sign.is_some() => pick(DType::I32, DType::U32),
        (Some("char"), 0, false) => pick(DType::I8, DType::U8),
        (Some("short"), 0, _) => pick(DType::I16, DType::U16),
        (Some("void"), 0, false) => Some(Pointee::Void),
        (Some(name), 0, false) if sign.is_none() => plain(name).map(Pointee::Number),
        _ => None,
    }
}

fn plain(name: &str) -> Option<DType> {
    Some(match name {
        "bool" => DType::Bool,
        "int8_t" => DType::I8,
        "int16_t" => DType::I16,
        "int32_t" => DType::I32,
        "int64_t" | "ptrdiff_t" | "ssize_t" | "intptr_t" => DType::I64,
        "uint8_t" | "uchar" | "byte" => DType::U8,
        "uint16_t" | "ushort" => DType::U16,
        "uint32_t" | "uint" => DType::U32,
        "uint64_t" | "size_t" | "ulong" | "uintptr_t" => DType::U64,
        "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "float" => DType::F32,
        "double" => DType::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;
    use Param::*;

    fn params(source: &str) -> Option<Vec<Param>> {
        read_signature(source, "k").map(|signature| signature.params)
    }

    #[test]
    fn each_spelling_of_a_parameter_is_read() {
        for (text, expected) in [
            ("float a", Scalar(F32)),
            ("const double", Scalar(F64)),
            ("size_t n", Scalar(U64)),
            ("std::size_t n = 3", Scalar(U64)),
            ("unsigned n", Scalar(U32)),
            ("unsigned long long int n", Scalar(U64)),
            ("long", Scalar(I64)),
            ("long n", Scalar(I64)),
            ("short int n", Scalar(I16)),
            ("int short unsigned n", Scalar(U16)),
            ("char unsigned *n", ReadWrite(Some(U8))),
            ("long int long n", Scalar(I64)),
            ("signed char c", Scalar(I8)),
            ("uint8_t c", Scalar(U8)),
            ("bool flag", Scalar(Bool)),
            ("sycl::half h", Scalar(F16)),
            ("sycl::ext::oneapi::bfloat16 h", Scalar(BF16)),
            ("const float *x", Read(Some(F32))),
            ("const float* __restrict__ x", Read(Some(F32))),
            ("float const *x", Read(Some(F32))),
            ("float *const x", ReadWrite(Some(F32))),
            ("double x[]", ReadWrite(Some(F64))),
            ("int x[4]", ReadWrite(Some(I32))),
            ("[[maybe_unused]] int *x", ReadWrite(Some(I32))),
            ("const void *x", Read(None)),
            ("__global const uint *x", Read(Some(U32))),
            ("global ulong * restrict x", ReadWrite(Some(U64))),
            ("constant float *x", Read(Some(F32))),
            ("__local float *scratch", Local),
            ("syclexp::work_group_memory<int[]> scratch", WorkGroupMemory),
            ("sycl::local_accessor<float, 1> scratch", Local),
            ("float **x", Unknown),
            ("Point p", Unknown),
            ("const Point *p", Unknown),
            ("sycl::vec<float, 4> v", Unknown),
            ("float4 v", Unknown),
            ("long double v", Unknown),
            ("unsigned float v", Unknown),
            ("int &x", Unknown),
        ] {
            let source = format!("extern \"C\" void other(int z) {{}} void k({text}) {{ }}");
            assert_eq!(params(&source), Some(vec![expected]), "{text}");
        }
    }

    #[test]
    fn a_definition_is_found_among_calls_comments_and_macros() {
        let source = r#"
            #include <sycl/sycl.hpp>
            #define k(x) \
                k(x, x)
            // void k(int a) {}
            /* void k(int b) {} */
            const char *text = "void k(int \" c) {}";
            void k(float);
            void caller() { k(1.0f); }
            extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
            void k(const float *x, /* how many */ size_t n) { }
        "#;
        assert_eq!(params(source), Some(vec![Read(Some(F32)), Scalar(U64)]));
        assert_eq!(read_signature(source, "missing"), None);
        assert_eq!(params("kernel void k(void) {}"), Some(vec![]));
        assert_eq!(params("kernel void k() {}"), Some(vec![]));
    }

    #[test]
    fn what_only_looks_like_a_definition_is_none() {
        for before in [
            "const char q = '\"'; const char *text = \"void k(float x) {}\";",
            "const char q = '\\''; const char *text = \"'void k(float x) {}\";",
            "const char *text = R\"x(\" void k(float x) {} )x\";",
            "const int big = 1'000; const char *text = \"void k(float x) {} '\";",
            "#include <a>\n#define k2 void k(float x) {}\n",
            "#define text /* \n void k(float x) {} */\n",
            "// a comment \\\n void k(float x) {}\n",
            "/*/ void k(float x) {} */",
        ] {
            assert_eq!(
                params(&format!("{before} void k(int *x) {{}}")),
                Some(vec![ReadWrite(Some(I32))]),
                "{before}"
            );
        }
    }

    #[test]
    fn of_definitions_that_differ_none_is_taken() {
        let two = |first, second| {
            params(&format!("#if A\nvoid k({first}) {{}}\n#else\nvoid k({second}) {{}}\n#endif"))
        };
        assert_eq!(two("float x", "int x"), None);
        assert_eq!(two("float x", "const float y"), Some(vec![Scalar(F32)]));
    }

    #[test]
    fn the_declared_number_of_dimensions_is_read_from_the_kernels_own_attribute() {
        let source = r#"
            extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) void two(int *x) {}
            extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<N>)) void any(int *x) {}
            void plain(int *x) {}
        "#;
        let of = |name| read_signature(source, name).and_then(|signature| signature.dimensions);
        assert_eq!((of("two"), of("any"), of("plain")), (Some(2), None, None));
    }

    #[test]
    fn broken_sources_give_no_signature_and_no_panic() {
        for source in
            ["void k(", "void k(int a", "k)(", "void k(int a))) {", "\"", "/*", "#", "void k(é) {", "\\"]
        {
            let _ = read_signature(source, "k");
        }
        assert_eq!(params("void k(int a"), None);
        assert_eq!(params("template <typename T> void k(T a) {}"), Some(vec![Unknown]));
    }
}
