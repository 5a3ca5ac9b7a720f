//! The table and the picture as HTML: a part of a page for notebooks, or a page.

use super::Profile;
use super::table::Section;
use crate::error::escape;
use std::fmt::Write;

/// Rules are inside `.usmq-profile`, because the part may be embedded in a page. Colours are inherited from
/// the page.
const SHEET: &str = "\
.usmq-profile{font:13px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;max-width:1200px}
.usmq-profile table{border-collapse:collapse;margin:.4em 0 1em;font-size:13px}
.usmq-profile caption{text-align:left;font-weight:650;padding:.2em 0}
.usmq-profile th,.usmq-profile td{padding:.15em .8em .15em 0;text-align:right;white-space:nowrap;\
border-bottom:1px solid rgba(128,128,128,.3);background:none}
.usmq-profile .t{text-align:left}
.usmq-profile p{margin:.3em 0}
";

impl Profile {
    /// The table and the picture, as a part of a page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut html = format!("<div class=\"usmq-profile\">\n<style>\n{SHEET}</style>\n{}", self.to_svg());
        for section in self.sections() {
            write_section(&mut html, &section);
        }
        for note in self.notes() {
            let _ = writeln!(html, "<p>{}</p>", escape(&note).replace('\n', "<br>"));
        }
        html + "</div>\n"
    }

    /// As [`to_html`](Self::to_html), but a complete page.
    #[must_use]
    pub fn to_page(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>usmq profile</title>\n\
             <style>\nhtml{{color-scheme:light dark}}body{{margin:16px}}\n</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            self.to_html()
        )
    }
}

fn write_section(html: &mut String, section: &Section) {
    let class = |column: usize| if section.text.contains(&column) { " class=\"t\"" } else { "" };
    let _ = write!(html, "<table>\n<caption>{}</caption>\n<thead><tr>", section.title);
    for (column, head) in section.head.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(column), escape(head));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &section.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(column), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
}
