//! Colours and patterns of the picture: one style per kind and reason.
//!
//! The colours are those of Okabe and Ito, distinguishable with any colour vision. Copies also have stripes,
//! so that they differ from kernels without colour.

use super::{Event, Kind, Reason};
use std::fmt::Write;

/// The style of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Style {
    Kernel,
    Copy(Reason),
    Fill,
    Barrier,
    Build,
    Wait,
}

impl Style {
    pub(super) fn from_event(event: &Event) -> Self {
        match event.kind {
            Kind::Kernel => Self::Kernel,
            Kind::Copy => Self::Copy(event.reason),
            Kind::Fill => Self::Fill,
            Kind::Build => Self::Build,
            Kind::Wait => Self::Wait,
            Kind::Barrier | Kind::Allocate | Kind::Free => Self::Barrier,
        }
    }

    /// The CSS class.
    pub(super) fn class(self) -> String {
        match self {
            Self::Copy(reason) => format!("u-{}", reason.name().replace(' ', "-")),
            Self::Kernel => "u-kernel".to_owned(),
            Self::Fill => "u-fill".to_owned(),
            Self::Barrier => "u-barrier".to_owned(),
            Self::Build => "u-build".to_owned(),
            Self::Wait => "u-wait".to_owned(),
        }
    }

    /// The label in the legend.
    pub(super) fn title(self) -> String {
        match self {
            Self::Kernel => "kernel".to_owned(),
            Self::Copy(Reason::Explicit) => "explicit copy".to_owned(),
            Self::Copy(reason) => format!("copy: {}", reason.name()),
            Self::Fill => "fill".to_owned(),
            Self::Barrier => "barrier".to_owned(),
            Self::Build => "kernel build on the host".to_owned(),
            Self::Wait => "host waits".to_owned(),
        }
    }

    pub(super) fn is_striped(self) -> bool {
        matches!(self, Self::Copy(_))
    }

    /// Fill, and the colour of text on it.
    fn colours(self) -> (&'static str, &'static str) {
        match self {
            Self::Kernel => ("#0072b2", "#ffffff"),
            Self::Copy(Reason::Explicit) => ("#8c959f", "#0b1015"),
            Self::Copy(Reason::HostRead) => ("#d55e00", "#ffffff"),
            Self::Copy(Reason::HostWrite) => ("#e69f00", "#1a1000"),
            Self::Copy(Reason::Collocate) => ("#b98ac9", "#14061a"),
            Self::Copy(Reason::ContextMismatch) => ("#cc79a7", "#1f0514"),
            Self::Copy(Reason::Import) => ("#f0e442", "#1c1a00"),
            Self::Copy(Reason::Export) => ("#b5651d", "#ffffff"),
            Self::Copy(Reason::Contiguity) => ("#009e73", "#00140e"),
            Self::Copy(Reason::Conversion) => ("#56b4e9", "#04141f"),
            Self::Copy(Reason::Order) => ("#8c959f", "#0b1015"),
            Self::Copy(Reason::HostArgument) => ("#a6761d", "#0b0700"),
            Self::Copy(Reason::Pickle) => ("#7570b3", "#ffffff"),
            Self::Copy(Reason::SharedMemory) => ("#66a61e", "#071200"),
            Self::Fill => ("#7fc8b2", "#00140e"),
            Self::Barrier => ("#6e7781", "#ffffff"),
            Self::Build => ("#5b6c8f", "#ffffff"),
            Self::Wait => ("none", ""),
        }
    }

    /// All styles, for the style sheet.
    fn all() -> impl Iterator<Item = Self> {
        const REASONS: [Reason; 13] = [
            Reason::Explicit,
            Reason::HostRead,
            Reason::HostWrite,
            Reason::Collocate,
            Reason::ContextMismatch,
            Reason::Import,
            Reason::Export,
            Reason::Contiguity,
            Reason::Conversion,
            Reason::Order,
            Reason::HostArgument,
            Reason::Pickle,
            Reason::SharedMemory,
        ];
        let others = [Self::Kernel, Self::Fill, Self::Barrier, Self::Build];
        REASONS.into_iter().map(Self::Copy).chain(others)
    }
}

/// The rules shared by the light and dark themes.
const COMMON: &str = "\
.usmq text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif}
.usmq .u-h1{font-size:19px;font-weight:650}
.usmq .u-h2{font-weight:650;font-size:13px}
.usmq .u-in{font-size:11px;pointer-events:none}
.usmq .u-small{font-size:11px}
.usmq .u-end{text-anchor:end}
.usmq .u-mid{text-anchor:middle}
.usmq .u-host{stroke-dasharray:3 2;stroke-width:1}
.usmq .u-wait{fill:url(#usmq-wait)}
.usmq .u-stripes{fill:url(#usmq-stripes);pointer-events:none}
.usmq .u-flow{fill:none;stroke-width:1.2;opacity:.75}
";

/// CSS classes and their values in the light and dark themes.
const THEMED: [(&str, &str, &str, &str); 12] = [
    (".u-page", "fill", "#ffffff", "#0d1117"),
    (".u-lane", "fill", "#f4f6f8", "#161b22"),
    (".u-rule", "stroke", "#d0d7de", "#30363d"),
    (".u-text", "fill", "#1f2328", "#e6edf3"),
    (".u-muted", "fill", "#59636e", "#9aa4af"),
    (".u-gap", "stroke", "#e3e7ec", "#262c34"),
    (".u-flow", "stroke", "#59636e", "#9aa4af"),
    (".u-arrow", "fill", "#59636e", "#9aa4af"),
    (".u-memory", "fill", "#b8c4d6", "#38475e"),
    (".u-host", "stroke", "#1f2328", "#e6edf3"),
    (".u-line", "stroke", "#8c959f", "#6e7781"),
    (".u-edge", "stroke", "#ffffff", "#0d1117"),
];

/// The style sheet. Every rule is inside `.usmq`, because the picture may be embedded in a page.
pub(super) fn sheet() -> String {
    let mut sheet = COMMON.to_owned();
    for style in Style::all() {
        let (fill, text) = style.colours();
        let class = style.class();
        let _ = writeln!(sheet, ".usmq .{class}{{fill:{fill}}}.usmq .u-on-{class}{{fill:{text}}}");
    }
    for (class, what, light, _) in THEMED {
        let _ = writeln!(sheet, ".usmq {class}{{{what}:{light}}}");
    }
    sheet += "@media (prefers-color-scheme:dark){\n";
    for (class, what, _, dark) in THEMED {
        let _ = writeln!(sheet, ".usmq {class}{{{what}:{dark}}}");
    }
    sheet + "}\n"
}

/// Patterns and the arrow head.
pub(super) const DEFINITIONS: &str = "\
<pattern id=\"usmq-stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect width=\"2\" height=\"6\" fill=\"#fff\" fill-opacity=\".26\"/></pattern>
<pattern id=\"usmq-wait\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(-45)\">\
<rect width=\"1.4\" height=\"5\" fill=\"#8c959f\" fill-opacity=\".8\"/></pattern>
<marker id=\"usmq-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
<path d=\"M0 0L8 4L0 8z\" class=\"u-arrow\"/></marker>
";
