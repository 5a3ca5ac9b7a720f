//! The header of a serialized column or table: numbers, texts and fields. Pure.

use super::layout::Layout;
use super::schema::{DEEPEST, Field, MOST_FIELDS, Parts, check_children};
use crate::error::{Error, Result};
use std::fmt::Display;
use std::sync::Arc;

/// The bytes written so far.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(super) fn field(&mut self, field: &Field) {
        self.bytes(field.format.as_bytes());
        self.bytes(field.name.as_bytes());
        self.number(field.flags as u64);
        self.number(u64::from(field.metadata.is_some()));
        if let Some(metadata) = &field.metadata {
            self.bytes(metadata);
        }
        self.number(field.children.len() as u64);
        for child in &field.children {
            self.field(child);
        }
        self.number(u64::from(field.dictionary.is_some()));
        if let Some(dictionary) = &field.dictionary {
            self.field(dictionary);
        }
    }
}

/// The bytes left to read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

pub(super) fn broken(what: impl Display) -> Error {
    Error::interop(format!("the packed data is broken: {what}"))
}

impl<'a> Reader<'a> {
    pub(super) fn number(&mut self) -> Result<u64> {
        let (number, rest) =
            self.0.split_first_chunk().ok_or_else(|| broken("its description ends early"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// Reads a count with a plausible value.
    pub(super) fn count(&mut self) -> Result<usize> {
        let number = self.number()?;
        let most = isize::MAX as u64 / 256;
        if number > most { Err(broken(format_args!("it counts {number}"))) } else { Ok(number as usize) }
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(broken(format_args!("{other} is not a boolean"))),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) =
            self.0.split_at_checked(length).ok_or_else(|| broken("its description ends early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| broken("a name is not UTF-8"))?;
        if text.contains('\0') { Err(broken("a name has a NUL")) } else { Ok(text.to_owned()) }
    }

    pub(super) fn field(&mut self) -> Result<Field> {
        self.nested_field(0, &mut 0)
    }

    fn nested_field(&mut self, depth: usize, fields: &mut usize) -> Result<Field> {
        *fields += 1;
        if depth > DEEPEST || *fields > MOST_FIELDS {
            return Err(broken("its type is nested too deeply"));
        }
        let (format, name) = (self.text()?, self.text()?);
        let flags = self.number()? as i64;
        let metadata = if self.flag()? { Some(checked_metadata(self.bytes()?)?) } else { None };
        let count = self.count()?;
        check_children(&format, Layout::parse(&format)?, count)?;
        // Each child needs bytes, so a wrong count ends with the header.
        let mut children = Vec::new();
        for _ in 0..count {
            children.push(Arc::new(self.nested_field(depth + 1, fields)?));
        }
        let dictionary =
            if self.flag()? { Some(Arc::new(self.nested_field(depth + 1, fields)?)) } else { None };
        Field::build(Parts { format, name, metadata, flags, children, dictionary })
    }

    /// An error unless everything was read.
    pub(super) fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(broken(format_args!("{} bytes are left over", self.0.len())))
        }
    }
}

/// Validates metadata in the interface's encoding, because readers rely on its numbers.
fn checked_metadata(bytes: &[u8]) -> Result<Box<[u8]>> {
    let wrong = || broken("its metadata is inconsistent");
    let mut rest = bytes;
    let mut number = |skip: usize| -> Result<usize> {
        let after = rest.get(skip..).ok_or_else(wrong)?;
        let (number, after) = after.split_first_chunk().ok_or_else(wrong)?;
        rest = after;
        usize::try_from(i32::from_ne_bytes(*number)).map_err(|_| wrong())
    };
    let mut length = 0;
    for _ in 0..2 * number(0)? {
        length = number(length)?;
    }
    if rest.len() == length { Ok(bytes.into()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::arrow::schema::tests::sample;

    #[test]
    fn a_field_round_trips_exactly() {
        let mut writer = Writer::default();
        writer.field(&sample());
        let mut reader = Reader(&writer.0);
        assert_eq!(reader.field().unwrap(), sample());
        reader.end().unwrap();
    }

    #[test]
    fn a_truncated_or_changed_description_is_an_error_or_another_field() {
        let mut writer = Writer::default();
        writer.field(&sample());
        for length in 0..writer.0.len() {
            assert!(Reader(&writer.0[..length]).field().is_err(), "{length} bytes");
        }
        for at in 0..writer.0.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = writer.0.clone();
                bytes[at] = value;
                // For any field, reading the metadata stays inside the bytes.
                if let Ok(field) = Reader(&bytes).field() {
                    assert!(field.children().iter().all(|child| child.metadata().count() < 2));
                }
            }
        }
    }
}
