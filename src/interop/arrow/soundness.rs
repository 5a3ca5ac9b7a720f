//! Checks whether a column may be read through Rust slices: no handle writes to its memory, and its data is
//! valid.

use super::buffer_source::Buffer;
use super::column::{Column, Node};
use super::layout::Layout;
use super::validate_full::Contents;
use crate::array::Array;
use crate::error::Result;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Buffer {
    /// Whether this is the only handle to memory of a usmq pool. It is read-only, so no writable handle can
    /// be created from it. Another library's memory may have other handles, usmq arrays among them.
    pub(super) fn is_exclusive(&self) -> bool {
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

impl Node {
    pub(super) fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Relaxed)
    }
}

impl Column {
    /// Reads all values on the host and checks the rules of the Arrow format: text is UTF-8, offsets, views,
    /// union and dictionary indices point inside, null counts are right, fields that are not nullable have no
    /// nulls.
    ///
    /// Columns of other libraries are checked once, on conversion to arrow-rs or pyarrow; this function
    /// checks immediately. Data from usmq or arrow-rs is known to be valid.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) with the first value that breaks a rule;
    /// [`Error::Allocation`](crate::Error::Allocation) when device memory must be copied and memory is short;
    /// [`Error::Sycl`](crate::Error::Sycl) with what the work reported.
    pub fn validate_full(&self) -> Result<()> {
        if self.is_known_valid() {
            return Ok(());
        }
        let host = self.to_host()?;
        host.wait_for_writes()?;
        let mut kept = Vec::new();
        host.keep_arrays(&mut kept, false)?;
        host.contents(&mut kept.iter()).validate()?;
        self.note_valid();
        Ok(())
    }

    fn note_valid(&self) {
        self.0.is_valid.store(true, Ordering::Relaxed);
        self.nested().for_each(Self::note_valid);
    }

    /// Collects the buffers of this column and its nested columns, in the order of
    /// [`contents`](Self::contents). Plain numbers are always valid, and may be written meanwhile: they are
    /// omitted, unless they are `run_ends`.
    fn keep_arrays(&self, kept: &mut Vec<Option<Array>>, run_ends: bool) -> Result<()> {
        let plain = matches!(self.layout(), Layout::Fixed(_) | Layout::Bits) && self.dictionary().is_none();
        for number in 0..self.0.buffers.len() {
            kept.push(if plain && !run_ends && number == 1 { None } else { self.buffer(number)? });
        }
        let runs = self.layout() == Layout::RunEnds;
        self.nested()
            .enumerate()
            .try_for_each(|(number, nested)| nested.keep_arrays(kept, runs && number == 0))
    }

    fn contents<'a>(&'a self, kept: &mut slice::Iter<'a, Option<Array>>) -> Contents<'a> {
        let buffers = (0..self.0.buffers.len()).map(|_| {
            let array = kept.next()?.as_ref()?;
            // SAFETY: the host can read the memory, as `to_host` ensures, and it lives as long as the array;
            // nothing writes to buffers other than plain numbers.
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
            is_valid: self.0.is_valid(),
        }
    }

    /// Whether no safe handle can write to any of the memory, now or later.
    pub(super) fn is_frozen(&self) -> bool {
        (self.0.is_frozen || self.0.buffers.iter().all(Buffer::is_exclusive))
            && self.nested().all(Self::is_frozen)
    }

    /// Whether the data of all is known to be valid.
    pub(super) fn is_known_valid(&self) -> bool {
        self.0.is_valid() && self.nested().all(Self::is_known_valid)
    }

    /// The children, and the dictionary.
    pub(super) fn nested(&self) -> impl Iterator<Item = &Self> {
        self.0.children.iter().chain(self.dictionary())
    }
}
