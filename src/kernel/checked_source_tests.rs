use super::*;

/// The text after the rewrite, with `usmq::debug::pointer` as `P` and `argument_t` as `A`.
fn rewritten(source: &str) -> String {
    let mut rewriter = Rewriter::new(source, "f");
    rewriter.run();
    rewriter.edited().replace("usmq::debug::pointer", "P").replace("usmq::debug::argument_t", "A")
}

fn unchanged(source: &str) {
    assert_eq!(rewritten(source), source);
}

#[test]
fn pointers_of_parameters_become_checked() {
    for (params, expected) in [
        ("float a, const float *x, float *y", "float a, P<const float> x, P<float> y"),
        ("float const* __restrict x", "P<float const> x"),
        ("unsigned long long *const x", "const P<unsigned long long> x"),
        ("int x[], const ns::point<int, 2> *p", "P<int> x, P<const ns::point<int, 2>> p"),
        ("row p, size_t n", "A<row> p, size_t n"),
        ("[[maybe_unused]] float *x", "[[maybe_unused]] P<float> x"),
        ("void *x, float **y, local_memory<int> part", "void *x, float **y, local_memory<int> part"),
        ("ns::local_accessor<float, 2> part, float4 v", "ns::local_accessor<float, 2> part, float4 v"),
    ] {
        let source = |params: &str| format!("USMQ_KERNEL(1) void f({params}) {{ g(a * b, x); }}");
        assert_eq!(rewritten(&source(params)), source(expected));
    }
}

#[test]
fn helpers_lambdas_and_prototypes_take_checked_pointers() {
    assert_eq!(rewritten("float g(const float *p, int i);"), "float g(P<const float> p, int i);");
    assert_eq!(
        rewritten("template <class T> inline const T *g(const T *p) { return p + 1; }"),
        "template <class T> inline P<const T> g(P<const T> p) { return p + 1; }"
    );
    assert_eq!(
        rewritten("DEV static float *g(float *p) { return p; }"),
        "DEV static P<float> g(P<float> p) { return p; }"
    );
    assert_eq!(
        rewritten("void h() { auto g = [&](const auto *p) -> float { return *p; }; }"),
        "void h() { auto g = [&](auto p) -> float { return *p; }; }"
    );
    assert_eq!(
        rewritten("struct S { float *p; void set(float *q) { p = q; } };"),
        "struct S { float *p; void set(P<float> q) { p = q; } };"
    );
}

#[test]
fn a_template_kernel_copies_its_parameters() {
    assert_eq!(
        rewritten("template <class T> void f(T a, const T *x, T y[]) { y[0] = a; }"),
        "template <class T> void f(T a, usmq::debug::address usmq_1, usmq::debug::address usmq_2) \
         { P<const T> x(usmq_1); P<T> y(usmq_2); y[0] = a; }"
    );
}

#[test]
fn declarations_and_casts_are_checked() {
    for (body, expected) in [
        ("const float *p = x + 3; *p++;", "P<const float> p = x + 3; *p++;"),
        ("float *p = x, *q = y + f(1, 2);", "P<float> p = x, q = y + f(1, 2);"),
        ("for (const float *p = x; p < x + n; ++p) {}", "for (P<const float> p = x; p < x + n; ++p) {}"),
        ("auto *p = x;", "auto p = x;"),
        ("float *p; p = x;", "P<float> p; p = x;"),
        ("auto v = ((const float4 *)x)[1];", "auto v = ((P<const float4>)x)[1];"),
        ("auto v = *reinterpret_cast<const int *>(x + 1);", "auto v = *P<const int>(x + 1);"),
    ] {
        let source = |body: &str| format!("void h() {{ {body} }}");
        assert_eq!(rewritten(&source(body)), source(expected));
    }
}

#[test]
fn products_and_other_types_stay() {
    for body in [
        "y[i] = a * x[i];",
        "return a * b;",
        "float s = a * b, t = c * d;",
        "foo(a * b, (c * d));",
        "float *rows[4]; float **all;",
        "float *p = x, v = 1;",
        "if (a * b > c) { x = (a) * b; }",
        "for (int i = 0; i < n * m; ++i) z = i * n;",
        "auto n = sizeof(float *);",
        "else a * b;",
        "i < n * m; \n#define F(x) float *x\n",
        "const char *s[] = {\"float *p = x;\"}; // float *p = x;",
    ] {
        unchanged(&format!("void h() {{ {body} }}"));
    }
    unchanged("using p = float *; typedef float *q; int g = a * b;");
    // Broken sources reach the compiler.
    for source in [
        "void f(",
        "void f(float *x",
        "}}}} f(a *",
        "template <class",
        "[[",
        "static_cast<float *",
        "{ float *",
    ] {
        let _ = rewritten(source);
    }
}

#[test]
fn the_parameters_of_the_kernel_are_known() {
    let params = |source: &str, name: &str| {
        checked_source(source, name).map(|source| {
            source.params.into_iter().map(|param| (param.name, param.is_checked)).collect::<Vec<_>>()
        })
    };
    let list = |list: &[(&str, bool)]| Ok(list.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect());
    let source = "KERNEL(1) void g(int *z) {}\ntemplate <class T> void f(T a, const T *x, void *y, T) {}";
    assert_eq!(params(source, "f<float>"), list(&[("a", false), ("x", true), ("y", false), ("", false)]));
    assert_eq!(params(source, "ns::g"), list(&[("z", true)]));
    assert_eq!(params("void f(void) {}", "f"), list(&[]));
    assert!(params("#define F void f(int *x)\nF {}", "f").unwrap_err().contains("definition"));
    assert!(params("void f(PTR(x)) {}", "f").unwrap_err().contains("parameter 0 of the kernel, `PTR(x)`"));
    assert!(params("void f(int *x) {} void f(int a, int *y) {}", "f").unwrap_err().contains("several"));
}
