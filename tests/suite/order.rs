//! Order: work on several queues gives the results of one queue, without host waits.

use crate::common::{
    IN_ORDER, LOOSE, PROFILING, Random, Work, all_advanced, default_queue, four_queues, mixed, other_root,
    queues_elsewhere, states, states_of, two_sub_devices,
};
use usmq::{Array, Context, DType, Index, Queue, Result, UsmKind, collocate};

/// The number of elements of an array in these tests. It is small, so that the steps determine a command's duration.
const SIZE: usize = 16;

fn counted() -> Vec<u32> {
    (0..SIZE as u32).collect()
}

fn part(array: &Array, start: usize, stop: usize) -> Result<Array> {
    array.index(&[Index::Slice { start: Some(start as isize), stop: Some(stop as isize), step: None }])
}

/// In each round a producer of random duration writes x, and a consumer on another queue folds x into a digest. The
/// consumer must read all of this round's x and nothing of the next round's.
fn produce_and_consume(producer: &Queue, consumer: &Queue, rounds: usize, seed: u64) -> Result<()> {
    let work = Work::new(producer)?;
    let mut random = Random::new(seed);
    let (mut x, mut digest) = (counted(), vec![0; SIZE]);
    let (on_x, on_digest) = (states_of(&x, producer)?, states_of(&digest, consumer)?);
    for _ in 0..rounds {
        let steps = *random.pick(&[1, 10, 1000, 5000, 20_000]);
        work.advance(producer, &on_x, steps)?;
        work.mix(consumer, &on_x, &on_digest)?;
        all_advanced(&mut x, steps);
        mixed(&x, &mut digest);
    }
    assert_eq!(on_digest.to_vec::<u32>()?, digest, "from {producer} to {consumer}, seed {seed}");
    assert_eq!(on_x.to_vec::<u32>()?, x, "{producer}, seed {seed}");
    Ok(())
}

#[test]
fn a_consumer_on_another_in_order_queue_sees_each_round_of_its_producer() -> Result<()> {
    let [plain, profiling, ..] = four_queues(default_queue()?.device(), None)?;
    produce_and_consume(&plain, &profiling, 8000, 1)?;
    produce_and_consume(&profiling, &plain, 2000, 2)
}

#[test]
fn dependent_work_on_out_of_order_queues_is_ordered() -> Result<()> {
    let [plain, _, loose, loose_profiling] = four_queues(default_queue()?.device(), None)?;
    for (seed, (producer, consumer)) in
        [(&plain, &loose), (&loose, &plain), (&loose, &loose), (&loose, &loose_profiling)]
            .into_iter()
            .enumerate()
    {
        produce_and_consume(producer, consumer, 2500, seed as u64)?;
    }
    Ok(())
}

#[test]
fn many_readers_on_many_queues_run_between_two_writes() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let mut random = Random::new(3);
    let mut x = counted();
    let on_x = states_of(&x, &queues[0])?;
    let mut digests = vec![vec![0u32; SIZE]; 24];
    let on_digests =
        digests.iter().map(|digest| states_of(digest, random.pick(&queues))).collect::<Result<Vec<_>>>()?;
    for _ in 0..150 {
        let steps = *random.pick(&[1, 1000, 20_000]);
        work.advance(random.pick(&queues), &on_x, steps)?;
        all_advanced(&mut x, steps);
        for (digest, on_digest) in digests.iter_mut().zip(&on_digests) {
            work.mix(random.pick(&queues), &on_x, on_digest)?;
            mixed(&x, digest);
        }
    }
    for (digest, on_digest) in digests.iter().zip(&on_digests) {
        assert_eq!(&on_digest.to_vec::<u32>()?, digest);
    }
    Ok(())
}

#[test]
fn writes_to_overlapping_views_are_never_lost() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let mut random = Random::new(4);
    let mut host: Vec<u32> = (0..64).collect();
    let whole = states_of(&host, &queues[0])?;
    for round in 0..5000 {
        let (a, b) = (random.below(64), random.below(64));
        let (start, stop) = (a.min(b), a.max(b) + 1);
        let steps = *random.pick(&[1, 500, 3000]);
        let view = part(&whole, start, stop)?;
        if round % 7 == 0 {
            // A view of a view, on another queue, is copied onto itself one element further.
            let (from, to) = (part(&view, 0, stop - start - 1)?, part(&view, 1, stop - start)?);
            to.on_queue(random.pick(&queues))?.assign(&from)?;
            host.copy_within(start..stop - 1, start + 1);
        } else {
            work.advance(random.pick(&queues), &view, steps)?;
            all_advanced(&mut host[start..stop], steps);
        }
    }
    assert_eq!(whole.to_vec::<u32>()?, host);
    Ok(())
}

#[test]
fn every_kind_of_read_waits_for_the_writer_on_another_queue() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let readers: [fn(&Array) -> Result<Vec<u32>>; 6] = [
        |x| x.to_vec(),
        |x| x.copy()?.to_vec(),
        |x| Ok(x.cast(DType::U64)?.to_vec::<u64>()?.into_iter().map(|value| value as u32).collect()),
        |x| x.to(None, Some(UsmKind::Host), None)?.to_vec(),
        |x| Ok(x.to_bytes()?.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        |x| x.reshape([4, 4])?.transpose().copy()?.transpose().to_vec(),
    ];
    for kind in UsmKind::ALL {
        for writer in &queues {
            for (number, read) in readers.iter().enumerate() {
                let x = Array::arange(0, SIZE as i64, 1, DType::U32, kind, &queues[1])?;
                work.advance(writer, &x, 100_000)?;
                let mut expected = counted();
                all_advanced(&mut expected, 100_000);
                assert_eq!(read(&x)?, expected, "reader {number} of {kind} USM, written on {writer}");
            }
        }
    }
    Ok(())
}

#[test]
fn fills_copies_and_host_writes_are_ordered_with_kernels() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let mut random = Random::new(5);
    for round in 0..400u32 {
        let x = states(SIZE, random.pick(&queues))?;
        let y = states(SIZE, random.pick(&queues))?;
        x.fill(round)?;
        work.advance(random.pick(&queues), &x, 10_000)?;
        y.assign(&x)?;
        let copy = x.copy()?;
        x.fill(0u32)?;
        x.copy_from_slice(&[7u32; SIZE])?;
        work.advance(random.pick(&queues), &y, 5000)?;
        let mut expected = vec![round; SIZE];
        all_advanced(&mut expected, 10_000);
        assert_eq!(copy.to_vec::<u32>()?, expected, "round {round}");
        all_advanced(&mut expected, 5000);
        assert_eq!(y.to_vec::<u32>()?, expected, "round {round}");
        assert_eq!(x.to_vec::<u32>()?, [7; SIZE], "round {round}");
    }
    Ok(())
}

/// x alternates between two queues without shared device memory; each side advances it and folds it into a digest.
fn hop(home: &Queue, away: &Queue, rounds: usize) -> Result<()> {
    let work = Work::new(home)?;
    Work::new(away)?;
    let mut random = Random::new(6);
    let (mut x, mut digest) = (counted(), vec![0; SIZE]);
    let mut on_x = states_of(&x, home)?;
    let on_digest = states_of(&digest, away)?;
    for _ in 0..rounds {
        let (there, back) = (*random.pick(&[1, 1000, 20_000]), *random.pick(&[1, 1000, 20_000]));
        work.advance(home, &on_x, there)?;
        on_x = collocate(&on_x, away)?;
        work.mix(away, &on_x, &on_digest)?;
        all_advanced(&mut x, there);
        mixed(&x, &mut digest);
        work.advance(away, &on_x, back)?;
        on_x = collocate(&on_x, home)?;
        all_advanced(&mut x, back);
    }
    assert_eq!(on_digest.to_vec::<u32>()?, digest, "from {home} to {away}");
    assert_eq!(on_x.to_vec::<u32>()?, x, "from {home} to {away}");
    Ok(())
}

#[test]
fn work_alternating_between_two_root_devices_is_exact() -> Result<()> {
    let home = default_queue()?;
    let Some(other) = other_root(&home)? else { return Ok(()) };
    for (here, there) in [(IN_ORDER, IN_ORDER), (LOOSE, IN_ORDER), (LOOSE, LOOSE), (PROFILING, IN_ORDER)] {
        let home = Queue::new(home.device(), None, here)?;
        let away = Queue::new(&other, None, there)?;
        hop(&home, &away, 1000)?;
        hop(&away, &home, 250)?;
    }
    Ok(())
}

#[test]
fn work_alternating_between_sub_devices_is_exact() -> Result<()> {
    let root = default_queue()?;
    let Some([first, second]) = two_sub_devices(root.device())? else { return Ok(()) };
    let shared = Context::new(&[first.clone(), second.clone()])?;
    for (context, rounds) in [(None, 1000), (Some(&shared), 1000)] {
        let first = Queue::new(&first, context, IN_ORDER)?;
        hop(&first, &Queue::new(&second, context, IN_ORDER)?, rounds)?;
        hop(&first, &Queue::new(&second, context, LOOSE)?, rounds / 2)?;
    }
    hop(&root, &Queue::new(&first, None, IN_ORDER)?, 1000)
}

#[test]
fn work_submitted_while_the_chunks_of_a_copy_are_in_flight_is_exact() -> Result<()> {
    const SIZE: usize = 16 << 20;
    const PART: usize = SIZE / 4;
    let home = default_queue()?;
    let x = Array::uninit([SIZE], DType::U8, UsmKind::Device, &home)?;
    for away in queues_elsewhere(&home)? {
        for round in 0..40u8 {
            x.fill(round)?;
            let moved = collocate(&x, &away)?;
            x.fill(255u8)?;
            for start in (0..SIZE).step_by(PART) {
                let bytes = part(&moved, start, start + PART)?.to_bytes()?;
                assert!(bytes == vec![round; PART], "bytes from {start}, round {round}, {home} to {away}");
            }
        }
    }
    Ok(())
}

/// Random work on random queues, next to the same work done by the host in program order.
fn wander(queues: &[Queue], seed: u64) -> Result<()> {
    let work = Work::new(&queues[0])?;
    let mut random = Random::new(seed);
    let mut hosts: Vec<Vec<u32>> = (0..5).map(|n| (n * 100..n * 100 + SIZE as u32).collect()).collect();
    let mut arrays =
        hosts.iter().map(|host| states_of(host, random.pick(queues))).collect::<Result<Vec<_>>>()?;
    for step in 0..600 {
        let (a, b) = (random.below(5), random.below(5));
        let (start, stop) = (random.below(SIZE), random.below(SIZE));
        let (start, stop) = (start.min(stop), start.max(stop) + 1);
        let steps = *random.pick(&[1, 100, 10_000]);
        let queue = random.pick(queues);
        // Arrays of another context are collocated to the queue first, as in a user's program.
        if matches!(random.below(4), 0)
            || arrays[a].on_queue(queue).is_err()
            || arrays[b].on_queue(queue).is_err()
        {
            arrays[a] = collocate(&arrays[a], queue)?;
            arrays[b] = collocate(&arrays[b], queue)?;
        }
        let (x, y) = (&arrays[a], &arrays[b]);
        match random.below(8) {
            0 | 1 => {
                work.advance(queue, &part(x, start, stop)?, steps)?;
                all_advanced(&mut hosts[a][start..stop], steps);
            }
            2 if a != b => {
                work.advance_into(queue, x, y, steps)?;
                hosts[b] = hosts[a].clone();
                all_advanced(&mut hosts[b], steps);
            }
            3 if a != b => {
                work.mix(queue, x, y)?;
                let seen = hosts[a].clone();
                mixed(&seen, &mut hosts[b]);
            }
            4 => {
                let to = part(y, start, stop)?.on_queue(queue)?;
                to.assign(&part(x, start, stop)?)?;
                let copied = hosts[a][start..stop].to_vec();
                hosts[b][start..stop].copy_from_slice(&copied);
            }
            5 => {
                part(x, start, stop)?.fill(step as u32)?;
                hosts[a][start..stop].fill(step as u32);
            }
            6 => {
                arrays[b] = x.on_queue(queue)?.copy()?;
                hosts[b] = hosts[a].clone();
            }
            7 if step % 5 == 0 => assert_eq!(x.to_vec::<u32>()?, hosts[a], "seed {seed}, step {step}"),
            _ => {}
        }
    }
    for (array, host) in arrays.iter().zip(&hosts) {
        assert_eq!(&array.to_vec::<u32>()?, host, "seed {seed}");
    }
    Ok(())
}

#[test]
fn random_work_on_random_queues_matches_program_order() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    (0..8).try_for_each(|seed| wander(&queues, seed))
}

#[test]
fn random_work_across_contexts_matches_program_order() -> Result<()> {
    let home = default_queue()?;
    let mut queues = four_queues(home.device(), None)?.to_vec();
    if let Some(other) = other_root(&home)? {
        queues.extend([Queue::new(&other, None, IN_ORDER)?, Queue::new(&other, None, LOOSE)?]);
    }
    if let Some(parts) = two_sub_devices(home.device())? {
        let shared = Context::new(&parts)?;
        queues.push(Queue::new(&parts[0], None, IN_ORDER)?);
        queues.push(Queue::new(&parts[0], Some(&shared), IN_ORDER)?);
        queues.push(Queue::new(&parts[1], Some(&shared), LOOSE)?);
    }
    (100..104).try_for_each(|seed| wander(&queues, seed))
}
