//! Formats times and rates, and computes the marks of a time axis.

/// `850 ns`, `12.3 µs`, `4.56 ms`, `7.89 s`: three digits.
pub(super) fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..999_500 => format!("{} µs", three(value / 1e3)),
        999_500..999_500_000 => format!("{} ms", three(value / 1e6)),
        _ => format!("{} s", three(value / 1e9)),
    }
}

/// GB/s, or nothing without a measured time.
pub(super) fn rate(gigabytes_per_second: f64) -> String {
    if gigabytes_per_second > 0.0 { three(gigabytes_per_second) } else { String::new() }
}

fn three(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// The step between two marks of an axis: 1, 2 or 5 times a power of ten, at most `marks` of them in `span`.
pub(super) fn step(span: u64, marks: u64) -> u64 {
    let least = span.div_ceil(marks.max(1)).max(1);
    let mut power = 1;
    loop {
        for factor in [1, 2, 5] {
            if factor * power >= least {
                return factor * power;
            }
        }
        power *= 10;
    }
}

/// The text of a mark: in the unit of the step, without needless digits.
pub(super) fn mark(time: u64, step: u64) -> String {
    let (unit, name) = match step {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {name}", time / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_stay_below_a_thousand() {
        let texts: Vec<_> =
            [0, 999, 1_000, 12_345, 999_499, 999_500, 1_000_000, 999_499_999, 999_500_000, 61_000_000_000]
                .map(duration)
                .into();
        assert_eq!(
            texts,
            [
                "0 ns", "999 ns", "1.00 µs", "12.3 µs", "999 µs", "1.00 ms", "1.00 ms", "999 ms", "1.00 s",
                "61.0 s"
            ]
        );
    }

    #[test]
    fn an_axis_has_a_few_round_marks() {
        for span in [1, 7, 99, 1_000, 123_456, 5_000_000, 1_700_000_000, u64::MAX / 4] {
            let step = step(span, 10);
            assert!(span / step <= 10, "{span}: {step}");
            assert!(step == 1 || span / step >= 2, "{span}: {step}");
            assert!(step.to_string().trim_end_matches('0').len() == 1, "{span}: {step}");
        }
        assert_eq!(mark(1_500_000, 500_000), "1500 µs");
        assert_eq!(mark(3_000_000_000, 1_000_000_000), "3 s");
    }
}
