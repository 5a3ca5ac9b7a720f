//! Selects the values of a column and the rows of a table by a mask, on the device.
//!
//! The host reads one number for the mask, and one for each text or list column: the size of the result.

use super::buffer_source::Buffer;
use super::column::{Column, Data, Node};
use super::filter_kernels::{Arg, Items, LANES, launch};
use super::layout::Layout;
use super::table::Table;
use crate::array::{Array, DType, Index};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::refuse;
use crate::trace::{Reason, with_default_reason};

impl Column {
    /// Returns the values where `mask`, a column of booleans of the same length, is true and not null. Kernels select
    /// them on the queue of the column. Returns before they are complete, after waits for the sizes of the result.
    ///
    /// ```
    /// use usmq::{Array, interop::arrow::Column};
    ///
    /// let column = Column::from_array("x", &Array::from_slice(&[1i32, 2, 3])?)?;
    /// let mask = Column::from_parts("mask", &Array::from_slice(&[true, false, true])?, None, None, None)?;
    /// assert_eq!(column.filter(&mask)?.values()?.to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] for a mask of another type, [`Error::Value`] for one of another length, [`Error::Placement`] for
    /// one on another queue, [`Error::Allocation`] when memory is short.
    pub fn filter(&self, mask: &Self) -> Result<Self> {
        check(mask, self.len(), self.queue(), self)?;
        let _why = with_default_reason(Reason::Explicit);
        Rows::of_mask(mask)?.take(self)
    }
}

impl Table {
    /// Returns the rows where `mask`, a column of booleans of the same length, is true and not null; as
    /// [`Column::filter`]. The number of batches stays.
    ///
    /// ```
    /// use usmq::{Array, interop::arrow::{Column, Table}};
    ///
    /// let table = Table::new(vec![Column::from_array("x", &Array::from_slice(&[1i32, 2, 3])?)?])?;
    /// let mask = Column::from_parts("mask", &Array::from_slice(&[false, true, true])?, None, None, None)?;
    /// assert_eq!(table.filter(&mask)?.column("x")?.values()?.to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn filter(&self, mask: &Column) -> Result<Self> {
        check(mask, self.num_rows(), self.queue(), self)?;
        let _why = with_default_reason(Reason::Explicit);
        let mut start = 0;
        let batches = self.batches().iter().map(|batch| {
            let part = mask.slice(start, batch.len())?;
            start += batch.len();
            Rows::of_mask(&part)?.take(batch)
        });
        let batches = batches.collect::<Result<_>>()?;
        Ok(self.with_batches(batches))
    }
}

fn check(mask: &Column, length: usize, queue: &Queue, of: &dyn std::fmt::Display) -> Result<()> {
    if mask.layout() != Layout::Bits {
        let found = mask.field().type_name();
        let message = format!("a mask must be a column of bool, not {mask}; cast its values to bool");
        return Err(Error::type_mismatch(DType::Bool, found, message));
    }
    if mask.len() != length {
        let message = format!("a mask for {of} must have {length} values, not {}", mask.len());
        return Err(Error::value(message));
    }
    refuse(|| "a selection by a mask".to_owned())?;
    if mask.queue() != queue {
        let (own, other) = (queue.to_string(), mask.queue().to_string());
        let message = format!("{of} is on {own}, but the mask on {other}; collocate them first");
        return Err(Error::placement(message, vec![own, other], None));
    }
    Ok(())
}

/// The numbers of the selected values of a column, in their order.
struct Rows {
    numbers: Array,
}

impl Rows {
    fn of_mask(mask: &Column) -> Result<Self> {
        let (bits, first) = (mask.values()?, mask.bit_offset());
        // Without nulls, the bits also say which values are known.
        let known = mask.validity()?.unwrap_or_else(|| bits.clone());
        let (rows, queue) = (mask.len(), mask.queue());
        let words = Array::uninit([rows.div_ceil(64)], DType::U64, UsmKind::Device, queue)?;
        if rows > 0 {
            let args = [Arg::Read(&bits), Arg::Read(&known), Arg::number(first), Arg::number(rows)];
            launch(queue, "usmq_filter_mask", Items::Each(words.size()), &args, &[&words])?;
        }
        let lanes = lanes(words.size());
        let counts = Array::uninit([lanes + 1], DType::U64, UsmKind::Device, queue)?;
        let all = [Arg::Read(&words), Arg::number(words.size()), Arg::number(lanes)];
        launch(queue, "usmq_filter_count", Items::Lanes(lanes), &all, &[&counts])?;
        let total = scanned(&counts, lanes)?;
        let numbers = Array::uninit([total], DType::U64, UsmKind::Device, queue)?;
        if total > 0 {
            let args = [&all[..], &[Arg::Read(&counts)]].concat();
            launch(queue, "usmq_filter_rows", Items::Lanes(lanes), &args, &[&numbers])?;
        }
        Ok(Self { numbers })
    }

    fn len(&self) -> usize {
        self.numbers.size()
    }

    /// The values of these numbers, which are less than the column's length.
    fn take(&self, column: &Column) -> Result<Column> {
        if self.len() > 0 && column.is_empty() {
            return Err(Error::interop(format!("{column} has no values, but others refer to them")));
        }
        let mut buffers = Vec::new();
        if column.layout().has_validity() {
            let validity = column.validity()?.map(|bits| self.bits(column, &bits)).transpose()?;
            buffers.push(validity.map_or(Buffer::Absent, held));
        }
        let mut is_new = true;
        let mut children = Vec::new();
        match column.layout() {
            Layout::Null => {}
            Layout::Bits => buffers.push(held(self.bits(column, &column.values()?)?)),
            Layout::Fixed(_) => buffers.push(held(self.gather(&column.values()?)?)),
            Layout::Views => {
                buffers.push(held(self.gather(&column.values()?)?));
                // The views point into these.
                buffers.extend(column.0.buffers.iter().skip(2).cloned());
                is_new = column.0.data.is_frozen();
            }
            Layout::Bytes { .. } => {
                let text = column.values()?;
                let Ranges { offsets, total, taken } = self.ranges(&column.offsets()?, text.size())?;
                let target = new(total, DType::U8, column)?;
                let name = sized("usmq_filter_text", &offsets);
                let args = [&offsets, &taken, &self.numbers, &text].map(Arg::Read);
                // On a CPU in sequence, elsewhere one work-item for each text.
                let in_sequence = column.queue().device().computes_in_waiting_threads();
                let (lanes, items) = match in_sequence {
                    true => (lanes(self.len()), Items::Lanes(lanes(self.len()))),
                    false => (self.len(), Items::Each(self.len())),
                };
                let size = [self.len(), text.size(), lanes].map(Arg::number);
                if total > 0 {
                    launch(column.queue(), &name, items, &[&args[..], &size].concat(), &[&target])?;
                }
                buffers.extend([held(taken), held(target)]);
            }
            Layout::List { .. } => {
                let child = &column.0.children[0];
                let Ranges { offsets, total, taken } = self.ranges(&column.offsets()?, child.len())?;
                let numbers = new(total, DType::U64, column)?;
                let name = sized("usmq_filter_items", &offsets);
                let args = [&offsets, &taken, &self.numbers].map(Arg::Read);
                let size = [Arg::number(self.len()), Arg::number(child.len())];
                if total > 0 {
                    launch(
                        column.queue(),
                        &name,
                        Items::Each(self.len()),
                        &[&args[..], &size].concat(),
                        &[&numbers],
                    )?;
                }
                children.push(Self { numbers }.take(child)?);
                buffers.push(held(taken));
            }
            Layout::ListView { .. } => {
                buffers.push(held(self.gather(&column.offsets()?)?));
                buffers.push(held(self.gather(&column.sizes()?)?));
                children.clone_from(&column.0.children);
            }
            Layout::FixedList(width) => {
                let numbers = new(self.len() * width, DType::U64, column)?;
                if numbers.size() > 0 {
                    let args = [Arg::Read(&self.numbers), Arg::number(numbers.size()), Arg::number(width)];
                    launch(
                        column.queue(),
                        "usmq_filter_fixed",
                        Items::Each(numbers.size()),
                        &args,
                        &[&numbers],
                    )?;
                }
                let child = &column.children()[0];
                children.push(Self { numbers }.take(child)?);
            }
            Layout::Struct => {
                for child in column.children() {
                    children.push(self.take(&child)?);
                }
            }
            Layout::Union { dense, .. } => {
                buffers.push(held(self.gather(&column.type_ids()?)?));
                if dense {
                    buffers.push(held(self.gather(&column.offsets()?)?));
                    children.clone_from(&column.0.children);
                } else {
                    for child in column.children() {
                        children.push(self.take(&child)?);
                    }
                }
            }
            Layout::RunEnds => children = self.runs(column)?,
        }
        Ok(Column::from_node(Node {
            field: column.field().clone(),
            length: self.len(),
            offset: 0,
            null_count: match column.layout() {
                Layout::Null => Some(self.len()),
                _ => column.0.null_count.filter(|count| *count == 0).or((self.len() == 0).then_some(0)),
            },
            buffers: buffers.into(),
            children,
            dictionary: column.dictionary().cloned(),
            queue: column.queue().clone(),
            data: Data::frozen_if(is_new, column.0.data.is_valid()),
        }))
    }

    /// The elements of these numbers along the first axis.
    fn gather(&self, source: &Array) -> Result<Array> {
        let width = source.shape().get(1).copied().unwrap_or(1);
        let shape = [self.len(), width];
        let shape = if source.ndim() == 1 { &shape[..1] } else { &shape };
        let target = Array::uninit(shape, source.dtype(), source.kind_of_copies(), source.queue())?;
        let items = target.size();
        if items > 0 {
            let args = [Arg::Read(source), Arg::Read(&self.numbers), Arg::number(items), Arg::number(width)];
            launch(source.queue(), gather_of(source.dtype())?, Items::Each(items), &args, &[&target])?;
        }
        Ok(target)
    }

    /// The bits of these numbers in a bitmap of the column, from its bit offset on.
    fn bits(&self, column: &Column, bitmap: &Array) -> Result<Array> {
        let target = new(self.len().div_ceil(8), DType::U8, column)?;
        if target.size() > 0 {
            let (first, count) = (Arg::number(column.bit_offset()), Arg::number(self.len()));
            let args = [Arg::Read(bitmap), Arg::Read(&self.numbers), first, count];
            launch(column.queue(), "usmq_filter_bits", Items::Each(target.size()), &args, &[&target])?;
        }
        Ok(target)
    }

    /// The ranges of these numbers, moved together. Offsets beyond `limit` count as `limit`: those of other libraries
    /// may be wrong.
    fn ranges(&self, offsets: &Array, limit: usize) -> Result<Ranges> {
        let (queue, lanes) = (offsets.queue(), lanes(self.len()));
        let sums = Array::uninit([lanes + 1], DType::U64, UsmKind::Device, queue)?;
        let taken = Array::uninit([self.len() + 1], offsets.dtype(), offsets.kind_of_copies(), queue)?;
        let size = [Arg::number(self.len()), Arg::number(lanes), Arg::number(limit)];
        let args = [&[Arg::Read(offsets), Arg::Read(&self.numbers)], &size[..]].concat();
        launch(queue, &sized("usmq_filter_lengths", offsets), Items::Lanes(lanes), &args, &[&sums])?;
        let total = scanned(&sums, lanes)?;
        if offsets.dtype() == DType::I32 && i32::try_from(total).is_err() {
            return Err(Error::interop(format!(
                "the offsets of a column are not valid: the selected values have {total} bytes or items"
            )));
        }
        let args = [&args[..], &[Arg::Read(&sums)]].concat();
        launch(queue, &sized("usmq_filter_offsets", offsets), Items::Lanes(lanes), &args, &[&taken])?;
        Ok(Ranges { offsets: offsets.clone(), total, taken })
    }

    /// The children of a run-end encoded column in which each selected value is a run.
    fn runs(&self, column: &Column) -> Result<Vec<Column>> {
        let [ends, values] = &column.0.children[..] else {
            return Err(Error::interop(format!("{column} does not have run ends and values")));
        };
        let numbers = new(self.len(), DType::U64, column)?;
        let own = ends.values()?;
        let taken = new(self.len(), own.dtype(), column)?;
        let runs = ends.len().min(values.len());
        if self.len() > 0 && runs == 0 {
            return Err(Error::interop(format!("{column} has values, but no runs")));
        }
        if self.len() > 0 {
            let size = [Arg::number(self.len()), Arg::number(runs), Arg::number(column.offset())];
            let args = [&[Arg::Read(&own), Arg::Read(&self.numbers)], &size[..]].concat();
            let name = sized("usmq_filter_runs", &own);
            launch(column.queue(), &name, Items::Each(self.len()), &args, &[&numbers, &taken])?;
        }
        let mut node = (*ends.0).clone();
        (node.length, node.offset) = (self.len(), 0);
        node.buffers[1] = held(taken);
        node.data = Data::frozen(ends.0.data.is_valid());
        Ok(vec![Column::from_node(node), Self { numbers }.take(values)?])
    }
}

/// The ranges of selected texts or lists.
struct Ranges {
    /// Of the source.
    offsets: Array,
    /// The bytes or items of all selected ranges.
    total: usize,
    /// Of the result.
    taken: Array,
}

/// The number of work-items that go through rows in sequence.
fn lanes(rows: usize) -> usize {
    rows.clamp(1, LANES)
}

/// Turns counts into the sums of those before; returns the sum of all. Waits for it.
fn scanned(counts: &Array, lanes: usize) -> Result<usize> {
    launch(counts.queue(), "usmq_filter_scan", Items::Lanes(1), &[Arg::number(lanes)], &[counts])?;
    Ok(counts.index(&[Index::At(-1)])?.to_vec::<u64>()?[0] as usize)
}

/// A new array in memory as that of the column.
fn new(size: usize, dtype: DType, column: &Column) -> Result<Array> {
    let kind = column.held().first().map_or(UsmKind::Device, Array::kind_of_copies);
    Array::uninit([size], dtype, kind, column.queue())
}

fn held(array: Array) -> Buffer {
    match array.as_bytes() {
        Ok(bytes) if bytes.size() > 0 => Buffer::Held(bytes.as_readonly()),
        _ => Buffer::Absent,
    }
}

/// The kernel for elements as wide as this type.
fn gather_of(dtype: DType) -> Result<&'static str> {
    match dtype.itemsize() {
        1 => Ok("usmq_filter_gather1"),
        2 => Ok("usmq_filter_gather2"),
        4 => Ok("usmq_filter_gather4"),
        8 => Ok("usmq_filter_gather8"),
        other => Err(Error::interop(format!("cannot select values of {other} bytes each"))),
    }
}

/// The kernel for offsets or run ends of this type.
fn sized(name: &str, offsets: &Array) -> String {
    format!("{name}{}", offsets.dtype().itemsize())
}
