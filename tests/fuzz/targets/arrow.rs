//! Trees of ArrowSchema and ArrowArray with buffers of exactly their size, some with a field or number that breaks the
//! rules: invalid ones are refused, valid ones exported with the same values, and each tree is released once. Imports
//! are also serialized and changed in places: arrays that `unpack` accepts are valid for arrow-rs.

use super::choices::Choices;
use super::eventually;
use super::tree::{Array, Owned, Schema, logical};
use arrow_array::Array as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use usmq::interop::arrow::{ArrowArray, ArrowSchema, Column, Field, ForeignStruct, ImportOptions};
use usmq::{Error, UsmKind};

/// Releases called. One input at a time.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut tree = grow(&mut choices, 0, None);
    let broken = choices.flag() && spoil(&mut choices, &mut tree, true);
    let expected = (!broken).then(|| logical(&tree.schema, &tree.array));
    let releases = usize::from(tree.schema.release.is_some()) + usize::from(tree.array.release.is_some());
    let before = RELEASED.load(Ordering::SeqCst);
    let (mut schema, mut array) = tree.hand_over(&RELEASED);
    // SAFETY: the structs of the interface, made as a producer does, with at most something that usmq is to see.
    let schema: ForeignStruct<ArrowSchema> = unsafe { ForeignStruct::take((&raw mut schema).cast()) };
    // SAFETY: as above; `tree.hand_over` has given it away.
    let mut array: ArrowArray = unsafe { std::ptr::from_mut(&mut array).cast::<ArrowArray>().read() };
    let kind = choices.pick(&[UsmKind::Host, UsmKind::Device, UsmKind::Shared]);
    let placed = ImportOptions { kind: Some(kind), ..ImportOptions::default() };
    let column = Field::import(&schema).and_then(|field| {
        // SAFETY: as above; the array has this type, except for the fault that usmq must detect.
        Column::import(unsafe { ForeignStruct::take_array(&Arc::new(field), &mut array) }, placed)
    });
    drop((schema, array));
    match (column, expected) {
        (Ok(column), Some(expected)) => {
            assert_eq!(out(&column), expected);
            let slice = column.slice(1.min(column.len()), column.len() / 2).unwrap();
            let start = 1.min(column.len());
            assert_eq!(out(&slice), expected[start..start + column.len() / 2]);
            packed(&column, data);
        }
        (Err(Error::Interop { message: text, .. }), None) => assert!(!text.is_empty()),
        (Ok(column), None) => panic!("an invalid tree was imported: {column:?}"),
        (Err(error), _) => panic!("{error:?}"),
    }
    assert!(
        eventually(|| RELEASED.load(Ordering::SeqCst) == before + releases),
        "a tree was not released once"
    );
}

/// Serializes a column, changes random bytes, and deserializes it: accepted columns are valid for arrow-rs.
fn packed(column: &Column, seed: &[u8]) {
    let packed = column.pack().unwrap();
    let frames: Vec<_> = packed.buffers.iter().map(|buffer| buffer.to_bytes().unwrap()).collect();
    let mut state = seed.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % most
    };
    for changes in [0, 1, 1, 1, 2, 3] {
        let (mut header, mut frames) = (packed.header.clone(), frames.clone());
        for _ in 0..changes {
            let which = below(frames.len() + 1);
            let bytes = frames.get_mut(which).unwrap_or(&mut header);
            if bytes.is_empty() {
                continue;
            }
            let at = below(bytes.len());
            match below(6) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] ^= 1 << below(8),
                2 => bytes.truncate(at),
                3 => bytes[at] = 0xff,
                // A length, offset or count beyond all buffers.
                4 => {
                    let large = [(1u64 << 55) - 1, 1 << 54, 1 << 40, u64::from(u32::MAX)][below(4)];
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].copy_from_slice(&large.to_le_bytes()[..end - at]);
                }
                // As the flags of a field: its values are not null.
                _ => {
                    let number = 2u64.to_le_bytes();
                    let places: Vec<_> =
                        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&number)).collect();
                    if !places.is_empty() {
                        bytes[places[below(places.len())]] = 0;
                    }
                }
            }
        }
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        match Column::unpack(&header, &frames, column.queue()).and_then(|column| column.to_arrow()) {
            Ok(array) => array.to_data().validate_full().unwrap(),
            // arrow-rs has no such type, or the array was refused.
            Err(Error::Interop { message: text, .. }) => assert!(!text.is_empty()),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The values of a column, read from its export.
fn out(column: &Column) -> Vec<String> {
    let schema = column.export_schema().unwrap();
    let array = column.to_host().unwrap().export_host().unwrap();
    // SAFETY: both are the structs of the interface, written down twice, and live.
    let schema = unsafe { &*std::ptr::from_ref(&schema).cast::<Schema>() };
    // SAFETY: as above.
    let array = unsafe { &*std::ptr::from_ref(&array).cast::<Array>() };
    logical(schema, array)
}

const FLAT: [(&str, usize); 14] = [
    ("c", 1),
    ("C", 1),
    ("s", 2),
    ("i", 4),
    ("l", 8),
    ("e", 2),
    ("g", 8),
    ("tdD", 4),
    ("tsu:UTC", 8),
    ("tin", 16),
    ("d:9,2", 16),
    ("d:76,0,256", 32),
    ("w:3", 3),
    ("w:0", 0),
];

/// A sound tree whose root has some number of values, or as many as its parent needs.
fn grow(choices: &mut Choices<'_>, depth: usize, needed: Option<usize>) -> Owned {
    let length =
        needed.unwrap_or_else(|| choices.below(10)) + if needed.is_some() { choices.below(2) } else { 0 };
    let offset = choices.below(3);
    let end = length + offset;
    let kind = if depth > 2 { choices.below(5) } else { choices.below(15) };
    let mut bytes = |count: usize| -> Vec<u8> { (0..count).map(|_| choices.byte()).collect() };
    let mut tree = match kind {
        0 => Owned::new("n", length, offset, vec![]),
        1 => Owned::new("b", length, offset, vec![Some(bytes(end.div_ceil(8)))]),
        2 | 3 => {
            let (format, width) = choices.pick(&FLAT);
            let values = (0..end * width).map(|_| choices.byte()).collect();
            Owned::new(format, length, offset, vec![Some(values)])
        }
        4 | 5 => {
            let large = choices.flag();
            let offsets = rising(choices, end, 40, large);
            let text = (0..offsets.1).map(|_| b'a' + choices.byte() % 26).collect();
            let format = if large { choices.pick(&["U", "Z"]) } else { choices.pick(&["u", "z"]) };
            Owned::new(format, length, offset, vec![Some(offsets.0), Some(text)])
        }
        6 => views(choices, length, offset),
        7 => {
            let large = choices.flag();
            let offsets = rising(choices, end, 8, large);
            let child = grow(choices, depth + 1, Some(offsets.1));
            let format = if large { "+L" } else { "+l" };
            Owned::new(format, length, offset, vec![Some(offsets.0)]).with(vec![child])
        }
        8 => {
            let child = grow(choices, depth + 1, None);
            let most = child.array.length as usize;
            let (mut offsets, mut sizes) = (Vec::new(), Vec::new());
            for _ in 0..end {
                let offset = choices.below(most + 1);
                offsets.extend((offset as i32).to_le_bytes());
                sizes.extend((choices.below(most - offset + 1) as i32).to_le_bytes());
            }
            Owned::new("+vl", length, offset, vec![Some(offsets), Some(sizes)]).with(vec![child])
        }
        9 => {
            let width = choices.below(4);
            let child = grow(choices, depth + 1, Some(end * width));
            Owned::new(&format!("+w:{width}"), length, offset, vec![]).with(vec![child])
        }
        10 | 11 => {
            let children = (0..choices.below(4)).map(|_| grow(choices, depth + 1, Some(end))).collect();
            Owned::new("+s", length, offset, vec![]).with(children)
        }
        12 => union(choices, length, offset, depth),
        13 if length > 0 => {
            let runs = 1 + choices.below(4);
            let mut at = 0;
            let mut ends = Vec::new();
            for run in 0..runs {
                at += 1 + choices.below(3);
                let value = if run + 1 == runs { at.max(end) } else { at };
                ends.extend((value as i32).to_le_bytes());
            }
            let ends = Owned::new("i", runs, 0, vec![Some(ends)]);
            let mut values = grow(choices, depth + 1, Some(runs));
            values.array.length = runs as i64;
            values.array.null_count = -1;
            if values.text() == "n" {
                values.array.null_count = runs as i64;
            }
            return Owned::new("+r", length, offset, vec![]).with(vec![ends, values]);
        }
        _ => {
            let values = grow(choices, depth + 1, Some(1));
            let most = values.array.length as usize;
            let keys = (0..end).flat_map(|_| (choices.below(most) as i32).to_le_bytes()).collect();
            Owned::new("i", length, offset, vec![Some(keys)]).with_dictionary(values)
        }
    };
    if tree.has_validity() {
        let bitmap = choices.flag().then(|| {
            (0..(tree.array.length as usize + offset).div_ceil(8)).map(|_| choices.byte()).collect()
        });
        tree.set_validity(bitmap, choices.flag());
    }
    tree
}

/// Offsets that rise by chance, one more than `count`, and the last of them.
fn rising(choices: &mut Choices<'_>, count: usize, most: usize, large: bool) -> (Vec<u8>, usize) {
    let (mut bytes, mut at) = (Vec::new(), choices.below(3));
    for number in 0..=count {
        if number > 0 {
            at = (at + choices.below(4)).min(most);
        }
        if large {
            bytes.extend((at as i64).to_le_bytes());
        } else {
            bytes.extend((at as i32).to_le_bytes());
        }
    }
    (bytes, at)
}

fn views(choices: &mut Choices<'_>, length: usize, offset: usize) -> Owned {
    let data: Vec<Vec<u8>> = (0..choices.below(3))
        .map(|_| (0..13 + choices.below(9)).map(|_| b'a' + choices.byte() % 26).collect())
        .collect();
    let mut values = Vec::new();
    for _ in 0..length + offset {
        let mut view = [0u8; 16];
        if !data.is_empty() && choices.flag() {
            let number = choices.below(data.len());
            let start = choices.below(data[number].len() - 12);
            let size = 13 + choices.below(data[number].len() - start - 12);
            view[..4].copy_from_slice(&(size as i32).to_le_bytes());
            view[4..8].copy_from_slice(&data[number][start..start + 4]);
            view[8..12].copy_from_slice(&(number as i32).to_le_bytes());
            view[12..].copy_from_slice(&(start as i32).to_le_bytes());
        } else {
            let size = choices.below(13);
            view[..4].copy_from_slice(&(size as i32).to_le_bytes());
            view[4..4 + size].iter_mut().for_each(|byte| *byte = b'a' + choices.byte() % 26);
        }
        values.extend(view);
    }
    let sizes = data.iter().flat_map(|data| (data.len() as i64).to_le_bytes()).collect();
    let mut buffers = vec![Some(values)];
    buffers.extend(data.into_iter().map(Some));
    buffers.push(Some(sizes));
    Owned::new(choices.pick(&["vu", "vz"]), length, offset, buffers)
}

fn union(choices: &mut Choices<'_>, length: usize, offset: usize, depth: usize) -> Owned {
    let end = length + offset;
    let dense = choices.flag();
    let all = [5u8, 0, 127];
    let ids = &all[..1 + choices.below(3)];
    let children: Vec<_> =
        ids.iter().map(|_| grow(choices, depth + 1, Some(if dense { 1 } else { end }))).collect();
    let text: Vec<_> = ids.iter().map(u8::to_string).collect();
    let chosen: Vec<usize> = (0..end).map(|_| choices.below(ids.len())).collect();
    let mut buffers = vec![Some(chosen.iter().map(|child| ids[*child]).collect())];
    if dense {
        let place =
            |child: &usize| (choices.below(children[*child].array.length as usize) as i32).to_le_bytes();
        buffers.push(Some(chosen.iter().flat_map(place).collect()));
    }
    let format = format!("{}:{}", if dense { "+ud" } else { "+us" }, text.join(","));
    Owned::new(&format, length, offset, buffers).with(children)
}

/// Invalidates the tree or a subtree; returns false if the change is undetectable.
fn spoil(choices: &mut Choices<'_>, tree: &mut Owned, root: bool) -> bool {
    let nested = tree.children.len();
    if nested > 0 && choices.flag() {
        let number = choices.below(nested);
        return spoil(choices, &mut tree.children[number], false);
    }
    let (views, needed) = (tree.is_views(), tree.needs_of_children());
    let (array, schema) = (&mut tree.array, &mut tree.schema);
    let end = array.length + array.offset;
    match choices.byte() % 22 {
        0 => array.length = choices.pick(&[-1, i64::MIN, i64::MAX, 1 << 56]),
        1 => array.offset = choices.pick(&[-1, i64::MIN, i64::MAX, 1 << 56]),
        2 => array.null_count = choices.pick(&[-2, i64::MIN, i64::MAX, array.length + 1]),
        // Views may have any number of data buffers.
        3 => array.n_buffers += choices.pick(&[if views { i64::MIN } else { -1 }, i64::MIN, i64::MAX - 8]),
        4 if array.n_buffers > 0 => array.buffers = std::ptr::null_mut(),
        5 => array.n_children = choices.pick(&[-1, i64::MIN, i64::MAX, 1 << 40]),
        6 if nested > 0 => array.children = std::ptr::null_mut(),
        7 if nested > 0 => tree.child_pointers[choices.below(nested)] = std::ptr::null_mut(),
        8 => array.release = None,
        9 if nested > 0 => tree.children[choices.below(nested)].array.release = None,
        10 => {
            array.dictionary =
                if array.dictionary.is_null() { std::ptr::from_mut(array) } else { std::ptr::null_mut() }
        }
        11 => {
            schema.format = choices.pick(&[c"".as_ptr(), c"+zz".as_ptr(), c"\xff".as_ptr(), std::ptr::null()])
        }
        12 => schema.name = c"\xc3\x28".as_ptr(),
        13 => schema.n_children = choices.pick(&[-1, i64::MAX, 1 << 40]),
        14 if nested > 0 => schema.children = std::ptr::null_mut(),
        15 => schema.release = None,
        16 => {
            static NEGATIVE: [u8; 8] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
            schema.metadata = NEGATIVE.as_ptr().cast();
        }
        17 if nested > 0 && end > 0 && needed > 0 => {
            tree.children[choices.below(nested)].array.length = needed as i64 - 1;
        }
        18 if end > 0 => return tree.null_buffer(root),
        // Of a child only the rows that its parent shows are looked at.
        19 if root && array.length > 0 => return tree.spoil_numbers(choices),
        20 => schema.n_children += i64::from(i32::MAX),
        21 => array.n_children += i64::from(i32::MAX),
        _ => return false,
    }
    true
}
