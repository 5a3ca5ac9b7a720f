//! Checks that the numbers in host buffers point inside their targets: list views, unions, run ends, views of
//! text.

use super::buffer_source::BufferSource;
use super::layout::Layout;
use super::schema::Field;
use super::validate::{Checked, broken};
use crate::error::Result;

/// One view of text: its length, and either the text or its location.
type BinaryView = [i32; 4];

/// Views up to this length contain the text.
pub(super) const INLINE: i32 = 12;

/// Reads the numbers if the host can.
///
/// # Safety
/// The buffers are valid by the interface.
pub(super) unsafe fn check_contents<S: BufferSource>(
    field: &Field,
    checked: &Checked<'_>,
    source: &S,
) -> Result<()> {
    if checked.length == 0 {
        return Ok(());
    }
    let sound = match field.layout {
        // SAFETY: the caller's promise, here and below.
        Layout::ListView { large: false } => unsafe { list_views::<i32, S>(checked, source) }?,
        // SAFETY: as above.
        Layout::ListView { large: true } => unsafe { list_views::<i64, S>(checked, source) }?,
        // SAFETY: as above.
        Layout::Union { dense, .. } => unsafe { union(field, checked, source, dense) }?,
        // SAFETY: as above.
        Layout::RunEnds => unsafe { run_ends(field, checked, source) }?,
        // SAFETY: as above.
        Layout::Views => unsafe { views(checked, source) }?,
        _ => true,
    };
    if sound { Ok(()) } else { Err(broken(field, "its values point outside its children or buffers")) }
}

fn length(checked: &Checked<'_>, child: usize) -> i64 {
    checked.children.get(child).map_or(0, |child| child.length)
}

/// Values of a buffer from the array's offset on; `None` if the host cannot read them.
///
/// # Safety
/// As [`check_contents`].
unsafe fn part<'a, T, S: BufferSource>(
    checked: &Checked<'_>,
    source: &'a S,
    buffer: usize,
) -> Result<Option<&'a [T]>> {
    let start = checked.buffers[buffer] + checked.offset * size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe { source.look::<T>(start, checked.length) }
}

/// # Safety
/// As [`check_contents`].
unsafe fn list_views<T: Copy + Into<i64>, S: BufferSource>(
    checked: &Checked<'_>,
    source: &S,
) -> Result<bool> {
    // SAFETY: the caller's promise.
    let offsets = unsafe { part::<T, S>(checked, source, 1) }?;
    // SAFETY: as above.
    let sizes = unsafe { part::<T, S>(checked, source, 2) }?;
    let (Some(offsets), Some(sizes)) = (offsets, sizes) else { return Ok(true) };
    let most = length(checked, 0);
    // SAFETY: as above.
    let is_null = unsafe { nulls(checked, source) }?;
    Ok(offsets.iter().zip(sizes).enumerate().all(|(row, (offset, size))| {
        let (offset, size): (i64, i64) = ((*offset).into(), (*size).into());
        let inside = offset >= 0 && size >= 0 && offset.checked_add(size).is_some_and(|end| end <= most);
        inside || is_null(row)
    }))
}

/// Tells which values are null. Those are undefined.
///
/// # Safety
/// As [`check_contents`].
unsafe fn nulls<'a, S: BufferSource>(
    checked: &Checked<'_>,
    source: &'a S,
) -> Result<impl Fn(usize) -> bool + use<'a, S>> {
    let offset = checked.offset;
    // SAFETY: the caller's promise: the bitmap has a bit for each value.
    let bitmap = unsafe { source.look::<u8>(checked.buffers[0], (offset + checked.length).div_ceil(8)) }?;
    Ok(move |row: usize| {
        bitmap.is_some_and(|bytes| bytes[(offset + row) / 8] >> ((offset + row) % 8) & 1 == 0)
    })
}

/// # Safety
/// As [`check_contents`].
unsafe fn union<S: BufferSource>(
    field: &Field,
    checked: &Checked<'_>,
    source: &S,
    dense: bool,
) -> Result<bool> {
    // SAFETY: the caller's promise.
    let Some(ids) = unsafe { part::<i8, S>(checked, source, 0) }? else { return Ok(true) };
    let mut children = [None; 128];
    for (child, id) in field.type_ids().enumerate() {
        children[usize::from(id)] = Some(length(checked, child));
    }
    let child = |id: i8| usize::try_from(id).ok().and_then(|id| children[id]);
    if !dense {
        return Ok(ids.iter().all(|id| child(*id).is_some()));
    }
    // SAFETY: as above.
    let Some(offsets) = unsafe { part::<i32, S>(checked, source, 1) }? else { return Ok(true) };
    let inside =
        |(id, offset): (&i8, &i32)| child(*id).is_some_and(|most| (0..most).contains(&i64::from(*offset)));
    Ok(ids.iter().zip(offsets).all(inside))
}

/// # Safety
/// As [`check_contents`].
unsafe fn run_ends<S: BufferSource>(field: &Field, checked: &Checked<'_>, source: &S) -> Result<bool> {
    let (Some(child), Some(ends)) = (field.children().first(), checked.children.first()) else {
        return Ok(false);
    };
    let (Ok(length), Ok(offset)) = (usize::try_from(ends.length), usize::try_from(ends.offset)) else {
        return Ok(false);
    };
    let end = (checked.offset + checked.length) as i64;
    // SAFETY: the caller's promise; the child itself is checked when it is imported.
    let Some(buffers) = (unsafe { super::validate::check(child, ends) }).ok().map(|ends| ends.buffers) else {
        return Ok(false);
    };
    let Some(pointer) = buffers.get(1) else { return Ok(false) };
    match child.format() {
        // SAFETY: as above.
        "s" => unsafe { rising::<i16, S>(source, pointer + 2 * offset, length, end) },
        // SAFETY: as above.
        "i" => unsafe { rising::<i32, S>(source, pointer + 4 * offset, length, end) },
        // SAFETY: as above.
        "l" => unsafe { rising::<i64, S>(source, pointer + 8 * offset, length, end) },
        _ => Ok(false),
    }
}

/// Whether run ends rise from above 0 to at least `end`.
///
/// # Safety
/// As [`check_contents`].
unsafe fn rising<T: Copy + Into<i64>, S: BufferSource>(
    source: &S,
    pointer: usize,
    count: usize,
    end: i64,
) -> Result<bool> {
    // SAFETY: the caller's promise.
    let Some(ends) = unsafe { source.look::<T>(pointer, count) }? else { return Ok(count > 0) };
    let mut before = 0;
    let rise = ends.iter().all(|end| std::mem::replace(&mut before, (*end).into()) < (*end).into());
    Ok(rise && before >= end)
}

/// # Safety
/// As [`check_contents`].
unsafe fn views<S: BufferSource>(checked: &Checked<'_>, source: &S) -> Result<bool> {
    // SAFETY: the caller's promise.
    let Some(views) = unsafe { part::<BinaryView, S>(checked, source, 1) }? else { return Ok(true) };
    let Some((sizes, data)) = checked.buffers[2..].split_last() else { return Ok(false) };
    // SAFETY: as above.
    let sizes = unsafe { source.look::<i64>(*sizes, data.len()) }?.unwrap_or(&[]);
    // SAFETY: as above.
    let is_null = unsafe { nulls(checked, source) }?;
    Ok(views.iter().enumerate().all(|(row, [length, _, buffer, offset])| {
        let inside = || {
            let size = usize::try_from(*buffer).ok().and_then(|buffer| sizes.get(buffer));
            size.is_some_and(|size| *offset >= 0 && i64::from(*offset) + i64::from(*length) <= *size)
        };
        is_null(row) || (*length >= 0 && (*length <= INLINE || inside()))
    }))
}
