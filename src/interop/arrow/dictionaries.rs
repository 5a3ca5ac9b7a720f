//! Gives arrays that are joined the same dictionaries: equal values get one code, for arrays of any length.
//!
//! arrow-rs merges the dictionaries of some arrays when it joins them, and appends those of others.

use super::schema::Field;
use crate::error::{Error, Result};
use arrow_array::types::ArrowDictionaryKeyType;
use arrow_array::{Array, ArrayRef, DictionaryArray, downcast_dictionary_array, make_array};
use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_row::{RowConverter, SortField};
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave;
use std::collections::HashMap;
use std::sync::Arc;

/// The same arrays, all of the type of `field`, with one dictionary for each dictionary of the type.
pub(super) fn unified(field: &Field, arrays: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let parts = arrays.iter().map(Array::to_data).collect();
    Ok(parts_with_one(field, field.name(), parts)?.into_iter().map(make_array).collect())
}

/// An error of arrow-rs.
pub(super) fn refused(error: impl std::fmt::Display) -> Error {
    Error::interop(format!("arrow-rs: {error}"))
}

fn has_dictionary(field: &Field) -> bool {
    field.dictionary().is_some() || field.children().iter().any(|child| has_dictionary(child))
}

/// `path` names the field in errors, as `"row.key"`.
fn parts_with_one(field: &Field, path: &str, parts: Vec<ArrayData>) -> Result<Vec<ArrayData>> {
    if !has_dictionary(field) {
        return Ok(parts);
    }
    let nested = |number: usize| parts.iter().map(|part| part.child_data()[number].clone()).collect();
    if let Some(values) = field.dictionary() {
        return coded(field, path, &parts, &parts_with_one(values, path, nested(0))?);
    }
    let mut children = vec![Vec::new(); parts.len()];
    for (number, child) in field.children().iter().enumerate() {
        let below =
            if path.is_empty() { child.name().to_owned() } else { format!("{path}.{}", child.name()) };
        for (all, one) in children.iter_mut().zip(parts_with_one(child, &below, nested(number))?) {
            all.push(one);
        }
    }
    let replaced = parts.into_iter().zip(children).map(|(part, children)| {
        // SAFETY: the same array, with children of the same types, lengths and values.
        unsafe { part.into_builder().child_data(children).build_unchecked() }
    });
    Ok(replaced.collect())
}

/// The parts with codes of one dictionary; `values` are their own dictionaries.
fn coded(field: &Field, path: &str, parts: &[ArrayData], values: &[ArrayData]) -> Result<Vec<ArrayData>> {
    let Some(first) = values.first() else { return Ok(Vec::new()) };
    let arrays: Vec<ArrayRef> = values.iter().cloned().map(make_array).collect();
    let converter = RowConverter::new(vec![SortField::new(first.data_type().clone())]).map_err(refused)?;
    // The code of each value, and the array and row of the value of each code.
    let (mut codes, mut places) = (HashMap::<Box<[u8]>, usize>::new(), Vec::new());
    let mut maps: Vec<Vec<usize>> = Vec::new();
    for (number, array) in arrays.iter().enumerate() {
        // The chunks of one producer often share a dictionary.
        if number > 0 && values[number].ptr_eq(&values[number - 1]) {
            maps.push(maps[number - 1].clone());
            continue;
        }
        let known = places.len();
        let rows = converter.convert_columns(std::slice::from_ref(array)).map_err(refused)?;
        let code = |(row, value): (usize, arrow_row::Row<'_>)| {
            *codes.entry(value.as_ref().into()).or_insert_with(|| {
                places.push((number, row));
                places.len() - 1
            })
        };
        let map: Vec<usize> = rows.iter().enumerate().map(code).collect();
        let keeps_order =
            map.is_sorted() && (places.len() == known || known == 0 || map.contains(&(known - 1)));
        if field.is_ordered() && !keeps_order {
            return Err(Error::interop(format!(
                "column {path:?} is {}, and the dictionaries of its chunks do not define one order of all values; give \
                 all chunks the same dictionary, or decode it in its producer",
                field.type_name()
            )));
        }
        maps.push(map);
    }
    let is_first = places.iter().enumerate().all(|(code, place)| *place == (0, code));
    let all = if is_first && places.len() == first.len() {
        arrays[0].clone()
    } else {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let why = |error: ArrowError| {
            Error::interop(format!(
                "column {path:?} is {}, and the values of its chunks' dictionaries do not fit into one: {error}; cast it \
                 in its producer, for example to a dictionary of large_string, or import its chunks one by one",
                field.type_name()
            ))
        };
        interleave(&arrays, &places).map_err(why)?
    };
    let too_many = || {
        let (values, indices) = (field.dictionary().map(Field::type_name).unwrap_or_default(), places.len());
        Error::interop(format!(
            "column {path:?} is {}, and the dictionaries of its chunks have {indices} different values, more than its \
             indices can name; cast it in its producer, for example to dictionary<values={values}, indices=int64> or to \
             {values}",
            field.type_name()
        ))
    };
    let recoded = parts.iter().zip(&maps).map(|(part, map)| {
        let array = make_array(part.clone());
        let array = &array;
        downcast_dictionary_array!(
            array => with_codes(array, map, &all).ok_or_else(too_many),
            other => Err(refused(format!("{other} has no dictionary")))
        )
    });
    let recoded = recoded.collect::<Result<Vec<ArrayRef>>>()?;
    Ok(recoded.iter().map(Array::to_data).collect())
}

/// The array with other values, at which `codes` maps its own; `None` if its keys cannot hold a code.
fn with_codes<K: ArrowDictionaryKeyType>(
    array: &DictionaryArray<K>,
    codes: &[usize],
    values: &ArrayRef,
) -> Option<ArrayRef> {
    // Whether a join succeeds depends on the dictionaries only, not on the rows that use the last codes.
    K::Native::from_usize(values.len().saturating_sub(1))?;
    let keys = array.keys().try_unary::<_, K, ()>(|key| {
        codes.get(key.as_usize()).and_then(|code| K::Native::from_usize(*code)).ok_or(())
    });
    DictionaryArray::try_new(keys.ok()?, values.clone()).ok().map(|array| Arc::new(array) as ArrayRef)
}
