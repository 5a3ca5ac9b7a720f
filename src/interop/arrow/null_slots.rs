//! Zeros for values under nulls. The format allows any value there, but readers such as arrow-rs check them with the rest.
//! Pure, over host bytes.

use super::layout::Layout;
use super::validate_full::Contents;
use crate::error::Result;
use crate::memory::try_reserve::reserve;
use std::ops::Range;

/// Buffers to use instead of those of an array, and the same for the arrays that it nests.
pub(super) struct Zeroed {
    pub(super) buffers: Vec<Option<Vec<u8>>>,
    pub(super) children: Vec<Self>,
    pub(super) dictionary: Option<Box<Self>>,
}

impl Contents<'_> {
    /// Checks each value that is not null. Returns the buffers with which all values meet the rules, if zeros under nulls
    /// are needed for that.
    pub(super) fn validate_valid_values(&self) -> Result<Option<Zeroed>> {
        if self.validate().is_ok() {
            return Ok(None);
        }
        let zeroed = self.zeroed()?;
        self.with(&zeroed).validate()?;
        Ok(Some(zeroed))
    }

    fn zeroed(&self) -> Result<Zeroed> {
        let mut buffers = vec![None; self.buffers.len()];
        // The bitmap bounds the number of rows.
        let has_nulls = !self.is_valid && self.bitmap().is_some() && self.validate_bitmap().is_ok();
        let rows = if has_nulls { self.offset..self.offset + self.length } else { 0..0 };
        for row in rows.filter(|row| self.is_null(*row)) {
            match self.field.layout {
                Layout::Views => self.clear(&mut buffers, 1, row * 16..row * 16 + 16)?,
                Layout::ListView { large } => {
                    let width = if large { 8 } else { 4 };
                    self.clear(&mut buffers, 1, row * width..(row + 1) * width)?;
                    self.clear(&mut buffers, 2, row * width..(row + 1) * width)?;
                }
                Layout::Bytes { large } => {
                    if let Some(text) = self.text_of(row, large) {
                        self.clear(&mut buffers, 2, text)?;
                    }
                }
                _ => break,
            }
        }
        let children = self.children.iter().map(Self::zeroed).collect::<Result<_>>()?;
        let dictionary = self.dictionary.as_ref().map(|values| values.zeroed()).transpose()?.map(Box::new);
        Ok(Zeroed { buffers, children, dictionary })
    }

    /// The bytes of a text; `None` if its offsets are wrong.
    fn text_of(&self, row: usize, large: bool) -> Option<Range<usize>> {
        let offsets = self.buffers.get(1).copied().flatten()?;
        let offset = |row: usize| {
            if large {
                usize::try_from(i64::from_ne_bytes(*offsets.get(row * 8..)?.first_chunk()?)).ok()
            } else {
                usize::try_from(i32::from_ne_bytes(*offsets.get(row * 4..)?.first_chunk()?)).ok()
            }
        };
        Some(offset(row)?..offset(row + 1)?)
    }

    /// Writes zeros to a part of a buffer's copy, which is made when it is needed.
    fn clear(&self, buffers: &mut [Option<Vec<u8>>], number: usize, bytes: Range<usize>) -> Result<()> {
        let Some(all) = self.buffers.get(number).copied().flatten() else { return Ok(()) };
        if all.get(bytes.clone()).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            return Ok(());
        }
        let copy = match &mut buffers[number] {
            Some(copy) => copy,
            none => {
                let mut copy = Vec::new();
                reserve(&mut copy, all.len(), "Arrow data with zeros under nulls")?;
                copy.extend_from_slice(all);
                none.insert(copy)
            }
        };
        copy[bytes].fill(0);
        Ok(())
    }

    /// The same array with other buffers.
    fn with<'a>(&'a self, zeroed: &'a Zeroed) -> Contents<'a> {
        let buffers = self.buffers.iter().zip(&zeroed.buffers);
        let children = self.children.iter().zip(&zeroed.children);
        let dictionary = self.dictionary.iter().zip(&zeroed.dictionary).next();
        Contents {
            buffers: buffers.map(|(own, zeroed)| zeroed.as_deref().or(*own)).collect(),
            children: children.map(|(own, zeroed)| own.with(zeroed)).collect(),
            dictionary: dictionary.map(|(own, zeroed)| Box::new(own.with(zeroed))),
            ..*self
        }
    }
}
