//! Filter strings and device choices, compared with an independent implementation of the SYCL extension's rules.

use super::choices::Choices;
use usmq::{Error, Selector, fuzzing};

const PIECES: [&str; 24] = [
    "opencl",
    "level_zero",
    "cuda",
    "hip",
    "cpu",
    "gpu",
    "accelerator",
    "0",
    "1",
    "2",
    "007",
    "2147483647",
    "2147483648",
    "host",
    "native_cpu",
    "acc",
    "*",
    "!cpu",
    "-1",
    "+1",
    " ",
    "é",
    "\0",
    "CPU",
];
const MARKS: [&str; 4] = [":", ",", "::", ""];

/// Backend, device type and index of one filter.
type Parts = (Option<String>, Option<String>, Option<usize>);

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let text = if choices.flag() {
        let mut text = String::new();
        for _ in 0..choices.below(8) {
            text += choices.pick(&PIECES);
            text += choices.pick(&MARKS);
        }
        text
    } else {
        choices.text()
    };
    let expected = filters(&text);
    match (Selector::parse(&text), &expected) {
        (Ok(selector), Some(filters)) => {
            assert_eq!(selector.as_str(), text);
            let machine = machine(&mut choices);
            let candidates: Vec<_> = machine.iter().map(|(b, t, score)| (&b[..], &t[..], *score)).collect();
            assert_eq!(
                fuzzing::choose(&selector, &candidates),
                best(filters, &candidates),
                "{text:?} of {machine:?}"
            );
        }
        (Err(Error::Selector { asked, reason, .. }), None) => assert!(asked == text && !reason.is_empty()),
        (found, expected) => panic!("{text:?}: {found:?}, but the rules give {expected:?}"),
    }
}

/// The filters of a string, parsed character by character; `None` if it is invalid.
fn filters(text: &str) -> Option<Vec<Parts>> {
    let (mut all, mut parts, mut token, mut tokens, mut blank) =
        (Vec::new(), Parts::default(), String::new(), 0, true);
    for c in text.chars().chain([',']) {
        blank &= c == ',';
        if c != ':' && c != ',' {
            token.push(c);
            continue;
        }
        if !token.is_empty() {
            let word = std::mem::take(&mut token);
            tokens += 1;
            let taken = match &word[..] {
                "opencl" | "level_zero" | "cuda" | "hip" => parts.0.replace(word).is_some(),
                "cpu" | "gpu" | "accelerator" => parts.1.replace(word).is_some(),
                _ => {
                    let mut index = 0usize;
                    for c in word.chars() {
                        index = index
                            .checked_mul(10)?
                            .checked_add(c.is_ascii().then(|| c.to_digit(10))?? as usize)?;
                    }
                    if index > 2_147_483_647 {
                        return None;
                    }
                    parts.2.replace(index).is_some()
                }
            };
            if taken || tokens > 3 {
                return None;
            }
        }
        if c == ',' {
            if !blank {
                all.push(std::mem::take(&mut parts));
            }
            (tokens, blank) = (0, true);
        }
    }
    (!all.is_empty()).then_some(all)
}

fn machine(choices: &mut Choices<'_>) -> Vec<(String, String, i32)> {
    let backends = ["opencl", "level_zero", "cuda", "hip", "native_cpu"];
    let types = ["cpu", "gpu", "accelerator", "custom"];
    let scores = [500, 300, 300, 75, 0, -1];
    (0..choices.below(7))
        .map(|_| (choices.pick(&backends).to_owned(), choices.pick(&types).to_owned(), choices.pick(&scores)))
        .collect()
}

/// The first of the best-rated devices that some filter means.
fn best(filters: &[Parts], devices: &[(&str, &str, i32)]) -> Option<usize> {
    let fits = |filter: &Parts, device: &(&str, &str, i32)| {
        filter.0.as_deref().is_none_or(|backend| backend == device.0)
            && filter.1.as_deref().is_none_or(|kind| kind == device.1)
    };
    let means = |filter: &Parts, at: usize| {
        let mut fitting = (0..devices.len()).filter(|other| fits(filter, &devices[*other]));
        match filter.2 {
            Some(index) => fitting.nth(index) == Some(at),
            None => fitting.any(|other| other == at),
        }
    };
    let meant = (0..devices.len())
        .filter(|at| devices[*at].2 >= 0 && filters.iter().any(|filter| means(filter, *at)));
    meant.min_by_key(|at| (-devices[*at].2, *at))
}
