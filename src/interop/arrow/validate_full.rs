//! Checks each value of an array against the rules of the Arrow format, on which arrow-rs and pyarrow rely.
//! Pure, over host bytes; `validate.rs` checks the structs.
//!
//! Source: Arrow columnar format, "Physical memory layout"; `ArrayData::validate_full` of arrow-rs, which has
//! the same rules.

use super::layout::Layout;
use super::schema::Field;
use super::validate_contents::INLINE;
use crate::error::{Error, Result};
use std::fmt::Display;
use std::ops::Range;

/// An array in host memory. Buffers have their real lengths, so reads stay inside them.
pub(super) struct Contents<'a> {
    pub(super) field: &'a Field,
    pub(super) length: usize,
    pub(super) offset: usize,
    pub(super) null_count: Option<usize>,
    pub(super) buffers: Vec<Option<&'a [u8]>>,
    pub(super) children: Vec<Self>,
    pub(super) dictionary: Option<Box<Self>>,
    /// Whether only nested arrays need checks.
    pub(super) is_valid: bool,
}

/// Numbers of a buffer, read individually because they may be unaligned.
fn numbers<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |bytes| read(*bytes))
}

impl Contents<'_> {
    fn wrong(&self, what: impl Display) -> Error {
        Error::interop(format!(
            "column {:?} of type {} is not valid Arrow data: {what}; fix it in its producer",
            self.field.name(),
            self.field.type_name()
        ))
    }

    /// Returns an error with the first violation.
    pub(super) fn validate(&self) -> Result<()> {
        if !self.is_valid {
            // Check the lengths of children before their rows.
            self.validate_values()?;
            self.validate_nulls()?;
        }
        self.children.iter().chain(self.dictionary.as_deref()).try_for_each(Self::validate)
    }

    /// `count` values of `width` bytes from value `first` on.
    fn span(&self, buffer: usize, first: usize, count: usize, width: usize) -> Result<&[u8]> {
        let range = || {
            let start = first.checked_mul(width)?;
            Some(start..start.checked_add(count.checked_mul(width)?)?)
        };
        let bytes = self.buffers.get(buffer).copied().flatten().unwrap_or_default();
        range().and_then(|range| bytes.get(range)).ok_or_else(|| {
            self.wrong(format_args!("buffer {buffer} has {} bytes, less than its values take", bytes.len()))
        })
    }

    /// Values from the offset on, as 64-bit numbers.
    fn integers(&self, buffer: usize, width: usize, count: usize) -> Result<Vec<i64>> {
        let bytes = self.span(buffer, self.offset, count, width)?;
        Ok(match width {
            1 => bytes.iter().map(|byte| i64::from(byte.cast_signed())).collect(),
            2 => numbers(bytes, i16::from_ne_bytes).map(i64::from).collect(),
            4 => numbers(bytes, i32::from_ne_bytes).map(i64::from).collect(),
            _ => numbers(bytes, i64::from_ne_bytes).collect(),
        })
    }

    /// The validity bitmap, if any.
    pub(super) fn bitmap(&self) -> Option<&[u8]> {
        if self.field.layout.has_validity() { self.buffers.first().copied().flatten() } else { None }
    }

    /// Whether bit `number` of the bitmap marks a null; missing bits do not.
    pub(super) fn is_null(&self, number: usize) -> bool {
        let byte = self.bitmap().and_then(|bytes| bytes.get(number / 8));
        byte.is_some_and(|byte| byte >> (number % 8) & 1 == 0)
    }

    /// Whether a value in this range is null. Looks only at bits that the bitmap has, since lengths may be wrong.
    fn has_nulls(&self, range: Range<usize>) -> bool {
        let bits = self.bitmap().map_or(0, |bytes| bytes.len().saturating_mul(8));
        (range.start..range.end.min(bits)).any(|number| self.is_null(number))
    }

    /// An error unless the bitmap has a bit for each value.
    pub(super) fn validate_bitmap(&self) -> Result<()> {
        let end = self.offset.saturating_add(self.length);
        match self.bitmap() {
            Some(bytes) if bytes.len() < end.div_ceil(8) => {
                Err(self.wrong(format_args!("its bitmap has {} bytes for {end} values", bytes.len())))
            }
            _ => Ok(()),
        }
    }

    fn validate_nulls(&self) -> Result<()> {
        let end = self.offset.saturating_add(self.length);
        self.validate_bitmap()?;
        if let (Some(said), true) = (self.null_count, self.bitmap().is_some()) {
            let nulls = (self.offset..end).filter(|number| self.is_null(*number)).count();
            if nulls != said {
                return Err(self.wrong(format_args!("it has {nulls} nulls, but declares {said}")));
            }
        }
        let each = match self.field.layout {
            Layout::Struct => 1,
            Layout::FixedList(width) if width > 0 => width,
            Layout::List { .. } => {
                let lists = self.children.iter().filter(|child| !child.field.is_nullable());
                let all = |child: &Self| child.offset..child.offset.saturating_add(child.length);
                return self.without_nulls(lists.map(|child| (child, all(child))));
            }
            _ => return Ok(()),
        };
        for child in
            self.children.iter().filter(|child| !child.field.is_nullable() && child.bitmap().is_some())
        {
            // Bounds the rows by the size of the bitmap.
            child.validate_bitmap()?;
            let shown = (self.offset..end).filter(|row| !self.is_null(*row));
            let rows = shown.map(|row| (child, child.offset + row * each..child.offset + (row + 1) * each));
            self.without_nulls(rows)?;
        }
        Ok(())
    }

    fn without_nulls<'a>(&self, parts: impl Iterator<Item = (&'a Self, Range<usize>)>) -> Result<()>
    where
        Self: 'a,
    {
        for (child, range) in parts {
            if child.has_nulls(range) {
                let name = child.field.name();
                return Err(self.wrong(format_args!("child {name:?} has nulls, but is not nullable")));
            }
        }
        Ok(())
    }

    fn validate_values(&self) -> Result<()> {
        if let Some(values) = &self.dictionary {
            return self.validate_indices(values.length);
        }
        match self.field.layout {
            Layout::Bytes { large } => {
                let (first, last, offsets) = self.validate_offsets(large, isize::MAX as usize)?;
                let text = self.span(2, first, last - first, 1)?;
                if self.is_text() { self.validate_text(text, first, &offsets) } else { Ok(()) }
            }
            Layout::List { large } => {
                let entries = self.children.first().map(|child| child.field);
                if self.field.format() == "+m"
                    && !entries.is_some_and(|field| field.is_struct() && field.children().len() == 2)
                {
                    return Err(self.wrong("the child of a map is a struct of two fields"));
                }
                self.validate_offsets(large, self.child_length(0)).map(drop)
            }
            Layout::ListView { large } => self.validate_list_views(if large { 8 } else { 4 }),
            Layout::Union { dense, .. } => self.validate_union(dense),
            Layout::RunEnds => self.validate_runs(),
            Layout::Views => self.validate_views(),
            Layout::Struct => self.validate_children(1),
            Layout::FixedList(width) => self.validate_children(width),
            Layout::Null | Layout::Bits | Layout::Fixed(_) => Ok(()),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self.field.format(), "u" | "U" | "vu")
    }

    fn child_length(&self, number: usize) -> usize {
        self.children.get(number).map_or(0, |child| child.length)
    }

    fn validate_children(&self, each: usize) -> Result<()> {
        let needed = self.offset.saturating_add(self.length).saturating_mul(each);
        match self.children.iter().find(|child| child.length < needed) {
            Some(child) => Err(self.wrong(format_args!(
                "child {:?} has {} values of {needed}",
                child.field.name(),
                child.length
            ))),
            None => Ok(()),
        }
    }

    fn validate_indices(&self, most: usize) -> Result<()> {
        let (width, signed) = match self.field.format() {
            "c" => (1, true),
            "C" => (1, false),
            "s" => (2, true),
            "S" => (2, false),
            "i" => (4, true),
            "I" => (4, false),
            "l" => (8, true),
            _ => (8, false),
        };
        let indices = self.integers(1, width, self.length)?;
        // Remove the sign extension of unsigned numbers.
        let mask = if signed || width == 8 { -1 } else { (1i64 << (8 * width)) - 1 };
        for (row, index) in indices.into_iter().enumerate() {
            let index = index & mask;
            let inside = usize::try_from(index).is_ok_and(|index| index < most);
            if !inside && !self.is_null(self.offset + row) {
                return Err(
                    self.wrong(format_args!("value {row} is {index}, and the dictionary has {most} values"))
                );
            }
        }
        Ok(())
    }

    /// The first offset, the last, and all.
    fn validate_offsets(&self, large: bool, most: usize) -> Result<(usize, usize, Vec<usize>)> {
        if self.length == 0 && self.buffers.get(1).copied().flatten().is_none() {
            return Ok((0, 0, Vec::new()));
        }
        let numbers = self.integers(1, if large { 8 } else { 4 }, self.length.saturating_add(1))?;
        let mut offsets = Vec::with_capacity(numbers.len());
        let mut before = 0;
        for (row, number) in numbers.into_iter().enumerate() {
            let offset = usize::try_from(number).ok().filter(|offset| *offset >= before && *offset <= most);
            let Some(offset) = offset else {
                return Err(
                    self.wrong(format_args!("offset {row} is {number}, after {before} and of {most}"))
                );
            };
            before = offset;
            offsets.push(offset);
        }
        Ok((offsets.first().copied().unwrap_or(0), before, offsets))
    }

    fn validate_text(&self, text: &[u8], first: usize, offsets: &[usize]) -> Result<()> {
        if text.is_ascii() {
            return Ok(());
        }
        let not_text = |row: usize| Err(self.wrong(format_args!("value {row} is not UTF-8")));
        match std::str::from_utf8(text) {
            Ok(text) => match offsets.iter().position(|offset| !text.is_char_boundary(offset - first)) {
                Some(at) => not_text(at.min(self.length.saturating_sub(1))),
                None => Ok(()),
            },
            Err(error) => {
                let at = first + error.valid_up_to();
                not_text(offsets.iter().rposition(|offset| *offset <= at).unwrap_or(0))
            }
        }
    }

    fn validate_list_views(&self, width: usize) -> Result<()> {
        let (offsets, sizes) = (self.integers(1, width, self.length)?, self.integers(2, width, self.length)?);
        let most = self.child_length(0);
        let inside = |(offset, size): (&i64, &i64)| {
            let end = offset.checked_add(*size).and_then(|end| usize::try_from(end).ok());
            *offset >= 0 && *size >= 0 && end.is_some_and(|end| end <= most)
        };
        match offsets.iter().zip(&sizes).position(|view| !inside(view)) {
            Some(row) => Err(self.wrong(format_args!(
                "value {row} has {} values from {} on, of {most}",
                sizes[row], offsets[row]
            ))),
            None => Ok(()),
        }
    }

    fn validate_union(&self, dense: bool) -> Result<()> {
        let mut lengths = [None; 128];
        for (child, id) in self.field.type_ids().enumerate() {
            lengths[usize::from(id)] = Some(self.child_length(child));
        }
        if !dense {
            self.validate_children(1)?;
        }
        let ids = self.integers(0, 1, self.length)?;
        let offsets = if dense { self.integers(1, 4, self.length)? } else { Vec::new() };
        for (row, id) in ids.into_iter().enumerate() {
            let length = usize::try_from(id).ok().and_then(|id| lengths.get(id).copied().flatten());
            let Some(length) = length else {
                return Err(
                    self.wrong(format_args!("value {row} is of type id {id}, which it does not have"))
                );
            };
            let offset = offsets.get(row);
            if offset.is_some_and(|offset| !usize::try_from(*offset).is_ok_and(|offset| offset < length)) {
                let offset = offset.copied().unwrap_or_default();
                return Err(
                    self.wrong(format_args!("value {row} refers to value {offset} of a child of {length}"))
                );
            }
        }
        Ok(())
    }

    fn validate_runs(&self) -> Result<()> {
        let [ends, values] = &self.children[..] else { return Err(self.wrong("it lacks children")) };
        if ends.length != values.length {
            return Err(self.wrong(format_args!("it has {} run ends, {} values", ends.length, values.length)));
        }
        if ends.has_nulls(ends.offset..ends.offset.saturating_add(ends.length)) {
            return Err(self.wrong("a run end is null"));
        }
        let width = match ends.field.format() {
            "s" => 2,
            "i" => 4,
            _ => 8,
        };
        let mut before = 0;
        for (run, end) in ends.integers(1, width, ends.length)?.into_iter().enumerate() {
            if end <= before {
                return Err(self.wrong(format_args!("run {run} ends at {end}, the one before at {before}")));
            }
            before = end;
        }
        let end = self.offset.saturating_add(self.length);
        if self.length > 0 && usize::try_from(before).is_ok_and(|last| last < end) {
            return Err(self.wrong(format_args!("its runs end at {before}, its values at {end}")));
        }
        Ok(())
    }

    fn validate_views(&self) -> Result<()> {
        let views = self.span(1, self.offset, self.length, 16)?;
        let (_, data) = self.buffers.get(2..).and_then(<[_]>::split_last).unwrap_or((&None, &[]));
        for (row, view) in views.as_chunks::<16>().0.iter().enumerate() {
            let number = |at: usize| i32::from_ne_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
            let length = number(0);
            let Ok(bytes) = usize::try_from(length) else {
                return Err(self.wrong(format_args!("value {row} has {length} bytes")));
            };
            let text = if length <= INLINE {
                let (text, padding) = view[4..].split_at(bytes);
                if padding.iter().any(|byte| *byte != 0) {
                    return Err(self.wrong(format_args!("the padding of view {row} is not zero")));
                }
                text
            } else {
                let place = || {
                    let data = data.get(usize::try_from(number(8)).ok()?)?.unwrap_or_default();
                    let start = usize::try_from(number(12)).ok()?;
                    data.get(start..start.checked_add(bytes)?)
                };
                let Some(text) = place() else {
                    return Err(self.wrong(format_args!("view {row} points outside its buffers")));
                };
                if text[..4] != view[4..8] {
                    return Err(self.wrong(format_args!("the prefix of view {row} differs from its text")));
                }
                text
            };
            if self.is_text() && std::str::from_utf8(text).is_err() {
                return Err(self.wrong(format_args!("value {row} is not UTF-8")));
            }
        }
        Ok(())
    }
}
