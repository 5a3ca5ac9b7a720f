//! Tests of the signatures read from a source, one spelling after another.

use super::*;
use DType::*;
use Param::*;

fn params(source: &str) -> Option<Vec<Param>> {
    read_signature(source, "k", &[]).map(|signature| signature.params)
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
    let read = |name| read_signature(source, name, &[]).map(|signature| signature.params);
    assert_eq!(read("k<float, unsigned long, 3>"), Some(vec![Read(Some(F32)), Scalar(U64), Scalar(U64)]));
    assert_eq!(read("k< double,int ,3>"), Some(vec![Read(Some(F64)), Scalar(I32), Scalar(U64)]));
    assert_eq!(read("k"), Some(vec![Read(None), Unknown, Scalar(U64)]));
    assert_eq!(read("k<float>"), None);
    assert_eq!(read("j<float>"), Some(vec![Scalar(F32)]));
    // `const T x` is then `float *const x`.
    let source = "using real = double; template <class T> void k(const T x) {}";
    assert_eq!(
        read_signature(source, "k<float *>", &[]).map(|signature| signature.params),
        Some(vec![Unknown])
    );
    assert_eq!(
        read_signature(source, "k<real>", &[]).map(|signature| signature.params),
        Some(vec![Scalar(F64)])
    );
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
    assert_eq!(read_signature(source, "missing", &[]), None);
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
    let two =
        |first, second| params(&format!("#if A\nvoid k({first}) {{}}\n#else\nvoid k({second}) {{}}\n#endif"));
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
        #if DEBUG
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
        let found = read_signature(source, name, flags)?;
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
    let source = "#ifdef WIDE\n#define real double\n#else\n#define real float\n#endif\nvoid k(real x) {}";
    assert_eq!(params(source), Some(vec![Unknown]));
    let wide = read_signature(source, "k", &["-DWIDE"]);
    assert_eq!(wide.map(|found| found.params), Some(vec![Scalar(F64)]));
}

#[test]
fn broken_sources_give_no_signature_and_no_panic() {
    for source in
        ["void k(", "void k(int a", "k)(", "void k(int a))) {", "\"", "/*", "#", "void k(é) {", "\\"]
    {
        let _ = read_signature(source, "k", &[]);
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
    assert_eq!(defined_kernels(source, &[]), ["first", "second", "third"]);
    let opencl = "int help(int x) { return x; } kernel void a(global int *x) {} __kernel void b() {}";
    assert_eq!(defined_kernels(opencl, &[]), ["a", "b"]);
    assert!(defined_kernels("int x;", &[]).is_empty());
    let source = "USMQ_KERNEL(2) void k(usmq::half a, const int32_t *x, local_memory<float> part) {}";
    let read = read_signature(source, "k", &[]).unwrap();
    assert_eq!(read.params, [Scalar(F16), Read(Some(I32)), WorkGroupMemory]);
    assert_eq!(read.dimensions, Some(2));
}
