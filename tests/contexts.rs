//! The lifetime of contexts, and of queues, memory, kernels and threads in them.

#![allow(clippy::unwrap_used)] // A helper that fails is a test that fails.

mod common;
#[path = "common/memory.rs"]
mod memory;

use common::{IN_ORDER, LOOSE, Work, advanced, default_queue, states_of};
use memory::{MIB, bytes, exclusive, kind_stats};
use std::time::{Duration, Instant};
use usmq::memory::trim;
use usmq::{Array, Context, Device, Index, Kernel, KernelOptions, Queue, Result, UsmKind, collocate};

const ADD: &str = "kernel void add(global uint *x, uint term) { x[get_global_id(0)] += term; }";

fn fresh(device: &Device) -> Result<Context> {
    Context::new(std::slice::from_ref(device))
}

fn eventually(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn add() -> Result<Kernel> {
    Kernel::from_opencl(ADD, "add", KernelOptions::default())
}

#[test]
fn memory_is_freed_with_the_last_user_of_its_context() -> Result<()> {
    let _guard = exclusive()?;
    let home = default_queue()?;
    let device = home.device();
    for properties in [IN_ORDER, LOOSE] {
        for kind in UsmKind::ALL {
            let reserved = || kind_stats(kind, device).map(|stats| stats.reserved);
            let emptied = || {
                trim(None).unwrap();
                reserved().unwrap() == 0
            };
            assert!(
                eventually(emptied),
                "memory of earlier tests is freed: {} bytes of {kind} USM",
                reserved()?
            );
            let context = fresh(device)?;
            let queue = Queue::new(device, Some(&context), properties)?;
            let (small, large) = (bytes(1000, kind, &queue)?, bytes(40 * MIB, kind, &queue)?);
            small.fill(1u8)?;
            large.fill(2u8)?;
            drop((context, small));
            assert!(reserved()? >= 40 * MIB as u64);
            // A view of another type, and a copy to another context that reads it.
            let part = large.index(&[Index::Slice { start: None, stop: Some(MIB as isize), step: None }])?;
            drop(large);
            let copy = collocate(&part, &home)?;
            drop((queue, part));
            assert_eq!(copy.to_vec::<u8>()?, vec![2; MIB]);
            drop(copy);
            home.wait()?;
            // Work in other contexts releases the memory, without a call of trim.
            let gone = || {
                drop(bytes(1, UsmKind::Host, &home).unwrap());
                reserved().unwrap() < 20 * MIB as u64
            };
            assert!(eventually(gone), "{kind} USM: {} bytes", reserved()?);
            let now = kind_stats(kind, device)?;
            assert!(now.peak >= 40 * MIB as u64 && now.misses >= 2, "the past does not change: {now:?}");
        }
    }
    Ok(())
}

#[test]
fn memory_in_use_outlives_the_handles_of_its_context() -> Result<()> {
    let _guard = exclusive()?;
    let home = default_queue()?;
    let device = home.device();
    let queue = Queue::new(device, Some(&fresh(device)?), IN_ORDER)?;
    let work = Work::new(&queue)?;
    let x = states_of(&[7; 1000], &queue)?;
    let event = work.advance(&queue, &x, 50_000_000)?;
    drop((queue, work));
    let twin = x.clone();
    drop(x);
    for _ in 0..100 {
        drop(bytes(1000, UsmKind::Device, &home)?);
    }
    assert!(!event.done()?, "the test needs work in flight here");
    assert_eq!(twin.to_vec::<u32>()?, [advanced(7, 50_000_000); 1000]);
    Ok(())
}

#[test]
fn the_same_arguments_give_the_same_queue_while_it_lives() -> Result<()> {
    let home = default_queue()?;
    let context = fresh(home.device())?;
    let queue = Queue::new(&home, Some(&context), IN_ORDER)?;
    assert_eq!(Queue::new(home.device(), Some(&context), IN_ORDER)?, queue);
    assert_ne!(Queue::new(&home, Some(&context), LOOSE)?, queue);
    assert_ne!(Queue::new(&home, Some(&fresh(home.device())?), IN_ORDER)?, queue);
    let address = queue.to_raw()?;
    // SAFETY: the address of a live queue.
    assert_eq!(unsafe { Queue::from_raw(address) }?, queue);
    // An array keeps the context alive.
    let x = bytes(10, UsmKind::Device, &queue)?;
    drop(queue);
    assert_eq!(&Queue::new(&home, Some(&context), IN_ORDER)?, x.queue());
    // SAFETY: from `to_raw`, freed once.
    unsafe { Queue::free_raw(address) };
    Ok(())
}

/// The runtime reuses addresses of released contexts and queues for new ones, which must not be mistaken for the old.
#[test]
fn a_new_context_at_an_old_address_is_not_mistaken_for_the_old_one() -> Result<()> {
    let home = default_queue()?;
    let add = add()?;
    for round in 0..30u32 {
        let context = fresh(home.device())?;
        let queue = Queue::new(&home, Some(&context), IN_ORDER)?;
        let x = states_of(&[round; 500], &queue)?;
        // SAFETY: one work-item for each element.
        unsafe { add.launch([500], &[(&x).into(), 5u32.into()]) }?;
        assert_eq!(x.context(), &context);
        assert_eq!(collocate(&x, &home)?.to_vec::<u32>()?, [round + 5; 500]);
    }
    Ok(())
}

#[test]
fn threads_share_one_queue_until_the_last_handle_is_dropped() -> Result<()> {
    let home = default_queue()?;
    for round in 0..20u32 {
        let context = fresh(home.device())?;
        let one = |thread: u32| -> Result<Queue> {
            let queue = Queue::new(&home, Some(&context), IN_ORDER)?;
            let x = states_of(&[round + thread; 100], &queue)?;
            assert_eq!(x.to_vec::<u32>()?, [round + thread; 100]);
            Ok(queue)
        };
        let queues: Vec<Queue> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || one(thread).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(queues.iter().all(|queue| *queue == queues[0]));
    }
    Ok(())
}

/// Threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

#[test]
fn any_number_of_contexts_uses_two_threads() -> Result<()> {
    let home = default_queue()?;
    if home.device().backend() != usmq::Backend::OpenCl {
        println!("no thread is needed between contexts of {}: nothing to test", home.device());
        return Ok(());
    }
    for _ in 0..3 {
        let queues: Vec<_> = (0..3)
            .map(|_| Queue::new(&home, Some(&fresh(home.device())?), IN_ORDER))
            .collect::<Result<_>>()?;
        let arrays: Vec<Array> =
            queues.iter().map(|queue| states_of(&[1; 100], queue)).collect::<Result<_>>()?;
        for array in &arrays {
            assert_eq!(collocate(array, &home)?.to_vec::<u32>()?, [1; 100]);
        }
        assert_eq!((threads("usmq-signal"), threads("usmq-release")), (1, 1));
        assert!(eventually(|| threads("usmq-assist") == 0), "threads that wait in the driver end");
    }
    Ok(())
}
