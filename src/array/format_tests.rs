//! Texts that numpy 2.3 and newer print. `tests/python/test_array_text.py` compares many more with numpy itself.

use super::*;
use crate::array::bytes_of;

fn text<T: Number>(values: &[T], shape: &[usize]) -> String {
    let lines = Lines { separator: " ", indent: 0, width: WIDTH };
    nested(bytes_of(values), T::DTYPE, shape, false, lines)
}

#[test]
fn numbers_of_one_array_have_one_format() {
    assert_eq!(text(&[1i32, -20, 3], &[3]), "[  1 -20   3]");
    assert_eq!(text(&[true, true], &[2]), "[ True  True]");
    assert_eq!(text(&[1.0f64, 2.5], &[2]), "[1.  2.5]");
    assert_eq!(text(&[1e-5f64, 1.0], &[2]), "[1.e-05 1.e+00]");
    assert_eq!(text(&[0.1f32, 1e6], &[2]), "[1.e-01 1.e+06]");
    assert_eq!(text(&[f64::NAN, f64::NEG_INFINITY, 1.0], &[3]), "[ nan -inf   1.]");
    assert_eq!(text(&[half::f16::from_f64(0.1)], &[1]), "[0.1]");
    assert_eq!(text(&[Complex::new(1.5f64, -2.0)], &[1]), "[1.5-2.j]");
}

#[test]
fn rows_are_aligned_and_long_ones_wrap() {
    assert_eq!(text(&[1u8, 2, 3, 40], &[2, 2]), "[[ 1  2]\n [ 3 40]]");
    assert_eq!(text::<u8>(&[], &[0, 3]), "[]");
    let lines = text(&(0..100u64).collect::<Vec<_>>(), &[100]);
    assert!(lines.lines().all(|line| line.len() <= WIDTH) && lines.lines().count() > 1, "{lines}");
}

#[test]
fn a_single_number_has_the_text_of_a_scalar() {
    let single = |value: f64| single(bytes_of(&[value]), DType::F64);
    assert_eq!(single(1.0), "1.0");
    assert_eq!(single(-0.0), "-0.0");
    assert_eq!(single(1e16), "1e+16");
    assert_eq!(single(0.0001), "0.0001");
    assert_eq!(single(1.5e-5), "1.5e-05");
    assert_eq!(super::single(bytes_of(&[Complex::new(0f64, 2.0)]), DType::C128), "2j");
}
