//! Decides whether a column may be read through Rust slices: no handle writes to its memory, and its data is valid.

use super::abi::ArrowArray;
use super::buffer_source::Buffer;
use super::column::{Column, Data, Node};
use super::export::exported;
use super::foreign::{About, ForeignStruct};
use super::layout::Layout;
use super::null_slots::Zeroed;
use super::validate_full::Contents;
use crate::array::{Array, DType};
use crate::device::UsmKind;
use crate::error::Result;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The data of a column that other handles may change while the host reads it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changes {
    /// Nothing, as arrow-rs requires.
    #[cfg_attr(not(feature = "arrow"), expect(dead_code))]
    None,
    /// Plain numbers and booleans, of which all bits are valid. Bitmaps, offsets, texts, views, indices and run ends do
    /// not change.
    Numbers,
}

impl Buffer {
    /// Whether this is the only handle to memory of a usmq pool. It is read-only, so no writable handle can
    /// be created from it. Another library's memory may have other handles, usmq arrays among them.
    fn is_exclusive(&self) -> bool {
        match self {
            Self::Absent => true,
            // One handle is the buffer's, one is created here for the count.
            Self::Held(array) => {
                array.allocation().is_ours() && Arc::strong_count(&array.shared_allocation()) == 2
            }
            Self::Later(_) => false,
        }
    }
}

impl Column {
    /// Reads all values on the host and checks the rules of the Arrow format: text is UTF-8, offsets, views,
    /// union and dictionary indices point inside, null counts are right, fields that are not nullable have no
    /// nulls.
    ///
    /// Values under nulls may be anything. A conversion to arrow-rs or pyarrow copies buffers in which such values break a
    /// rule, and writes zeros there.
    ///
    /// The result is remembered for data that no handle can write to, as imported data, and that is valid with the values
    /// under its nulls. Other data, as that of [`from_parts`](Self::from_parts), is copied except for plain numbers, and
    /// checked each time. A conversion to arrow-rs or pyarrow checks data that is not known to be valid; data from arrow-rs
    /// is.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) with the first value that breaks a rule;
    /// [`Error::Allocation`](crate::Error::Allocation) if a copy is needed and memory is short;
    /// [`Error::Sycl`](crate::Error::Sycl) with what the work reported.
    pub fn validate_full(&self) -> Result<()> {
        self.with_zeros().map(drop)
    }

    /// The column in host memory with zeros under nulls; `None` if it is valid without them.
    pub(super) fn with_zeros(&self) -> Result<Option<Self>> {
        if self.is_known_valid() {
            return Ok(None);
        }
        let host = self.to_host()?.frozen(Changes::Numbers)?;
        host.wait_for_writes()?;
        let mut kept = Vec::new();
        host.keep_arrays(&mut kept, false)?;
        let zeroed = host.contents(&mut kept.iter()).validate_valid_values()?;
        if zeroed.is_none() {
            self.note_valid();
        }
        zeroed.map(|zeroed| host.with_buffers(zeroed)).transpose()
    }

    /// The column with other buffers, which are valid.
    fn with_buffers(&self, zeroed: Zeroed) -> Result<Self> {
        let buffer = |(own, bytes): (&Buffer, Option<Vec<u8>>)| {
            let Some(bytes) = bytes else { return Ok(own.clone()) };
            let array = Array::uninit([bytes.len()], DType::U8, UsmKind::Host, self.queue())?;
            array.copy_from_bytes(&bytes)?;
            Ok(Buffer::Held(array.as_readonly()))
        };
        let buffers = self.0.buffers.iter().zip(zeroed.buffers).map(buffer).collect::<Result<_>>()?;
        let children = self.0.children.iter().zip(zeroed.children);
        let children = children.map(|(child, zeroed)| child.with_buffers(zeroed)).collect::<Result<_>>()?;
        let dictionary = self.dictionary().zip(zeroed.dictionary);
        let dictionary = dictionary.map(|(values, zeroed)| values.with_buffers(*zeroed)).transpose()?;
        let data = Data::frozen_if(self.is_frozen(), true);
        Ok(Self::from_node(Node { buffers, children, dictionary, data, ..(*self.0).clone() }))
    }

    /// The column after [`validate_full`](Self::validate_full), if need be with copies of buffers that could change or need
    /// zeros under nulls.
    pub(crate) fn settled(&self) -> Result<Self> {
        if self.is_known_valid() {
            return Ok(self.clone());
        }
        let settled = self.frozen(Changes::Numbers)?;
        match settled.with_zeros()? {
            Some(zeroed) => zeroed.to(self.usm_kind(), Some(self.queue())),
            None => {
                self.note_valid();
                Ok(settled)
            }
        }
    }

    fn note_valid(&self) {
        if let Data::Frozen(is_valid) = &self.0.data {
            is_valid.store(true, Ordering::Relaxed);
        }
        self.nested().for_each(Self::note_valid);
    }

    /// The column in memory that changes at most as `changes` says: itself if possible, else with copies of buffers.
    pub(super) fn frozen(&self, changes: Changes) -> Result<Self> {
        self.frozen_part(changes, false)
    }

    fn frozen_part(&self, changes: Changes, run_ends: bool) -> Result<Self> {
        if self.is_frozen() {
            return Ok(self.clone());
        }
        let numbers = changes == Changes::Numbers && self.is_plain() && !run_ends;
        let mut is_frozen = true;
        let copy = |(number, buffer): (usize, &Buffer)| {
            let keep = buffer.is_exclusive();
            let may_change = !keep && numbers && number == 1;
            is_frozen &= !may_change;
            Ok(match self.buffer(number)? {
                Some(array) if keep || may_change => Buffer::Held(array),
                Some(array) => Buffer::Held(array.copy()?.as_readonly()),
                None => Buffer::Absent,
            })
        };
        let buffers = self.0.buffers.iter().enumerate().map(copy).collect::<Result<_>>()?;
        let runs = self.layout() == Layout::RunEnds;
        let children = self.0.children.iter().enumerate();
        let children = children.map(|(number, child)| child.frozen_part(changes, runs && number == 0));
        let children = children.collect::<Result<_>>()?;
        let dictionary = self.dictionary().map(|values| values.frozen_part(changes, false)).transpose()?;
        let data = Data::frozen_if(is_frozen, false);
        Ok(Self::from_node(Node { buffers, children, dictionary, data, ..(*self.0).clone() }))
    }

    /// Whether the values are numbers or booleans, of which all bits are valid.
    fn is_plain(&self) -> bool {
        matches!(self.layout(), Layout::Fixed(_) | Layout::Bits) && self.dictionary().is_none()
    }

    /// Collects the buffers of this column and its nested columns, in the order of
    /// [`contents`](Self::contents). Plain numbers are always valid, and may be written meanwhile: they are
    /// omitted, unless they are `run_ends`.
    fn keep_arrays(&self, kept: &mut Vec<Option<Array>>, run_ends: bool) -> Result<()> {
        let plain = self.is_plain() && !run_ends;
        for number in 0..self.0.buffers.len() {
            kept.push(if plain && number == 1 { None } else { self.buffer(number)? });
        }
        let runs = self.layout() == Layout::RunEnds;
        self.nested()
            .enumerate()
            .try_for_each(|(number, nested)| nested.keep_arrays(kept, runs && number == 0))
    }

    /// The contents of a column that is [`frozen`](Self::frozen), of its [`keep_arrays`](Self::keep_arrays).
    fn contents<'a>(&'a self, kept: &mut slice::Iter<'a, Option<Array>>) -> Contents<'a> {
        let buffers = (0..self.0.buffers.len()).map(|_| {
            let array = kept.next()?.as_ref()?;
            // SAFETY: the host can read the memory, as `to_host` ensures, and it lives as long as the array. Nothing
            // writes to buffers other than plain numbers, as `frozen` ensures, and earlier writes are complete.
            Some(unsafe { slice::from_raw_parts(array.address() as *const u8, array.nbytes()) })
        });
        let buffers = buffers.collect();
        let children = self.0.children.iter().map(|child| child.contents(kept)).collect();
        let dictionary = self.dictionary().map(|values| Box::new(values.contents(kept)));
        Contents {
            field: self.field(),
            length: self.len(),
            offset: self.offset(),
            null_count: self.0.null_count,
            buffers,
            children,
            dictionary,
            is_valid: self.0.data.is_valid(),
        }
    }

    /// Whether no safe handle can write to any of the memory, now or later.
    pub(super) fn is_frozen(&self) -> bool {
        self.0.data.is_frozen()
            || self.0.buffers.iter().all(Buffer::is_exclusive) && self.nested().all(Self::is_frozen)
    }

    /// Whether the data of all is known to be valid.
    pub(super) fn is_known_valid(&self) -> bool {
        self.0.data.is_valid() && self.nested().all(Self::is_known_valid)
    }

    /// The children, and the dictionary.
    pub(super) fn nested(&self) -> impl Iterator<Item = &Self> {
        self.0.children.iter().chain(self.dictionary())
    }
}

impl ForeignStruct<ArrowArray> {
    /// The array for an import, which relies on its offsets and indices. usmq vouches for the data of its own exports,
    /// which arrays may write to; the producer of another array vouches for that.
    pub(super) fn settled(self) -> Result<Self> {
        if self.inner.is_released() {
            return Err(self.about.released());
        }
        let Some(own) = exported(&self.inner).filter(|_| !self.about.is_valid) else { return Ok(self) };
        self.about.describing(&self.inner)?;
        let (settled, field) = (own.settled()?, self.about.field.clone());
        let is_valid = field.as_ref() == Some(own.field());
        let about = About { field, is_frozen: settled.is_frozen(), is_valid };
        Ok(Self { inner: settled.export_host()?, about })
    }
}
