//! Faults in creation, copies, fills, conversions, views, limits and copies between contexts.

use crate::common::{Work, advanced, four_queues, other_root, states_of, two_sub_devices};
use crate::harness::{Sweep, Threads};
use usmq::memory::{set_limit, stats, trim};
use usmq::{
    Array, DType, Error, Index, Queue, QueueProperties, Result, UsmKind, collocate, collocate_all, explain,
    follow, with_queue,
};

pub fn expect<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<()> {
    if found == wanted { Ok(()) } else { Err(Error::value(format!("{found:?}, not {wanted:?}"))) }
}

/// Every second element: a view that is not contiguous.
const SECOND: Index = Index::Slice { start: None, stop: None, step: Some(2) };

pub fn all(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    creation(sweep, home);
    copies(sweep, home);
    limits(sweep, home);
    order(sweep, home)?;
    between(sweep, home)
}

fn creation(sweep: &mut Sweep, home: &Queue) {
    for kind in UsmKind::ALL {
        // Sizes that the pool keeps, and one that it takes from the runtime each time.
        for bytes in [0usize, 1000, 64 << 20] {
            let name = format!("uninit, {bytes} bytes of {kind} USM, dropped");
            let none = || Ok(());
            let make = |(): &()| Array::uninit([bytes], DType::U8, kind, home).map(|array| array.size());
            sweep.run(&name, none, make, |(), size| size.map_or(Ok(()), |size| expect(size, bytes)));
        }
    }
    let none = || Ok(());
    let numbers: Vec<u32> = (0..1000).collect();
    sweep.run(
        "from_slice",
        none,
        |()| with_queue(home, || Array::from_slice(&numbers)),
        |(), x| x.map_or(Ok(()), |x| expect(x.to_vec::<u32>()?, numbers.clone())),
    );
    sweep.run(
        "zeros",
        none,
        |()| with_queue(home, || Array::zeros::<f64>([100])),
        |(), x| x.map_or(Ok(()), |x| expect(x.to_vec()?, vec![0f64; 100])),
    );
    // More than one copy of the seed: a chain of commands.
    sweep.run(
        "full, by doubling",
        none,
        |()| with_queue(home, || Array::full([100_000], 0x0102_0304u32)),
        |(), x| x.map_or(Ok(()), |x| expect(x.to_vec()?, vec![0x0102_0304u32; 100_000])),
    );
    sweep.run(
        "arange",
        none,
        |()| Array::arange(0i64, 1000i64, 1i64, DType::U32, UsmKind::Device, home),
        |(), x| x.map_or(Ok(()), |x| expect(x.to_vec::<u32>()?, numbers.clone())),
    );
    sweep.run(
        "create, fill, read and drop",
        none,
        |()| {
            let x = Array::uninit([1000], DType::F32, UsmKind::Device, home)?;
            x.fill(1.5f32)?;
            let y = x.copy()?;
            drop(x);
            y.to_vec::<f32>()
        },
        |(), read| read.map_or(Ok(()), |read| expect(read, vec![1.5; 1000])),
    );
}

fn copies(sweep: &mut Sweep, home: &Queue) {
    let numbers: Vec<u32> = (0..1000).collect();
    let filled = || states_of(&numbers, home);
    let still = |x: &Array| expect(x.to_vec::<u32>()?, numbers.clone());
    // Few elements, because half of the faults leak memory: the runtime may still write to it.
    let few = &numbers[..300];
    sweep.run(
        "to_vec",
        || states_of(few, home),
        |x| x.to_vec::<u32>(),
        |x, read| {
            read.map_or(Ok(()), |read| expect(&read[..], few))?;
            expect(&x.to_vec::<u32>()?[..], few)
        },
    );
    sweep.run(
        "to_bytes of a view with gaps",
        filled,
        |x| x.index(&[SECOND])?.to_bytes(),
        |x, read| {
            read.map_or(Ok(()), |read| expect(read.len(), 2000))?;
            still(x)
        },
    );
    let other: Vec<u32> = (1000..2000).collect();
    // If the wait fails, the copy is complete.
    sweep.run(
        "copy_from_slice",
        filled,
        |x| x.copy_from_slice(&other),
        |x, done| {
            let found = x.to_vec::<u32>()?;
            expect(found == other || done.is_none() && found == numbers, true)
        },
    );
    let some = vec![7u32; 500];
    sweep.run(
        "copy_from_slice to a view with gaps",
        filled,
        |x| x.index(&[SECOND])?.copy_from_slice(&some),
        |x, done| expect(x.index(&[SECOND])?.to_vec::<u32>()?[1], if done.is_some() { 7 } else { 2 }),
    );
    sweep.run(
        "fill, one byte",
        filled,
        |x| x.fill(0u32),
        |x, done| expect(x.to_vec()?, if done.is_some() { vec![0; 1000] } else { numbers.clone() }),
    );
    // After a failed fill by doubling each element has the old or the new value.
    sweep.run(
        "fill, by doubling",
        || states_of(&vec![5; 100_000], home),
        |x| x.fill(0x0102_0304u32),
        |x, done| {
            let found = x.to_vec::<u32>()?;
            let whole = found.iter().all(|found| *found == 0x0102_0304);
            expect(
                whole || done.is_none() && found.iter().all(|found| [5, 0x0102_0304].contains(found)),
                true,
            )
        },
    );
    sweep.run(
        "fill of a view with gaps",
        filled,
        |x| x.index(&[SECOND])?.fill(9u32),
        |x, done| {
            expect(
                x.to_vec::<u32>()?[..3].to_vec(),
                if done.is_some() { vec![9, 1, 9] } else { vec![0, 1, 2] },
            )
        },
    );
    sweep.run("copy", filled, Array::copy, |x, copy| {
        copy.map_or(Ok(()), |copy| still(&copy))?;
        still(x)
    });
    sweep.run(
        "cast",
        filled,
        |x| x.cast(DType::F64),
        |x, cast| {
            cast.map_or(Ok(()), |cast| expect(cast.to_vec::<f64>()?[999], 999.0))?;
            still(x)
        },
    );
    let transposed = |x: &Array| -> Result<Array> { Ok(x.reshape([20, 50])?.transpose()) };
    sweep.run(
        "contiguous copy of a transposed view",
        filled,
        |x| transposed(x)?.contiguous(),
        |x, copy| {
            copy.map_or(Ok(()), |copy| expect(copy.to_vec::<u32>()?[1], 50))?;
            still(x)
        },
    );
    sweep.run(
        "converted to host USM and f32",
        filled,
        |x| x.to(Some(DType::F32), Some(UsmKind::Host), None),
        |x, y| {
            y.map_or(Ok(()), |y| expect(y.to_vec::<f32>()?[999], 999.0))?;
            still(x)
        },
    );
    let pair = || Ok((filled()?, states_of(&other, home)?));
    sweep.run(
        "assign",
        pair,
        |(x, y)| x.assign(y),
        |(x, y), done| {
            expect(x.to_vec()?, if done.is_some() { other.clone() } else { numbers.clone() })?;
            expect(y.to_vec()?, other.clone())
        },
    );
    sweep.run(
        "assign of an overlapping view",
        filled,
        |x| {
            let part =
                |start, stop| x.index(&[Index::Slice { start: Some(start), stop: Some(stop), step: None }]);
            part(1, 1000)?.assign(&part(0, 999)?)
        },
        |x, done| expect(x.to_vec::<u32>()?[999], if done.is_some() { 998 } else { 999 }),
    );
    sweep.run("wait of an array", filled, Array::wait, |x, _| still(x));
    let shared = || Array::builder::<u32>(100).kind(UsmKind::Shared).queue(home).zeroed().build();
    sweep.run("prefetch", shared, |x| x.prefetch(None), |_, _| Ok(()));
    sweep.run("mem_advise", shared, |x| x.mem_advise(0, None), |_, _| Ok(()));
    sweep.run(
        "host view",
        shared,
        |x| Ok(x.host_view::<u32>()?.len()),
        |x, _| expect(x.to_vec()?, vec![0u32; 100]),
    );
}

fn limits(sweep: &mut Sweep, home: &Queue) {
    let none = || Ok(());
    sweep.run(
        "trim_memory",
        || Array::uninit([1 << 20], DType::U8, UsmKind::Device, home).map(drop),
        |()| trim(None),
        |(), _| Ok(()),
    );
    sweep.run("memory_stats", none, |()| stats(None), |(), _| Ok(()));
    sweep.run(
        "set_memory_limit, and an allocation past it",
        none,
        |()| {
            set_limit(Some(1 << 20), Some(home.device()), Some(UsmKind::Shared))?;
            let refused = Array::uninit([2 << 20], DType::U8, UsmKind::Shared, home);
            match refused {
                Err(Error::Allocation { limit: Some(_), .. }) => Ok(()),
                Err(other) => Err(other),
                Ok(_) => Err(Error::value("2 MiB of 1")),
            }
        },
        |(), _| set_limit(None, Some(home.device()), Some(UsmKind::Shared)),
    );
    sweep.run(
        "an allocation that needs what is kept for reuse",
        || {
            let kept = Array::uninit([24 << 20], DType::U8, UsmKind::Shared, home)?;
            kept.fill(1u8)?;
            set_limit(Some(32 << 20), Some(home.device()), Some(UsmKind::Shared))
        },
        |()| Array::uninit([30 << 20], DType::U8, UsmKind::Shared, home).map(|x| x.size()),
        |(), _| set_limit(None, Some(home.device()), Some(UsmKind::Shared)),
    );
}

/// Several queues of one context, one of them out-of-order, and memory dropped under its commands.
fn order(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let queues = four_queues(home.device(), None)?;
    let work = Work::new(&queues[0])?;
    let set = || Ok([states_of(&[1; 500], &queues[0])?, states_of(&[2; 500], &queues[2])?]);
    sweep.run(
        "launches on four queues",
        set,
        |[x, y]| {
            for queue in &queues {
                work.advance(queue, x, 3)?;
                work.advance_into(queue, x, y, 2)?;
            }
            Ok(())
        },
        |[x, y], done| {
            let (x, y) = (x.to_vec::<u32>()?, y.to_vec::<u32>()?);
            if done.is_some() {
                return expect((x[499], y[499]), (advanced(1, 12), advanced(1, 14)));
            }
            let steps = (0..=4).find(|rounds| x == [advanced(1, rounds * 3); 500]);
            expect(steps.is_some() && y.iter().all(|state| *state == y[0]), true)
        },
    );
    sweep.run(
        "launch, drop, allocate elsewhere",
        || Ok(()),
        |()| {
            let y = states_of(&[0; 500], &queues[1])?;
            let x = Array::uninit([500], DType::U32, UsmKind::Device, &queues[0])?;
            x.fill(3u32)?;
            work.advance(&queues[2], &x, 1000)?;
            work.advance_into(&queues[1], &x, &y, 1)?;
            drop(x);
            let again = Array::uninit([500], DType::U32, UsmKind::Device, &queues[3])?;
            again.fill(u32::MAX)?;
            y.to_vec::<u32>()
        },
        |(), read| read.map_or(Ok(()), |read| expect(read, vec![advanced(3, 1001); 500])),
    );
    sweep.run(
        "event: wait, done",
        set,
        |[x, _]| {
            let event = work.advance(&queues[0], x, 3)?;
            event.wait()?;
            event.done()
        },
        |_, done| done.map_or(Ok(()), |done| expect(done, true)),
    );
    sweep.run(
        "event: timestamps",
        set,
        |[x, _]| work.advance(&queues[1], x, 3)?.timestamps(),
        |_, times| {
            times
                .map_or(Ok(()), |times| expect(times.submit <= times.start && times.start <= times.end, true))
        },
    );
    for (name, queue) in
        ["in-order", "profiling", "out-of-order", "out-of-order profiling"].iter().zip(&queues)
    {
        sweep.run(&format!("queue: wait ({name})"), || Ok(()), |()| queue.wait(), |(), _| Ok(()));
    }
    sweep.run(
        "follow, on_queue",
        set,
        |[x, y]| follow(&[&x.on_queue(&queues[1])?, &y.on_queue(&queues[1])?]),
        |_, queue| queue.map_or(Ok(()), |queue| expect(queue, queues[1].clone())),
    );
    Ok(())
}

/// Copies between contexts, with the threads that order them.
fn between(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let mut elsewhere = Vec::new();
    if let Some(root) = other_root(home)? {
        elsewhere.push(("another platform", Queue::new(&root, None, QueueProperties::default())?));
    }
    if let Some([part, _]) = two_sub_devices(home.device())? {
        elsewhere.push(("a sub-device", Queue::new(&part, None, QueueProperties::default())?));
    }
    // Three chunks through the two buffers.
    let numbers: Vec<u32> = (0..1_200_000).collect();
    for (name, away) in &elsewhere {
        let far = || states_of(&numbers, away);
        let check = |x: &Array, moved: Option<Array>| {
            moved.map_or(Ok(()), |moved| expect(moved.to_vec::<u32>()? == numbers, true))?;
            expect(x.to_vec::<u32>()? == numbers, true)
        };
        sweep.run(
            &format!("explain, from {name}"),
            far,
            |x| explain(&[x], Some(home)).map(drop),
            |_, _| Ok(()),
        );
        for (threads, who) in [(Threads::This, "the caller"), (Threads::Others, "the threads between")] {
            let name = format!("collocate from {name}, faults of {who}");
            sweep.run_on(threads, &name, &[], far, |x| collocate(x, home), check);
        }
        let pair = || Ok((far()?, states_of(&[1; 100], home)?));
        sweep.run(
            &format!("collocate_all with {name}"),
            pair,
            |(x, y)| collocate_all(&[x, y], None),
            |(x, y), moved| {
                moved.map_or(Ok(()), |moved| expect(moved[1].to_vec::<u32>()?, vec![1; 100]))?;
                expect((x.to_vec::<u32>()? == numbers, y.to_vec::<u32>()?), (true, vec![1; 100]))
            },
        );
    }
    Ok(())
}
