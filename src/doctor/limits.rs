//! Limits of the process on its memory, `ulimit -v` and `ulimit -d`: drivers and compilers reserve much of it.

use super::probe::{Asker, Change};
use super::report::{Finding, Topic};
use super::system::{Limit, System};
use crate::error::size;

const TOPIC: Topic = Topic::Settings;

/// Below this a compiler may fail; if a limit cannot be raised for a test, it is then the likely reason.
const SMALL: u64 = 2 << 30;

/// The finding that a limit causes a failure; `works` tests whether a child with changes succeeds.
pub(super) fn cause(
    system: &System,
    asker: &Asker,
    works: impl Fn(&[Change<'_>]) -> bool,
) -> Option<Finding> {
    let (first, others) = system.limits.split_first()?;
    let can_raise = system.limits.iter().any(|limit| limit.most.is_none_or(|most| most > limit.bytes));
    let is_small = std::iter::once(first).chain(others).any(|limit| limit.bytes < SMALL);
    let certain = can_raise && !asker.is_here() && works(&[Change::RaiseLimits]);
    (certain || (!can_raise && is_small))
        .then(|| Finding::problem(TOPIC, described(&system.limits), fix(&system.limits, certain)))
}

fn described(limits: &[Limit]) -> String {
    let each = limits.iter().map(|limit| format!("ulimit {} is {}", limit.option, size(limit.bytes)));
    format!(
        "{}: too little memory for the drivers, or for the compiler of kernels",
        each.collect::<Vec<_>>().join(" and ")
    )
}

fn fix(limits: &[Limit], certain: bool) -> String {
    if !certain {
        return "raise the limit where it is set, as in the script or service that starts this process, or in \
                /etc/security/limits.conf; this process is not allowed to"
            .to_owned();
    }
    let raised =
        |limit: &Limit| limit.most.map_or_else(|| "unlimited".to_owned(), |most| (most / 1024).to_string());
    let each = limits.iter().map(|limit| format!("ulimit {} {}", limit.option, raised(limit)));
    each.collect::<Vec<_>>().join("; ")
}

/// The harmless limits.
pub(super) fn harmless(system: &System) -> Vec<Finding> {
    let each = system.limits.iter();
    each.map(|limit| Finding::ok(TOPIC, format!("ulimit {} is {}", limit.option, size(limit.bytes))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    fn limited(bytes: u64, most: Option<u64>) -> FakeSystem {
        let mut system = FakeSystem::new();
        system.limits = vec![Limit { option: "-v", bytes, most }];
        system
    }

    fn fix_of(system: &System, works: bool) -> Option<String> {
        let asker = Asker::new(Duration::from_secs(30));
        cause(system, &asker, |_| works).map(|finding| finding.fix.unwrap())
    }

    #[test]
    fn a_limit_is_the_cause_if_a_trial_without_it_succeeds() {
        assert_eq!(fix_of(&limited(600 * MIB, None), true).as_deref(), Some("ulimit -v unlimited"));
        let up_to = limited(600 * MIB, Some(900 * MIB));
        assert_eq!(fix_of(&up_to, true).as_deref(), Some("ulimit -v 921600"));
        assert_eq!(fix_of(&up_to, false), None);
        assert_eq!(fix_of(&FakeSystem::new(), true), None);
    }

    #[test]
    fn a_small_limit_that_cannot_be_raised_is_the_likely_cause() {
        assert!(fix_of(&limited(600 * MIB, Some(600 * MIB)), false).unwrap().contains("limits.conf"));
        assert_eq!(fix_of(&limited(64 << 30, Some(64 << 30)), false), None);
    }
}
