//! Arrow arrays of every type with random data, made by arrow-rs.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use crate::common::Random;
use arrow_array::builder::GenericByteViewBuilder;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, Int16Type, Int32Type, Int64Type,
    LargeBinaryType, LargeUtf8Type, RunEndIndexType, StringViewType, Utf8Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, GenericByteArray, GenericListArray,
    GenericListViewArray, MapArray, NullArray, OffsetSizeTrait, PrimitiveArray, RunArray, StructArray,
    UnionArray, make_array,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit, UnionFields, UnionMode};
use std::sync::Arc;

/// An error of arrow-rs here is a defect of these tests.
pub type Made<T> = std::result::Result<T, arrow_schema::ArrowError>;

/// The field of a nullable child.
pub fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, true))
}

/// Every type without children, each unit of time, and dictionaries of each index.
pub fn flat_types() -> Vec<DataType> {
    use DataType::*;
    let mut all = vec![
        Null, Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64,
    ];
    all.extend([Date32, Date64, Time32(TimeUnit::Second), Time32(TimeUnit::Millisecond)]);
    all.extend([Time64(TimeUnit::Microsecond), Time64(TimeUnit::Nanosecond)]);
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        all.extend([Duration(unit), Timestamp(unit, None), Timestamp(unit, Some("Europe/Berlin".into()))]);
    }
    all.extend([IntervalUnit::YearMonth, IntervalUnit::DayTime, IntervalUnit::MonthDayNano].map(Interval));
    all.extend([Decimal32(9, 2), Decimal64(18, -3), Decimal128(38, 10), Decimal256(76, 0)]);
    all.extend([Binary, LargeBinary, BinaryView, Utf8, LargeUtf8, Utf8View]);
    all.extend([FixedSizeBinary(3), FixedSizeBinary(16)]);
    for key in [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64] {
        all.push(Dictionary(Box::new(key), Box::new(Utf8)));
    }
    all
}

/// Every way to nest, around the given children.
pub fn nested_types(first: &DataType, second: &DataType) -> Vec<DataType> {
    use DataType::*;
    let both: Fields =
        vec![Field::new("a", first.clone(), true), Field::new("b", second.clone(), true)].into();
    let entries =
        Struct(vec![Field::new("key", Utf8, false), Field::new("value", first.clone(), true)].into());
    let ids: UnionFields = [3i8, 7].into_iter().zip(both.iter().cloned()).collect();
    let ends = |width| Arc::new(Field::new("run_ends", width, false));
    let values = Arc::new(Field::new("values", first.clone(), true));
    vec![
        List(item(first.clone())),
        LargeList(item(first.clone())),
        FixedSizeList(item(first.clone()), 3),
        ListView(item(first.clone())),
        LargeListView(item(first.clone())),
        Struct(both),
        Map(Arc::new(Field::new("entries", entries, false)), false),
        Union(ids.clone(), UnionMode::Sparse),
        Union(ids, UnionMode::Dense),
        RunEndEncoded(ends(Int16), values.clone()),
        RunEndEncoded(ends(Int32), values.clone()),
        RunEndEncoded(ends(Int64), values),
    ]
}

/// Every type: the flat ones, each way to nest, and some nested twice.
pub fn every_type() -> Vec<DataType> {
    let mut all = flat_types();
    let inner = nested_types(&DataType::Int32, &DataType::Utf8);
    all.extend(inner.iter().cloned().map(|inner| DataType::List(item(inner))));
    all.extend(inner);
    all.extend(nested_types(&DataType::Utf8View, &DataType::Boolean));
    all
}

pub fn is_run_ends(data_type: &DataType) -> bool {
    matches!(data_type, DataType::RunEndEncoded(..))
}

/// An array of this type and length with random values, and with random nulls where the layout has a bitmap.
pub fn array(data_type: &DataType, length: usize, nulls: bool, random: &mut Random) -> Made<ArrayRef> {
    use DataType::*;
    let valid = nulls.then(|| NullBuffer::new(bits(length, random)));
    let child = |field: &FieldRef, length: usize, random: &mut Random| {
        array(field.data_type(), length, nulls && field.is_nullable(), random)
    };
    Ok(match data_type {
        Null => Arc::new(NullArray::new(length)),
        Boolean => Arc::new(BooleanArray::new(bits(length, random), valid)),
        Binary => Arc::new(bytes::<BinaryType>(length, valid, random)?),
        LargeBinary => Arc::new(bytes::<LargeBinaryType>(length, valid, random)?),
        Utf8 => Arc::new(bytes::<Utf8Type>(length, valid, random)?),
        LargeUtf8 => Arc::new(bytes::<LargeUtf8Type>(length, valid, random)?),
        BinaryView => views::<BinaryViewType>(length, valid, random),
        Utf8View => views::<StringViewType>(length, valid, random),
        FixedSizeBinary(width) => {
            let values = Buffer::from(random.bytes(length * width.as_usize()));
            Arc::new(FixedSizeBinaryArray::try_new(*width, values, valid)?)
        }
        List(field) => {
            list::<i32>(field, length, valid, |length, random| child(field, length, random), random)?
        }
        LargeList(field) => {
            list::<i64>(field, length, valid, |length, random| child(field, length, random), random)?
        }
        ListView(field) => list_view::<i32>(field, length, valid, child(field, 20, random)?, random)?,
        LargeListView(field) => list_view::<i64>(field, length, valid, child(field, 20, random)?, random)?,
        FixedSizeList(field, width) => {
            let values = child(field, length * width.as_usize(), random)?;
            Arc::new(FixedSizeListArray::try_new_with_length(field.clone(), *width, values, valid, length)?)
        }
        Struct(fields) => {
            let children = fields.iter().map(|field| child(field, length, random)).collect::<Made<_>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), children, valid, length)?)
        }
        Map(entries, sorted) => {
            let lengths: Vec<_> = (0..length).map(|_| random.below(4)).collect();
            let pairs = array(entries.data_type(), lengths.iter().sum(), false, random)?;
            let pairs = StructArray::from(pairs.to_data());
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(MapArray::try_new(entries.clone(), offsets, pairs, valid, *sorted)?)
        }
        Union(fields, mode) => union(fields, *mode, length, child, random)?,
        RunEndEncoded(ends, values) => match ends.data_type() {
            Int16 => runs::<Int16Type>(values, length, child, random)?,
            Int32 => runs::<Int32Type>(values, length, child, random)?,
            _ => runs::<Int64Type>(values, length, child, random)?,
        },
        Dictionary(key, values) => {
            let values = array(values, 5, nulls, random)?;
            let keys: Vec<u8> = (0..length).map(|_| random.below(5) as u8).collect();
            let keys = widened(&keys, key.primitive_width().unwrap_or(1), 1);
            let data = ArrayData::builder(data_type.clone()).len(length).add_buffer(keys).nulls(valid);
            make_array(data.add_child_data(values.to_data()).build()?)
        }
        _ => {
            let width = data_type.primitive_width().unwrap_or(1);
            // Decimals have fewer values than bits.
            let kept = if data_type.is_decimal() { 3 } else { width };
            let values = widened(&random.bytes(length * kept), width, kept);
            make_array(
                ArrayData::builder(data_type.clone()).len(length).add_buffer(values).nulls(valid).build()?,
            )
        }
    })
}

/// Values of `width` bytes of which only the lowest `kept` are not 0, aligned for any of them.
fn widened(values: &[u8], width: usize, kept: usize) -> Buffer {
    let wide: Vec<u8> = values
        .chunks(kept)
        .flat_map(|value| value.iter().copied().chain(std::iter::repeat_n(0, width - kept)))
        .collect();
    Buffer::from(&wide[..])
}

fn bits(length: usize, random: &mut Random) -> BooleanBuffer {
    BooleanBuffer::collect_bool(length, |_| random.below(3) > 0)
}

/// A string of 0 to 30 letters of one to four bytes.
fn text(random: &mut Random) -> String {
    (0..random.below(30)).map(|_| *random.pick(&['a', 'Z', '0', 'é', '€', '🦀'])).collect()
}

/// Null values have bytes too, as the specification allows.
fn bytes<T: ByteArrayType>(
    length: usize,
    valid: Option<NullBuffer>,
    random: &mut Random,
) -> Made<GenericByteArray<T>> {
    let values: Vec<_> = (0..length).map(|_| text(random)).collect();
    let offsets = OffsetBuffer::from_lengths(values.iter().map(String::len));
    GenericByteArray::try_new(offsets, Buffer::from(values.concat().into_bytes()), valid)
}

/// Text in the views themselves and in several data buffers.
fn views<T: ByteViewType>(length: usize, valid: Option<NullBuffer>, random: &mut Random) -> ArrayRef
where
    str: AsRef<T::Native>,
{
    let mut builder = GenericByteViewBuilder::<T>::new().with_fixed_block_size(128);
    for number in 0..length {
        let null = valid.as_ref().is_some_and(|valid| valid.is_null(number));
        builder.append_option((!null).then(|| text(random)).as_deref());
    }
    Arc::new(builder.finish())
}

/// Lists whose child has values before the first list and after the last one.
fn list<O: OffsetSizeTrait>(
    field: &FieldRef,
    length: usize,
    valid: Option<NullBuffer>,
    child: impl Fn(usize, &mut Random) -> Made<ArrayRef>,
    random: &mut Random,
) -> Made<ArrayRef> {
    let mut end = random.below(3);
    let mut offsets = vec![O::usize_as(end)];
    for _ in 0..length {
        end += random.below(4);
        offsets.push(O::usize_as(end));
    }
    let values = child(end + random.below(3), random)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(GenericListArray::try_new(field.clone(), offsets, values, valid)?))
}

/// Lists that overlap and are in any order.
fn list_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    length: usize,
    valid: Option<NullBuffer>,
    values: ArrayRef,
    random: &mut Random,
) -> Made<ArrayRef> {
    let starts: Vec<_> = (0..length).map(|_| random.below(16)).collect();
    let sizes: Vec<_> = (0..length).map(|_| O::usize_as(random.below(5))).collect();
    let starts: Vec<_> = starts.into_iter().map(O::usize_as).collect();
    let (starts, sizes) = (ScalarBuffer::from(starts), ScalarBuffer::from(sizes));
    Ok(Arc::new(GenericListViewArray::try_new(field.clone(), starts, sizes, values, valid)?))
}

fn union(
    fields: &UnionFields,
    mode: UnionMode,
    length: usize,
    child: impl Fn(&FieldRef, usize, &mut Random) -> Made<ArrayRef>,
    random: &mut Random,
) -> Made<ArrayRef> {
    let known: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
    let ids: Vec<i8> = (0..length).map(|_| *random.pick(&known)).collect();
    let place = |at: usize| ids[..at].iter().filter(|id| **id == ids[at]).count() as i32;
    let dense = mode == UnionMode::Dense;
    let offsets = dense.then(|| (0..length).map(place).collect::<ScalarBuffer<i32>>());
    let children = fields.iter().map(|(own, field)| {
        let count = ids.iter().filter(|id| **id == own).count();
        child(field, if dense { count } else { length }, random)
    });
    let children = children.collect::<Made<_>>()?;
    Ok(Arc::new(UnionArray::try_new(fields.clone(), ScalarBuffer::from(ids), offsets, children)?))
}

fn runs<R: RunEndIndexType>(
    values: &FieldRef,
    length: usize,
    child: impl Fn(&FieldRef, usize, &mut Random) -> Made<ArrayRef>,
    random: &mut Random,
) -> Made<ArrayRef> {
    let mut ends = Vec::new();
    let mut end = 0;
    while end < length {
        end = length.min(end + 1 + random.below(4));
        ends.push(R::Native::usize_as(end));
    }
    let values = child(values, ends.len(), random)?;
    let ends = PrimitiveArray::<R>::new(ScalarBuffer::from(ends), None);
    Ok(Arc::new(RunArray::try_new(&ends, values.as_ref())?))
}
