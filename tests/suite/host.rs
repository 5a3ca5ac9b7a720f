//! Memory of the host: arrays in place, and host arguments of kernels.

use crate::common::{
    IN_ORDER, LOOSE, Random, SOURCE, Work, all_advanced, default_queue, kernel, queues_elsewhere,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use usmq::interop::arrow::Column;
use usmq::interop::dlpack::{self, DLManagedTensorVersioned, Destination, Export, Import};
use usmq::interop::suai;
use usmq::{
    Action, Arg, Array, DType, Error, HostMemory, Kernel, Launch, MemoryKind, Queue, Result, UsmKind,
    collocate, explain, memory,
};

/// A queue of a device that reaches system memory.
fn reaching() -> Result<Option<Queue>> {
    let queue = default_queue()?;
    let reaches = queue.device().has_system_usm();
    if !reaches {
        println!("{} does not reach system memory: this test is left out", queue.device());
    }
    Ok(reaches.then_some(queue))
}

/// An array over values that the test keeps.
fn lent(values: &mut [u32], queue: &Queue) -> Result<Array> {
    // SAFETY: each test keeps the values until it has waited for the array.
    unsafe { Array::from_host(&HostMemory::from_slice_mut(values), queue, Box::new(())) }
}

#[test]
fn values_of_rust_are_used_in_place() -> Result<()> {
    let Some(queue) = reaching()? else { return Ok(()) };
    let values: Arc<[f32]> = (0..100u8).map(f32::from).collect();
    let x = Array::from_owner(values.clone(), &queue)?;
    assert_eq!(x.address(), values.as_ptr() as usize);
    assert_eq!((x.memory_kind(), x.usm_kind(), x.is_readonly()), (MemoryKind::System, None, true));
    assert_eq!(x.to_vec::<f32>()?, *values);
    assert!(matches!(x.fill(1f32), Err(Error::Value { .. })));
    assert!(x.to_string().contains("(system memory, queue"), "{x}");
    let copy = x.to(None, Some(UsmKind::Device), None)?;
    assert_eq!((copy.usm_kind(), copy.to_vec::<f32>()?), (Some(UsmKind::Device), values.to_vec()));
    assert_eq!(x.copy()?.usm_kind(), Some(UsmKind::Host));
    Ok(())
}

#[test]
fn the_owner_is_dropped_after_the_last_use() -> Result<()> {
    struct Owner(Vec<u32>, Arc<AtomicBool>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let Some(queue) = reaching()? else { return Ok(()) };
    let work = Work::new(&queue)?;
    let dropped = Arc::new(AtomicBool::new(false));
    let mut owner = Box::new(Owner(vec![0; 1 << 14], dropped.clone()));
    let memory = HostMemory::from_slice_mut(&mut owner.0);
    // SAFETY: the owner has the values, and nothing else uses them.
    let x = unsafe { Array::from_host(&memory, &queue, owner) }?;
    let event = work.advance(&queue, &x, 20_000)?;
    let view = x.index(&[usmq::Index::At(0)])?;
    drop(x);
    assert!(!dropped.load(Ordering::SeqCst));
    drop(view);
    let begun = Instant::now();
    while !dropped.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
    assert!(event.done()?);
    Ok(())
}

#[test]
fn overlapping_ranges_are_ordered_on_any_queue() -> Result<()> {
    let Some(queue) = reaching()? else { return Ok(()) };
    let mut queues = vec![queue.clone(), Queue::new(queue.device(), None, LOOSE)?];
    queues.extend(queues_elsewhere(&queue)?.into_iter().filter(|queue| queue.device().has_system_usm()));
    let works = queues.iter().map(Work::new).collect::<Result<Vec<_>>>()?;
    let mut random = Random::new(11);
    let mut values: Vec<u32> = (0..2000).collect();
    let mut expected = values.clone();
    let mut kept: Vec<(usize, usize, Array)> = Vec::new();
    let mut pick = move |below: usize| random.next() as usize % below;
    for _ in 0..300 {
        if kept.len() < 4 || pick(3) == 0 {
            let start = pick(1900);
            let end = start + 1 + pick(2000 - start);
            let x = lent(&mut values[start..end], &queues[pick(queues.len())])?;
            kept.push((start, end, x));
        }
        if kept.len() > 12 {
            // The log of a dropped array still orders its last command.
            kept.swap_remove(pick(12));
        }
        let (start, end, x) = &kept[pick(kept.len())];
        let number = pick(queues.len());
        let steps = pick(400) as u32;
        works[number].advance(&queues[number], x, steps)?;
        all_advanced(&mut expected[*start..*end], steps);
    }
    lent(&mut values, &queue)?.wait()?;
    drop(kept);
    assert!(values == expected);
    Ok(())
}

#[test]
fn collocate_rebinds_it_in_any_context() -> Result<()> {
    let Some(queue) = reaching()? else { return Ok(()) };
    let mut values = vec![7u32; 100];
    let x = lent(&mut values, &queue)?;
    for other in queues_elsewhere(&queue)? {
        let step = explain(&[&x], Some(&other))?.steps[0].clone();
        let moved = collocate(&x, &other)?;
        assert_eq!(moved.queue(), &other);
        if other.device().has_system_usm() {
            assert_eq!((step.action, step.bytes, moved.address()), (Action::Rebind, 0, x.address()));
            assert_eq!(moved.context(), other.context());
        } else {
            assert_eq!((step.action, step.bytes), (Action::FromHost, 400));
            assert_eq!(moved.usm_kind(), Some(UsmKind::Device));
        }
        assert_eq!(moved.to_vec::<u32>()?, [7; 100]);
    }
    Ok(())
}

#[test]
fn protocols_name_the_host() -> Result<()> {
    let Some(queue) = reaching()? else { return Ok(()) };
    let before = memory::stats(None)?;
    let mut values = vec![7u32; 100];
    let x = lent(&mut values, &queue)?;
    assert_eq!(memory::stats(None)?, before);
    assert_eq!(dlpack::device_of(&x), Destination { kind: 1, id: 0 });
    let tensor = dlpack::export::<DLManagedTensorVersioned>(&x, Export::default())?;
    // usmq imports its own export as another library would.
    let back = dlpack::import(tensor.into(), Import { copy: Some(false), ..Import::default() })?;
    assert_eq!((back.address(), back.memory_kind()), (x.address(), MemoryKind::System));
    let why = suai::export(&x).expect_err("it is not USM").to_string();
    assert!(why.contains("is not USM"), "{why}");
    let column = Column::from_array("x", &x)?;
    assert_eq!((column.memory_kind(), column.usm_kind()), (Some(MemoryKind::System), None));
    let device = column.export_device(usmq::interop::arrow::SyncMode::Event)?;
    assert_eq!((device.device_type(), device.device_id(), device.sync_event().is_null()), (1, -1, true));
    Ok(())
}

#[test]
fn wrong_memory_is_refused() -> Result<()> {
    let Some(queue) = reaching()? else { return Ok(()) };
    let mut values = vec![0u32; 8];
    let good = HostMemory::from_slice_mut(&mut values);
    let changed = |change: fn(&mut HostMemory)| {
        let mut memory = good.clone();
        change(&mut memory);
        // SAFETY: refused before anything uses it.
        unsafe { Array::from_host(&memory, &queue, Box::new(())) }.map(|_| ())
    };
    let changes: [fn(&mut HostMemory); 7] = [
        |memory| memory.pointer += 1,
        |memory| memory.strides = Some(vec![3]),
        |memory| memory.strides = Some(vec![4, 4]),
        |memory| memory.strides = Some(vec![isize::MIN]),
        |memory| memory.pointer = 0,
        |memory| memory.pointer = usize::MAX & !7,
        |memory| memory.shape = vec![usize::MAX],
    ];
    for change in changes {
        let error = changed(change).expect_err("not valid");
        assert!(matches!(error, Error::Value { .. }), "{error:?}");
    }
    changed(|memory| memory.shape = vec![0])?;
    Ok(())
}

fn launch(kernel: &Kernel, queue: Option<&Queue>, items: usize, args: &[Arg]) -> Result<usmq::Event> {
    // SAFETY: each caller gives as many work-items as its arrays have elements, and keeps its values.
    unsafe { kernel.launch_with(Launch { global: &[items], local: None, queue }, args) }
}

/// Every queue: in place where the device reaches the memory, else by copies.
fn all_queues() -> Result<Vec<Queue>> {
    let queue = default_queue()?;
    let mut all = queues_elsewhere(&queue)?;
    all.extend([Queue::new(queue.device(), None, LOOSE)?, Queue::new(queue.device(), None, IN_ORDER)?]);
    Ok(all)
}

#[test]
fn kernels_take_memory_of_the_host() -> Result<()> {
    for queue in all_queues()? {
        let advance = kernel("advance_into", &queue)?;
        let (from, mut to) = ((0..1000).collect::<Vec<u32>>(), vec![0u32; 1000]);
        let mut expected = from.clone();
        all_advanced(&mut expected, 50);
        let args = [
            Arg::host(HostMemory::from_slice(&from), None),
            Arg::host(HostMemory::from_slice_mut(&mut to), Some(Arc::new(()))),
            50u32.into(),
        ];
        let event = launch(&advance, Some(&queue), 1000, &args)?;
        assert!(event.done()? && event.queue() == &queue);
        assert!(to == expected);
        // A mixture with an array follows the array.
        let x = Array::uninit([1000], DType::U32, UsmKind::Device, &queue)?;
        launch(&advance, None, 1000, &[args[0].clone(), (&x).into(), 50u32.into()])?;
        assert_eq!(x.to_vec::<u32>()?, expected);
    }
    Ok(())
}

#[test]
fn strided_and_shared_memory_gives_the_same_results_everywhere() -> Result<()> {
    for queue in all_queues()? {
        let advance = kernel("advance_into", &queue)?;
        let mut values: Vec<u32> = (0..24).collect();
        let whole = HostMemory::from_slice_mut(&mut values);
        let part = |first: usize, count: usize, step: isize| {
            let pointer = whole.pointer + 4 * first;
            let memory =
                HostMemory { pointer, shape: vec![count], strides: Some(vec![4 * step]), ..whole.clone() };
            Arg::host(memory, None)
        };
        let run = |from: Arg, to: Arg, items| launch(&advance, Some(&queue), items, &[from, to, 7u32.into()]);
        run(part(0, 12, 2), part(1, 12, 2), 12)?;
        let mut expected: Vec<u32> = (0..24).collect();
        for at in 0..12 {
            let mut state = [expected[2 * at]];
            all_advanced(&mut state, 7);
            expected[2 * at + 1] = state[0];
        }
        assert_eq!(values, expected, "interleaved");
        run(part(0, 12, 1), part(12, 12, 1), 12)?;
        let mut later = expected[..12].to_vec();
        all_advanced(&mut later, 7);
        expected[12..].copy_from_slice(&later);
        assert_eq!(values, expected, "two halves");
        run(part(3, 6, 1), part(3, 6, 1), 6)?;
        all_advanced(&mut expected[3..9], 7);
        assert_eq!(values, expected, "the same memory twice");
        let error = run(part(0, 6, 1), part(0, 6, 2), 6).expect_err("they overlap");
        assert!(
            matches!(&error, Error::Launch { message: why, .. } if why.contains("overlaps argument 0")),
            "{error}"
        );
        assert_eq!(values, expected);
    }
    Ok(())
}

#[test]
fn wrong_host_arguments_are_refused_before_anything_runs() -> Result<()> {
    let queue = default_queue()?;
    let advance = kernel("advance", &queue)?;
    let mut values = vec![5u32; 8];
    let good = HostMemory::from_slice_mut(&mut values);
    let readonly = HostMemory { readonly: true, ..good.clone() };
    let floats = HostMemory { dtype: DType::F32, ..good.clone() };
    let nowhere = HostMemory { pointer: 0, ..good.clone() };
    for (memory, text) in [(readonly, "read-only"), (floats, "float32"), (nowhere, "address space")] {
        let error = launch(&advance, None, 8, &[Arg::host(memory, None), 5u32.into()]).expect_err("refused");
        assert!(matches!(&error, Error::Launch { message: why, .. } if why.contains(text)), "{error}");
    }
    let few = launch(&advance, None, 8, &[Arg::host(good, None)]).expect_err("too few arguments");
    assert!(matches!(few, Error::Launch { .. }));
    assert_eq!(values, [5; 8]);
    assert!(SOURCE.contains("advance"));
    Ok(())
}
