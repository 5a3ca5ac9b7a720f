//! Runs one operation with each of its faults in turn, and checks the state after each.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use usmq::faults::{Fault, arm, disarm, live};
use usmq::memory::{stats, trim};
use usmq::{Array, DType, Error, Queue, Result, UsmKind};

/// An operation with its checks that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// An operation makes fewer calls of the shim than this.
const MOST_CALLS: u64 = 1000;

/// If more bytes than this stay on the heap after each fault, they are a leak.
const LEAK: usize = 2048;

const FAULTS: [Fault; 3] = [Fault::Sycl, Fault::NoMemory, Fault::Other];

/// The current operation and its start time; the watchdog ends a process that hangs.
static NOW: Mutex<Option<(Instant, String)>> = Mutex::new(None);

fn now(what: Option<String>) {
    *NOW.lock().unwrap() = what.map(|what| (Instant::now(), what));
}

fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            if let Some((since, what)) = &*NOW.lock().unwrap()
                && since.elapsed() > LIMIT
            {
                eprintln!("hangs: {what}");
                std::process::abort();
            }
        }
    });
}

/// Objects of the shim by type, arrays and bytes by kind.
pub type Census = BTreeMap<String, i64>;

fn census() -> Result<Census> {
    let mut all: Census = live().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    for (kind, stats) in stats(None)? {
        all.insert(format!("live {kind} arrays"), stats.live as i64);
        all.insert(format!("used {kind} bytes"), stats.used as i64);
        all.insert(format!("reserved {kind} bytes"), stats.reserved as i64);
    }
    Ok(all)
}

fn difference(before: &Census, after: &Census) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let of = |census: &Census, name: &str| census.get(name).copied().unwrap_or(0);
    names
        .into_iter()
        // Objects and blocks of earlier work may still be released meanwhile.
        .filter(|name| {
            let (before, after) = (of(before, name), of(after, name));
            after > before || (after < before && (name.starts_with("live") || name.starts_with("used")))
        })
        .map(|name| format!("{name}: {} became {}", of(before, name), of(after, name)))
        .collect()
}

/// The names of events and queues in a census.
const EVENT: &str = "usmq::ffi::bridge::Event";
const QUEUE: &str = "usmq::ffi::bridge::Queue";

/// Where the calls of an operation are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    This,
    Others,
}

/// The final report.
#[derive(Default)]
pub struct Sum {
    pub operations: u64,
    pub calls: u64,
    pub faults: u64,
    pub errors: u64,
    pub borne: u64,
    pub problems: Vec<String>,
}

pub struct Sweep {
    pub sum: Sum,
    queues: Vec<Queue>,
    only: Option<String>,
}

/// The faults of one operation.
struct Swept {
    calls: u64,
    faults: u64,
    /// Bytes of the heap for each fault.
    grown: usize,
}

/// One requested fault.
#[derive(Clone, Copy)]
struct Shot {
    at: u64,
    fault: Fault,
    lasting: bool,
    threads: Threads,
}

impl Sweep {
    /// `queues`: those that the operations use.
    pub fn new(queues: Vec<Queue>) -> Self {
        watch();
        let only = std::env::var("USMQ_FAULTS_ONLY").ok();
        Self { sum: Sum::default(), queues, only }
    }

    /// Runs `act` on the result of `set_up`: each call fails once, then all calls from each one on, in each way.
    /// `check` gets the result, or none after an error: then the objects of the setup must be unchanged.
    pub fn run<T, R>(
        &mut self,
        name: &str,
        set_up: impl Fn() -> Result<T>,
        act: impl Fn(&T) -> Result<R>,
        check: impl Fn(&T, Option<R>) -> Result<()>,
    ) {
        self.run_on(Threads::This, name, &[], set_up, act, check);
    }

    /// As [`run`](Self::run). `kept` names types whose objects usmq keeps for the process.
    pub fn run_on<T, R>(
        &mut self,
        threads: Threads,
        name: &str,
        kept: &[&str],
        set_up: impl Fn() -> Result<T>,
        act: impl Fn(&T) -> Result<R>,
        check: impl Fn(&T, Option<R>) -> Result<()>,
    ) {
        if self.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return;
        }
        let begun = Instant::now();
        now(Some(format!("{name}, without a fault")));
        for _ in 0..2 {
            // usmq creates some pools, queues and kernels once.
            let whole = || -> Result<()> {
                let held = set_up()?;
                let result = act(&held)?;
                check(&held, Some(result))
            };
            if let Err(error) = whole() {
                self.sum.problems.push(format!("{name}: fails without a fault: {error}"));
                return;
            }
        }
        let problems = self.sum.problems.len();
        let mut sweep = || self.sweep(threads, name, kept, &set_up, &act, &check);
        let mut last = sweep();
        // Objects that the driver creates at a first use exist from here on.
        if last.grown > LEAK && kept.is_empty() {
            last = sweep();
            if last.grown > LEAK {
                let grown = format!("{name}: the heap grew by {} bytes with each fault", last.grown);
                self.sum.problems.push(grown);
            }
        }
        let Swept { calls, faults, grown } = last;
        now(None);
        self.sum.operations += 1;
        self.sum.calls += calls;
        println!(
            "{name:60} {calls:3} calls {faults:4} faults {grown:6} B/fault {:3} problems {:6.1} s",
            self.sum.problems.len() - problems,
            begun.elapsed().as_secs_f64()
        );
    }

    fn sweep<T, R>(
        &mut self,
        threads: Threads,
        name: &str,
        kept: &[&str],
        set_up: &impl Fn() -> Result<T>,
        act: &impl Fn(&T) -> Result<R>,
        check: &impl Fn(&T, Option<R>) -> Result<()>,
    ) -> Swept {
        let (mut calls, mut faults) = (0, 0);
        let heap = heap_in_use();
        for fault in FAULTS {
            for lasting in [false, true] {
                for at in 1..=MOST_CALLS {
                    let shot = Shot { at, fault, lasting, threads };
                    now(Some(format!("{name}, {fault:?} at call {at}, lasting: {lasting}")));
                    match self.shoot(kept, shot, set_up, act, check) {
                        Ok(true) => {
                            calls = calls.max(at);
                            faults += 1;
                        }
                        Ok(false) => break,
                        Err(problem) => {
                            let when = format!("{fault:?} at call {at}, lasting: {lasting}");
                            println!("{name}, {when}: {problem}");
                            self.sum.problems.push(format!("{name}, {when}: {problem}"));
                        }
                    }
                }
            }
        }
        let grown = || heap_in_use().saturating_sub(heap) / faults.max(1) as usize;
        if grown() > LEAK {
            // usmq keeps a dropped queue for a quarter of a second.
            std::thread::sleep(Duration::from_millis(500));
        }
        Swept { calls, faults, grown: grown() }
    }

    /// Records a problem unless this holds after everything was released.
    pub fn settled(&mut self, name: &str, holds: impl Fn() -> bool) {
        for _ in 0..100 {
            if self.settle(None).is_ok() && holds() {
                return;
            }
        }
        self.sum.problems.push(format!("{name}: not as in the beginning"));
    }

    /// Whether the operation made the call that should fail.
    fn shoot<T, R>(
        &mut self,
        kept: &[&str],
        shot: Shot,
        set_up: &impl Fn() -> Result<T>,
        act: &impl Fn(&T) -> Result<R>,
        check: &impl Fn(&T, Option<R>) -> Result<()>,
    ) -> std::result::Result<bool, String> {
        let said = |what: &str, error: Error| format!("{what}: {error}");
        self.settle(None).map_err(|error| said("before", error))?;
        let before = census().map_err(|error| said("census", error))?;
        let held = set_up().map_err(|error| said("set up", error))?;
        arm(shot.at, shot.fault, shot.lasting, shot.threads == Threads::Others);
        let result = catch_unwind(AssertUnwindSafe(|| act(&held)));
        if shot.threads == Threads::Others {
            // The work of other threads may come after the call.
            std::thread::sleep(Duration::from_millis(5));
        }
        let (thrown, place) = disarm();
        let place = short(&place);
        if thrown == 0 {
            let result = result.map_err(|_| "a panic without a fault".to_owned())?;
            let result = result.map_err(|error| said("an error without a fault", error))?;
            check(&held, Some(result)).map_err(|error| said("a wrong result without a fault", error))?;
            return Ok(false);
        }
        self.sum.faults += 1;
        let at = |what: &str| format!("{what} (in {place})");
        let result = result.map_err(|_| at("a panic"))?;
        let result = match result {
            Ok(result) => {
                self.sum.borne += 1;
                Some(result)
            }
            Err(error) => {
                self.sum.errors += 1;
                right_class(&error, shot.fault).map_err(|wrong| at(&wrong))?;
                None
            }
        };
        // The next wait reports errors that a destructor could not report.
        let told = self.queues.iter().filter_map(|queue| queue.wait().err()).collect::<Vec<_>>();
        // A caller that gets the error does not use the result.
        let result = result.filter(|_| told.is_empty());
        for error in told {
            right_class(&error, shot.fault).map_err(|wrong| at(&format!("told later: {wrong}")))?;
        }
        check(&held, result).map_err(|error| at(&format!("not as before: {error}")))?;
        drop(held);
        works(&self.queues[0]).map_err(|error| at(&format!("the next operation: {error}")))?;
        let left = self.settle(Some((&before, kept))).map_err(|error| said("after", error))?;
        if !left.is_empty() {
            return Err(at(&format!("left behind: {}", left.join("; "))));
        }
        Ok(true)
    }

    /// Waits for all work and has usmq release its memory, until the census matches or a time limit passes.
    fn settle(&self, until: Option<(&Census, &[&str])>) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            for queue in &self.queues {
                queue.wait()?;
                // Each allocation looks at a few of the blocks and owners that wait.
                for kind in UsmKind::ALL {
                    drop(Array::uninit([1], DType::U8, kind, queue)?);
                }
            }
            trim(None)?;
            let Some((before, kept)) = until else { return Ok(Vec::new()) };
            let after = census()?;
            let mut left = difference(before, &after);
            // Each queue, also those that usmq keeps for copies and imports, may keep the event of its last command.
            let of = |census: &Census, name| census.get(name).copied().unwrap_or(0);
            if of(before, EVENT).max(of(&after, EVENT)) <= of(&after, QUEUE) {
                left.retain(|line| !line.starts_with(EVENT));
            }
            left.retain(|line| !kept.iter().any(|kept| line.contains(kept)));
            // usmq keeps a dropped queue for a quarter of a second after its work.
            if left.is_empty() || begun.elapsed() > Duration::from_secs(2) {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Allocation, copies both ways, a fill and its order.
fn works(queue: &Queue) -> Result<()> {
    let x = Array::uninit([100], DType::U32, UsmKind::Device, queue)?;
    x.copy_from_slice(&[7u32; 100])?;
    let y = x.copy()?;
    x.fill(9u32)?;
    if (x.to_vec::<u32>()?, y.to_vec::<u32>()?) == (vec![9; 100], vec![7; 100]) {
        return Ok(());
    }
    Err(Error::value("wrong numbers"))
}

/// Bytes that the heaps of this process have given out, the driver's and the runtime's included.
fn heap_in_use() -> usize {
    // SAFETY: only reads.
    unsafe { libc::mallinfo2() }.uordblks
}

/// The function's name in the compiler's name of its lambda.
fn short(place: &str) -> String {
    let name =
        place.split("cxxbridge").nth(1).map_or(place, |rest| rest.split_once('$').map_or(rest, |p| p.1));
    name.split(['(', ' ', ';']).next().unwrap_or(name).to_owned()
}

/// An error of the class that the fault calls for, with the fault's own text.
pub fn right_class(error: &Error, fault: Fault) -> std::result::Result<(), String> {
    let (code, text) = match fault {
        Fault::Sycl => ("runtime", "a fault of the tests"),
        Fault::NoMemory => ("memory_allocation", "bad_alloc"),
        Fault::Other => ("unknown", "not a std::exception"),
    };
    match error {
        Error::Sycl { code: found, message, .. } if found == code && message.contains(text) => Ok(()),
        Error::KernelBuild { log, .. } if log.contains(text) => Ok(()),
        Error::RuntimeNotFound { message, .. } if message.contains(text) => Ok(()),
        // A stream reports the error of its producer as a text.
        Error::Interop { message, .. } if message.contains(text) => Ok(()),
        // A memory provider cannot report a reason.
        Error::Allocation { .. } => Ok(()),
        other => Err(format!("another error: {other:?}")),
    }
}
