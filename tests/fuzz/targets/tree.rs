//! An independent definition of Arrow's structs: trees that own their buffers, and a reader without usmq.

use super::choices::Choices;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Schema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut Schema,
    pub dictionary: *mut Schema,
    pub release: Option<unsafe extern "C" fn(*mut Schema)>,
    pub private_data: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut Array,
    pub dictionary: *mut Array,
    pub release: Option<unsafe extern "C" fn(*mut Array)>,
    pub private_data: *mut c_void,
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: the consumer passes a struct of `hand_over`, whose tree outlives it.
    let schema = unsafe { &mut *schema };
    schema.release = None;
    if !schema.private_data.is_null() {
        // SAFETY: `hand_over` stored the address of a static counter there.
        unsafe { &*schema.private_data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: as in `release_schema`.
    let array = unsafe { &mut *array };
    array.release = None;
    if !array.private_data.is_null() {
        // SAFETY: as in `release_schema`.
        unsafe { &*array.private_data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }
}

/// An array and its schema, with everything that they point to.
pub struct Owned {
    pub schema: Box<Schema>,
    pub array: Box<Array>,
    pub children: Vec<Owned>,
    pub child_pointers: Vec<*mut Array>,
    schema_pointers: Vec<*mut Schema>,
    dictionary: Option<Box<Owned>>,
    format: CString,
    /// Each in an allocation of exactly its size, so that AddressSanitizer detects reads beyond it.
    buffers: Vec<Option<Box<[u8]>>>,
    pointers: Vec<*const c_void>,
}

impl Owned {
    /// The buffers are those after the validity bitmap.
    pub fn new(format: &str, length: usize, offset: usize, buffers: Vec<Option<Vec<u8>>>) -> Self {
        let format = CString::new(format).unwrap();
        let schema = Schema {
            format: format.as_ptr(),
            name: c"x".as_ptr(),
            metadata: ptr::null(),
            flags: 2,
            n_children: 0,
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: Some(release_schema),
            private_data: ptr::null_mut(),
        };
        let array = Array {
            length: length as i64,
            null_count: if format.as_bytes() == b"n" { length as i64 } else { 0 },
            offset: offset as i64,
            n_buffers: 0,
            n_children: 0,
            buffers: ptr::null_mut(),
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data: ptr::null_mut(),
        };
        let mut tree = Self {
            schema: Box::new(schema),
            array: Box::new(array),
            children: Vec::new(),
            child_pointers: Vec::new(),
            schema_pointers: Vec::new(),
            dictionary: None,
            format,
            buffers: buffers.into_iter().map(|buffer| buffer.map(Vec::into_boxed_slice)).collect(),
            pointers: Vec::new(),
        };
        if tree.has_validity() {
            tree.buffers.insert(0, None);
        }
        tree.point();
        tree
    }

    fn point(&mut self) {
        let address =
            |buffer: &Option<Box<[u8]>>| buffer.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
        self.pointers = self.buffers.iter().map(address).collect();
        self.array.n_buffers = self.pointers.len() as i64;
        self.array.buffers =
            if self.pointers.is_empty() { ptr::null_mut() } else { self.pointers.as_mut_ptr() };
    }

    pub fn with(mut self, children: Vec<Self>) -> Self {
        self.children = children;
        self.child_pointers =
            self.children.iter_mut().map(|child| ptr::from_mut(&mut *child.array)).collect();
        self.schema_pointers =
            self.children.iter_mut().map(|child| ptr::from_mut(&mut *child.schema)).collect();
        let count = self.children.len() as i64;
        (self.array.n_children, self.schema.n_children) = (count, count);
        if count > 0 {
            self.array.children = self.child_pointers.as_mut_ptr();
            self.schema.children = self.schema_pointers.as_mut_ptr();
        }
        self
    }

    pub fn with_dictionary(mut self, values: Self) -> Self {
        let values = self.dictionary.insert(Box::new(values));
        self.array.dictionary = &raw mut *values.array;
        self.schema.dictionary = &raw mut *values.schema;
        self
    }

    pub fn text(&self) -> &str {
        self.format.to_str().unwrap()
    }

    fn head(&self) -> &str {
        self.text().split(':').next().unwrap_or_default()
    }

    pub fn has_validity(&self) -> bool {
        !matches!(self.head(), "n" | "+r" | "+us" | "+ud")
    }

    pub fn set_validity(&mut self, bitmap: Option<Vec<u8>>, counted: bool) {
        let (first, length) = (self.array.offset as usize, self.array.length as usize);
        let nulls =
            bitmap.as_ref().map_or(0, |bits| (first..first + length).filter(|at| !bit(bits, *at)).count());
        self.buffers[0] = bitmap.map(Vec::into_boxed_slice);
        self.point();
        self.array.null_count = if counted { nulls as i64 } else { -1 };
    }

    /// The number of values that the layout requires of each child, if any.
    pub fn needs_of_children(&self) -> usize {
        let end = (self.array.length + self.array.offset) as usize;
        match self.head() {
            "+s" | "+us" => end,
            "+w" => end * self.text()[3..].parse::<usize>().unwrap(),
            _ => 0,
        }
    }

    pub fn is_views(&self) -> bool {
        matches!(self.text(), "vu" | "vz")
    }

    /// Makes a required buffer null; returns false if none is required. A parent may show no row that needs the bytes of text.
    pub fn null_buffer(&mut self, root: bool) -> bool {
        let first = usize::from(self.has_validity());
        let Some(at) =
            (first..self.buffers.len()).find(|at| self.buffers[*at].as_ref().is_some_and(|b| !b.is_empty()))
        else {
            return false;
        };
        // For strings, the bytes covered by the offsets.
        let bytes = root
            && matches!(self.text(), "u" | "z" | "U" | "Z")
            && !self.buffers[2].as_ref().unwrap().is_empty();
        let buffer = if bytes && self.array.length > 0 && self.last_offset() > 0 { 2 } else { at };
        self.pointers[buffer] = ptr::null();
        true
    }

    fn last_offset(&self) -> i64 {
        let large = matches!(self.text(), "U" | "Z");
        number(self.pointers[1], (self.array.length + self.array.offset) as usize, if large { 8 } else { 4 })
    }

    /// Sets an index in a buffer out of bounds; returns false if the layout has no indices.
    pub fn spoil_numbers(&mut self, choices: &mut Choices<'_>) -> bool {
        let first = self.array.offset as usize;
        let row = first + choices.below(self.array.length as usize);
        let wrong = choices.pick(&[-1i32, i32::MIN, i32::MAX]);
        let mut put = |buffer: usize, at: usize, value: &[u8]| {
            self.buffers[buffer].as_mut().unwrap()[at..at + value.len()].copy_from_slice(value);
            true
        };
        match self.format.to_str().unwrap() {
            // The last offset of text may be as large as memory.
            "u" | "z" | "+l" => put(1, 4 * row, &wrong.to_le_bytes()),
            "U" | "Z" | "+L" => put(1, 8 * row, &i64::from(wrong).to_le_bytes()),
            // The slot of a null may hold anything.
            "+vl" => {
                put(1 + choices.below(2), 4 * row, &wrong.to_le_bytes());
                self.buffers[0].as_ref().is_none_or(|bits| bit(bits, row))
            }
            "+r" => {
                let ends = self.children[0].buffers[1].as_mut().unwrap();
                ends[..4].copy_from_slice(&choices.pick(&[0i32, -1]).to_le_bytes());
                true
            }
            text if text.starts_with("+u") => {
                if text.starts_with("+ud") && choices.flag() {
                    return put(1, 4 * row, &wrong.to_le_bytes());
                }
                put(0, row, &[choices.pick(&[1u8, 126, 128, 255])])
            }
            _ => false,
        }
    }

    /// The structs for a consumer, who counts in `released`. The tree must outlive them.
    pub fn hand_over(&self, released: &'static AtomicUsize) -> (Schema, Array) {
        let counter = ptr::from_ref(released).cast_mut().cast();
        (Schema { private_data: counter, ..*self.schema }, Array { private_data: counter, ..*self.array })
    }
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

fn number(buffer: *const c_void, at: usize, width: usize) -> i64 {
    let bytes = bytes(buffer, at * width, width);
    match width {
        4 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => i64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

fn bytes<'a>(buffer: *const c_void, start: usize, count: usize) -> &'a [u8] {
    if count == 0 {
        return &[];
    }
    assert!(!buffer.is_null(), "values are read from a buffer that is null");
    // SAFETY: the tree is valid, and every index comes from it.
    let first = unsafe { buffer.cast::<u8>().add(start) };
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// # Safety
/// The list has more than `n` entries.
unsafe fn entry<T: Copy>(list: *mut T, n: usize) -> T {
    // SAFETY: the caller's promise.
    let place = unsafe { list.add(n) };
    // SAFETY: as above.
    unsafe { *place }
}

/// Each value of a sound array as text.
pub fn logical(schema: &Schema, array: &Array) -> Vec<String> {
    (0..array.length as usize).map(|row| value(schema, array, row)).collect()
}

fn value(schema: &Schema, array: &Array, row: usize) -> String {
    // SAFETY: the format of a sound schema.
    let format = unsafe { CStr::from_ptr(schema.format) }.to_str().unwrap();
    let (head, rest) = format.split_once(':').unwrap_or((format, ""));
    let at = array.offset as usize + row;
    // SAFETY: a sound array has this many buffers.
    let buffer = |n: usize| unsafe { entry(array.buffers, n) };
    let child = |n: usize, row: usize| {
        assert!((n as i64) < array.n_children);
        // SAFETY: a sound array has this child, and so has its schema.
        let schema = unsafe { entry(schema.children, n) };
        // SAFETY: as above.
        let array = unsafe { entry(array.children, n) };
        // SAFETY: as above.
        let schema = unsafe { &*schema };
        // SAFETY: as above.
        let array = unsafe { &*array };
        assert!((row as i64) < array.length, "row {row} of a child with {}", array.length);
        value(schema, array, row)
    };
    let list = |rows: std::ops::Range<usize>| {
        format!("[{}]", rows.map(|row| child(0, row)).collect::<Vec<_>>().join(","))
    };
    if !matches!(head, "n" | "+r" | "+us" | "+ud")
        && !buffer(0).is_null()
        && bytes(buffer(0), at / 8, 1)[0] >> (at % 8) & 1 == 0
    {
        return "null".to_owned();
    }
    if !array.dictionary.is_null() {
        let key = number(buffer(1), at, 4) as usize;
        // SAFETY: both have a dictionary.
        let schema = unsafe { &*schema.dictionary };
        // SAFETY: as above.
        let array = unsafe { &*array.dictionary };
        return value(schema, array, key);
    }
    match head {
        "n" => "null".to_owned(),
        "b" => (bytes(buffer(1), at / 8, 1)[0] >> (at % 8) & 1).to_string(),
        "u" | "z" | "U" | "Z" => {
            let width = if matches!(head, "u" | "z") { 4 } else { 8 };
            let (start, end) =
                (number(buffer(1), at, width) as usize, number(buffer(1), at + 1, width) as usize);
            format!("{:?}", bytes(buffer(2), start, end - start))
        }
        "vu" | "vz" => {
            let view = bytes(buffer(1), 16 * at, 16);
            let word = |n: usize| i32::from_le_bytes(view[4 * n..4 * n + 4].try_into().unwrap()) as usize;
            match word(0) {
                size @ 0..=12 => format!("{:?}", &view[4..4 + size]),
                size => format!("{:?}", bytes(buffer(2 + word(2)), word(3), size)),
            }
        }
        "+l" => list(number(buffer(1), at, 4) as usize..number(buffer(1), at + 1, 4) as usize),
        "+L" => list(number(buffer(1), at, 8) as usize..number(buffer(1), at + 1, 8) as usize),
        "+vl" => {
            let start = number(buffer(1), at, 4) as usize;
            list(start..start + number(buffer(2), at, 4) as usize)
        }
        "+w" => {
            let width: usize = rest.parse().unwrap();
            list(at * width..(at + 1) * width)
        }
        "+s" => format!(
            "{{{}}}",
            (0..array.n_children as usize).map(|n| child(n, at)).collect::<Vec<_>>().join(",")
        ),
        "+us" | "+ud" => {
            let id = bytes(buffer(0), at, 1)[0];
            let n = rest.split(',').position(|text| text.parse() == Ok(id)).unwrap();
            let row = if head == "+us" { at } else { number(buffer(1), at, 4) as usize };
            format!("{id}:{}", child(n, row))
        }
        "+r" => {
            // SAFETY: a sound array of this layout has two children.
            let ends = unsafe { entry(array.children, 0) };
            // SAFETY: as above.
            let ends = unsafe { &*ends };
            // SAFETY: its run ends have two buffers.
            let buffer = unsafe { entry(ends.buffers, 1) };
            let run = (0..ends.length as usize)
                .find(|run| number(buffer, ends.offset as usize + run, 4) > at as i64);
            child(1, run.unwrap())
        }
        _ => {
            let width = width(head, rest);
            format!("{:?}", bytes(buffer(1), at * width, width))
        }
    }
}

fn width(head: &str, rest: &str) -> usize {
    match head {
        "c" | "C" => 1,
        "s" | "e" => 2,
        "i" | "tdD" => 4,
        "l" | "g" | "tsu" => 8,
        "tin" => 16,
        "w" => rest.parse().unwrap(),
        _ => rest.split(',').nth(2).map_or(16, |bits| bits.parse::<usize>().unwrap() / 8),
    }
}
