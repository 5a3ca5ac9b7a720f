//! Faults in captures, replays, and the release of graphs.

use crate::common::{Work, advanced, four_queues, mixed, queues_elsewhere, states_of};
use crate::device::HEAP;
use crate::harness::{Sweep, Threads};
use crate::memory::expect;
use std::time::{Duration, Instant};
use usmq::faults::{Fault, arm, disarm, live};
use usmq::interop::suai;
use usmq::{Array, DType, Event, Graph, Queue, Result, UsmKind, capture, capture_with, collocate};

const STEPS: u32 = 3;
/// For a launch that is not complete when the next command is submitted.
const MANY_STEPS: u32 = 200_000;
const SIZE: usize = 100;

/// Kernels and two queues, which may be equal, of one device, or of two contexts.
struct Program {
    work: [Work; 2],
    queues: [Queue; 2],
}

/// The arrays of a program, and its graph.
type Captured = (Array, Array, Graph);

impl Program {
    fn new(queues: [Queue; 2]) -> Result<Self> {
        Ok(Self { work: [Work::new(&queues[0])?, Work::new(&queues[1])?], queues })
    }

    /// Launches on both queues, and a copy between them.
    fn run(&self, x: &Array, y: &Array) -> Result<()> {
        self.work[0].advance(&self.queues[0], x, STEPS)?;
        self.work[1].advance(&self.queues[1], y, STEPS)?;
        let near = collocate(x, &self.queues[1])?;
        self.work[1].mix(&self.queues[1], &near, y).map(drop)
    }

    fn arrays(&self) -> Result<(Array, Array)> {
        Ok((states_of(&[1; SIZE], &self.queues[0])?, states_of(&[2; SIZE], &self.queues[1])?))
    }

    fn captured(&self) -> Result<Captured> {
        let (x, y) = self.arrays()?;
        let graph = capture_with(&[("x", &x)], || self.run(&x, &y))?;
        Ok((x, y, graph))
    }
}

/// The states after the program, and those after a part of it.
fn after(x: u32, y: u32) -> ([u32; 2], [u32; 3]) {
    let (next, half) = (advanced(x, STEPS), advanced(y, STEPS));
    let mut whole = [half];
    mixed(&[next], &mut whole);
    ([x, next], [y, half, whole[0]])
}

/// Each element has the same state.
fn state(x: &Array) -> Result<u32> {
    let values = x.to_vec::<u32>()?;
    expect(values.iter().all(|value| *value == values[0]), true)?;
    Ok(values[0])
}

/// After a replay both arrays have the states of the program; after a failed one, those of a part of it. The next
/// replay continues from there.
fn replayed(captured: &Captured, event: Option<Event>) -> Result<()> {
    replayed_from(1, captured, event)
}

/// As `replayed`, with this state of the first array before it.
fn replayed_from(state_of_x: u32, (x, y, graph): &Captured, event: Option<Event>) -> Result<()> {
    let (of_x, of_y) = after(state_of_x, 2);
    let found = (state(x)?, state(y)?);
    match event {
        Some(event) => {
            event.wait()?;
            expect(found, (of_x[1], of_y[2]))?;
        }
        None => expect(of_x.contains(&found.0) && of_y.contains(&found.1), true)?,
    }
    let (of_x, of_y) = after(found.0, found.1);
    graph.replay()?;
    expect((state(x)?, state(y)?), (of_x[1], of_y[2]))
}

pub fn all(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let [in_order, second, loose, _] = four_queues(home.device(), None)?;
    let away = queues_elsewhere(home)?.swap_remove(0);
    for (name, queues) in [
        ("one queue", [in_order.clone(), in_order.clone()]),
        ("two queues", [in_order.clone(), second.clone()]),
        ("an out-of-order queue", [loose.clone(), loose]),
        ("two contexts", [in_order.clone(), away]),
    ] {
        let program = Program::new(queues)?;
        sweep.run(
            &format!("capture: {name}"),
            || program.arrays(),
            |(x, y)| capture(|| program.run(x, y)),
            |(x, y), graph| {
                expect((state(x)?, state(y)?), (1, 2))?;
                graph.map_or(Ok(()), |graph| replayed_once(&graph, x, y))
            },
        );
        for (threads, who) in [(Threads::This, "the caller"), (Threads::Others, "other threads")] {
            // Only events between contexts need other threads.
            if threads == Threads::This || name == "two contexts" {
                let name = format!("replay: {name}, faults of {who}");
                let act = |(.., graph): &Captured| graph.replay();
                sweep.run_on(threads, &name, &[], || program.captured(), act, replayed);
            }
        }
        sweep.run(
            &format!("replay: {name}, another input"),
            || Ok((program.captured()?, states_of(&[5; SIZE], &program.queues[0])?)),
            |((.., graph), other)| graph.replay_with(&[("x", other)]),
            |((x, y, graph), other), event| {
                let (of_other, of_y) = after(5, 2);
                expect(of_other.contains(&state(other)?) && of_y.contains(&state(y)?), true)?;
                if let Some(event) = event {
                    event.wait()?;
                    expect((state(other)?, state(y)?), (of_other[1], of_y[2]))?;
                }
                expect(state(x)?, 1)?;
                graph.replay().map(drop)
            },
        );
        sweep.run(
            &format!("graph: dropped after a replay, {name}"),
            || program.arrays(),
            |(x, y)| capture(|| program.run(x, y))?.replay(),
            |(x, y), event| match event {
                Some(event) => {
                    event.wait()?;
                    let (of_x, of_y) = after(1, 2);
                    expect((state(x)?, state(y)?), (of_x[1], of_y[2]))
                }
                None => Ok(()),
            },
        );
    }
    after_another_queue(sweep, [in_order, second])?;
    sycl_graphs(sweep, home)
}

/// The first launch of a replay waits for a launch of another queue.
fn after_another_queue(sweep: &mut Sweep, [queue, other]: [Queue; 2]) -> Result<()> {
    let (program, earlier) = (Program::new([queue.clone(), queue])?, Work::new(&other)?);
    sweep.run(
        "replay: one queue, after a launch of another queue",
        || {
            let captured = program.captured()?;
            earlier.advance(&other, &captured.0, MANY_STEPS)?;
            Ok(captured)
        },
        |(.., graph)| graph.replay(),
        |captured, event| replayed_from(advanced(1, MANY_STEPS), captured, event),
    );
    Ok(())
}

/// On request, parts of ten commands are SYCL graphs.
fn sycl_graphs(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    const COUNT: u32 = 12;
    const VARIABLE: &str = "USMQ_SYCL_GRAPHS";
    let work = Work::new(home)?;
    let array = || states_of(&[1; SIZE], home);
    let record = |x: &Array| capture(|| (0..COUNT).try_for_each(|_| work.advance(home, x, STEPS).map(drop)));
    let next = |state| advanced(state, COUNT * STEPS);
    // SAFETY: no other thread of this test reads or changes variables meanwhile.
    unsafe { std::env::set_var(VARIABLE, "1") };
    expect(record(&array()?)?.explain().contains("SYCL graph: the device has"), true)?;
    // libsycl keeps memory of each submission; see tests/upstream/graph_submissions.cpp.
    sweep.run_on(Threads::This, "capture: a SYCL graph", &HEAP, array, record, |x, graph| {
        expect(state(x)?, 1)?;
        let Some(graph) = graph else { return Ok(()) };
        graph.replay()?;
        expect(state(x)?, next(1))
    });
    sweep.run_on(
        Threads::This,
        "replay: a SYCL graph",
        &HEAP,
        || {
            let x = array()?;
            Ok((x.clone(), record(&x)?))
        },
        |(_, graph)| graph.replay(),
        |(x, graph), event| {
            let before = state(x)?;
            match event {
                Some(_) => expect(before, next(1))?,
                // A list, if the replay follows work that another library may delay: its first commands have run.
                None => expect((0..COUNT).any(|count| before == advanced(1, count * STEPS)), true)?,
            }
            graph.replay()?;
            expect(state(x)?, next(before))
        },
    );
    // SAFETY: as above.
    unsafe { std::env::remove_var(VARIABLE) };
    Ok(())
}

fn replayed_once(graph: &Graph, x: &Array, y: &Array) -> Result<()> {
    graph.replay()?;
    let (of_x, of_y) = after(1, 2);
    expect((state(x)?, state(y)?), (of_x[1], of_y[2]))
}

/// Number of steps that take a few tenths of a second for one element.
const LONG: u32 = 100_000_000;

/// The objects of lists that live now.
fn lists() -> i64 {
    live().into_iter().find(|(name, _)| name.ends_with("CommandList")).map_or(0, |(_, count)| count)
}

/// Waits until the lists of dropped graphs are released.
fn no_list_is_left() {
    let begun = Instant::now();
    while lists() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{} lists are not released", lists());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A replay of a long command and two more on an out-of-order queue, of which a later one fails. The failed calls have
/// the number `at` among all calls; none if this call is no command of the list after the first.
fn broken_replay(graph: &Graph, at: u64) -> Result<Option<Duration>> {
    let begun = Instant::now();
    arm(at, Fault::Sycl, false, false);
    let result = graph.replay();
    let (thrown, place) = disarm();
    let took = begun.elapsed();
    if thrown == 0 {
        return Err(usmq::Error::value("no call is left"));
    }
    let is_list = place.starts_with("list_submit");
    expect(result.is_err() || !is_list, true)?;
    Ok((is_list && result.is_err()).then_some(took))
}

/// The commands before the failed one run on. Later work on their arrays, also of another library, follows them, the
/// call does not wait for them, and the graph's objects live as long.
pub fn a_list_that_fails_in_the_middle(home: &Queue) -> Result<()> {
    let [in_order, second, loose, _] = four_queues(home.device(), None)?;
    let work = Work::new(home)?;
    let mut broken = 0;
    for at in 1.. {
        let shared = Array::uninit([1], DType::U32, UsmKind::Host, &second)?;
        shared.fill(1u32)?;
        let others = [states_of(&[1], &loose)?, states_of(&[1], &loose)?];
        // Another library may use the array on `second` from here on.
        let described = suai::export(&shared)?;
        let graph = capture(|| {
            work.advance(&loose, &shared, LONG)?;
            work.advance(&loose, &others[0], 1)?;
            work.advance(&in_order, &others[1], 1).map(drop)
        })?;
        // No earlier command is in flight, so each replay makes the same calls.
        [&in_order, &second, &loose].into_iter().try_for_each(Queue::wait)?;
        let Ok(result) = broken_replay(&graph, at) else { break };
        let begun = Instant::now();
        drop(graph);
        let Some(took) = result else {
            loose.wait()?;
            no_list_is_left();
            continue;
        };
        // What the other library sees when its own next command runs.
        second.barrier(&[])?.wait()?;
        let waited = begun.elapsed();
        // SAFETY: one element of host USM, which no command uses any more, as the assertion checks.
        let value = unsafe { std::ptr::read_volatile(shared.address() as *const u32) };
        let was_sent = value != 1;
        if was_sent {
            broken += 1;
            assert_eq!(value, advanced(1, LONG), "call {at}: the barrier came before the end of the command");
            assert!(waited > took, "call {at}: the replay took {took:?}, its command only {waited:?}");
        }
        // Work of usmq follows, too.
        work.advance(&in_order, &shared, 1)?.wait()?;
        assert_eq!(shared.to_vec::<u32>()?, [advanced(value, 1)], "call {at}");
        drop(described);
        no_list_is_left();
    }
    // The second command, the third, and the end of the list.
    assert_eq!(broken, 3);
    Ok(())
}

/// A failed replay keeps the objects of its graph until the commands that it has submitted are complete.
pub fn a_graph_lives_as_long_as_the_commands_of_a_failed_replay(home: &Queue) -> Result<()> {
    let [_, second, loose, _] = four_queues(home.device(), None)?;
    let work = Work::new(home)?;
    let mut broken = 0;
    for at in 1.. {
        let (x, y) = (states_of(&[1], &loose)?, states_of(&[1], &second)?);
        let graph = capture(|| {
            work.advance(&loose, &x, LONG)?;
            work.advance(&second, &y, 1).map(drop)
        })?;
        [&second, &loose].into_iter().try_for_each(Queue::wait)?;
        let Ok(result) = broken_replay(&graph, at) else { break };
        drop(graph);
        std::thread::sleep(Duration::from_millis(20));
        let kept = lists();
        let marker = loose.barrier(&[])?;
        if result.is_some() && !marker.done()? {
            broken += 1;
            assert_eq!(kept, 1, "call {at}: the list was released before its command was complete");
        }
        marker.wait()?;
        no_list_is_left();
    }
    assert_eq!(broken, 2);
    Ok(())
}
