//! Tests the expansion of macros against the output of a preprocessor.

use super::*;

fn expanded_with(source: &str, flags: &[&str]) -> String {
    let found = expand(source, flags, &IncludedFiles::default());
    found.map_or("too much".to_owned(), |found| found.tokens.join(" "))
}

fn expanded(source: &str) -> String {
    expanded_with(source, &[])
}

#[test]
fn macros_expand_as_in_a_preprocessor() {
    for (source, expected) in [
        ("#define A b\nA A2 a", "b A2 a"),
        ("#define A(x) x + x\nA(1) A A (2)", "1 + 1 A 2 + 2"),
        ("#define A (x)\nA", "( x )"),
        ("#define A(x, y) y x\nA(f(1, 2), 3) A(1) A(,)", "3 f ( 1 , 2 ) A ( 1 )"),
        ("#define A() z\nA() A(1)", "z A ( 1 )"),
        ("#define A B\n#define B C\n#define C A\nA", "A"),
        ("#define A(n) B(n)\n#define B(n) n\n#define K A\nK(2)", "2"),
        ("#define N 2\n#define A(n) R<n>\nA(N)", "R < 2 >"),
        ("#define A(n) k_##n p##n##q #n\n#define X y\nA(X)", "k_X pXq \"\""),
        ("#define A k ## 1\nA", "k1"),
        ("#define A(name, ...) void name(__VA_ARGS__)\nA(k, int x, float y)", "void k ( int x , float y )"),
        ("#define A(x, ...) f(x, ##__VA_ARGS__)\nA(1) A(1, 2)", "f ( 1 ) f ( 1 , 2 )"),
        ("#define A(...) __VA_OPT__(x)\nA(1)", "A ( 1 )"),
        ("#define A b \\\n  c // end\nA", "b c"),
        ("#define A b\n#undef A\nA", "A"),
        ("A\n#define A b\nA\n#define A c\nA", "A b c"),
        ("#define A(x) x\nA(A(1)) A(", "1 A ("),
        ("#define\n#define 3\n#undef\n#endif\n#else\n#define A(\nA", "A"),
    ] {
        assert_eq!(expanded(source), expected, "{source}");
    }
}

#[test]
fn undecidable_branches_keep_their_common_definitions() {
    for (source, expected) in [
        ("#if _X\n#define A 1\n#else\n#define A 2\n#endif\nA", "A"),
        ("#if _X\n#define A 1\nA\n#else\n#define A 2\nA\n#endif", "1 2"),
        ("#if _X\n#define A 1\n#else\n#define A 1\n#endif\nA", "1"),
        ("#if _X\n#define A 1\n#endif\nA", "A"),
        ("#define A 1\n#if _X\n#undef A\n#endif\nA", "A"),
        ("#define A 1\n#if _X\n#elif _Y\nA\n#else\nA\n#endif\nA", "1 1 1"),
        ("#if 0\n#define A 1\nno\n#endif\nA", "A"),
        ("#if 1\n#define A 1\n#else\nno\n#endif\nA", "1"),
        ("#if 0\n#if _X\nno\n#else\nno\n#endif\n#else\nyes\n#endif", "yes"),
        ("#ifndef A\n#define A 1\n#endif\nA", "1"),
        ("#ifndef G\n#define G\n#define A 1\n#endif\nA", "1"),
        ("#define A 2\n#ifndef A\n#define A 1\n#endif\nA", "2"),
        ("#define A 2\n#ifdef A\nyes\n#else\nno\n#endif", "yes"),
        ("#define A 2\n#if !defined(A)\nno\n#elif _X\nyes\n#else\nyes\n#endif", "yes yes"),
        ("#ifdef _X\n#define A 1\n#endif\nA", "A"),
        ("#ifndef _X\n#define A 1\n#endif\nA", "A"),
    ] {
        assert_eq!(expanded(source), expected, "{source}");
    }
}

#[test]
fn flags_define_macros_before_the_source() {
    let source = "#ifndef N\n#define N 1\n#endif\nN";
    for (flags, expected) in [
        (&[][..], "1"),
        (&["-DN=2"], "2"),
        (&["-D", "N=3"], "3"),
        (&["-DN"], "1"),
        (&["-D N=4"], "4"),
        (&["-DN=2", "-UN"], "1"),
        (&["-O0", "-DM=2", "-D"], "1"),
    ] {
        assert_eq!(expanded_with(source, flags), expected, "{flags:?}");
    }
    assert_eq!(expanded_with("F(2)", &["-DF(x)=x+x"]), "2 + 2");
}

#[test]
fn unbounded_expansion_is_abandoned() {
    let mut source = "#define A0 x x x x\n".to_owned();
    for level in 1..40 {
        let below = level - 1;
        source += &format!("#define A{level} A{below} A{below} A{below} A{below}\n");
    }
    assert_eq!(expanded(&(source + "A39")), "too much");
    let deep = format!("#define F(x) x\n{}1{}", "F(".repeat(500), ")".repeat(500));
    assert_eq!(expanded(&deep), "too much");
}
