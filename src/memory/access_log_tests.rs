//! Tests the access log against a brute-force model of the happens-before relation.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

const ALLOCATIONS: usize = 4;
/// Queues with this number or a higher one are out-of-order.
const IN_ORDER: usize = 3;
const QUEUES: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fake {
    pub(super) number: usize,
    pub(super) queue: Option<usize>,
    pub(super) complete: Rc<Cell<bool>>,
}

impl Tracked for Fake {
    fn in_order_queue(&self) -> Option<usize> {
        self.queue
    }
    fn is_complete(&self) -> bool {
        self.complete.get()
    }
}

/// Numbers of commands.
type Set = u128;

fn single(number: usize) -> Set {
    1 << number
}

/// The dependencies of one command by the rules of SYCL alone, without a log.
struct Command {
    event: Fake,
    queue: usize,
    accesses: Vec<(usize, Access)>,
    /// Commands that are complete when this one first accesses memory.
    before: Set,
    /// Commands that are complete when this one's event is complete, including itself.
    done: Set,
}

#[derive(Clone, Debug)]
enum Step {
    /// A command; one with `across` also uses other queues, so that its own queue does not order its start.
    Launch { queue: usize, accesses: Vec<(usize, Access)>, across: bool },
    /// Completes one of the commands that can complete now.
    Complete(usize),
    /// An access of the host to an allocation.
    Host(usize, Access),
    /// Drops an allocation and reuses its memory: immediately if its only last use is on an in-order queue,
    /// else after its last uses are complete.
    Reuse(usize),
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![3 => Just(Access::Read), 1 => Just(Access::Write), 1 => Just(Access::ReadWrite)]
}

fn step() -> impl Strategy<Value = Step> {
    let operands = prop::collection::btree_map(0..ALLOCATIONS, access(), 1..=3);
    prop_oneof![
        6 => (0..QUEUES, operands, prop::bool::weighted(0.1)).prop_map(|(queue, operands, across)| {
            Step::Launch { queue, accesses: operands.into_iter().collect(), across }
        }),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => (0..ALLOCATIONS, access()).prop_map(|(allocation, access)| Step::Host(allocation, access)),
        1 => (0..ALLOCATIONS).prop_map(Step::Reuse),
    ]
}

#[derive(Default)]
struct World {
    logs: [AccessLog<Fake>; ALLOCATIONS],
    commands: Vec<Command>,
}

impl World {
    fn complete(&self) -> Set {
        let complete = self.commands.iter().filter(|command| command.event.is_complete());
        complete.fold(0, |set, command| set | single(command.event.number))
    }

    /// All commands that are complete when these events are complete.
    fn ended(&self, events: &[Fake]) -> Set {
        events.iter().fold(self.complete(), |set, event| set | self.commands[event.number].done)
    }

    /// Commands that accessed the allocation in a way that conflicts with this access.
    fn conflicts(&self, allocation: usize, access: Access) -> Set {
        let conflicting = self.commands.iter().filter(|command| {
            let touched =
                |(of, how): &(usize, Access)| *of == allocation && (how.writes() || access.writes());
            command.accesses.iter().any(touched)
        });
        conflicting.fold(0, |set, command| set | single(command.event.number))
    }

    /// Checks that no event is complete or listed twice.
    fn check_minimal(&self, events: &[Fake]) {
        for (position, event) in events.iter().enumerate() {
            assert!(!event.is_complete(), "command {} is complete, no one need wait for it", event.number);
            let again = events[..position].iter().any(|other| other.number == event.number);
            assert!(!again, "command {} is given twice", event.number);
        }
    }

    fn launch(&mut self, queue: usize, accesses: Vec<(usize, Access)>, across: bool) {
        let in_order = (queue < IN_ORDER).then_some(queue);
        let own = in_order.filter(|_| !across);
        let mut all = Vec::new();
        for (allocation, access) in &accesses {
            let mut wait_for = SmallVec::new();
            self.logs[*allocation].dependencies(*access, own, &mut wait_for);
            self.check_minimal(&wait_for);
            for event in &wait_for {
                let ordered = own.is_some() && event.queue == own;
                assert!(!ordered, "queue {queue} itself orders command {}", event.number);
            }
            all.extend(wait_for);
        }
        let number = self.commands.len();
        let previous =
            self.commands.iter().rev().find(|command| command.queue == queue && in_order.is_some());
        let previous = previous.map_or(0, |command| command.done);
        let waited = self.ended(&all);
        let before = if own.is_some() { waited | previous } else { waited };
        for (allocation, access) in &accesses {
            let missing = self.conflicts(*allocation, *access) & !before;
            assert_eq!(missing, 0, "command {number} does not wait for these on allocation {allocation}");
        }
        let event = Fake { number, queue: in_order, complete: Rc::default() };
        for (allocation, access) in &accesses {
            self.logs[*allocation].record(*access, event.clone());
        }
        let done = before | previous | single(number);
        self.commands.push(Command { event, queue, accesses, before, done });
    }

    /// Completes one of the possible commands, selected by the number.
    fn end_one(&self, number: usize) {
        let complete = self.complete();
        let can_end = |command: &&Command| {
            let others = (command.before | command.done) & !single(command.event.number);
            !command.event.is_complete() && others & !complete == 0
        };
        let candidates: Vec<_> = self.commands.iter().filter(can_end).collect();
        if !candidates.is_empty() {
            candidates[number % candidates.len()].event.complete.set(true);
        }
    }

    fn host(&self, allocation: usize, access: Access) {
        let events = self.logs[allocation].before_host(access);
        self.check_minimal(&events);
        let missing = self.conflicts(allocation, access) & !self.ended(&events);
        assert_eq!(missing, 0, "the host does not wait for these on allocation {allocation}");
    }

    fn reuse(&mut self, allocation: usize) {
        let pending = std::mem::take(&mut self.logs[allocation]).pending();
        self.check_minimal(&pending);
        let missing = self.conflicts(allocation, Access::Write) & !self.ended(&pending);
        assert_eq!(missing, 0, "allocation {allocation} is given back under these commands");
        self.logs[allocation] = match &pending[..] {
            // The pool's rule: immediate reuse on the in-order queue of the only last use. The new owner may
            // then use the memory on any queue.
            [event] if event.queue.is_some() => AccessLog::after(Some(event.clone())),
            // For other owners: after the last uses and their dependencies are complete.
            events => {
                let ended = self.ended(events);
                for command in &self.commands {
                    if ended & single(command.event.number) != 0 {
                        command.event.complete.set(true);
                    }
                }
                AccessLog::default()
            }
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_conflicting_pair_is_ordered_without_needless_waits(
        steps in prop::collection::vec(step(), 1..100)
    ) {
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Launch { queue, accesses, across } => world.launch(queue, accesses, across),
                Step::Complete(number) => world.end_one(number),
                Step::Host(allocation, access) => world.host(allocation, access),
                Step::Reuse(allocation) => world.reuse(allocation),
            }
        }
    }
}

/// Reads of one allocation on an out-of-order queue that never waits are kept only while they run.
#[test]
fn reads_without_a_write_are_removed_on_completion() {
    let mut world = World::default();
    for _ in 0..100 {
        world.launch(IN_ORDER, vec![(0, Access::Read)], false);
        world.end_one(0);
    }
    assert!(world.logs[0].reads().count() <= FEW + 1);
    world.launch(0, vec![(0, Access::Write)], false);
    assert_eq!(world.logs[0].reads().count(), 0);
}
