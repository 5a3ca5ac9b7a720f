//! The first rows of a table as HTML.

use super::column::Column;
use super::layout::Layout;
use super::table::Table;
use crate::array::{Array, Index, element_text};
use crate::error::{Error, Result, escape};
use std::fmt::Write;

/// Rows that are shown.
const ROWS: usize = 10;
/// Characters of a text that are shown, and bytes that are read for them.
const LETTERS: usize = 60;

impl Table {
    /// The names and types of the columns and the values of the first 10 rows, as a part of an HTML page. Copies only
    /// these rows to the host, after earlier writes. Numbers, booleans, texts, and indices of dictionaries have values;
    /// others are shown as `…`.
    ///
    /// # Errors
    /// [`Error::Interrupted`]. Other errors become a part of the text.
    pub fn to_html(&self) -> Result<String> {
        let mut html = String::from("<div class=\"usmq-table\">\n<table>\n<thead>\n<tr>");
        for field in self.schema().children() {
            let (name, kind) = (escape(field.name()), escape(&field.type_name()));
            let _ = write!(html, "<th>{name}<br><small>{kind}</small></th>");
        }
        html += "</tr>\n</thead>\n<tbody>\n";
        let rows = self.num_rows();
        match self.first_rows() {
            Ok(columns) => {
                for row in 0..rows.min(ROWS) {
                    html += "<tr>";
                    for column in &columns {
                        let text = column.get(row).map_or("", String::as_str);
                        let _ = write!(html, "<td>{}</td>", escape(text));
                    }
                    html += "</tr>\n";
                }
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                let width = self.names().len();
                let text = escape(&format!("not readable: {error}"));
                let _ = writeln!(html, "<tr><td colspan=\"{width}\">{text}</td></tr>");
            }
        }
        let _ = write!(html, "</tbody>\n</table>\n<p>{rows} rows");
        if rows > ROWS {
            let _ = write!(html, ", of which the first {ROWS} are shown");
        }
        Ok(html + "</p>\n</div>\n")
    }

    /// The texts of the first rows, by column.
    fn first_rows(&self) -> Result<Vec<Vec<String>>> {
        let part = self.slice(0, self.num_rows().min(ROWS))?;
        let mut columns = vec![Vec::new(); part.names().len()];
        for batch in part.batches() {
            for (texts, column) in columns.iter_mut().zip(batch.children()) {
                texts.extend(column.texts()?);
            }
        }
        Ok(columns)
    }
}

impl Column {
    /// One text per value.
    fn texts(&self) -> Result<Vec<String>> {
        let mut texts = self.valid_texts()?;
        if let Some(bitmap) = self.validity()? {
            let (bytes, first) = (bitmap.to_vec::<u8>()?, self.bit_offset());
            for (number, text) in texts.iter_mut().enumerate() {
                if !bit(&bytes, first + number) {
                    "null".clone_into(text);
                }
            }
        }
        Ok(texts)
    }

    /// As [`texts`](Self::texts), without a look at the validity.
    fn valid_texts(&self) -> Result<Vec<String>> {
        let (count, layout) = (self.len(), self.layout());
        if let Some(dictionary) = self.dictionary() {
            let text = |index: i64| match usize::try_from(index) {
                Ok(index) if index < dictionary.len() => {
                    Ok(dictionary.slice(index, 1)?.texts()?.pop().unwrap_or_default())
                }
                _ => Ok("…".to_owned()),
            };
            return integers(&self.values()?)?.into_iter().map(text).collect();
        }
        match layout {
            Layout::Null => Ok(vec!["null".to_owned(); count]),
            Layout::Bits => {
                let (bytes, first) = (self.values()?.to_vec::<u8>()?, self.bit_offset());
                let name = |number| if bit(&bytes, first + number) { "true" } else { "false" };
                Ok((0..count).map(name).map(str::to_owned).collect())
            }
            Layout::Fixed(width) if width > 0 && self.is_numeric() => {
                let (values, bytes) = (self.values()?, self.values()?.to_bytes()?);
                Ok(bytes.chunks_exact(width).map(|one| element_text(one, values.dtype())).collect())
            }
            Layout::Bytes { .. } if matches!(self.field().format(), "u" | "U") => self.strings(),
            _ => Ok(vec!["…".to_owned(); count]),
        }
    }

    fn strings(&self) -> Result<Vec<String>> {
        let starts = integers(&self.offsets()?)?;
        let bytes = self.values()?;
        let text = |ends: &[i64]| {
            // Another library's offsets may be wrong; a slice ends at the end of the bytes.
            let [start, end] = [ends[0].max(0), ends[1].max(0)].map(|end| end as isize);
            let most = start.saturating_add(4 * LETTERS as isize);
            let part = Index::Slice { start: Some(start), stop: Some(end.min(most)), step: None };
            let read = bytes.index(&[part])?.to_bytes()?;
            let text = String::from_utf8_lossy(&read);
            let cut = end > most || text.chars().nth(LETTERS).is_some();
            Ok(text.chars().take(LETTERS).chain(cut.then_some('…')).collect())
        };
        starts.windows(2).map(text).collect()
    }
}

/// The integers of a short array; -1 for those beyond 64 bits.
fn integers(array: &Array) -> Result<Vec<i64>> {
    let (bytes, dtype) = (array.to_bytes()?, array.dtype());
    let number = |one| element_text(one, dtype).parse().unwrap_or(-1);
    Ok(bytes.chunks_exact(dtype.itemsize()).map(number).collect())
}

fn bit(bytes: &[u8], place: usize) -> bool {
    bytes.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
}
