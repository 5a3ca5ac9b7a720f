//! Fields: the type, name and metadata of an array, stored unchanged, so that export after import loses
//! nothing.

use super::abi::{ArrowSchema, FLAG_DICTIONARY_ORDERED, FLAG_NULLABLE, Heap};
use super::layout::Layout;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::ffi::{CStr, c_char};
use std::ptr;
use std::slice;
use std::sync::Arc;

/// The largest nesting depth of a field; deeper foreign schemas are refused as cycles. Functions over fields,
/// arrays and columns recurse, so this bounds their stack.
pub(super) const DEEPEST: usize = 64;
/// The largest number of nested fields. Children may be shared, so the number can double with each level.
pub(super) const MOST_FIELDS: usize = 1 << 20;

/// The type of a column: an Arrow format string, a name, metadata, and the fields of its children.
///
/// Source: Arrow columnar format, "The ArrowSchema structure".
///
/// ```
/// use usmq::{interop::arrow::{Field}};
///
/// let field = Field::new("weights", "f")?;
/// assert_eq!((field.name(), field.type_name()), ("weights", "float".to_owned()));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub(super) format: String,
    pub(super) name: String,
    /// In the encoding of the interface; includes extension types.
    pub(super) metadata: Option<Box<[u8]>>,
    pub(super) flags: i64,
    pub(super) children: Vec<Arc<Field>>,
    pub(super) dictionary: Option<Arc<Field>>,
    pub(super) layout: Layout,
    pub(super) extent: Extent,
}

/// The size of a field's tree, computed from its children without a traversal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Levels below the field.
    depth: usize,
    /// Fields, itself included.
    fields: usize,
}

impl Extent {
    fn above<'a>(nested: impl Iterator<Item = &'a Arc<Field>>) -> Self {
        nested.fold(Self { depth: 0, fields: 1 }, |all, field| Self {
            depth: all.depth.max(field.extent.depth + 1),
            fields: all.fields.saturating_add(field.extent.fields),
        })
    }
}

/// The parts of a field.
pub(super) struct Parts {
    pub(super) format: String,
    pub(super) name: String,
    pub(super) metadata: Option<Box<[u8]>>,
    pub(super) flags: i64,
    pub(super) children: Vec<Arc<Field>>,
    pub(super) dictionary: Option<Arc<Field>>,
}

impl Field {
    /// Creates every field; checks that the format fits children and dictionary, and limits nesting.
    pub(super) fn build(parts: Parts) -> Result<Self> {
        let Parts { format, name, metadata, flags, children, dictionary } = parts;
        let layout = Layout::parse(&format)?;
        check_children(&format, layout, children.len())?;
        if let (Layout::RunEnds, Some(ends)) = (layout, children.first())
            && (!matches!(ends.format(), "s" | "i" | "l") || ends.dictionary.is_some())
        {
            let found = ends.format();
            return Err(broken(format_args!("run ends have format \"s\", \"i\" or \"l\", not {found:?}")));
        }
        if dictionary.is_some() && !matches!(&*format, "c" | "C" | "s" | "S" | "i" | "I" | "l" | "L") {
            return Err(broken(format_args!("a dictionary has integers as indices, not format {format:?}")));
        }
        let extent = Extent::above(children.iter().chain(&dictionary));
        if extent.depth > DEEPEST || extent.fields > MOST_FIELDS {
            return Err(broken(format_args!(
                "field {name:?} nests {} levels and {} fields; usmq takes {DEEPEST} levels and {MOST_FIELDS} fields",
                extent.depth, extent.fields
            )));
        }
        Ok(Self { format, name, metadata, flags, children, dictionary, layout, extent })
    }

    /// A nullable field without children, as `Field::new("miles", "g")`.
    ///
    /// # Errors
    /// [`Error::Interop`] for an unknown format or one with children; [`Error::Value`] for a name with a NUL.
    pub fn new(name: &str, format: &str) -> Result<Self> {
        Self::nested(name, format, Vec::new())
    }

    /// A nullable field with children.
    ///
    /// # Errors
    /// As [`Field::new`]; [`Error::Interop`] if the children do not fit the format, and beyond 64 levels or
    /// 1,048,576 fields.
    pub fn nested(name: &str, format: &str, children: Vec<Arc<Self>>) -> Result<Self> {
        if name.contains('\0') {
            return Err(Error::value(format!("an Arrow name must not contain NUL: {name:?}")));
        }
        let (format, name) = (format.to_owned(), name.to_owned());
        Self::build(Parts { format, name, metadata: None, flags: FLAG_NULLABLE, children, dictionary: None })
    }

    /// The schema of a record batch: a struct that is never null.
    pub(super) fn record(children: Vec<Arc<Self>>) -> Result<Self> {
        Ok(Self { flags: 0, ..Self::nested("", "+s", children)? })
    }

    /// The format string, as `"g"` for float64.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The name; may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The metadata, key by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        // The encoding was validated when it was read, so it is complete.
        let mut rest = self.metadata.as_deref().map_or(&[][..], |bytes| &bytes[size_of::<i32>()..]);
        let mut part = move || -> Option<&[u8]> {
            let (length, after) = rest.split_first_chunk()?;
            let (bytes, after) =
                after.split_at_checked(i32::from_ne_bytes(*length).unsigned_abs() as usize)?;
            rest = after;
            Some(bytes)
        };
        std::iter::from_fn(move || Some((part()?, part()?)))
    }

    /// Whether values may be null.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.flags & FLAG_NULLABLE != 0
    }

    /// Whether the order of the dictionary's values has a meaning.
    pub(super) fn is_ordered(&self) -> bool {
        self.flags & FLAG_DICTIONARY_ORDERED != 0
    }

    /// The fields of the children, of a struct or list.
    #[must_use]
    pub fn children(&self) -> &[Arc<Self>] {
        &self.children
    }

    /// The field of the dictionary's values, if this field has a dictionary.
    #[must_use]
    pub fn dictionary(&self) -> Option<&Self> {
        self.dictionary.as_deref()
    }

    /// Whether this can only be the schema of a record batch: a struct that is never null.
    #[must_use]
    pub fn is_record(&self) -> bool {
        self.is_struct() && !self.is_nullable()
    }

    /// Whether structs of this type without nulls are the rows of a table. Structs of an extension type are
    /// values.
    pub(super) fn is_rows(&self) -> bool {
        self.is_struct() && self.metadata().all(|(key, _)| key != b"ARROW:extension:name")
    }

    /// Whether this is a struct. A top-level struct is a table, unless some values are null or it has an
    /// extension type.
    #[must_use]
    pub fn is_struct(&self) -> bool {
        self.layout == Layout::Struct
    }

    /// The ids of a union's children, in their order.
    pub(super) fn type_ids(&self) -> impl Iterator<Item = u8> {
        let ids = self.format.split_once(':').map_or("", |(_, ids)| ids);
        ids.split(',').filter_map(|id| id.parse().ok())
    }

    /// The number of the only child of this name.
    ///
    /// # Errors
    /// [`Error::Index`] if the name matches no child, or more than one.
    pub(super) fn child(&self, name: &str) -> Result<usize> {
        let mut found = self.children.iter().enumerate().filter(|(_, child)| child.name == name);
        match (found.next(), found.next()) {
            (Some((number, _)), None) => Ok(number),
            (Some(_), Some(_)) => Err(Error::index(format!("several columns are named {name:?}"))),
            _ => {
                let names: Vec<_> = self.children.iter().map(|child| child.name()).collect();
                Err(Error::index(format!("there is no column {name:?}, only {names:?}")))
            }
        }
    }

    /// The same field with these children only.
    pub(super) fn selected(&self, numbers: &[usize]) -> Self {
        let children: Vec<_> = numbers.iter().map(|number| self.children[*number].clone()).collect();
        let extent = Extent::above(children.iter().chain(&self.dictionary));
        Self { children, extent, ..self.clone() }
    }

    /// The same field under another name.
    pub(super) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// The same field, whose values are not null.
    pub(super) fn not_null(&self) -> Self {
        Self { flags: self.flags & !FLAG_NULLABLE, ..self.clone() }
    }

    /// Exports a struct that owns a copy of this field.
    ///
    /// # Errors
    /// [`Error::Value`] for a name that contains NUL.
    pub fn export(&self) -> Result<ArrowSchema> {
        Arc::new(self.clone()).export_shared()
    }

    /// As [`export`](Self::export), for a struct that shares the field.
    pub(super) fn export_shared(self: &Arc<Self>) -> Result<ArrowSchema> {
        if self.name.contains('\0') {
            return Err(Error::value(format!("an Arrow name must not contain NUL: {:?}", self.name)));
        }
        let mut texts = SmallVec::new();
        for text in [&self.format, &self.name] {
            texts.extend_from_slice(text.as_bytes());
            texts.push(0);
        }
        // A collection of results would grow, since the first error may end it.
        let mut children = Vec::with_capacity(self.children.len());
        for child in &self.children {
            children.push(Heap::new(child.export_shared()?));
        }
        let dictionary = self.dictionary.as_ref().map(|field| field.export_shared().map(Heap::new));
        let mut owned = Box::new(ExportedSchema {
            texts,
            children,
            dictionary: dictionary.transpose()?,
            field: self.clone(),
        });
        let mut schema = ArrowSchema::empty();
        schema.format = owned.texts.as_ptr().cast();
        schema.name = owned.texts[self.format.len() + 1..].as_ptr().cast();
        schema.metadata = self.metadata.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
        schema.flags = self.flags;
        schema.n_children = owned.children.len() as i64;
        schema.children = Heap::list(&mut owned.children);
        schema.dictionary = owned.dictionary.as_ref().map_or(ptr::null_mut(), Heap::as_ptr);
        schema.release = Some(release);
        schema.private_data = Box::into_raw(owned).cast();
        Ok(schema)
    }
}

/// The target of an exported struct's `private_data`.
struct ExportedSchema {
    /// Format and name, each with a NUL.
    texts: SmallVec<[u8; 32]>,
    children: Vec<Heap<ArrowSchema>>,
    dictionary: Option<Heap<ArrowSchema>>,
    field: Arc<Field>,
}

impl ExportedSchema {
    /// Whether a struct still has the values of [`Field::export_shared`].
    fn describes(&self, schema: &ArrowSchema) -> bool {
        let name = self.texts[self.field.format.len() + 1..].as_ptr();
        let metadata = self.field.metadata.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr());
        let is_same = |child: *mut ArrowSchema, field: &Arc<Field>| {
            // SAFETY: null, or a struct of the schema, which the caller may read.
            let own = unsafe { child.as_ref() }.and_then(|child| Some((child, exported(child)?)));
            own.is_some_and(|(child, own)| Arc::ptr_eq(&own.field, field) && own.describes(child))
        };
        // SAFETY: the caller may read the schema.
        let children =
            unsafe { pointers(schema.children, schema.n_children, "children") }.unwrap_or_default();
        schema.format.addr() == self.texts.as_ptr().addr()
            && schema.name.addr() == name.addr()
            && schema.metadata.addr() == metadata.addr()
            && schema.flags == self.field.flags
            && children.len() == self.field.children.len()
            && children.iter().zip(&self.field.children).all(|(child, field)| is_same(*child, field))
            && schema.dictionary.is_null() == self.field.dictionary.is_none()
            && self.field.dictionary.as_ref().is_none_or(|field| is_same(schema.dictionary, field))
    }
}

/// The field of a struct from [`Field::export_shared`] that is unchanged since.
pub(super) fn shared(schema: &ArrowSchema) -> Option<Arc<Field>> {
    exported(schema).filter(|own| own.describes(schema)).map(|own| own.field.clone())
}

/// The owner of a struct from [`Field::export_shared`], identified by its unique callback.
fn exported(schema: &ArrowSchema) -> Option<&ExportedSchema> {
    let ours: unsafe extern "C" fn(*mut ArrowSchema) = release;
    schema.release.filter(|release| ptr::fn_addr_eq(*release, ours))?;
    // SAFETY: `export_shared` made `private_data` for this callback, and it lives until the release.
    Some(unsafe { &*schema.private_data.cast::<ExportedSchema>() })
}

unsafe extern "C" fn release(schema: *mut ArrowSchema) {
    // SAFETY: the consumer passes a struct that `export` filled and that is not released.
    let schema = unsafe { &mut *schema };
    schema.release = None;
    // SAFETY: made from a box in `export`, and taken once: `release` is gone. Children that were moved out are
    // released structs by now, and drop as such.
    drop(unsafe { Box::from_raw(schema.private_data.cast::<ExportedSchema>()) });
}

fn broken(what: impl std::fmt::Display) -> Error {
    Error::interop(format!("the ArrowSchema is not valid: {what}"))
}

pub(super) fn check_children(format: &str, layout: Layout, count: usize) -> Result<()> {
    match layout.children() {
        Some(expected) if expected != count => {
            Err(broken(format_args!("format {format:?} has {expected} children, not {count}")))
        }
        _ => Ok(()),
    }
}

/// # Safety
/// As [`Field::import`].
pub(super) unsafe fn import(schema: &ArrowSchema, depth: usize, fields: &mut usize) -> Result<Field> {
    *fields += 1;
    // Check this before recursing: a cycle has no end.
    if depth > DEEPEST || *fields > MOST_FIELDS {
        return Err(broken(format_args!(
            "it nests beyond {DEEPEST} levels or {MOST_FIELDS} fields, or is a cycle"
        )));
    }
    if schema.is_released() {
        return Err(broken("it is released"));
    }
    // SAFETY: the caller's promise, for each of the pointers.
    let (format, name) = (unsafe { text(schema.format, "format") }?, unsafe { text(schema.name, "name") }?);
    let format = format.ok_or_else(|| broken("it has no format"))?;
    // SAFETY: as above.
    let children = unsafe { pointers(schema.children, schema.n_children, "children") }?;
    check_children(&format, Layout::parse(&format)?, children.len())?;
    let children = children.iter().map(|child| {
        // SAFETY: as above; null is handled.
        let child = unsafe { child.as_ref() }.ok_or_else(|| broken("a child is null"))?;
        // SAFETY: as above.
        unsafe { import(child, depth + 1, fields) }.map(Arc::new)
    });
    let children = children.collect::<Result<_>>()?;
    // SAFETY: as above.
    let dictionary = unsafe { schema.dictionary.as_ref() };
    // SAFETY: as above.
    let dictionary = dictionary.map(|field| unsafe { import(field, depth + 1, fields) }.map(Arc::new));
    // SAFETY: as above.
    let metadata = unsafe { metadata(schema.metadata) }?;
    let (name, flags) = (name.unwrap_or_default(), schema.flags);
    Field::build(Parts { format, name, metadata, flags, children, dictionary: dictionary.transpose()? })
}

/// # Safety
/// `text` is null or the start of a string that ends with a NUL.
unsafe fn text(text: *const c_char, what: &str) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(broken(format_args!("its {what} {text:?} is not UTF-8"))),
    }
}

/// Reads a list of structs that a parent points to.
///
/// # Safety
/// `list` is null or points to `count` pointers, which live while the parent does.
pub(super) unsafe fn pointers<'a, T>(list: *mut *mut T, count: i64, what: &str) -> Result<&'a [*mut T]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= MOST_FIELDS && !list.is_null() => {
            // SAFETY: the caller's promise.
            Ok(unsafe { slice::from_raw_parts(list, count) })
        }
        _ => Err(Error::interop(format!("the Arrow struct is not valid: it declares {count} {what}"))),
    }
}

/// Copies encoded metadata: a count of pairs, then the length and bytes of each key and value. Numbers have
/// 32 bits in native byte order.
///
/// # Safety
/// `start` is null or points to such an encoding.
unsafe fn metadata(start: *const c_char) -> Result<Option<Box<[u8]>>> {
    if start.is_null() {
        return Ok(None);
    }
    let start = start.cast::<u8>();
    let number = |at: usize| -> Result<usize> {
        // SAFETY: the caller's promise: the encoding extends at least to `at`.
        let place = unsafe { start.add(at) }.cast::<i32>();
        // SAFETY: it has a number there.
        let number = unsafe { place.read_unaligned() };
        usize::try_from(number).map_err(|_| broken(format_args!("its metadata has {number} bytes or pairs")))
    };
    let mut bytes = size_of::<i32>();
    for _ in 0..number(0)? {
        for _key_or_value in 0..2 {
            bytes += size_of::<i32>() + number(bytes)?;
        }
    }
    // SAFETY: the encoding was walked up to this many bytes.
    Ok(Some(unsafe { slice::from_raw_parts(start, bytes) }.into()))
}

#[cfg(test)]
#[path = "schema_tests.rs"]
pub(super) mod tests;
