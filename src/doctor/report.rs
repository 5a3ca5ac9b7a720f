//! The report: findings grouped by topic, as text.

use crate::error::escape;
use std::fmt;

/// The topic of a finding. The order is that of the report.
///
/// ```
/// use usmq::doctor::{Finding, Topic};
///
/// let finding = Finding::ok(Topic::OpenCl, "2 drivers are registered");
/// assert_eq!((finding.topic, finding.topic.as_str()), (Topic::OpenCl, "opencl"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// The libsycl in use, and its origin.
    Runtime,
    /// The adapters, which connect the runtime to drivers.
    Adapters,
    /// OpenCL drivers: CPUs, and GPUs through OpenCL.
    OpenCl,
    /// Intel GPUs: device nodes, Level Zero.
    IntelGpu,
    /// NVIDIA GPUs: device nodes, the driver.
    Nvidia,
    /// Environment variables that select devices.
    Variables,
    /// usmq's own settings, and the cache of kernels.
    Settings,
    /// Other packages in the same Python environment.
    Packages,
    /// The visible devices.
    Devices,
    /// Whether a kernel compiles and runs.
    Kernels,
}

impl Topic {
    const ALL: [Self; 10] = [
        Self::Runtime,
        Self::Adapters,
        Self::OpenCl,
        Self::IntelGpu,
        Self::Nvidia,
        Self::Variables,
        Self::Settings,
        Self::Packages,
        Self::Devices,
        Self::Kernels,
    ];

    /// A short name, for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Adapters => "adapters",
            Self::OpenCl => "opencl",
            Self::IntelGpu => "intel-gpu",
            Self::Nvidia => "nvidia",
            Self::Variables => "variables",
            Self::Settings => "settings",
            Self::Packages => "packages",
            Self::Devices => "devices",
            Self::Kernels => "kernels",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Runtime => "SYCL runtime",
            Self::Adapters => "Adapters of the runtime",
            Self::OpenCl => "OpenCL drivers",
            Self::IntelGpu => "Intel GPUs",
            Self::Nvidia => "NVIDIA GPUs",
            Self::Variables => "Environment variables",
            Self::Settings => "Settings",
            Self::Packages => "Python packages",
            Self::Devices => "Devices",
            Self::Kernels => "Kernels",
        }
    }
}

/// The state of a finding.
///
/// ```
/// assert_eq!(usmq::doctor::State::Problem.as_str(), "problem");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Correct, or not relevant here.
    Ok,
    /// Information; not a problem.
    Note,
    /// A problem to fix.
    Problem,
}

impl State {
    /// `ok`, `note` or `problem`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One finding that affects whether a device is visible.
///
/// ```
/// use usmq::doctor::{Finding, State, Topic};
///
/// let finding = Finding::problem(Topic::Packages, "the driver is old", "install version 3");
/// assert_eq!((finding.state, finding.fix.as_deref()), (State::Problem, Some("install version 3")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The topic.
    pub topic: Topic,
    /// The state.
    pub state: State,
    /// The fact.
    pub what: String,
    /// The fix: a sentence or a shell command.
    pub fix: Option<String>,
}

impl Finding {
    /// A correct fact.
    pub fn ok(topic: Topic, what: impl Into<String>) -> Self {
        Self { topic, state: State::Ok, what: what.into(), fix: None }
    }

    /// An informative fact.
    pub fn note(topic: Topic, what: impl Into<String>) -> Self {
        Self { state: State::Note, ..Self::ok(topic, what) }
    }

    /// A problem and its fix.
    pub fn problem(topic: Topic, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::ok(topic, what) }.fix(fix)
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// The findings of [`doctor`](super::doctor). `Display` prints them as text.
///
/// ```
/// use usmq::doctor::{Finding, Topic};
///
/// let mut report = usmq::doctor();
/// report.add(Finding::note(Topic::Packages, "the application uses plug-ins"));
/// assert!(report.to_string().contains("plug-ins"));
/// ```
#[derive(Debug, Clone)]
pub struct Report {
    findings: Vec<Finding>,
    devices: usize,
}

impl Report {
    pub(super) fn new(mut findings: Vec<Finding>, devices: usize) -> Self {
        findings.sort_by_key(|finding| finding.topic);
        Self { findings, devices }
    }

    /// Adds a finding of the caller after those of its topic.
    pub fn add(&mut self, finding: Finding) {
        let place = self.findings.partition_point(|known| known.topic <= finding.topic);
        self.findings.insert(place, finding);
    }

    /// The findings, ordered by topic.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Number of devices that are visible.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices
    }

    /// Whether the report has no problem. Notes do not count.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.count(State::Problem) == 0
    }

    /// The report as a part of an HTML page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut html = String::from("<div class=\"usmq-doctor\">\n");
        for topic in Topic::ALL {
            let mut group = self.findings.iter().filter(|finding| finding.topic == topic).peekable();
            if group.peek().is_none() {
                continue;
            }
            html += &format!("<p><b>{}</b></p>\n<table>\n", topic.title());
            for finding in group {
                let fix = finding.fix.as_ref().map(|fix| format!("\nfix: {fix}")).unwrap_or_default();
                let text = escape(&(finding.what.clone() + &fix)).replace('\n', "<br>");
                let state = finding.state.as_str();
                html += &format!(
                    "<tr><td style=\"text-align:left\">{state}</td><td style=\"text-align:left\">{text}</td></tr>\n"
                );
            }
            html += "</table>\n";
        }
        html + &format!("<p>{}</p>\n</div>\n", escape(&self.verdict()))
    }

    fn count(&self, state: State) -> usize {
        self.findings.iter().filter(|finding| finding.state == state).count()
    }

    /// The last line: the summary.
    #[must_use]
    pub fn verdict(&self) -> String {
        let devices = match self.devices {
            0 => "no device is visible".to_owned(),
            1 => "1 device is visible".to_owned(),
            n => format!("{n} devices are visible"),
        };
        let notes = match self.count(State::Note) {
            0 => String::new(),
            n => format!(", {}", counted(n, "note")),
        };
        match self.count(State::Problem) {
            0 => format!("No problem found: {devices}{notes}."),
            n => format!("{}{notes}; {devices}.", counted(n, "problem")),
        }
    }
}

pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for topic in Topic::ALL {
            let mut group = self.findings.iter().filter(|finding| finding.topic == topic).peekable();
            if group.peek().is_none() {
                continue;
            }
            writeln!(f, "{}", topic.title())?;
            for finding in group {
                lines(f, &format!("  {:<9}", finding.state.as_str()), &finding.what)?;
                if let Some(fix) = &finding.fix {
                    lines(f, "           fix: ", fix)?;
                }
            }
            writeln!(f)?;
        }
        f.write_str(&self.verdict())
    }
}

/// Writes text after a header, with further lines aligned below its start.
fn lines(f: &mut fmt::Formatter<'_>, head: &str, text: &str) -> fmt::Result {
    for (number, line) in text.lines().enumerate() {
        let head = if number == 0 { head } else { &" ".repeat(head.len()) };
        writeln!(f, "{head}{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_grouped_aligned_and_ends_with_the_verdict() {
        let findings = vec![
            Finding::ok(Topic::Devices, "opencl:cpu:0"),
            Finding::problem(Topic::Runtime, "two\nlines", "do this\nthen that"),
            Finding::note(Topic::Runtime, "by the way"),
        ];
        let text = Report::new(findings, 1).to_string();
        let expected = "SYCL runtime
  problem  two
           lines
           fix: do this
                then that
  note     by the way

Devices
  ok       opencl:cpu:0

1 problem, 1 note; 1 device is visible.";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_page_has_each_finding_once_and_escapes_it() {
        let findings = vec![Finding::problem(Topic::Runtime, "a < b", "set X=\"1\"\nand Y")];
        let html = Report::new(findings, 1).to_html();
        assert!(html.contains("a &lt; b<br>fix: set X=&quot;1&quot;<br>and Y"), "{html}");
        assert_eq!(html.matches("<table>").count(), 1);
        assert!(html.contains("1 problem; 1 device is visible."));
    }

    #[test]
    fn notes_keep_a_report_healthy_and_problems_do_not() {
        let mut report = Report::new(vec![Finding::note(Topic::Nvidia, "none")], 2);
        assert!(report.is_ok());
        assert_eq!(report.verdict(), "No problem found: 2 devices are visible, 1 note.");
        report.add(Finding::problem(Topic::Runtime, "a", "b"));
        report.add(Finding::problem(Topic::Packages, "c", "d"));
        assert!(!report.is_ok());
        assert_eq!(report.verdict(), "2 problems, 1 note; 2 devices are visible.");
        let topics: Vec<_> = report.findings().iter().map(|finding| finding.topic).collect();
        assert_eq!(topics, [Topic::Runtime, Topic::Nvidia, Topic::Packages]);
    }

    #[test]
    fn every_topic_is_shown_once_and_in_order() {
        assert!(Topic::ALL.is_sorted());
        let findings = Topic::ALL.iter().rev().map(|topic| Finding::ok(*topic, topic.as_str())).collect();
        let text = Report::new(findings, 0).to_string();
        for topic in Topic::ALL {
            assert_eq!(text.matches(&format!("  ok       {}\n", topic.as_str())).count(), 1, "{text}");
        }
    }
}
