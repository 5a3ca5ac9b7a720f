//! Parameter lists with random spelling, in sources with lookalikes of parameter lists.

use super::choices::Choices;
use usmq::DType::{self, *};
use usmq::{Param, fuzzing};

const TYPES: [(&str, DType); 40] = [
    ("bool", Bool),
    ("char", I8),
    ("signed char", I8),
    ("unsigned char", U8),
    ("char unsigned", U8),
    ("short", I16),
    ("short int", I16),
    ("int short", I16),
    ("unsigned short", U16),
    ("unsigned short int", U16),
    ("int", I32),
    ("signed", I32),
    ("signed int", I32),
    ("int signed", I32),
    ("unsigned", U32),
    ("unsigned int", U32),
    ("int unsigned", U32),
    ("long", I64),
    ("long int", I64),
    ("long long", I64),
    ("long long int", I64),
    ("long int long", I64),
    ("unsigned long", U64),
    ("unsigned long long", U64),
    ("long unsigned int", U64),
    ("std::size_t", U64),
    ("size_t", U64),
    ("std::int8_t", I8),
    ("uint8_t", U8),
    ("int16_t", I16),
    ("uint16_t", U16),
    ("int32_t", I32),
    ("std::uint32_t", U32),
    ("int64_t", I64),
    ("uint64_t", U64),
    ("sycl::half", F16),
    ("sycl::ext::oneapi::bfloat16", BF16),
    ("float", F32),
    ("double", F64),
    ("ptrdiff_t", I64),
];

/// Unknown types, whose arguments must have their own type.
const UNKNOWN: [&str; 10] = [
    "Point",
    "sycl::vec<Point, 4>",
    "float5",
    "long double",
    "std::complex<float>",
    "T",
    "float **",
    "int &",
    "sycl::marray<int, 2>",
    "std::array<int, 3>",
];

/// Vectors, with their sizes outside of the device header.
const VECTORS: [(&str, DType, usize, usize); 5] = [
    ("float4", F32, 4, 16),
    ("sycl::half3", F16, 3, 8),
    ("const uchar16", U8, 16, 16),
    ("sycl::vec<double, 3>", F64, 3, 32),
    ("vec<unsigned long, 2>", U64, 2, 16),
];

/// Text that may precede, separate or follow definitions and does not define `k`.
const NOISE: [&str; 26] = [
    "",
    "\n",
    "// void k(int z) {}\n",
    "/* void k(int z) {} */",
    "#define k2(x) void k(int z) {} \\\n  x\n",
    "#include <k(int z) {}>\n",
    "  #  pragma k(int z) {}\n",
    "void k(float);\n",
    "extern void k(float, int);",
    "const char *s = \"void k(int z) {}\";\n",
    "const char *s = \"\\\"void k(int z) {}\";",
    "const char q = '\"';\n",
    "const char q = '\\'';\n",
    "const char q = '\\\\';",
    "const char q = '{';",
    "const char q = '(';\n",
    "const int big = 1'000'000;\n",
    "const auto *r = R\"(void k(int z) {} \" )\";\n",
    "const auto *r = R\"x(\\\" )\" void k(int z) {})x\";",
    "void kk(int z) {}\n",
    "void call() { k(1); kk(k); }\n",
    "struct k_ { int k; };\n",
    "static int other(int k) { return k + '\"'; }\n",
    "const wchar_t w = L'\"';",
    "int hex = 0xA'B; ",
    "// \" it's \\\n void k(int z) {}\n",
];

const GAPS: [&str; 7] = [" ", "\n", "\t ", " /* , ( */ ", " // ) {\n", "  ", " /**/ "];

const SQUARE: Param = Param::LocalAccessor { element: Some(F32), dimensions: Some(2) };

const BEFORE: [(&str, Option<usize>); 11] = [
    ("void", None),
    ("extern \"C\" void", None),
    ("kernel void", None),
    ("__kernel void", None),
    (
        "extern \"C\" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void",
        Some(1),
    ),
    (
        "SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<3>))\nvoid",
        Some(3),
    ),
    ("[[intel::kernel_args_restrict]] void", None),
    ("#define KERNEL(n) void /* nd_range_kernel<n> */\nKERNEL(2)", None),
    ("#define KERNEL(n) P((nd_range_kernel<n>)) \\\n void\nKERNEL(2)", Some(2)),
    ("#ifndef N\n#define N 3\n#endif\n#define K P((nd_range_kernel<N>))\nK void", Some(3)),
    ("#if X\n#define K P((nd_range_kernel<1>))\n#endif\nK void", None),
];

/// As many arguments as a C++ compiler must take.
const MOST: usize = 12;

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.byte().is_multiple_of(8) {
        // Arbitrary text: only termination is checked.
        let name = choices.pick(&["k", "", "(", "void", "é"]);
        let _ = fuzzing::signature(&choices.text(), name);
        return;
    }
    let mut source = String::new();
    noise(&mut choices, &mut source);
    let (head, dimensions) = choices.pick(&BEFORE);
    let mut expected = Vec::new();
    let mut list = Vec::new();
    for number in 0..choices.below(MOST) {
        let (text, param) = parameter(&mut choices, number);
        list.push(text);
        expected.push(param);
    }
    let list = if list.is_empty() && choices.flag() { "void".to_owned() } else { list.join(",") };
    let gaps: [&str; 4] = std::array::from_fn(|_| choices.pick(&GAPS));
    source += &format!("\n{head}{}k{}({list}){}{{", gaps[0], gaps[1], gaps[2]);
    noise(&mut choices, &mut source);
    source += "}\n";
    noise(&mut choices, &mut source);
    if choices.byte() % 16 == 1 {
        // Another definition of that name: which one is meant, only a compiler knows, unless both read the same.
        source += "void k(Point *p, bool last) {}";
        let told =
            (expected == [Param::ReadWrite(None), Param::Scalar(Bool)]).then_some((expected, dimensions));
        assert_eq!(fuzzing::signature(&source, "k"), told, "in this source:\n{source}");
        return;
    }
    let found = fuzzing::signature(&source, "k");
    assert_eq!(found, Some((expected, dimensions)), "in this source:\n{source}");
    assert_eq!(fuzzing::signature(&source, "absent"), None);
}

fn noise(choices: &mut Choices<'_>, source: &mut String) {
    for _ in 0..choices.below(4) {
        let text = choices.pick(&NOISE);
        // A directive begins a line.
        if choices.flag() || text.trim_start().starts_with('#') {
            source.push('\n');
        }
        *source += text;
    }
    // The following text is not part of a comment.
    source.push('\n');
}

fn parameter(choices: &mut Choices<'_>, number: usize) -> (String, Param) {
    let name = if choices.flag() { format!("a{number}") } else { String::new() };
    let gap = choices.pick(&GAPS);
    match choices.byte() % 9 {
        8 => {
            let (spelling, element, count, bytes) = choices.pick(&VECTORS);
            (format!("{}{gap}{name}", spaced(spelling, gap)), Param::Vector { element, count, bytes })
        }
        0 => (format!("{}{gap}{name}", choices.pick(&UNKNOWN)), Param::Unknown),
        1 => (format!("syclexp::work_group_memory<int[]>{gap}{name}"), Param::WorkGroupMemory),
        2 => (format!("sycl::local_accessor<float,{gap}2>{gap}{name}"), SQUARE),
        3 => (format!("__local float{gap}*{name}"), Param::Local),
        4 | 5 => scalar(choices, gap, name),
        _ => pointer(choices, gap, name),
    }
}

fn scalar(choices: &mut Choices<'_>, gap: &str, name: String) -> (String, Param) {
    let (spelling, dtype) = choices.pick(&TYPES);
    let (before, after) =
        choices.pick(&[("", ""), ("const ", ""), ("", " const"), ("[[maybe_unused]] ", "")]);
    let value = if name.is_empty() { "" } else { choices.pick(&["", " = 3", " = f(2)"]) };
    (format!("{gap}{before}{}{after}{gap}{name}{value}", spaced(spelling, gap)), Param::Scalar(dtype))
}

fn pointer(choices: &mut Choices<'_>, gap: &str, name: String) -> (String, Param) {
    let spelled = |entry: Option<(&'static str, DType)>| match entry {
        Some((spelling, dtype)) => (spelling, Some(dtype)),
        None => ("void", None),
    };
    let known = !choices.byte().is_multiple_of(8);
    let (spelling, dtype) = spelled(known.then(|| choices.pick(&TYPES)));
    let (before, after, constant) = choices.pick(&[
        ("", "", false),
        ("const ", "", true),
        ("", " const", true),
        ("volatile ", "", false),
        ("__global ", "", false),
        ("__global const ", "", true),
        ("constant ", "", true),
    ]);
    let star = match (known && !name.is_empty(), choices.byte() % 6) {
        (true, 0) => return (format!("{before}{spelling}{after}{gap}{name}[]"), access(constant, dtype)),
        (true, 1) => {
            return (format!("{before}{spelling}{after}{gap}{name}[{gap}4]"), access(constant, dtype));
        }
        (_, 2) => "*const",
        (_, 3) => "* __restrict__",
        (_, 4) => "*restrict",
        _ => "*",
    };
    (format!("{before}{}{after}{gap}{star}{gap}{name}", spaced(spelling, gap)), access(constant, dtype))
}

fn access(constant: bool, dtype: Option<DType>) -> Param {
    if constant { Param::Read(dtype) } else { Param::ReadWrite(dtype) }
}

/// Gaps of any kind between the words of a type.
fn spaced(spelling: &str, gap: &str) -> String {
    spelling.replace(' ', gap)
}
