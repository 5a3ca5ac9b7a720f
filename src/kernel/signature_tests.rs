//! Tests of the signatures read from a source, one spelling after another.

use super::*;
use DType::*;
use Param::*;

fn read(source: &str, name: &str, flags: &[&str]) -> Option<Signature> {
    read_signature(source, name, flags, &IncludedFiles::default())
}

fn params(source: &str) -> Option<Vec<Param>> {
    read(source, "k", &[]).map(|signature| signature.params)
}

fn accessor(element: Option<DType>, dimensions: Option<usize>) -> Param {
    LocalAccessor { element, dimensions }
}

fn vector(element: DType, count: usize, bytes: usize) -> Param {
    Vector { element, count, bytes }
}

#[test]
fn the_instances_of_a_template_have_the_types_of_its_arguments() {
    let source = "template <typename T, class U, int N> void k(const T *x, U a, size_t n) {} \
        template <typename T> void j(T x) {} template <> void j<int>(int *x) {}";
    let of = |name| read(source, name, &[]).map(|signature| signature.params);
    assert_eq!(of("k<float, unsigned long, 3>"), Some(vec![Read(Some(F32)), Scalar(U64), Scalar(U64)]));
    assert_eq!(of("k< double,int ,3>"), Some(vec![Read(Some(F64)), Scalar(I32), Scalar(U64)]));
    assert_eq!(of("k"), Some(vec![Read(None), Unknown, Scalar(U64)]));
    assert_eq!(of("k<float>"), None);
    assert_eq!(of("j<float>"), Some(vec![Scalar(F32)]));
    let defaults = "template <typename T, class U = int, int N = 4> void k(T x, U y) {}";
    for (name, expected) in [
        ("k<float>", Some(vec![Scalar(F32), Scalar(I32)])),
        ("k<float, short>", Some(vec![Scalar(F32), Scalar(I16)])),
        ("k<float, short, 2, 3>", None),
    ] {
        assert_eq!(read(defaults, name, &[]).map(|signature| signature.params), expected, "{name}");
    }
    // `const T x` is then `float *const x`.
    let source = "using real = double; template <class T> void k(const T x) {}";
    assert_eq!(read(source, "k<float *>", &[]).map(|signature| signature.params), Some(vec![Unknown]));
    assert_eq!(read(source, "k<real>", &[]).map(|signature| signature.params), Some(vec![Scalar(F64)]));
}

#[test]
fn a_vector_of_the_device_header_is_not_padded() {
    let found = params("#include <usmq/kernel.h>\nvoid k(float3 v, usmq::int3 w, sycl::float3 x) {}");
    assert_eq!(found, Some(vec![vector(F32, 3, 12), vector(I32, 3, 12), vector(F32, 3, 16)]));
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
        ("sycl::local_accessor<float, 1> scratch", accessor(Some(F32), Some(1))),
        ("sycl::local_accessor<unsigned char> scratch", accessor(Some(U8), Some(1))),
        ("sycl::local_accessor<sycl::vec<float, 4>, 2> scratch", accessor(None, Some(2))),
        ("const sycl::local_accessor<double, N> scratch", accessor(Some(F64), None)),
        ("local_accessor scratch", accessor(None, None)),
        ("float **x", Unknown),
        ("Point p", Unknown),
        ("const Point *p", Read(None)),
        ("struct Point *p", ReadWrite(None)),
        ("const float4 *p", Read(None)),
        ("A B C D *p", Unknown),
        ("sycl::vec<float, 4> v", vector(F32, 4, 16)),
        ("const sycl::vec<sycl::half, 3> v", vector(F16, 3, 8)),
        ("sycl::float3 v", vector(F32, 3, 16)),
        ("float4 v", vector(F32, 4, 16)),
        ("uchar16", vector(U8, 16, 16)),
        ("float3 v", vector(F32, 3, 16)),
        ("float5 v", Unknown),
        ("vec<Point, 2> v", Unknown),
        ("vec<float, N> v", Unknown),
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
    assert_eq!(read(source, "missing", &[]), None);
    assert_eq!(params("kernel void k(void) {}"), Some(vec![]));
    assert_eq!(params("kernel void k() {}"), Some(vec![]));
}

#[test]
fn lookalikes_of_a_definition_are_ignored() {
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
fn differing_definitions_give_no_signature() {
    let two = |first, second| {
        params(&format!("#if _A\nvoid k({first}) {{}}\n#else\nvoid k({second}) {{}}\n#endif"))
    };
    assert_eq!(two("float x", "int x"), None);
    assert_eq!(two("float x", "const float y"), Some(vec![Scalar(F32)]));
}

#[test]
fn the_declared_dimensions_are_read_from_the_kernels_own_attribute() {
    let source = r#"
        #define PROPERTY SYCL_EXT_ONEAPI_FUNCTION_PROPERTY
        #define KERNEL(n) extern "C" SYCL_EXTERNAL PROPERTY((syclexp::nd_range_kernel<n>))
        #define FLAT KERNEL(ONE) void
        #define ONE (1u)
        #define NAMED(name, ...) KERNEL(3) void name(__VA_ARGS__)
        #define FREE [[__sycl_detail__::add_ir_attributes_function("sycl-nd-range-kernel", 2)]]
        #if _DEBUG
        #define EITHER KERNEL(1)
        #else
        #define EITHER KERNEL(2)
        #endif
        extern "C" SYCL_EXTERNAL PROPERTY((syclexp::nd_range_kernel<2>)) void two(int *x) {}
        extern "C" SYCL_EXTERNAL PROPERTY((syclexp::nd_range_kernel<N>)) void any(int *x) {}
        void plain(int *x) { two(x); }
        KERNEL(2) void macro(int *x) { plain(x); }
        FLAT flat(int *x) {}
        NAMED(named, int *x) {}
        FREE __attribute__((sycl_device)) void free(int *x) {}
        EITHER void either(int *x) {}
        KERNEL(3) void early(int *);
        void early(int *x) {}
        OTHER(2) void elsewhere(int *x) {}
    "#;
    let of = |name, flags: &[&str]| {
        let found = read(source, name, flags)?;
        assert_eq!(found.params, [ReadWrite(Some(I32))], "{name}");
        found.dimensions
    };
    for (name, expected) in [
        ("two", Some(2)),
        ("any", None),
        ("plain", None),
        ("macro", Some(2)),
        ("flat", Some(1)),
        ("named", Some(3)),
        ("free", Some(2)),
        ("either", None),
        ("early", Some(3)),
        ("elsewhere", None),
    ] {
        assert_eq!(of(name, &[]), expected, "{name}");
    }
    assert_eq!(of("any", &["-DN=3"]), Some(3));
}

#[test]
fn types_and_parameter_lists_defined_by_macros_are_read() {
    let source = "#define real double\n#define TWO const real *x, real y\n#define G global\n\
        kernel void k(TWO, G int *z) {}";
    assert_eq!(params(source), Some(vec![Read(Some(F64)), Scalar(F64), ReadWrite(Some(I32))]));
    // No other file can define WIDE, but the compiler may define _WIDE.
    let source = "#ifdef WIDE\n#define real double\n#else\n#define real float\n#endif\nvoid k(real x) {}";
    assert_eq!(params(source), Some(vec![Scalar(F32)]));
    assert_eq!(params(&source.replace("WIDE", "_WIDE")), Some(vec![Unknown]));
    let files = IncludedFiles::read("#include <none.h>", &[]);
    assert_eq!(read_signature(source, "k", &[], &files).unwrap().params, [Unknown]);
    let wide = read(source, "k", &["-DWIDE"]);
    assert_eq!(wide.map(|found| found.params), Some(vec![Scalar(F64)]));
}

#[test]
fn broken_sources_give_no_signature_and_no_panic() {
    for source in
        ["void k(", "void k(int a", "k)(", "void k(int a))) {", "\"", "/*", "#", "void k(é) {", "\\"]
    {
        let _ = read(source, "k", &[]);
    }
    assert_eq!(params("void k(int a"), None);
    assert_eq!(params("template <typename T> void k(T a) {}"), Some(vec![Unknown]));
}

const ACCESSOR: Param = LocalAccessor { element: Some(F32), dimensions: Some(1) };

#[test]
fn given_parameters_must_match_the_source() {
    for (given, read, expected) in [
        (Scalar(F32), Scalar(F32), Some(Scalar(F32))),
        (Scalar(F32), Scalar(F64), None),
        (Scalar(I32), Scalar(U32), None),
        (Scalar(F32), ReadWrite(Some(F32)), None),
        (Read(Some(F32)), Scalar(F32), None),
        (Read(Some(F32)), ReadWrite(Some(F32)), Some(Read(Some(F32)))),
        (Write(Some(F32)), ReadWrite(Some(F32)), Some(Write(Some(F32)))),
        (Read(Some(I32)), Read(Some(F32)), None),
        (Read(Some(F64)), Read(Some(F32)), None),
        (Read(Some(F64)), Read(None), Some(Read(Some(F64)))),
        (Read(None), Read(Some(F32)), Some(Read(None))),
        (Read(Some(BF16)), Read(Some(U16)), Some(Read(Some(BF16)))),
        (Read(Some(BF16)), Read(Some(I32)), None),
        (Write(Some(C64)), ReadWrite(Some(F32)), Some(Write(Some(C64)))),
        (Write(Some(C128)), ReadWrite(Some(F32)), None),
        (Local, Local, Some(Local)),
        (Local, WorkGroupMemory, Some(WorkGroupMemory)),
        (Local, ACCESSOR, Some(ACCESSOR)),
        (ACCESSOR, WorkGroupMemory, None),
        (Local, ReadWrite(Some(F32)), None),
        (Write(Some(F32)), Local, None),
        (Scalar(F32), Unknown, Some(Scalar(F32))),
        (Unknown, Scalar(F32), Some(Scalar(F32))),
    ] {
        let found = reconcile(vec![given.clone()], std::slice::from_ref(&read));
        assert_eq!(found.ok(), expected.map(|param| vec![param]), "{given:?}, {read:?}");
    }
}

#[test]
fn the_parameter_count_must_match_if_the_whole_source_was_read() {
    let given = || vec![Scalar(F32), Scalar(F32)];
    assert_eq!(reconcile(given(), &[Unknown]), Ok(given()));
    let why = reconcile(given(), &[Scalar(F32)]).unwrap_err();
    assert_eq!(why, "params has 2 parameters, but the source has 1 (float32)");
    let why = reconcile(given(), &[Scalar(F32), Read(Some(I32))]).unwrap_err();
    assert!(why.starts_with("parameter 1 is a pointer to int32 (read-only) in the source"), "{why}");
}

#[test]
fn names_of_types_stand_for_their_words() {
    let source = |declarations: &str, params: &str| {
        format!("{declarations}\nextern \"C\" void k({params}) {{ typedef int local; }}")
    };
    for (declarations, list, expected) in [
        (
            "using real = float;",
            "real a, const real *x, real *y",
            vec![Scalar(F32), Read(Some(F32)), ReadWrite(Some(F32))],
        ),
        ("typedef unsigned long long count_t;", "count_t n, count_t", vec![Scalar(U64), Scalar(U64)]),
        ("typedef double real; using also = real;", "also a", vec![Scalar(F64)]),
        ("using fixed = const float;", "fixed *x", vec![Read(Some(F32))]),
        ("using size = std::size_t;", "size size", vec![Scalar(U64)]),
        ("using real = float; using real = float;", "real a", vec![Scalar(F32)]),
        ("using x = float;", "int x", vec![Scalar(I32)]),
        // Not certain, or not only words.
        ("using p = float *;", "const p x", vec![Unknown]),
        ("namespace a { using real = float; } namespace b { using real = double; }", "real a", vec![Unknown]),
        ("template <class T> using plain = T;", "plain<float> a", vec![Unknown]),
        ("using f = float[4];", "f x", vec![Unknown]),
        ("struct pair { int a; };", "pair x", vec![Unknown]),
    ] {
        assert_eq!(params(&source(declarations, list)), Some(expected), "{declarations} {list}");
    }
}

#[test]
fn the_kernels_of_a_source_are_listed() {
    let source = "#include <usmq/kernel.h>\nstatic int help(int x) { return x; }\n\
        USMQ_KERNEL(1) void first(int *x) { help(*x); }\nUSMQ_KERNEL(2) void second(int *x);\n\
        USMQ_KERNEL(2) void second(int *x) {}\n#define K(name) USMQ_KERNEL(3) void name(int *x)\nK(third) {}\n";
    assert_eq!(defined_kernels(source, &[], &IncludedFiles::default()), ["first", "second", "third"]);
    let opencl = "int help(int x) { return x; } kernel void a(global int *x) {} __kernel void b() {}";
    assert_eq!(defined_kernels(opencl, &[], &IncludedFiles::default()), ["a", "b"]);
    assert!(defined_kernels("int x;", &[], &IncludedFiles::default()).is_empty());
    let source = "USMQ_KERNEL(2) void k(usmq::half a, const int32_t *x, local_memory<float> part) {}";
    let read = read(source, "k", &[]).unwrap();
    assert_eq!(read.params, [Scalar(F16), Read(Some(I32)), WorkGroupMemory]);
    assert_eq!(read.dimensions, Some(2));
}

/// A temporary folder with these files, deleted with this value.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("usmq-signature-{}-{name}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        for (file, text) in files {
            let path = folder.0.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(&self, source: &str, name: &str, flags: &[&str]) -> Option<Signature> {
        let own = format!("-I{}", self.0.display());
        let flags: Vec<&str> = [&*own].into_iter().chain(flags.iter().copied()).collect();
        read_signature(source, name, &flags, &IncludedFiles::read(source, &flags))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn types_of_included_files_are_read() {
    let folder = Folder::new(
        "types",
        &[
            (
                "types.h",
                "#ifndef TYPES_H\n#define TYPES_H\n#include \"deep/more.h\"\ntypedef float real;\n\
                 #define COUNT size_t\n#ifdef WIDE\nusing wide = double;\n#else\nusing wide = float;\n#endif\n\
                 #if PRECISION >= 64 && !defined(HALF)\ntypedef double number;\n#elif PRECISION == 32\n\
                 typedef float number;\n#else\ntypedef half number;\n#endif\n#endif\n",
            ),
            (
                "deep/more.h",
                "#pragma once\n#include \"../types.h\"\n#include \"again.h\"\ntypedef unsigned id;\n",
            ),
            ("deep/again.h", "#pragma once\n#include \"more.h\"\nstruct traits { using value = short; };\n"),
        ],
    );
    let source = "#include \"types.h\"\nvoid k(real a, COUNT n, wide w, number p, id i, traits::value v, const real *x) {}";
    let of = |flags: &[&str]| folder.read(source, "k", flags).map(|found| found.params);
    let expected = |wide, number| {
        let scalars = [F32, U64, wide, number, U32, I16].map(Scalar);
        Some(scalars.into_iter().chain([Read(Some(F32))]).collect::<Vec<_>>())
    };
    assert_eq!(of(&[]), expected(F32, F16));
    assert_eq!(of(&["-DWIDE", "-DPRECISION=64"]), expected(F64, F64));
    assert_eq!(of(&["-DPRECISION=64", "-DHALF"]), expected(F32, F16));
    assert_eq!(of(&["-D", "PRECISION=32"]), expected(F32, F32));
    let texts = folder.read(source, "k", &[]).unwrap().texts;
    assert_eq!(texts[..2], ["real a", "size_t n"]);
    // A name without a known file is not resolved, and no name of the source is lost.
    let source = source.replace("types.h", "other.h");
    let found = folder.read(&source, "k", &[]).unwrap().params;
    assert_eq!(found[..2], [Unknown, Unknown]);
    assert_eq!(found[6], Read(None));
}

#[test]
fn kernels_of_included_files_are_read() {
    let folder = Folder::new(
        "kernels",
        &[(
            "kernels.h",
            "void k(float a) {}\nvoid only(double *x) {}\ntemplate <typename T> void t(const T *x, T a) {}\n\
             template void t<float>(const float *, float);\n",
        )],
    );
    let of = |source: &str, name| {
        folder.read(&format!("#include <kernels.h>\n{source}"), name, &[]).map(|found| found.params)
    };
    assert_eq!(of("", "only"), Some(vec![ReadWrite(Some(F64))]));
    assert_eq!(of("", "t<float>"), Some(vec![Read(Some(F32)), Scalar(F32)]));
    assert_eq!(of("typedef double real;", "t<real>"), Some(vec![Read(Some(F64)), Scalar(F64)]));
    // The source's own definition counts, whatever an included file has.
    assert_eq!(of("void k(int *a) {}", "k"), Some(vec![ReadWrite(Some(I32))]));
    assert_eq!(of("", "k"), Some(vec![Scalar(F32)]));
}

#[test]
fn names_of_types_have_scopes() {
    let source = "typedef float real; namespace a { using real = double; namespace b { typedef short id; }
        void inner(real x, b::id i, ::real r) {} }
        namespace c::d { struct pair { using first = long; }; using real = half; }
        using v = sycl::vec<float, 2>;
        void f() { typedef int real; }
        void k(real x, a::real y, a::b::id i, c::d::pair::first l, c::d::real h, const v w) {}
        void l(id x, const volatile real *y, global real *z) {}";
    let of = |name| read(source, name, &[]).map(|found| found.params);
    let scalars = |types: &[DType]| types.iter().copied().map(Scalar).collect::<Vec<_>>();
    assert_eq!(of("inner"), Some(scalars(&[F64, I16, F32])));
    let expected = [scalars(&[F32, F64, I16, I64, F16]), vec![vector(F32, 2, 8)]].concat();
    assert_eq!(of("k"), Some(expected));
    // `id` may come from a `using namespace`: it has one meaning.
    assert_eq!(of("l"), Some(vec![Scalar(I16), Read(Some(F32)), ReadWrite(Some(F32))]));
    // The words of a compiler in headers of the system do not hide a built-in name.
    let source =
        "typedef __SIZE_TYPE__ size_t; namespace std { using ::size_t; typedef __SIZE_TYPE__ size_t; }
        void k(size_t n, std::size_t m) {}";
    assert_eq!(params(source), Some(vec![Scalar(U64); 2]));
}

#[test]
fn headers_beyond_the_limit_do_not_hide_the_source() {
    let mut wide = "#define A0 x x x x\n".to_owned();
    for level in 1..40 {
        let below = level - 1;
        wide += &format!("#define A{level} A{below} A{below} A{below} A{below}\n");
    }
    let nested =
        (0..70).map(|n| (format!("n{n}.h"), format!("#include \"n{0}.h\"\n#include \"n{0}.h\"\n", n + 1)));
    let nested: Vec<_> = nested.collect();
    let mut files: Vec<(&str, &str)> = nested.iter().map(|(name, text)| (&**name, &**text)).collect();
    wide += "A39\n";
    files.push(("wide.h", &wide));
    let folder = Folder::new("limits", &files);
    for name in ["wide.h", "n0.h"] {
        let source = format!("#include \"{name}\"\nvoid k(float a) {{}}");
        assert_eq!(
            folder.read(&source, "k", &[]).map(|found| found.params),
            Some(vec![Scalar(F32)]),
            "{name}"
        );
    }
}
