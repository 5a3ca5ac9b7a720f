//! The precedence of explicit argument, data, scope and default queue, in every combination.

mod common;

use common::{IN_ORDER, PROFILING, default_queue, four_queues, kernel};
use parking_lot::{Mutex, MutexGuard};
use usmq::{
    Array, Context, DType, Error, Launch, Queue, QueueManager, Result, Target, UsmKind, current_queue,
    follow, set_default_queue, with_queue,
};

/// All tests of this binary share the process default, so they run one at a time, and each resets it.
struct Alone(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

fn process_default() -> Alone {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    Alone(ONE_AT_A_TIME.lock())
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = set_default_queue(Target::Unset);
    }
}

/// Five different queues on one device; the last one is SYCL's own choice. The first two share its context, so that an
/// array of the second can be used on the first.
fn five_queues() -> Result<[Queue; 5]> {
    let sycl = default_queue()?;
    let device = sycl.device().clone();
    let [_, a, b, _] = four_queues(&device, None)?;
    let apart = Context::new(std::slice::from_ref(&device))?;
    let (c, d) =
        (Queue::new(&device, Some(&apart), IN_ORDER)?, Queue::new(&device, Some(&apart), PROFILING)?);
    let queues = [a, b, c, d, sycl];
    for (position, queue) in queues.iter().enumerate() {
        assert!(!queues[..position].contains(queue), "the queues of this test must differ");
    }
    Ok(queues)
}

/// The first level that is present; the last one always is.
fn first(levels: &[Queue; 5], is_there: impl Fn(usize) -> bool) -> &Queue {
    (0..4).find(|level| is_there(*level)).map_or(&levels[4], |level| &levels[level])
}

#[test]
fn a_launch_uses_the_explicit_then_data_then_scope_then_default_queue() -> Result<()> {
    let _default = process_default();
    let levels = five_queues()?;
    let [explicit, data, scope, default, _] = &levels;
    let on_data = kernel("advance", data)?;
    let without_data = kernel("nothing", data)?;
    let x = Array::uninit([4], DType::U32, UsmKind::Device, data)?;
    for combination in 0..16 {
        let is_there = |level: usize| combination >> level & 1 == 1;
        set_default_queue(is_there(3).then_some(default))?;
        let launch = Launch { global: &[4], local: None, queue: is_there(0).then_some(explicit) };
        let event = with_queue(is_there(2).then_some(scope), || {
            if is_there(1) {
                // SAFETY: four work-items for the four elements.
                unsafe { on_data.launch_with(launch, &[(&x).into(), 1u32.into()]) }
            } else {
                // SAFETY: the kernel touches no memory.
                unsafe { without_data.launch_with(launch, &[0u32.into()]) }
            }
        })?;
        assert_eq!(event.queue(), first(&levels, is_there), "combination {combination:04b}");
    }
    Ok(())
}

#[test]
fn follow_and_new_arrays_follow_the_same_precedence() -> Result<()> {
    let _default = process_default();
    let levels = five_queues()?;
    let [explicit, data, scope, default, _] = &levels;
    let x = Array::uninit([4], DType::U32, UsmKind::Device, data)?;
    for combination in 0..16 {
        let is_there = |level: usize| combination >> level & 1 == 1;
        set_default_queue(is_there(3).then_some(default))?;
        with_queue(is_there(2).then_some(scope), || {
            let arrays: &[&Array] = if is_there(1) { &[&x, &x] } else { &[] };
            let without_explicit = first(&levels, |level| level > 0 && is_there(level));
            assert_eq!(&follow(arrays)?, without_explicit, "combination {combination:04b}");

            let current = first(&levels, |level| level > 1 && is_there(level));
            assert_eq!(&current_queue()?, current, "combination {combination:04b}");
            let made = [
                Array::empty::<u8>([3])?,
                Array::zeros::<f64>([2, 2])?,
                Array::full([5], 1i16)?,
                Array::from_slice(&[1f32])?,
                Array::zeros::<u32>([0])?,
            ];
            for array in &made {
                assert_eq!(array.queue(), current, "{array} in combination {combination:04b}");
            }
            let placed = Array::uninit([1], DType::U8, UsmKind::Device, explicit)?;
            assert_eq!(placed.queue(), explicit);
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn a_manager_checks_its_scope_its_default_then_the_global_ones() -> Result<()> {
    let _default = process_default();
    let levels = five_queues()?;
    let [own_scope, own_default, scope, default, _] = &levels;
    let manager = QueueManager::new("pkg2");
    let stranger = QueueManager::new("pkg2");
    stranger.set_default_queue(&levels[4])?;
    for combination in 0..16 {
        let is_there = |level: usize| combination >> level & 1 == 1;
        set_default_queue(is_there(3).then_some(default))?;
        manager.set_default_queue(is_there(1).then_some(own_default))?;
        assert_eq!(manager.default_queue().as_ref(), is_there(1).then_some(own_default));
        // The order in which the scopes were entered must not matter.
        let inside = with_queue(is_there(2).then_some(scope), || {
            manager.with_queue(is_there(0).then_some(own_scope), || {
                stranger
                    .with_queue(&levels[4], || Ok::<_, Error>((manager.current_queue()?, current_queue()?)))
            })
        })?;
        let outside = manager.with_queue(is_there(0).then_some(own_scope), || {
            with_queue(is_there(2).then_some(scope), || manager.clone().current_queue())
        })?;
        let expected = first(&levels, is_there);
        assert_eq!((&inside.0, &outside), (expected, expected), "combination {combination:04b}");
        // The choice of one package does not affect others.
        assert_eq!(
            &inside.1,
            first(&levels, |level| level > 1 && is_there(level)),
            "combination {combination:04b}"
        );
    }
    Ok(())
}

#[test]
fn a_worker_thread_sees_the_process_default_and_no_scope_of_another_thread() -> Result<()> {
    let _default = process_default();
    let [_, _, scope, default, sycl] = five_queues()?;
    let ask = || std::thread::spawn(current_queue).join();
    let worker = |answer: std::thread::Result<Result<Queue>>| answer.map_err(|_| Error::value("panic"))?;
    with_queue(&scope, || {
        assert_eq!(worker(ask())?, sycl);
        set_default_queue(&default)?;
        assert_eq!(worker(ask())?, default);
        assert_eq!(current_queue()?, scope);
        Ok::<_, Error>(())
    })?;
    assert_eq!(current_queue()?, default);
    // A worker thread sets the default, and this thread sees it: the default belongs to no thread.
    let set = std::thread::spawn(|| set_default_queue(Target::Unset)).join();
    assert!(matches!(set, Ok(Ok(()))));
    assert_eq!(current_queue()?, sycl);
    Ok(())
}

#[test]
fn a_failed_change_of_the_default_keeps_the_former_one() -> Result<()> {
    let _default = process_default();
    let [_, _, _, default, _] = five_queues()?;
    let manager = QueueManager::new("pkg");
    set_default_queue(&default)?;
    manager.set_default_queue(&default)?;
    for wrong in ["cpu:99", "nonsense", ""] {
        assert!(set_default_queue(wrong).is_err(), "{wrong:?}");
        assert!(manager.set_default_queue(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(current_queue()?, default);
    assert_eq!(manager.default_queue(), Some(default));
    Ok(())
}

#[test]
fn a_filter_string_a_device_and_a_queue_give_the_same_queue() -> Result<()> {
    let _default = process_default();
    let queue = default_queue()?;
    let device = queue.device().clone();
    let filter = device.filter_string().unwrap_or_default().to_owned();
    let targets: [Target; 4] =
        [filter.as_str().into(), filter.clone().into(), (&device).into(), (&queue).into()];
    for target in targets {
        set_default_queue(target.clone())?;
        assert_eq!(current_queue()?, queue, "{target:?}");
        set_default_queue(Target::Unset)?;
        assert_eq!(with_queue(target.clone(), current_queue)?, queue, "{target:?}");
    }
    Ok(())
}
