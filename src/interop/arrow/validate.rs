//! Checks that the structs of an array are consistent and fit its field. usmq trusts everything that these
//! checks do not cover.

use super::abi::ArrowArray;
use super::buffer_source::BufferSource;
use super::layout::{Layout, Part};
use super::schema::{Field, pointers};
use crate::error::{Error, Result};
use std::fmt::{Display, Write as _};
use std::slice;

/// Arrays with as many values are beyond the address space.
const MOST_VALUES: usize = isize::MAX as usize / 256;

/// An array's numbers and pointers after the checks.
pub(super) struct Checked<'a> {
    pub(super) length: usize,
    pub(super) offset: usize,
    pub(super) null_count: Option<usize>,
    pub(super) buffers: &'a [usize],
    pub(super) children: Vec<&'a ArrowArray>,
    pub(super) dictionary: Option<&'a ArrowArray>,
}

pub(super) fn broken(field: &Field, what: impl Display) -> Error {
    Error::interop(format!(
        "the ArrowArray {:?} of type {} is not valid: {what}",
        field.name(),
        field.type_name()
    ))
}

/// The sum of the lengths of batches, which may be claims without memory. An error if no array can have as many values.
pub(super) fn check_rows(lengths: impl Iterator<Item = usize>) -> Result<usize> {
    let rows = lengths.fold(0, usize::saturating_add);
    if rows < MOST_VALUES {
        return Ok(rows);
    }
    Err(Error::interop(format!("the batches have {rows} rows or more, which is beyond the address space")))
}

/// Adds the number of the batch to an error, counted from 1.
pub(super) fn in_batch(error: Error, number: usize) -> Error {
    match error {
        Error::Interop { message: why, .. } => {
            Error::interop(format!("batch {} of the stream: {why}", number + 1))
        }
        other => other,
    }
}

/// # Safety
/// The struct's pointers are null or valid by the interface.
pub(super) unsafe fn check<'a>(field: &Field, array: &'a ArrowArray) -> Result<Checked<'a>> {
    let wrong = |what: &dyn Display| broken(field, what);
    if array.is_released() {
        return Err(wrong(&"it is released"));
    }
    let number = |value: i64, what: &str| {
        usize::try_from(value).map_err(|_| wrong(&format_args!("its {what} is {value}")))
    };
    let (length, offset) = (number(array.length, "length")?, number(array.offset, "offset")?);
    let end = length.checked_add(offset).filter(|end| *end < MOST_VALUES);
    let Some(end) = end else {
        return Err(wrong(&format_args!("length {length} and offset {offset} are beyond the address space")));
    };
    let null_count = match array.null_count {
        -1 => None,
        count => Some(number(count, "null count")?),
    };
    if null_count.is_some_and(|count| count > length) {
        return Err(wrong(&format_args!("{} of {length} values are null", array.null_count)));
    }
    // SAFETY: the caller's promise.
    let buffers = unsafe { buffers(field, array) }?;
    check_sizes(field, buffers, end, null_count)?;
    // SAFETY: as above.
    let children = unsafe { pointers(array.children, array.n_children, "children") }?;
    if children.len() != field.children().len() {
        return Err(wrong(&format_args!(
            "it has {} children, not {}",
            children.len(),
            field.children().len()
        )));
    }
    if children.iter().any(|child| child.is_null()) {
        return Err(wrong(&"a child is null"));
    }
    // SAFETY: as above, and none is null.
    let children: Vec<&ArrowArray> = children.iter().map(|child| unsafe { &**child }).collect();
    // SAFETY: as above.
    let dictionary = unsafe { array.dictionary.as_ref() };
    if dictionary.is_some() != field.dictionary().is_some() {
        let which = if dictionary.is_some() { "a dictionary" } else { "no dictionary" };
        return Err(wrong(&format_args!("it has {which}, unlike its schema")));
    }
    check_children(field, &children, end)?;
    // Without a bitmap no value is null; if the layout has no bitmap, nulls belong to the children, or all
    // values are null.
    let bitmap = buffers.first().is_some_and(|pointer| *pointer != 0);
    let null_count = match field.layout {
        Layout::Null => Some(length),
        layout if !layout.has_validity() || !bitmap => Some(0),
        _ => null_count,
    };
    Ok(Checked { length, offset, null_count, buffers, children, dictionary })
}

/// # Safety
/// As [`check`].
unsafe fn buffers<'a>(field: &Field, array: &'a ArrowArray) -> Result<&'a [usize]> {
    let wrong = |what: &dyn Display| broken(field, what);
    let parts = field.layout.parts().len();
    let count = usize::try_from(array.n_buffers).unwrap_or(usize::MAX);
    let fits = match field.layout {
        // Views have any number of data buffers after their parts, and one with their sizes.
        Layout::Views => (parts + 1..1 << 20).contains(&count),
        // polars counts a validity bitmap, which is null.
        Layout::Null => count <= 1,
        _ => count == parts,
    };
    if !fits {
        return Err(wrong(&format_args!("it has {} buffers, not {parts}", array.n_buffers)));
    }
    if count == 0 || field.layout == Layout::Null {
        return Ok(&[]);
    }
    if array.buffers.is_null() {
        return Err(wrong(&"its list of buffers is null"));
    }
    // SAFETY: the caller's promise; a pointer and an address are of one size.
    Ok(unsafe { slice::from_raw_parts(array.buffers.cast::<usize>(), count) })
}

fn check_sizes(field: &Field, buffers: &[usize], end: usize, null_count: Option<usize>) -> Result<()> {
    for (number, (part, pointer)) in field.layout.parts().iter().zip(buffers).enumerate() {
        let bytes = field.layout.bytes(*part, end);
        let may_be_null = match part {
            Part::Validity => null_count.unwrap_or(0) == 0,
            // An array without values may also lack offsets.
            Part::Offsets(_) => end == 0,
            Part::Tail => true,
            _ => bytes == Some(0),
        };
        if bytes.is_none() && *part != Part::Tail {
            return Err(broken(field, format_args!("{end} values are beyond the address space")));
        }
        if *pointer == 0 && !may_be_null {
            return Err(broken(field, format_args!("buffer {number} is null")));
        }
    }
    Ok(())
}

fn check_children(field: &Field, children: &[&ArrowArray], end: usize) -> Result<()> {
    let needed = match field.layout {
        Layout::Struct | Layout::Union { dense: false, .. } => end,
        Layout::FixedList(width) => end.saturating_mul(width),
        Layout::RunEnds => {
            let [ends, values] = children else { return Ok(()) };
            if ends.length != values.length || ends.null_count > 0 {
                return Err(broken(field, "the numbers of its run ends and values differ"));
            }
            return Ok(());
        }
        _ => 0,
    };
    for child in children {
        // Check a released child too: the needed count may exceed any valid length.
        if usize::try_from(child.length).is_ok_and(|length| length < needed) {
            return Err(broken(field, format_args!("a child has {} of {needed} values", child.length)));
        }
    }
    Ok(())
}

/// The range defined by offsets in host memory.
pub(super) struct Extent {
    /// The end of the last value.
    pub(super) end: usize,
}

/// Reads offsets if the host can: none may be negative, less than the previous one, or beyond `most`.
///
/// # Safety
/// The producer has the offsets at `pointer`.
pub(super) unsafe fn offsets<S: BufferSource>(
    source: &S,
    field: &Field,
    (pointer, width): (usize, usize),
    (first, count): (usize, usize),
    most: usize,
) -> Result<Option<Extent>> {
    let start = pointer + first * width;
    let end = if width == 4 {
        // SAFETY: the caller's promise.
        unsafe { source.look::<i32>(start, count) }?.map(rising)
    } else {
        // SAFETY: as above.
        unsafe { source.look::<i64>(start, count) }?.map(rising)
    };
    match end {
        None => Ok(None),
        Some(Some(end)) if end <= most => Ok(Some(Extent { end })),
        Some(_) => Err(broken(field, format_args!("its offsets decrease, or leave 0..{most}"))),
    }
}

/// The last of non-decreasing numbers that start at 0 or above.
fn rising<T: Copy + PartialOrd + Default + TryInto<usize>>(numbers: &[T]) -> Option<usize> {
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let rise = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    if first >= T::default() && rise { last.try_into().ok() } else { None }
}

impl Field {
    /// Whether arrays of `other` have this field's type, apart from names, flags and metadata.
    pub(super) fn same_type(&self, other: &Self) -> bool {
        let dictionaries = match (&self.dictionary, &other.dictionary) {
            (Some(own), Some(others)) => own.same_type(others),
            (None, None) => true,
            _ => false,
        };
        dictionaries
            && self.format == other.format
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(own, others)| own.same_type(others))
    }

    /// The first difference from a field that is not of the [`same_type`](Self::same_type), as `"b": "g", not
    /// "i"`.
    pub(super) fn difference(&self, other: &Self) -> String {
        let mut path = String::new();
        let (mut own, mut others) = (self, other);
        loop {
            if own.format != others.format {
                return format!("{path}{:?}, not {:?}", others.format, own.format);
            }
            if own.children.len() != others.children.len() {
                return format!("{path}{}", own.other_children(others));
            }
            let (dictionary, others_dictionary) = (&own.dictionary, &others.dictionary);
            if dictionary.is_some() != others_dictionary.is_some() {
                let what = |dictionary: &Option<_>| if dictionary.is_some() { "with" } else { "without" };
                return format!(
                    "{path}{} a dictionary, not {} one",
                    what(others_dictionary),
                    what(dictionary)
                );
            }
            let children = own.children.iter().zip(&others.children);
            let differs =
                children.chain(dictionary.iter().zip(others_dictionary)).find(|(a, b)| !a.same_type(b));
            let Some((next, others_next)) = differs else { return format!("{path}{:?}", others.format) };
            (own, others) = (next, others_next);
            let _ = write!(path, "{:?}: ", own.name);
        }
    }

    fn other_children(&self, other: &Self) -> String {
        let names = |field: &Self| format!("{:?}", field.child_names().collect::<Vec<_>>());
        format!("{:?} of {}, not of {}", self.format, names(other), names(self))
    }

    fn child_names(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(|child| &*child.name)
    }

    /// The first difference in the names of a struct's fields, in the words of [`difference`](Self::difference). Other
    /// names, as that of the items of a list, have no meaning.
    pub(super) fn other_names(&self, other: &Self) -> Option<String> {
        if self.format != other.format {
            return None;
        }
        if self.format == "+s" && self.child_names().ne(other.child_names()) {
            return Some(self.other_children(other));
        }
        self.children.iter().zip(&other.children).find_map(|(own, others)| {
            own.other_names(others).map(|difference| format!("{:?}: {difference}", own.name))
        })
    }
}
