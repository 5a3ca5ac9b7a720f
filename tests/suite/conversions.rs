//! Values between the types of elements: truth values of other libraries, and parts of complex numbers.

use crate::common::default_queue;
use usmq::num_complex::Complex;
use usmq::{Array, DType, Elementwise, Error, HostMemory, Queue, Reduction, Result, UsmKind};

const BYTES: [u8; 6] = [0, 1, 2, 255, 3, 0];
const TRUTHS: [bool; 6] = [false, true, true, true, true, false];

/// bool memory with these bytes, as another library may have it.
fn flags(queue: &Queue) -> Result<Array> {
    let memory = HostMemory { dtype: DType::Bool, ..HostMemory::from_slice(&BYTES) };
    // SAFETY: the bytes are static, and nothing writes to them.
    unsafe { Array::from_host(&memory, queue, Box::new(())) }
}

#[test]
fn each_byte_but_0_is_true_in_every_read_of_the_host() -> Result<()> {
    let queue = default_queue()?;
    if !queue.device().has_system_usm() {
        println!("{} does not reach system memory: this test is left out", queue.device());
        return Ok(());
    }
    let x = flags(&queue)?;
    for x in [x.clone(), x.copy()?, x.to(None, Some(UsmKind::Device), None)?] {
        assert_eq!(x.to_vec::<bool>()?, TRUTHS);
        assert_eq!(x.to_bytes()?, [0, 1, 1, 1, 1, 0]);
        assert_eq!(futures::executor::block_on(x.to_vec_async::<bool>())?, TRUTHS);
        let mut values = [false; 6];
        x.copy_to_slice(&mut values)?;
        assert_eq!(values, TRUTHS);
        assert_eq!(x.index((0..6).step_by(2))?.to_vec::<bool>()?, [false, true, true]);
        assert_eq!(x.cast(DType::I32)?.to_vec::<i32>()?, [0, 1, 1, 1, 1, 0]);
        assert_eq!(x.packed_bits()?.to_vec::<u8>()?, [0b11110]);
    }
    // Rust's bool has two bytes only, so no reference to others may exist.
    assert!(matches!(x.copy()?.host_view::<bool>(), Err(Error::Value { .. })));
    Ok(())
}

#[test]
fn one_line_kernels_load_each_byte_but_0_as_true() -> Result<()> {
    let queue = default_queue()?;
    if !queue.device().has_system_usm() {
        println!("{} does not reach system memory: this test is left out", queue.device());
        return Ok(());
    }
    let (x, y) = (flags(&queue)?, Array::zeros::<i32>(6)?);
    // SAFETY: the expressions use element i only.
    let copy = unsafe { Elementwise::new("const T *x, int *y", "y[i] = x[i]") }?;
    // SAFETY: as for `copy`.
    let count = unsafe { Reduction::new("const bool *x", "int", "x[i]", "a + b", "0") }?;
    copy.launch((&x, &y))?;
    assert_eq!(y.to_vec::<i32>()?, [0, 1, 1, 1, 1, 0]);
    assert_eq!(count.launch((&x,))?.to_vec::<i32>()?, [4]);
    Ok(())
}

#[test]
fn bytes_from_the_host_become_0_and_1() -> Result<()> {
    let x = Array::uninit([6], DType::Bool, UsmKind::Host, &default_queue()?)?;
    x.copy_from_bytes(&BYTES)?;
    assert_eq!(*x.host_view::<bool>()?, TRUTHS);
    Ok(())
}

#[test]
fn complex_numbers_do_not_become_real_ones() -> Result<()> {
    let values = [Complex::new(1f32, 2.0), Complex::new(0.0, 0.0), Complex::new(0.0, 1.0)];
    for z in [Array::from_slice(&values)?, Array::from_slice(&values[..0])?] {
        for dtype in DType::ALL {
            let is_refused = !matches!(dtype, DType::Bool | DType::C64 | DType::C128);
            let refused = |result: Result<()>| match result {
                Err(Error::Type { message, .. }) => message.contains("Array::real and Array::imag"),
                _ => false,
            };
            assert_eq!(refused(z.cast(dtype).map(drop)), is_refused, "{dtype}");
            let target = Array::uninit(z.shape(), dtype, UsmKind::Device, z.queue())?;
            assert_eq!(refused(target.assign(&z)), is_refused, "{dtype}");
            assert_eq!(refused(z.to(Some(dtype), None, None).map(drop)), is_refused, "{dtype}");
        }
    }
    let z = Array::from_slice(&values)?;
    assert_eq!(z.cast(DType::Bool)?.to_vec::<bool>()?, [true, false, true]);
    assert_eq!(z.real()?.to_vec::<f32>()?, [1.0, 0.0, 0.0]);
    assert_eq!(z.index((0..3).step_by(2))?.imag()?.to_vec::<f32>()?, [2.0, 1.0]);
    assert!(matches!(z.real()?.imag(), Err(Error::Type { .. })));
    Ok(())
}

#[test]
fn a_copy_from_memory_of_the_array_itself_gives_the_values_before_it() -> Result<()> {
    let queue = default_queue()?;
    if !queue.device().has_system_usm() {
        println!("{} does not reach system memory: this test is left out", queue.device());
        return Ok(());
    }
    for size in [16usize, 1000, 100_000] {
        let mut values: Vec<u32> = (0..size as u32).collect();
        let (address, before) = (values.as_mut_ptr(), values.clone());
        // SAFETY: the vector outlives the array, and only the array and the copies below use its elements.
        let x = unsafe { Array::from_host(&HostMemory::from_slice_mut(&mut values), &queue, Box::new(())) }?;
        let (low, high) = (x.index(0..size as isize - 1)?, x.index(1..size as isize)?);
        high.assign(&low)?;
        x.wait()?;
        // SAFETY: no command uses the elements after the wait.
        let now = unsafe { std::slice::from_raw_parts(address, size) };
        assert_eq!(now[1..], before[..size - 1]);
        low.assign(&high)?;
        assert_eq!(x.to_vec::<u32>()?[..size - 2], before[..size - 2]);
    }
    Ok(())
}
