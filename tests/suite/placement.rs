//! Compute follows data: the errors of `follow`, and the minimal, exact copies of `collocate`.

use crate::common::{
    IN_ORDER, LOOSE, Random, Work, default_queue, four_queues, queues_elsewhere, states, states_of,
    two_sub_devices,
};
use usmq::{
    Action, Array, Context, DType, DeviceType, Error, Index, Queue, Result, UsmKind, collocate,
    collocate_all, explain, follow,
};

const MIB: usize = 1 << 20;

fn slice(start: Option<isize>, stop: Option<isize>, step: isize) -> Index {
    Index::Slice { start, stop, step: Some(step) }
}

/// Random values of the dtype; for `bool` only valid bytes.
fn values(dtype: DType, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(count * dtype.itemsize());
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte &= 1);
    }
    bytes
}

fn filled(shape: &[usize], dtype: DType, kind: UsmKind, queue: &Queue, bytes: &[u8]) -> Result<Array> {
    let array = Array::uninit(shape, dtype, kind, queue)?;
    array.copy_from_bytes(bytes)?;
    Ok(array)
}

/// The elements of a view in C order. The host gathers them from all bytes of the viewed array.
fn gathered(view: &Array, whole: &Array, bytes: &[u8]) -> Vec<u8> {
    let size = view.dtype().itemsize();
    let mut starts = vec![(view.address() - whole.address()) as isize];
    for (extent, stride) in view.shape().iter().zip(view.strides()) {
        let step = stride * size as isize;
        starts =
            starts.iter().flat_map(|start| (0..*extent as isize).map(move |i| start + i * step)).collect();
    }
    starts.into_iter().flat_map(|start| bytes[start as usize..][..size].iter().copied()).collect()
}

/// Checks the action for one array and target, that it was executed, and that the elements arrived.
fn moves_as(source: &Array, target: &Queue, expected: Action) -> Result<Array> {
    let plan = explain(&[source], Some(target))?;
    let step = &plan.steps[0];
    assert_eq!(step.action, expected, "{source} to {target}: {}", step.reason);
    let moves = matches!(expected, Action::CopyDirect | Action::CopyStaged);
    assert_eq!(step.bytes, if moves { source.nbytes() as u64 } else { 0 }, "{plan}");
    let result = collocate(source, target)?;
    assert_eq!(result.queue(), target);
    assert_eq!((result.shape(), result.dtype()), (source.shape(), source.dtype()));
    assert_eq!(result.usm_kind(), source.usm_kind());
    if moves {
        assert_eq!(result.context(), target.context());
        assert!(result.is_contiguous(), "a copy is contiguous");
    } else {
        assert_eq!(result.address(), source.address(), "the memory itself does not move");
        assert_eq!(result.strides(), source.strides());
    }
    assert_eq!(&follow(&[&result])?, target);
    Ok(result)
}

/// The action that brings USM of a queue's device to another context.
fn elsewhere_action(kind: UsmKind, from: &Queue) -> Action {
    let is_host_memory = kind == UsmKind::Host || from.device().device_type() == DeviceType::Cpu;
    if is_host_memory { Action::CopyDirect } else { Action::CopyStaged }
}

#[test]
fn an_array_on_the_target_queue_is_kept_and_one_in_its_context_is_rebound() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    for kind in UsmKind::ALL {
        for shape in [&[1000][..], &[3, 0, 2], &[]] {
            let x = Array::uninit(shape, DType::F64, kind, &queues[0])?;
            x.fill(1.5f64)?;
            moves_as(&x, &queues[0], Action::Keep)?;
            for target in &queues[1..] {
                let bound = moves_as(&x, target, Action::Rebind)?;
                moves_as(&bound, &queues[0], Action::Rebind)?;
                assert_eq!(bound.to_vec::<f64>()?, vec![1.5; x.size()]);
            }
        }
    }
    Ok(())
}

#[test]
fn every_dtype_and_kind_arrives_exactly_in_every_other_context() -> Result<()> {
    let home = default_queue()?;
    let mut random = Random::new(1);
    for away in queues_elsewhere(&home)? {
        for dtype in DType::ALL {
            for kind in UsmKind::ALL {
                let bytes = values(dtype, 3 * 5 * 7, &mut random);
                let x = filled(&[3, 5, 7], dtype, kind, &home, &bytes)?;
                let moved = moves_as(&x, &away, elsewhere_action(kind, &home))?;
                // The copy is ordered before this write and must not see it.
                x.copy_from_bytes(&vec![1; bytes.len()])?;
                assert_eq!(moved.to_bytes()?, bytes, "{x} to {away}");
                let back = moves_as(&moved, &home, elsewhere_action(kind, &away))?;
                assert_eq!(back.to_bytes()?, bytes, "{moved} to {home}");
            }
        }
    }
    Ok(())
}

#[test]
fn strided_views_arrive_contiguous_with_the_same_elements() -> Result<()> {
    let home = default_queue()?;
    let mut random = Random::new(2);
    let views: [(&str, fn(&Array) -> Result<Array>); 6] = [
        ("transposed", |x| Ok(x.transpose())),
        ("permuted", |x| x.permute([1, 0, 2])),
        ("every second row backwards", |x| x.index(&[slice(None, None, -2)])),
        ("one column", |x| x.index(&[Index::Ellipsis, Index::At(3)])),
        ("an inner box", |x| {
            x.index(&[slice(Some(1), Some(5), 1), slice(Some(1), Some(4), 2), slice(Some(-4), None, 1)])
        }),
        ("a contiguous part at an offset", |x| x.index(&[Index::At(2)])),
    ];
    for away in queues_elsewhere(&home)? {
        for dtype in [DType::U8, DType::BF16, DType::F32, DType::C64, DType::C128] {
            for kind in UsmKind::ALL {
                let bytes = values(dtype, 6 * 5 * 7, &mut random);
                let whole = filled(&[6, 5, 7], dtype, kind, &home, &bytes)?;
                for (name, view) in views {
                    let view = view(&whole)?;
                    let moved = moves_as(&view, &away, elsewhere_action(kind, &home))?;
                    assert_eq!(
                        moved.to_bytes()?,
                        gathered(&view, &whole, &bytes),
                        "{name}: {view} to {away}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn an_empty_array_moves_no_bytes() -> Result<()> {
    let home = default_queue()?;
    for away in queues_elsewhere(&home)? {
        for kind in UsmKind::ALL {
            let x = Array::uninit([4, 0, 3], DType::F32, kind, &home)?;
            let moved = collocate(&x, &away)?;
            assert_eq!((moved.shape(), moved.queue(), moved.usm_kind()), (&[4, 0, 3][..], &away, Some(kind)));
            assert_eq!(explain(&[&x], Some(&away))?.bytes(), 0);
            assert!(moved.to_vec::<f32>()?.is_empty());
        }
    }
    Ok(())
}

#[test]
fn sub_devices_share_host_memory_within_one_context() -> Result<()> {
    let home = default_queue()?;
    let Some(parts) = two_sub_devices(home.device())? else { return Ok(()) };
    let shared = Context::new(&parts)?;
    let [first, second] = [&parts[0], &parts[1]];
    let mut random = Random::new(3);
    for kind in UsmKind::ALL {
        let bytes = random.bytes(5 * MIB + 3);
        let (here, there) =
            (Queue::new(first, Some(&shared), IN_ORDER)?, Queue::new(second, Some(&shared), LOOSE)?);
        let x = filled(&[bytes.len()], DType::U8, kind, &here, &bytes)?;
        let within = if kind == UsmKind::Host { Action::Rebind } else { Action::CopyStaged };
        for (target, action) in [
            (&there, within),
            (&Queue::new(first, Some(&shared), LOOSE)?, Action::Rebind),
            (&Queue::new(first, None, IN_ORDER)?, elsewhere_action(kind, &here)),
            (&Queue::new(second, None, IN_ORDER)?, elsewhere_action(kind, &here)),
            (&home, elsewhere_action(kind, &here)),
        ] {
            assert!(moves_as(&x, target, action)?.to_bytes()? == bytes, "{x} to {target}");
        }
    }
    Ok(())
}

#[test]
fn sizes_around_the_chunks_of_a_staged_copy_are_exact() -> Result<()> {
    let home = default_queue()?;
    let Some(parts) = two_sub_devices(home.device())? else { return Ok(()) };
    let shared = Context::new(&parts)?;
    let here = Queue::new(&parts[0], Some(&shared), IN_ORDER)?;
    let mut random = Random::new(4);
    let sizes = [1, 63, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 4 * MIB, 4 * MIB + 1, 6 * MIB - 5, 6 * MIB + 64];
    // An out-of-order queue does not guarantee the order of the chunks.
    for away in
        [Queue::new(&parts[1], Some(&shared), IN_ORDER)?, Queue::new(&parts[1], Some(&shared), LOOSE)?]
    {
        for size in sizes {
            let bytes = random.bytes(size);
            let x = filled(&[size], DType::U8, UsmKind::Device, &here, &bytes)?;
            let moved = moves_as(&x, &away, Action::CopyStaged)?;
            drop(x);
            assert!(moved.to_bytes()? == bytes, "{size} bytes to {away}");
        }
    }
    Ok(())
}

#[test]
fn large_arrays_of_odd_sizes_arrive_exactly() -> Result<()> {
    let home = default_queue()?;
    let mut random = Random::new(5);
    let bytes = random.bytes(100 * MIB + 64);
    for (number, away) in queues_elsewhere(&home)?.iter().enumerate() {
        for kind in UsmKind::ALL {
            let x = filled(&[bytes.len()], DType::U8, kind, &home, &bytes)?;
            // Replaces a copy of odd length from the host, which some drivers execute byte by byte.
            let odd = x.index(&[slice(Some(61), Some(61 + 100 * MIB as isize + 3), 1)])?;
            let source = if kind == UsmKind::Device || number == 0 { odd } else { x.clone() };
            let moved = moves_as(&source, away, elsewhere_action(kind, &home))?;
            x.fill(0u8)?;
            let start = source.address() - x.address();
            for part in [0..64, 64..50 * MIB, 50 * MIB..100 * MIB, 100 * MIB..source.size()] {
                let arrived = moved.index(&[slice(Some(part.start as isize), Some(part.end as isize), 1)])?;
                assert!(
                    arrived.to_bytes()? == bytes[start..][part.clone()],
                    "bytes {part:?} of {source} to {away}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_copy_does_not_block_the_host_and_follows_the_work_on_its_source() -> Result<()> {
    let home = default_queue()?;
    let work = Work::new(&home)?;
    for away in queues_elsewhere(&home)? {
        let x = states_of(&[5; 16], &home)?;
        let event = work.advance(&home, &x, 150_000_000)?;
        let moved = collocate(&x, &away)?;
        assert!(!event.done()?, "collocate waited for {home}");
        assert_eq!(moved.to_vec::<u32>()?, [crate::common::advanced(5, 150_000_000); 16]);
    }
    Ok(())
}

#[test]
fn without_a_target_the_fewest_bytes_move() -> Result<()> {
    let home = default_queue()?;
    let mut queues = four_queues(home.device(), None)?.to_vec();
    queues.extend(queues_elsewhere(&home)?);
    let mut random = Random::new(6);
    for _ in 0..60 {
        let arrays = (0..1 + random.below(4))
            .map(|_| {
                let size = *random.pick(&[0, 1, 1000, 100_000]);
                let kind = *random.pick(&UsmKind::ALL);
                let array = Array::uninit([size], DType::U8, kind, random.pick(&queues))?;
                array.fill(size as u8)?;
                Ok(array)
            })
            .collect::<Result<Vec<_>>>()?;
        let refs: Vec<_> = arrays.iter().collect();
        let plan = explain(&refs, None)?;
        let mut fewest = u64::MAX;
        for array in &arrays {
            fewest = fewest.min(explain(&refs, Some(array.queue()))?.bytes());
        }
        assert_eq!(plan.bytes(), fewest, "{plan}");
        let placed = collocate_all(&refs, None)?;
        assert_eq!(plan.target, follow(&placed.iter().collect::<Vec<_>>())?);
        for ((before, after), step) in arrays.iter().zip(&placed).zip(&plan.steps) {
            assert_eq!(step.bytes == 0, before.address() == after.address() || before.size() == 0, "{plan}");
            assert_eq!(after.to_bytes()?, before.to_bytes()?);
        }
    }
    assert!(matches!(collocate_all(&[], None), Err(Error::Value { .. })));
    assert!(matches!(explain(&[], None), Err(Error::Value { .. })));
    assert!(collocate_all(&[], Some(&home))?.is_empty());
    Ok(())
}

#[test]
fn follow_names_each_argument_queue_and_context_and_the_fix() -> Result<()> {
    let home = default_queue()?;
    let [_, profiling, ..] = four_queues(home.device(), None)?;
    let away = queues_elsewhere(&home)?;
    let mut arrays = vec![states(3, &home)?, Array::uninit([2, 4], DType::F64, UsmKind::Shared, &profiling)?];
    for queue in &away {
        arrays.push(Array::uninit([5], DType::C64, UsmKind::Device, queue)?);
    }
    let refs: Vec<_> = arrays.iter().collect();
    let error = follow(&refs).expect_err("different queues");
    assert!(matches!(error, Error::Placement { .. }), "{error:?}");
    let text = error.to_string();
    for (position, array) in arrays.iter().enumerate() {
        let line = text.lines().find(|line| line.contains(&format!("array {position}:"))).unwrap_or_default();
        for part in [
            format!("{}{:?}", array.dtype(), array.shape()),
            format!("{} USM", array.memory_kind()),
            array.queue().to_string(),
            array.device().to_string(),
            array.context().to_string(),
        ] {
            assert!(line.contains(&part), "{part:?} is missing in {line:?} of\n{text}");
        }
    }
    assert!(text.contains("collocate("), "{text}");
    // The fix works.
    assert!(follow(&collocate_all(&refs, None)?.iter().collect::<Vec<_>>()).is_ok());
    Ok(())
}

#[test]
fn an_explicit_queue_wins_only_if_it_can_use_every_array() -> Result<()> {
    let home = default_queue()?;
    let [_, profiling, loose, _] = four_queues(home.device(), None)?;
    let work = Work::new(&home)?;
    let (x, y) = (states_of(&[1; 4], &home)?, states(4, &profiling)?);
    assert_eq!(work.advance_into(&loose, &x, &y, 1)?.queue(), &loose);
    for away in queues_elsewhere(&home)? {
        let z = states(4, &away)?;
        let error = work.advance_into(&home, &x, &z, 1).expect_err("another context");
        assert!(matches!(error, Error::Placement { .. }), "{error:?}");
        let text = error.to_string();
        for part in
            ["array 1", &z.context().to_string(), &z.queue().to_string(), &home.to_string(), "collocate("]
        {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        for error in [z.on_queue(&home).expect_err("on_queue"), x.assign(&z).expect_err("assign")] {
            assert!(matches!(error, Error::Placement { .. }), "{error:?}");
        }
    }
    assert_eq!(x.to_vec::<u32>()?, [1; 4]);
    Ok(())
}

#[test]
fn a_plan_prints_as_a_table() -> Result<()> {
    let home = default_queue()?;
    let [_, profiling, ..] = four_queues(home.device(), None)?;
    let away = &queues_elsewhere(&home)?[0];
    let arrays = [
        states(250, &home)?,
        states(250, &profiling)?,
        Array::uninit([3 * MIB / 2], DType::U8, UsmKind::Device, away)?,
        Array::uninit([4, 6], DType::F32, UsmKind::Host, away)?.transpose(),
    ];
    let plan = explain(&arrays.iter().collect::<Vec<_>>(), Some(&home))?;
    let text = plan.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2 + arrays.len() + 1, "{text}");
    assert_eq!(lines[0], format!("to {home}"));
    let columns = ["array", "action", "moves", "why"].map(|title| lines[1].find(title).expect(title));
    assert!(columns.is_sorted(), "{text}");
    let rows = [
        ("keep", "0 B", "target queue"),
        ("rebind", "0 B", "same context and device"),
        (elsewhere_action(UsmKind::Device, away).name(), "1.5 MiB", "context"),
        ("copy_direct", "96 B", "contexts differ"),
    ];
    for (position, ((action, moves, why), array)) in rows.into_iter().zip(&arrays).enumerate() {
        let line = lines[2 + position];
        assert!(line.starts_with(&position.to_string()), "{text}");
        assert!(line[columns[0]..].starts_with(&format!("{}{:?}", array.dtype(), array.shape())), "{text}");
        assert!(line.contains(&array.queue().to_string()), "{text}");
        assert!(line[columns[1]..].starts_with(action), "{text}");
        assert!(line[..columns[3]].trim_end().ends_with(moves), "{text}");
        assert!(line[columns[3]..].contains(why), "{text}");
    }
    assert!(lines[5].contains("contiguous"), "{text}");
    assert_eq!(lines[6], "1.5 MiB moved in all", "{text}");
    assert_eq!(plan.bytes(), 3 * MIB as u64 / 2 + 96);
    Ok(())
}
