//! Forks: the child gets an error and exits cleanly, the parent is unaffected.

#![allow(clippy::panic, reason = "a helper that fails is a test that fails")]

mod common;

use common::{Work, advanced, default_queue, states_of};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use usmq::{Array, DType, Error, Result, UsmKind, current_queue, devices, memory, with_queue};

/// More than a second of work for one element: two children start and exit in that time.
const LONG: u32 = 1_000_000_000;

/// Runs `body` in a forked child and returns its result; the child exits in the given way.
fn in_child(exits: bool, body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls `body`, which makes only calls permitted in a forked child, and exits.
    match unsafe { libc::fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            let status = body();
            if exits {
                std::process::exit(status);
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
        }
        child => ended(child),
    }
}

fn ended(child: libc::pid_t) -> i32 {
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: our own child, and a place for its status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > Duration::from_secs(30) {
            // SAFETY: our own child, which has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child did not exit in time");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

fn is_fork_error<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Fork))
}

/// Returns 7 if each use of the parent's objects, and each creation in the child, is the named error. Work that is known
/// to be complete needs no runtime and may be reported as complete.
fn check_every_use(x: &Array, event: &usmq::Event, at_work: bool) -> i32 {
    let uses = [
        is_fork_error(devices()),
        is_fork_error(current_queue()),
        is_fork_error(with_queue("cpu", || Ok::<_, Error>(()))),
        is_fork_error(Array::zeros::<f32>([3])),
        is_fork_error(x.to_vec::<u32>()),
        is_fork_error(x.copy()),
        !at_work || is_fork_error(x.wait()),
        !at_work || is_fork_error(event.done()),
        is_fork_error(event.wait()),
        is_fork_error(x.queue().wait()),
    ];
    if uses.iter().all(|refused| *refused) {
        7
    } else {
        uses.iter().position(|refused| !refused).map_or(99, |at| 10 + at as i32)
    }
}

#[test]
fn a_child_forked_after_the_first_use_gets_an_error_and_the_parent_continues() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[3], &queue)?;
    let event = work.advance(&queue, &x, 1)?;
    event.wait()?;
    for exits in [false, true] {
        assert_eq!(in_child(exits, || check_every_use(&x, &event, false)), 7, "exits: {exits}");
        // Drops in the child must not call the driver either.
        let mine = (x.clone(), event.clone());
        let status = in_child(exits, move || {
            drop(mine);
            5
        });
        assert_eq!(status, 5);
    }
    work.advance(&queue, &x, 1)?;
    assert_eq!(x.to_vec::<u32>()?, [advanced(3, 2)]);
    Ok(())
}

#[test]
fn a_fork_with_work_in_flight_or_from_a_thread_is_harmless() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[3], &queue)?;
    let event = work.advance(&queue, &x, LONG)?;
    assert_eq!(in_child(false, || check_every_use(&x, &event, true)), 7);
    let waits = std::thread::spawn({
        let event = event.clone();
        move || event.wait()
    });
    let (y, again) = (x.clone(), event.clone());
    let forks = std::thread::spawn(move || in_child(false, || check_every_use(&y, &again, true)));
    assert_eq!(forks.join().expect("no panic"), 7);
    waits.join().expect("no panic")?;
    assert_eq!(x.to_vec::<u32>()?, [advanced(3, LONG)]);
    Ok(())
}

/// Reports the end of its scope, also after a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A lock that another thread held at the fork is never released in the child.
#[test]
fn a_child_does_not_wait_for_threads_of_its_parent() -> Result<()> {
    let queue = default_queue()?;
    let over = AtomicBool::new(false);
    let churn = || -> Result<()> {
        while !over.load(Ordering::Relaxed) {
            let arrays: Vec<_> = (0..20)
                .map(|_| Array::uninit([40_000], DType::U8, UsmKind::Device, &queue))
                .collect::<Result<_>>()?;
            drop(arrays);
            memory::trim(None)?;
            memory::stats(None)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let done = AtEnd(&over);
        let threads = [scope.spawn(churn), scope.spawn(churn), scope.spawn(churn)];
        for round in 0..200 {
            let mine: Result<Vec<_>> = (0..20).map(|_| Array::zeros::<u8>([40_000])).collect();
            let status = in_child(false, || {
                drop(mine);
                let told = [
                    is_fork_error(memory::stats(None)),
                    is_fork_error(memory::trim(None)),
                    is_fork_error(current_queue()),
                ];
                if told == [true; 3] { 7 } else { 8 }
            });
            assert_eq!(status, 7, "child {round}");
        }
        drop(done);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

const BEFORE: &str = "USMQ_TEST_FORK_BEFORE";

fn use_a_device() -> i32 {
    let sum = || Array::from_slice(&[1u32, 2, 3])?.to_vec::<u32>().map(|values| values.iter().sum::<u32>());
    sum().map_or(1, |sum| sum as i32)
}

#[test]
fn a_fork_or_command_before_the_first_use_works_on_both_sides() {
    if std::env::var_os(BEFORE).is_some() {
        // SAFETY: nothing of the runtime has been used in this process.
        let child = unsafe { libc::fork() };
        let own = use_a_device();
        if child == 0 {
            std::process::exit(own);
        }
        assert_eq!((own, ended(child)), (6, 6));
        return;
    }
    let name = "a_fork_or_command_before_the_first_use_works_on_both_sides";
    let program = std::env::current_exe().expect("a test binary has a path");
    // After the first use here: a command starts a new process.
    assert_eq!(use_a_device(), 6);
    let output = Command::new(program).args(["--exact", name]).env(BEFORE, "1").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
