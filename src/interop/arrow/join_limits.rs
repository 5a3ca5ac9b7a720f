//! Checks that the values of several arrays fit into one array of their type, whose offsets and run ends have few bits.

use super::layout::Layout;
use super::schema::Field;
use crate::error::{Error, Result};
use arrow_array::{Array, ArrayRef, make_array};

/// An error with the name of the column, if the arrays, all of the type of `field`, do not fit. `path` names the field, as
/// `"row.key"`.
pub(super) fn check_fit(field: &Field, path: &str, parts: &[ArrayRef]) -> Result<()> {
    let values = || parts.iter().map(|part| span(part.as_ref(), false).1).sum();
    let (has, most, what) = match field.layout {
        // The values of a dictionary are joined apart.
        _ if field.dictionary().is_some() => return Ok(()),
        Layout::Bytes { large: false } => (values(), i32::MAX as usize, "bytes"),
        Layout::List { large: false } => (values(), i32::MAX as usize, "items"),
        Layout::ListView { large: false } | Layout::Union { dense: true, .. } => {
            let items = |part: &ArrayRef| part.to_data().child_data().iter().map(|child| child.len()).max();
            (parts.iter().filter_map(items).sum(), i32::MAX as usize, "items")
        }
        Layout::RunEnds => {
            let most = match field.children().first().map(|ends| ends.format()) {
                Some("s") => i16::MAX as usize,
                Some("i") => i32::MAX as usize,
                _ => usize::MAX,
            };
            (parts.iter().map(|part| part.len()).sum(), most, "rows")
        }
        _ => (0, usize::MAX, ""),
    };
    if has > most {
        return Err(too_many(field, path, has, most, what));
    }
    for (number, child) in field.children().iter().enumerate() {
        let below =
            if path.is_empty() { child.name().to_owned() } else { format!("{path}.{}", child.name()) };
        let nested = parts.iter().filter_map(|part| {
            let data = part.to_data();
            let child = data.child_data().get(number)?;
            let used = match field.layout {
                Layout::List { large } => {
                    let (first, length) = span(part.as_ref(), large);
                    child.slice(first, length)
                }
                _ => child.clone(),
            };
            Some(make_array(used))
        });
        check_fit(child, &below, &nested.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The first offset, and the distance to the last one.
fn span(array: &dyn Array, large: bool) -> (usize, usize) {
    let data = array.to_data();
    let Some(bytes) = data.buffers().first().filter(|_| !data.is_empty()) else { return (0, 0) };
    let (first, last) = (data.offset(), data.offset() + data.len());
    let offset = |row: usize| {
        if large { bytes.typed_data::<i64>()[row] as usize } else { bytes.typed_data::<i32>()[row] as usize }
    };
    (offset(first), offset(last) - offset(first))
}

fn too_many(field: &Field, path: &str, has: usize, most: usize, what: &str) -> Error {
    let wider = match field.format() {
        "u" => "cast it to large_string in its producer, or ",
        "z" => "cast it to large_binary in its producer, or ",
        "+l" => "cast it to large_list in its producer, or ",
        "+vl" => "cast it to large_list_view in its producer, or ",
        "+r" => "encode it with run ends of int64 in its producer, or ",
        _ => "",
    };
    Error::interop(format!(
        "column {path:?} is {}, and its chunks have {has} {what} together, more than the {most} that one array of this \
         type can hold; {wider}import its chunks one by one",
        field.type_name()
    ))
}
