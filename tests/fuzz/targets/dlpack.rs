//! DLPack structs, some with an invalid field: invalid ones are refused, imported ones have the right
//! elements, and the deleter is called once.

use super::choices::Choices;
use super::dtype_facts::DTYPES;
use super::eventually;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use usmq::interop::dlpack::{self, DLManagedTensor, DLManagedTensorVersioned, ForeignTensor, Import};
use usmq::{Array, DType, Error, MemoryKind, UsmKind};

const CPU: i32 = 1;
const ONEAPI: i32 = 14;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: (i32, i32),
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct OldStruct {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut OldStruct)>,
}

#[repr(C)]
struct NewStruct {
    version: (u32, u32),
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut NewStruct)>,
    flags: u64,
    tensor: Tensor,
}

/// Deleters called. One input at a time.
static DELETED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete<T>(managed: *mut T) {
    // SAFETY: created from a box by `hand_over`; the consumer deletes it once, AddressSanitizer reports a second time.
    drop(unsafe { Box::from_raw(managed) });
    DELETED.fetch_add(1, Ordering::SeqCst);
}

/// A tensor, and the expected result of its import.
struct Case {
    tensor: Tensor,
    /// Kept while the tensor is used.
    lists: [Vec<i64>; 2],
    dtype: DType,
    shape: Vec<usize>,
    /// Bytes from the first element of memory for each element in C order.
    places: Vec<usize>,
    broken: bool,
}

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (dtype, _, _, (code, bits), _) = choices.pick(&DTYPES);
    let device = choices.flag();
    let shape: Vec<usize> = (0..choices.below(4)).map(|_| choices.pick(&[1, 2, 3, 5, 0])).collect();
    // Steps of C order, stretched, reversed, or 0; then moved so that the lowest is at 0.
    let mut strides = vec![0i64; shape.len()];
    let mut step = 1i64;
    for (stride, extent) in strides.iter_mut().zip(&shape).rev() {
        *stride = step * choices.pick(&[1, 1, 1, 2, -1, -3, 0]);
        step *= (*extent).max(1) as i64 * if stride.abs() > step { 3 } else { 1 };
    }
    let given = !choices.byte().is_multiple_of(4);
    if !given {
        let mut step = 1;
        for (stride, extent) in strides.iter_mut().zip(&shape).rev() {
            (*stride, step) = (step, step * *extent as i64);
        }
    }
    let mut elements = vec![0i64];
    for (extent, stride) in shape.iter().zip(&strides) {
        elements =
            elements.iter().flat_map(|base| (0..*extent as i64).map(move |i| base + i * stride)).collect();
    }
    let low = elements.iter().min().copied().unwrap_or(0);
    let high = elements.iter().max().copied().unwrap_or(0);
    let itemsize = dtype.itemsize();
    // Not one byte more, so that reading past it is seen.
    let pattern: Vec<u8> =
        (0..(high - low + 1) as usize * itemsize).map(|at| (at * 7 + 1) as u8 & 1).collect();
    let usm = device.then(|| {
        let array =
            Array::uninit([pattern.len()], DType::U8, UsmKind::Shared, &usmq::current_queue().unwrap())
                .unwrap();
        array.copy_from_bytes(&pattern).unwrap();
        array.wait().unwrap();
        array
    });
    let memory = usm.as_ref().map_or(pattern.as_ptr() as usize, Array::address);
    let first = memory + (-low) as usize * itemsize;
    let back = choices.pick(&[0usize, 8, 4096]);
    let mut lists = [shape.iter().map(|extent| *extent as i64).collect::<Vec<_>>(), strides];
    let mut case = Case {
        tensor: Tensor {
            data: (first - back) as *mut c_void,
            device: (if device { ONEAPI } else { CPU }, 0),
            ndim: shape.len() as i32,
            code,
            bits,
            lanes: 1,
            shape: lists[0].as_mut_ptr(),
            strides: if given { lists[1].as_mut_ptr() } else { std::ptr::null_mut() },
            byte_offset: back as u64,
        },
        lists,
        dtype,
        places: elements.iter().map(|element| (element - low) as usize * itemsize).collect(),
        shape,
        broken: false,
    };
    let old = choices.flag();
    let mut version = (1, choices.pick(&[0, 3, 9]));
    if choices.flag() {
        spoil(&mut choices, &mut case, old.then_some(&mut version));
    }
    let places = std::mem::take(&mut case.places);
    let readonly = choices.flag();
    let copy = choices.pick(&[None, Some(true), Some(false)]);
    let before = DELETED.load(Ordering::SeqCst);
    let result =
        hand_over(case.tensor, old.then_some((version, readonly)), Import { copy, ..Import::default() });
    match result {
        Ok(array) => {
            assert!(!case.broken, "an invalid tensor was imported as {array}");
            let system = copy == Some(false) && !device;
            assert_eq!(array.memory_kind() == MemoryKind::System, system);
            assert_eq!((array.dtype(), array.shape()), (case.dtype, &case.shape[..]));
            let expected: Vec<u8> =
                places.iter().flat_map(|place| pattern[*place..place + itemsize].iter().copied()).collect();
            assert_eq!(array.to_bytes().unwrap(), expected);
            let in_place = system || device && copy != Some(true);
            assert!(places.is_empty() || (array.address() == first) == in_place);
            assert_eq!(array.is_readonly(), in_place && old && readonly);
        }
        Err(Error::Interop { .. } | Error::Value { .. }) => {
            let refused = case.broken || (copy == Some(false) && !device);
            assert!(refused, "a valid tensor was refused");
        }
        // A shape larger than any memory.
        Err(Error::Allocation { .. }) if case.broken => {}
        Err(other) => panic!("{other:?}"),
    }
    assert!(eventually(|| DELETED.load(Ordering::SeqCst) == before + 1), "the deleter was not called once");
}

/// Makes one field wrong.
fn spoil(choices: &mut Choices<'_>, case: &mut Case, version: Option<&mut (u32, i32)>) {
    let tensor = &mut case.tensor;
    let axes = tensor.ndim as usize;
    let elements = !case.places.is_empty();
    case.broken = match choices.byte() % 11 {
        0 => {
            tensor.ndim = choices.pick(&[-1, 65, i32::MAX, i32::MIN]);
            true
        }
        1 => {
            tensor.lanes = choices.pick(&[0, 2, u16::MAX]);
            true
        }
        2 => {
            let (code, bits) =
                choices.pick(&[(3, 64), (2, 8), (0, 4), (6, 1), (17, 4), (5, 32), (255, 255), (4, 8)]);
            (tensor.code, tensor.bits) = (code, bits);
            true
        }
        3 if axes > 0 => {
            case.lists[0][choices.below(axes)] = choices.pick(&[-1, i64::MIN]);
            true
        }
        4 if axes > 0 => {
            tensor.shape = std::ptr::null_mut();
            true
        }
        5 => {
            tensor.device.0 = choices.pick(&[0, -1, 4, 7, 8, 10, 12, 15, 17, i32::MAX]);
            true
        }
        6 if elements => {
            tensor.data = std::ptr::null_mut();
            true
        }
        7 if axes > 0 && elements => {
            // More than any memory or integer holds. A stride of 0 does not move, for any extent.
            let axis = choices.below(axes);
            let steps = tensor.strides.is_null() || case.lists[1][axis] != 0;
            if steps {
                case.lists[0][axis] = choices.pick(&[i64::MAX, 1 << 62, 1 << 55]);
            }
            steps
        }
        8 if elements => {
            tensor.byte_offset = choices.pick(&[u64::MAX, i64::MAX as u64]);
            true
        }
        9 => match version {
            Some(version) => {
                version.0 = choices.pick(&[0, 2, u32::MAX]);
                true
            }
            None => false,
        },
        10 if tensor.device.0 == ONEAPI && elements => {
            // The number is a hint; the runtime knows where the memory is.
            tensor.device.1 = choices.pick(&[-1, 7, i32::MAX]);
            false
        }
        _ => false,
    };
}

fn hand_over(
    tensor: Tensor,
    versioned: Option<((u32, i32), bool)>,
    wanted: Import<'_>,
) -> usmq::Result<Array> {
    let context = std::ptr::null_mut();
    if let Some((version, readonly)) = versioned {
        let version = (version.0, version.1.unsigned_abs());
        let new = NewStruct { version, context, deleter: Some(delete), flags: readonly.into(), tensor };
        // SAFETY: the struct of DLPack, made as a producer does, with at most a field that usmq is to see.
        let foreign = unsafe {
            ForeignTensor::from_raw(Box::into_raw(Box::new(new)).cast::<DLManagedTensorVersioned>())
        }?;
        return dlpack::import(foreign, wanted);
    }
    let old = OldStruct { tensor, context, deleter: Some(delete) };
    // SAFETY: as above.
    let foreign = unsafe { ForeignTensor::from_raw(Box::into_raw(Box::new(old)).cast::<DLManagedTensor>()) }?;
    dlpack::import(foreign, wanted)
}
