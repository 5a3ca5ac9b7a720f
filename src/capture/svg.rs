//! The picture of a graph: a column for each queue, and a line for each dependency.

use super::graph::{Drawn, Graph};
use crate::device::Queue;
use crate::error::escape;
use std::fmt::Write;

const COLUMN: f64 = 220.0;
const ROW: f64 = 46.0;
const BOX: (f64, f64) = (180.0, 28.0);
const MARGIN: f64 = 20.0;
const TOP: f64 = 56.0;
/// The largest number of characters of a label.
const LONGEST: usize = 24;

const STYLE: &str = "\
.usmq-graph{font:12px system-ui,sans-serif}
.usmq-graph .g-page{fill:#fff}.usmq-graph text{fill:#222}.usmq-graph path{stroke:#666;fill:none}
.usmq-graph .g-kernel{fill:#56b4e9}.usmq-graph .g-copy{fill:#e69f00}.usmq-graph .g-box text{fill:#000}
@media (prefers-color-scheme:dark){.usmq-graph .g-page{fill:#16181d}.usmq-graph>text{fill:#ddd}
.usmq-graph path{stroke:#aaa}}
";

impl Graph {
    /// A picture of the commands and their order, as SVG that needs no other file.
    #[must_use]
    pub fn svg(&self) -> String {
        let nodes = &self.0.nodes;
        let mut queues: Vec<&Queue> = Vec::new();
        let columns: Vec<usize> = nodes.iter().map(|node| column(&mut queues, &node.queue)).collect();
        let rows = rows(nodes, &columns);
        let place = |node: usize| (MARGIN + COLUMN * columns[node] as f64, TOP + ROW * rows[node] as f64);
        let mut body = String::new();
        for (number, queue) in queues.iter().enumerate() {
            let x = MARGIN + COLUMN * number as f64;
            let text = cut(&queue.device().to_string());
            let _ = writeln!(
                body,
                "<text x=\"{x:.0}\" y=\"34\">{}<title>{}</title></text>",
                escape(&text),
                escape(&queue.to_string())
            );
        }
        for (number, node) in nodes.iter().enumerate() {
            let (x, y) = place(number);
            for earlier in &node.after {
                let (from, above) = place(*earlier as usize);
                let (start, end) = (from + BOX.0 / 2.0, x + BOX.0 / 2.0);
                let (top, middle) = (above + BOX.1, (above + BOX.1 + y) / 2.0);
                let _ = writeln!(
                    body,
                    "<path d=\"M{start:.0} {top:.0}C{start:.0} {middle:.0} {end:.0} {middle:.0} {end:.0} {y:.0}\"/>"
                );
            }
        }
        for (number, node) in nodes.iter().enumerate() {
            let (x, y) = place(number);
            let class = if node.is_copy { "g-copy" } else { "g-kernel" };
            let (width, height) = BOX;
            let _ = writeln!(
                body,
                "<g class=\"g-box\"><title>{number}: {}</title><rect class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\" \
                 width=\"{width}\" height=\"{height}\" rx=\"5\"/><text x=\"{:.0}\" y=\"{:.0}\">{}</text></g>",
                escape(&node.label),
                x + 8.0,
                y + 18.0,
                escape(&cut(&node.label))
            );
        }
        let width = 2.0 * MARGIN + COLUMN * queues.len().max(1) as f64;
        let height = TOP + MARGIN + ROW * rows.iter().max().map_or(0.0, |last| *last as f64 + 1.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"usmq-graph\" role=\"img\" viewBox=\"0 0 {width:.0} \
             {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" style=\"max-width:100%;height:auto\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n<rect class=\"g-page\" width=\"{width:.0}\" \
             height=\"{height:.0}\" rx=\"6\"/>\n{body}</svg>\n",
            escape(self.explain().lines().next().unwrap_or_default())
        )
    }
}

fn column<'a>(queues: &mut Vec<&'a Queue>, queue: &'a Queue) -> usize {
    queues.iter().position(|known| *known == queue).unwrap_or_else(|| {
        queues.push(queue);
        queues.len() - 1
    })
}

/// A row for each command, below those that it follows and those of its queue.
fn rows(nodes: &[Drawn], columns: &[usize]) -> Vec<usize> {
    let mut rows: Vec<usize> = Vec::with_capacity(nodes.len());
    for (number, node) in nodes.iter().enumerate() {
        let above = (0..number).rfind(|earlier| columns[*earlier] == columns[number]);
        let above = node.after.iter().map(|earlier| *earlier as usize).chain(above);
        rows.push(above.map(|earlier| rows[earlier] + 1).max().unwrap_or(0));
    }
    rows
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}
