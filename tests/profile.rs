//! Profiles match the executed commands, bytes, reasons and times on every thread and queue.

#![allow(clippy::unwrap_used)] // A test that cannot be set up must fail.

mod common;

use common::{
    IN_ORDER, LOOSE, PROFILING, Work, default_queue, other_root, states, states_of, two_sub_devices,
};
use std::sync::Barrier;
use std::time::Instant;
use usmq::profile::{Clock, Event, Kind, Profile, Reason, Session};
use usmq::{Action, Array, DType, Index, Queue, Result, Timestamps, UsmKind, collocate, explain, with_queue};

fn of(profile: &Profile, kind: Kind) -> Vec<&Event> {
    profile.events().iter().filter(|event| event.kind == kind).collect()
}

/// Reason and bytes of each copy.
fn copies(profile: &Profile) -> Vec<(Reason, u64)> {
    of(profile, Kind::Copy).iter().map(|event| (event.reason, event.bytes)).collect()
}

fn profiled(work: impl FnOnce() -> Result<()>) -> Result<Profile> {
    let session = Session::start();
    work()?;
    session.finish()
}

#[test]
fn copies_record_bytes_and_reasons() -> Result<()> {
    let queue = default_queue()?;
    // Builds the kernels first, so that no profile below contains the builds.
    let warm = Array::from_slice(&[1i32, 2, 3, 4, 5, 6])?;
    let strided = |array: &Array| array.index(&[Index::Slice { start: None, stop: None, step: Some(2) }]);
    strided(&warm)?.to_vec::<i32>()?;
    warm.cast(DType::F64)?.wait()?;

    let profile = profiled(|| {
        let x = Array::from_slice(&[1i32, 2, 3, 4, 5, 6])?;
        assert_eq!(x.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
        assert_eq!(strided(&x)?.to_vec::<i32>()?, [1, 3, 5]);
        let y = x.copy()?;
        y.copy_from_slice(&[0i32; 6])?;
        assert_eq!(x.cast(DType::F64)?.to_vec::<f64>()?[5], 6.0);
        Ok(())
    })?;
    assert_eq!(
        copies(&profile),
        [
            (Reason::HostWrite, 24),
            (Reason::HostRead, 24),
            (Reason::Contiguity, 12),
            (Reason::HostRead, 12),
            (Reason::Explicit, 24),
            (Reason::HostWrite, 24),
            (Reason::Conversion, 48),
            (Reason::HostRead, 48),
        ]
    );
    assert!(of(&profile, Kind::Build).is_empty() && of(&profile, Kind::Kernel).is_empty());
    assert_eq!(profile.devices().len(), 1);
    assert_eq!(Some(&*profile.devices()[0].filter), queue.device().filter_string());
    Ok(())
}

#[test]
fn a_fill_is_recorded_as_a_fill_in_every_implementation() -> Result<()> {
    let profile = profiled(|| {
        Array::zeros::<u8>([1000])?;
        Array::full::<f32>([100_000], 1.5)?.wait()
    })?;
    let fills = of(&profile, Kind::Fill);
    assert_eq!(fills.iter().map(|event| event.bytes).sum::<u64>(), 1000 + 400_000);
    assert!(copies(&profile).is_empty());
    Ok(())
}

#[test]
fn collocate_records_reason_and_target_of_its_copies() -> Result<()> {
    let queue = default_queue()?;
    let Some(other) = other_root(&queue)? else { return Ok(()) };
    let there = Queue::new(&other, None, IN_ORDER)?;
    let bytes = 5 << 20;
    let source = Array::uninit([bytes], DType::U8, UsmKind::Device, &queue)?;
    source.fill(7u8)?;
    let profile = profiled(|| {
        let moved = collocate(&source, &there)?;
        assert!(moved.to_vec::<u8>()?.iter().all(|byte| *byte == 7));
        Ok(())
    })?;
    let moved: Vec<_> = of(&profile, Kind::Copy)
        .into_iter()
        .filter(|event| event.reason == Reason::ContextMismatch)
        .collect();
    // Staged, each byte is copied to the host and from the host.
    let is_staged = explain(&[&source], Some(&there))?.steps[0].action == Action::CopyStaged;
    let hops = if is_staged { 2 } else { 1 };
    assert_eq!(moved.iter().map(|event| event.bytes).sum::<u64>(), hops * bytes as u64);
    let filters: Vec<_> =
        moved.iter().map(|event| &*profile.devices()[event.device.unwrap()].filter).collect();
    for (device, copies) in [(queue.device(), is_staged), (&other, true)] {
        assert_eq!(filters.contains(&device.filter_string().unwrap()), copies, "{filters:?}");
    }
    assert!(profile.advice().iter().any(|advice| advice.seen.contains("context mismatch")));
    // The second hop has waited for the first.
    assert!(
        !is_staged
            || moved.iter().any(|event| event.waited_for.iter().any(|before| {
                profile.events()[*before].queue != event.queue
                    && profile.events()[*before].bytes == event.bytes
            }))
    );
    Ok(())
}

#[test]
fn parts_of_a_device_are_numbered_in_the_order_of_their_use() -> Result<()> {
    let root = default_queue()?.device().clone();
    let Some([first, second]) = two_sub_devices(&root)? else { return Ok(()) };
    let profile = profiled(|| {
        for device in [&root, &second, &first, &second] {
            Array::uninit([8], DType::F32, UsmKind::Device, &Queue::new(device, None, IN_ORDER)?)?
                .fill(2f32)?;
        }
        Ok(())
    })?;
    let filter = root.filter_string().unwrap();
    let filters: Vec<_> = profile.devices().iter().map(|device| &*device.filter).collect();
    assert_eq!(filters, [filter, &format!("part 1 of {filter}"), &format!("part 2 of {filter}")]);
    Ok(())
}

#[test]
fn times_of_a_profiling_queue_are_those_of_its_events() -> Result<()> {
    let queue = Queue::new(&default_queue()?, None, PROFILING)?;
    let work = Work::new(&queue)?;
    let x = states_of(&[1; 1000], &queue)?;
    let mut events = Vec::new();
    let profile = profiled(|| {
        for steps in [1_000, 200_000, 10] {
            events.push(work.advance(&queue, &x, steps)?);
        }
        Ok(())
    })?;
    let kernels = of(&profile, Kind::Kernel);
    assert_eq!(kernels.len(), 3);
    for (event, kernel) in events.iter().zip(&kernels) {
        let Timestamps { start, end, .. } = event.timestamps()?;
        assert_eq!((kernel.clock, kernel.duration()), (Clock::Device, end - start));
        assert_eq!(&*kernel.name, "advance");
        assert!(kernel.submit <= kernel.start && kernel.end <= profile.duration(), "{kernel:?}");
    }
    assert!(kernels.windows(2).all(|two| two[0].end <= two[1].start));
    Ok(())
}

#[test]
fn times_without_timestamps_are_host_times_that_include_the_work() -> Result<()> {
    let queue = default_queue()?;
    let timed = Queue::new(&queue, None, PROFILING)?;
    let work = Work::new(&queue)?;
    let x = states_of(&[1; 64], &queue)?;
    x.wait()?;
    let exact = work.advance(&timed, &x, 20_000_000)?.timestamps()?;
    let exact = exact.end - exact.start;
    let start = Instant::now();
    let profile = profiled(|| {
        work.advance(&queue, &x, 20_000_000)?;
        // The host does not wait: polling detects the end.
        Ok(())
    })?;
    let most = start.elapsed().as_nanos() as u64;
    let [kernel] = of(&profile, Kind::Kernel)[..] else { panic!("one kernel ran: {profile}") };
    assert_eq!(kernel.clock, Clock::Host);
    assert!(kernel.duration() <= most, "{} of {most}", kernel.duration());
    assert!(kernel.duration() > exact / 4, "{} instead of {exact}", kernel.duration());
    assert!(profile.to_string().contains("observed by the host"));
    Ok(())
}

#[test]
fn a_command_waits_for_those_of_other_queues() -> Result<()> {
    let queue = default_queue()?;
    let other = Queue::new(&queue, None, LOOSE)?;
    let work = Work::new(&queue)?;
    let (x, y) = (states_of(&[3; 64], &queue)?, states(64, &other)?);
    let profile = profiled(|| {
        work.advance(&queue, &x, 5_000_000)?;
        work.advance_into(&other, &x, &y, 1)?;
        Ok(())
    })?;
    let [first, second] = of(&profile, Kind::Kernel)[..] else { panic!("two kernels ran: {profile}") };
    assert_eq!(profile.events()[second.waited_for[0]], *first);
    assert_ne!(first.queue, second.queue);
    assert!(second.start >= first.end, "{first:?} {second:?}");
    Ok(())
}

#[test]
fn memory_is_recorded_with_its_peak_and_pool_hits() -> Result<()> {
    let bytes = 3 << 20;
    usmq::memory::trim(None)?;
    let keep = Array::zeros::<u8>([1000])?;
    keep.wait()?;
    let profile = profiled(|| {
        for _ in 0..3 {
            let x = Array::uninit([bytes], DType::U8, UsmKind::Device, keep.queue())?;
            x.wait()?;
        }
        Ok(())
    })?;
    let taken = of(&profile, Kind::Allocate);
    assert_eq!(taken.iter().map(|event| event.bytes).collect::<Vec<_>>(), [bytes as u64; 3]);
    assert_eq!(taken.iter().map(|event| event.hit).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(of(&profile, Kind::Free).len(), 3);
    let summary = profile.summary();
    assert_eq!((summary.devices[0].allocations, summary.devices[0].hits), (3, 2));
    let least = bytes as u64 + 1000;
    assert!((least..2 * least).contains(&summary.devices[0].peak), "{}", summary.devices[0].peak);
    Ok(())
}

#[test]
fn each_session_records_only_while_it_is_open() -> Result<()> {
    let fill = |bytes: usize| Array::zeros::<u8>([bytes]).map(drop);
    let outer = Session::start();
    fill(1)?;
    let inner = Session::start();
    fill(2)?;
    let late = Session::start();
    fill(3)?;
    let inner = inner.finish()?;
    fill(4)?;
    let outer = outer.finish()?;
    fill(5)?;
    let late = late.finish()?;
    fill(6)?;
    drop(Session::start());
    let bytes =
        |profile: &Profile| of(profile, Kind::Fill).iter().map(|event| event.bytes).collect::<Vec<_>>();
    assert_eq!((bytes(&outer), bytes(&inner), bytes(&late)), (vec![1, 2, 3, 4], vec![2, 3], vec![3, 4, 5]));
    let empty = Session::start().finish()?;
    assert!(empty.events().is_empty(), "{:?}", empty.events());
    assert!(empty.to_string().contains("in total") && empty.to_svg().ends_with("</svg>\n"));
    Ok(())
}

#[test]
fn a_dropped_session_does_not_affect_others() -> Result<()> {
    let fill = || Array::zeros::<u8>([3]).map(drop);
    let outer = Session::start();
    fill()?;
    // The log has an earlier record, and another session is still open.
    drop(Session::start());
    let last = Session::start();
    fill()?;
    assert_eq!(of(&outer.finish()?, Kind::Fill).len(), 2);
    // Now no other session is open.
    drop(last);
    assert_eq!(of(&profiled(fill)?, Kind::Fill).len(), 1);
    Ok(())
}

#[test]
fn every_thread_is_recorded_and_dropped_arrays_lose_no_record() -> Result<()> {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let queue = default_queue()?;
    let start = Barrier::new(THREADS);
    let profile = profiled(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        with_queue(&queue, || {
                            start.wait();
                            (0..ROUNDS).try_for_each(|_| Array::zeros::<u8>([100]).map(drop))
                        })
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    })?;
    for kind in [Kind::Fill, Kind::Allocate, Kind::Free] {
        let events = of(&profile, kind);
        assert_eq!(events.len(), THREADS * ROUNDS, "{kind:?}");
        for thread in 1..=THREADS as u32 {
            assert_eq!(events.iter().filter(|event| event.thread == thread).count(), ROUNDS, "{kind:?}");
        }
    }
    assert!(of(&profile, Kind::Fill).iter().all(|event| event.end >= event.start && event.end > 0));
    Ok(())
}

#[test]
fn records_beyond_the_limit_are_counted() -> Result<()> {
    let queue = default_queue()?;
    let profile = profiled(|| {
        for _ in 0..140_000 {
            Array::uninit([1], DType::U8, UsmKind::Device, &queue)?;
        }
        Ok(())
    })?;
    assert_eq!(profile.events().len(), 1 << 18);
    assert_eq!(profile.dropped(), 280_000 - (1 << 18));
    assert!(profile.to_string().contains("beyond the limit"));
    let after = profiled(|| Array::zeros::<u8>([1]).map(drop))?;
    assert_eq!((after.events().len(), after.dropped()), (3, 0));
    Ok(())
}

#[test]
fn thousands_of_events_make_a_small_picture() -> Result<()> {
    let x = Array::zeros::<u8>([64])?;
    let profile = profiled(|| {
        for round in 0..20_000u32 {
            x.fill(round as u8)?;
        }
        x.wait()
    })?;
    assert_eq!(of(&profile, Kind::Fill).len(), 20_000);
    let picture = profile.to_svg();
    assert!(picture.len() < 200_000, "{} bytes", picture.len());
    assert!(picture.contains("fill (20000, 1.2 MiB"), "the legend does not list all events");
    Ok(())
}

#[test]
fn a_forked_child_gets_an_error_and_continues() -> Result<()> {
    let session = Session::start();
    let x = Array::zeros::<u8>([1000])?;
    // SAFETY: the child only drops handles, queries, and exits at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(x);
        let refused = session.finish().is_err_and(|error| error.to_string().contains("forked"));
        let own = Session::start().finish().is_ok_and(|profile| profile.events().is_empty());
        // SAFETY: ends the child without the handlers of the test's runner.
        unsafe { libc::_exit(if refused && own { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child reported another error");
    drop(x);
    assert_eq!(of(&session.finish()?, Kind::Free).len(), 1);
    Ok(())
}

#[test]
fn the_file_extension_selects_the_format_of_a_saved_profile() -> Result<()> {
    let profile = profiled(|| Array::zeros::<u8>([1]).map(drop))?;
    let folder = std::env::temp_dir().join(format!("usmq-profile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, begin) in [("a.json", "{"), ("a.SVG", "<svg"), ("a.html", "<!doctype"), ("a.txt", "Devices")] {
        profile.save(folder.join(name)).unwrap();
        assert!(std::fs::read_to_string(folder.join(name)).unwrap().starts_with(begin), "{name}");
    }
    let refused = profile.save(folder.join("a.png")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains(".json"), "{refused}");
    assert!(profile.save(folder.join("nowhere").join("a.json")).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}
