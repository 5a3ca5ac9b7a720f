//! Threads: concurrent aliases, memory and queues dropped during work, and process exit during work.

use crate::common::{
    IN_ORDER, LOOSE, Work, advanced, all_advanced, default_queue, four_queues, other_root, states, states_of,
};
use std::process::{Command, Stdio};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};
use usmq::{Array, Context, Error, Index, Queue, Result, collocate, with_queue};

/// Steps of a command that runs for tens of milliseconds for each few elements.
const LONG: u32 = 90_000_000;

fn part(array: &Array, start: isize, stop: isize) -> Result<Array> {
    array.index(&[Index::Slice { start: Some(start), stop: Some(stop), step: None }])
}

#[test]
fn two_views_of_one_allocation_on_two_threads_lose_nothing() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let mut host: Vec<u32> = (0..64).collect();
    let whole = states_of(&host, &queues[0])?;
    // Two threads have a half each, and both also advance the middle: how the two interleave does not matter to the
    // result, but a lost update does.
    let half = |number: usize| {
        let (start, stop) = [(0, 32), (32, 64)][number];
        let (mine, shared) = (part(&whole, start, stop)?, part(&whole, 16, 48)?);
        for round in 0..2500 {
            let queue = &queues[(number + 2 * (round % 2)) % 4];
            work.advance(queue, &mine, 5000)?;
            work.advance(queue, &shared, 20_000)?;
        }
        Ok::<_, Error>(())
    };
    std::thread::scope(|threads| {
        let half = &half;
        let running: Vec<_> = (0..2).map(|number| threads.spawn(move || half(number))).collect();
        running.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
    });
    all_advanced(&mut host, 2500 * 5000);
    all_advanced(&mut host[16..48], 2 * 2500 * 20_000);
    assert_eq!(whole.to_vec::<u32>()?, host);
    Ok(())
}

#[test]
fn an_array_dropped_on_another_thread_while_its_kernel_runs_stays_until_the_end() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let (give, take) = mpsc::channel::<Array>();
    // The thread that drops the last handle then allocates the same size and overwrites it on another queue.
    let own = queues[2].clone();
    let dropper = std::thread::spawn(move || {
        for array in take {
            let size = array.size();
            drop(array);
            for _ in 0..3 {
                states(size, &own)?.fill(u32::MAX)?;
            }
        }
        Ok::<_, Error>(())
    });
    let mut results = Vec::new();
    for round in 0..400u32 {
        let steps = 1000 * (round % 200);
        let x = states_of(&[round; 64], &queues[0])?;
        let y = states(64, &queues[1])?;
        work.advance(&queues[0], &x, steps)?;
        work.advance_into(&queues[1], &x, &y, 1000)?;
        give.send(x).expect("the other thread runs");
        results.push((advanced(round, steps + 1000), y));
    }
    drop(give);
    dropper.join().expect("no panic")?;
    for (round, (expected, y)) in results.into_iter().enumerate() {
        assert_eq!(y.to_vec::<u32>()?, [expected; 64], "round {round}");
    }
    Ok(())
}

#[test]
fn dropping_everything_but_the_result_in_flight_keeps_it_exact() -> Result<()> {
    let home = default_queue()?;
    for round in 0..6u32 {
        // A context, a queue and kernels that are not shared.
        let context = Context::new(std::slice::from_ref(home.device()))?;
        let queue = Queue::new(home.device(), Some(&context), if round % 2 == 0 { IN_ORDER } else { LOOSE })?;
        drop(context);
        let work = Work::new(&queue)?;
        let x = states_of(&[round; 16], &queue)?;
        let y = states(16, &queue)?;
        work.advance(&queue, &x, LONG)?;
        let event = work.advance_into(&queue, &x, &y, 5)?;
        let result = collocate(&y, &home)?;
        drop((x, y, queue, work));
        assert!(!event.done()?, "the test needs work in flight here");
        drop(event);
        assert_eq!(result.to_vec::<u32>()?, [advanced(round, LONG + 5); 16], "round {round}");
    }
    Ok(())
}

#[test]
fn two_threads_allocate_launch_and_drop_independently() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    // On two queues, on one in-order queue, on one out-of-order queue.
    for pair in [[0, 1], [0, 0], [2, 2]] {
        let start = Barrier::new(2);
        let run = |number: usize| {
            let queue = &queues[pair[number]];
            let work = Work::new(queue);
            start.wait();
            let work = work?;
            with_queue(queue, || {
                for round in 0..2000u32 {
                    let size = [16, 100, 16, 5000][round as usize % 4];
                    let value = round * 2 + number as u32;
                    let x = Array::full([size], value)?;
                    work.advance(queue, &x, 50)?;
                    let y = Array::empty::<u32>([size])?;
                    work.advance_into(queue, &x, &y, 50)?;
                    drop(x);
                    if round % 20 == 0 {
                        assert_eq!(
                            y.to_vec::<u32>()?,
                            vec![advanced(value, 100); size],
                            "{pair:?}, round {round}"
                        );
                    }
                }
                Ok::<_, Error>(())
            })
        };
        std::thread::scope(|threads| {
            let run = &run;
            let running: Vec<_> = (0..2).map(|number| threads.spawn(move || run(number))).collect();
            running.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
        });
    }
    Ok(())
}

#[test]
fn an_array_moved_through_threads_and_queues_is_exact() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let x = states_of(&[1; 16], &queues[0])?;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<(u32, Array)>()).unzip();
    let (done, result) = mpsc::channel();
    std::thread::scope(|threads| {
        for (number, inbox) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % 4].clone();
            let (work, queue, done) = (&work, &queues[number], done.clone());
            threads.spawn(move || {
                for (hops, x) in inbox {
                    work.advance(queue, &x, 3000).unwrap();
                    if hops == 0 {
                        done.send(x).unwrap();
                        return;
                    }
                    // The thread after the last one has closed its channel by then.
                    if next.send((hops - 1, x)).is_err() || hops < 4 {
                        return;
                    }
                }
            });
        }
        senders[0].send((1999, x)).unwrap();
        drop(senders);
    });
    let x = result.recv().expect("a result");
    assert_eq!(x.to_vec::<u32>()?, [advanced(1, 2000 * 3000); 16]);
    Ok(())
}

const EXIT: &str = "USMQ_TEST_EXIT";

/// The ways in which a process may exit during device work.
const WAYS: [&str; 6] = [
    "return",
    "exit",
    "exit with all arrays dropped",
    "exit under other threads",
    "two contexts",
    "contexts and kernels go",
];

fn leave_with_work_in_flight(way: &str) -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let arrays = (0..4u32).map(|number| states_of(&[number], &queues[0])).collect::<Result<Vec<_>>>()?;
    let mut events = Vec::new();
    for queue in &queues {
        for array in &arrays {
            events.push(work.advance(queue, array, LONG)?);
        }
    }
    if let (true, Some(root)) = (way == "two contexts", other_root(&queues[0])?) {
        let away = Queue::new(&root, None, IN_ORDER)?;
        let there = Work::new(&away)?;
        for array in &arrays {
            let moved = collocate(array, &away)?;
            events.push(there.advance(&away, &moved, LONG)?);
            drop(moved);
        }
    }
    if way == "contexts and kernels go" {
        let device = queues[0].device();
        let mut parts = Vec::new();
        for _ in 0..6 {
            let queue = Queue::new(device, Some(&Context::new(std::slice::from_ref(device))?), IN_ORDER)?;
            let work = Work::new(&queue)?;
            work.advance(&queue, &states(1, &queue)?, 1)?.wait()?;
            parts.push((work, queue));
        }
        // The release thread is at work on them when the process ends.
        drop(parts);
        println!("in flight");
        std::process::exit(0);
    }
    if way == "exit under other threads" {
        for queue in queues.clone() {
            let (work, arrays) = (Work::new(&queue)?, arrays.clone());
            std::thread::spawn(move || {
                // This test accepts an error during process exit, but not a crash.
                while states(64, &queue).and_then(|x| work.advance(&queue, &x, 1000)).is_ok() {
                    let _ = work.advance(&queue, &arrays[0], 1000);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if way == "exit with all arrays dropped" {
        drop(arrays);
    } else {
        // The process ends while an owner, such as a global variable, still has them.
        std::mem::forget(arrays);
    }
    assert!(!events[events.len() - 1].done()?);
    println!("in flight");
    if way == "return" { Ok(()) } else { std::process::exit(0) }
}

#[test]
fn a_process_with_work_in_flight_exits_cleanly_and_soon() -> Result<()> {
    if let Ok(way) = std::env::var(EXIT) {
        return leave_with_work_in_flight(&way);
    }
    let name = "threads::a_process_with_work_in_flight_exits_cleanly_and_soon";
    let program = std::env::current_exe().expect("a test binary has a path");
    for way in WAYS {
        let mut child = Command::new(&program)
            .args(["--exact", name, "--nocapture"])
            .env(EXIT, way)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a test binary can be started");
        let started = Instant::now();
        while child.try_wait().expect("a child can be asked").is_none() {
            if started.elapsed() > Duration::from_secs(30) {
                child.kill().expect("a child can be ended");
                let output = child.wait_with_output().expect("a child has output");
                panic!(
                    "{way:?}: the process did not exit in time\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().expect("a child has output");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{way:?}: {}\n{out}\n{err}", output.status);
        assert!(out.contains("in flight"), "{way:?}\n{out}\n{err}");
        assert!(err.is_empty(), "{way:?}\n{err}");
    }
    Ok(())
}
