//! Joins batches of plain numbers without nulls while it copies them to USM: each batch is copied once, to its place.

use super::abi::ArrowArray;
use super::buffer_source::{Buffer, HostSource};
use super::column::{Column, Data, Node};
use super::foreign::ForeignStruct;
use super::import::{ImportOptions, SharedArray};
use super::layout::Layout;
use super::schema::Field;
use super::validate::{check, check_rows};
use crate::device::UsmKind;
use crate::error::Result;
use crate::manager::current_queue;
use smallvec::smallvec;
use std::sync::Arc;

/// The memory of one column without children in each batch: address and bytes.
type Parts = Vec<(usize, usize)>;

/// The column of all batches, or the batches if not all are structs and numbers without nulls.
pub(super) enum Joined {
    Column(Column),
    Other(Vec<ForeignStruct<ArrowArray>>),
}

/// Joins and copies the batches of a stream, which may be of several columns. Returns before the copies are complete.
pub(super) fn join_plain(
    field: &Arc<Field>,
    batches: Vec<ForeignStruct<ArrowArray>>,
    placed: ImportOptions<'_>,
) -> Result<Joined> {
    let mut leaves = Vec::new();
    if !is_plain(field) {
        return Ok(Joined::Other(batches));
    }
    let numbers = placed.numbers(field)?;
    for batch in &batches {
        let rows = (0, usize::try_from(batch.inner.length).unwrap_or(0));
        let mut next = 0;
        // SAFETY: the creator of a `ForeignStruct` guarantees its pointers, and that the field describes it.
        if !unsafe { parts(field, &batch.inner, rows, Some(&numbers), &mut leaves, &mut next) } {
            return Ok(Joined::Other(batches));
        }
    }
    let length = check_rows(batches.iter().map(|batch| usize::try_from(batch.inner.length).unwrap_or(0)))?;
    let is_valid = batches.iter().all(|batch| batch.about.is_valid);
    let queue = placed.queue.cloned().map_or_else(current_queue, Ok)?;
    let mut source = HostSource::new(queue, placed.kind.unwrap_or(UsmKind::Device));
    let owners: Vec<_> = batches.into_iter().map(|batch| SharedArray::new(batch.inner)).collect();
    let mut leaves = leaves.into_iter();
    let result = column(&placed.field(field)?, length, is_valid, &mut leaves, &mut source);
    match result {
        Ok(column) => {
            source.finish(Box::new(owners));
            Ok(Joined::Column(column))
        }
        Err(error) => {
            source.abandon(Box::new(owners));
            Err(error)
        }
    }
}

/// Whether all data below is of fixed width.
fn is_plain(field: &Field) -> bool {
    match field.layout {
        Layout::Struct => field.children().iter().all(|child| is_plain(child)),
        Layout::Fixed(width) => width > 0 && field.dictionary.is_none(),
        _ => false,
    }
}

/// Adds the memory of these rows to the list of each column, from number `next` on. False for data with nulls, and for
/// arrays that are not valid.
///
/// # Safety
/// The array's pointers are valid by the interface.
unsafe fn parts(
    field: &Field,
    array: &ArrowArray,
    (first, count): (usize, usize),
    numbers: Option<&[usize]>,
    leaves: &mut Vec<Parts>,
    next: &mut usize,
) -> bool {
    // SAFETY: the caller's promise.
    let Ok(checked) = (unsafe { check(field, array) }) else { return false };
    let is_unknown = checked.buffers.first().is_none_or(|validity| *validity != 0);
    let has_nulls = checked.null_count.map_or(is_unknown, |count| count > 0);
    if has_nulls || first.checked_add(count).is_none_or(|end| end > checked.length) {
        return false;
    }
    let start = checked.offset + first;
    let Layout::Fixed(width) = field.layout else {
        let all: Vec<usize> = (0..field.children().len()).collect();
        return numbers.unwrap_or(&all).iter().all(|number| {
            let (child, field) = (checked.children[*number], &field.children()[*number]);
            // SAFETY: as above.
            unsafe { parts(field, child, (start, count), None, leaves, next) }
        });
    };
    let Some((skip, bytes)) = start.checked_mul(width).zip(count.checked_mul(width)) else { return false };
    let values = checked.buffers[1];
    if values == 0 && bytes > 0 {
        return false;
    }
    if leaves.len() <= *next {
        leaves.push(Parts::new());
    }
    leaves[*next].push((values + skip, bytes));
    *next += 1;
    true
}

fn column(
    field: &Arc<Field>,
    length: usize,
    is_valid: bool,
    leaves: &mut impl Iterator<Item = Parts>,
    source: &mut HostSource,
) -> Result<Column> {
    let mut buffers = smallvec![Buffer::Absent];
    let mut children = Vec::new();
    if field.layout == Layout::Struct {
        for child in field.children() {
            children.push(column(child, length, is_valid, leaves, source)?);
        }
    } else {
        buffers.push(source.joined(&leaves.next().unwrap_or_default())?);
    }
    Ok(Column::from_node(Node {
        field: field.clone(),
        length,
        offset: 0,
        null_count: Some(0),
        buffers,
        children,
        dictionary: None,
        queue: source.target().clone(),
        data: Data::frozen(is_valid),
    }))
}
