//! The text about a graph: its parts, and how each of them runs.

use super::graph::Graph;
use std::fmt::{self, Write};

impl Graph {
    /// The parts of the graph: device, number of commands, and whether a replay submits a SYCL graph or a prepared list of
    /// commands, with the reason.
    #[must_use]
    pub fn explain(&self) -> String {
        let inner = &*self.0;
        let commands = count(inner.nodes.len(), "command", "commands");
        let parts = count(inner.parts.len(), "part", "parts");
        let mut text = format!("graph of {commands} in {parts}");
        for bound in &inner.inputs {
            let unused = if bound.memory.is_empty() { ", which no command uses" } else { "" };
            let _ = write!(text, "\ninput {:?}: {}{unused}", bound.input.name, bound.input.array);
        }
        for (number, part) in inner.parts.iter().enumerate() {
            let commands = count(part.part.nodes.len(), "command", "commands");
            let (way, exchanged) = match &part.graph {
                Some(_) if inner.inputs.is_empty() => ("SYCL graph", ""),
                Some(_) => ("SYCL graph", "; a prepared list when an input is exchanged"),
                None => ("prepared list", ""),
            };
            let _ = write!(
                text,
                "\npart {number} on {}: {commands}, {way}: {}{exchanged}",
                part.place.1, part.why
            );
            if !part.part.before.is_empty() {
                let before: Vec<_> = part.part.before.iter().map(usize::to_string).collect();
                let _ = write!(text, "; after part {}", before.join(", "));
            }
        }
        text
    }
}

fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain())
    }
}
