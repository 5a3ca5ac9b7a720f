//! A trace of calls on random queues and threads, compared with host vectors that model every array.

use super::choices::Choices;
use super::eventually;
use crate::common::{Work, advanced, default_queue, four_queues, queues_elsewhere};
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, OnceLock};
use usmq::interop::arrow::{Column, ImportOptions, SyncMode};
use usmq::interop::dlpack::{self, DLManagedTensorVersioned, Export, ForeignTensor, Import};
use usmq::interop::suai::{self, SyclObject};
use usmq::memory::stats;
use usmq::{Array, DType, Index, Queue, UsmKind, collocate};

/// The contents of one allocation, and the queue of its two owners after an export and import. Each
/// then logs its own work, and the protocols promise them an order on that queue only.
struct Memory {
    values: Mutex<Vec<u32>>,
    known_on: OnceLock<Queue>,
}

/// An array, and where in which memory its elements are.
#[derive(Clone)]
struct Pair {
    array: Array,
    memory: Arc<Memory>,
    places: Vec<usize>,
}

impl Pair {
    fn new(array: Array, values: Vec<u32>) -> Self {
        let places = (0..values.len()).collect();
        let memory = Memory { values: Mutex::new(values), known_on: OnceLock::new() };
        Self { array, memory: Arc::new(memory), places }
    }

    fn values(&self) -> Vec<u32> {
        let memory = self.memory.values.lock().unwrap();
        self.places.iter().map(|place| memory[*place]).collect()
    }

    fn set(&self, values: impl IntoIterator<Item = u32>) {
        let mut memory = self.memory.values.lock().unwrap();
        self.places.iter().zip(values).for_each(|(place, value)| memory[*place] = value);
    }

    /// The same elements, in separate memory unless they are in `array`.
    fn moved(&self, array: Array) -> Self {
        if array.size() == 0 || array.address() == self.array.address() {
            return Self { array, ..self.clone() };
        }
        Self::new(array, self.values())
    }

    /// Whether both owners of the memory use this queue.
    fn goes_out(&self) -> bool {
        self.memory.known_on.get_or_init(|| self.array.queue().clone()) == self.array.queue()
    }

    fn check(&self) {
        let (found, expected) = (self.array.to_vec::<u32>().unwrap(), self.values());
        assert_eq!(found.len(), expected.len(), "{}", self.array);
        if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
            panic!("element {at} is {}, not {}, of {:?}", found[at], expected[at], self.array);
        }
    }
}

struct Machine {
    /// Four queues of one context, then one for each other context.
    queues: Vec<Queue>,
    work: Vec<Work>,
}

const SHARED: usize = 4;
const MOST_ARRAYS: usize = 12;
const MOST_STEPS: usize = 60;

thread_local! {
    static MACHINE: OnceCell<Machine> = const { OnceCell::new() };
}

impl Machine {
    fn new() -> Self {
        let first = default_queue().unwrap();
        let mut queues = four_queues(first.device(), None).unwrap().to_vec();
        queues.extend(queues_elsewhere(&first).unwrap());
        // Built for each context, once for the four that share one.
        let work = queues.iter().map(|queue| Work::new(queue).unwrap()).collect();
        Self { queues, work }
    }
}

pub fn check(data: &[u8]) {
    MACHINE.with(|machine| run(machine.get_or_init(Machine::new), &mut Choices::new(data)));
}

fn live() -> u64 {
    stats(None).unwrap().iter().map(|(_, stats)| stats.live).sum()
}

fn run(machine: &Machine, choices: &mut Choices<'_>) {
    let before = live();
    let mut pairs: Vec<Pair> = Vec::new();
    for _ in 0..MOST_STEPS {
        if choices.is_empty() {
            break;
        }
        let elsewhere = choices.flag();
        // A step runs on this thread or another, whose calls have the same order.
        let step = |choices: &mut Choices<'_>, pairs: &mut Vec<Pair>| step(machine, choices, pairs);
        if elsewhere {
            std::thread::scope(|scope| scope.spawn(|| step(choices, &mut pairs)).join().unwrap());
        } else {
            step(choices, &mut pairs);
        }
    }
    pairs.iter().for_each(Pair::check);
    drop(pairs);
    for queue in &machine.queues {
        queue.wait().unwrap();
    }
    assert!(eventually(|| live() == before), "{} live allocations instead of {before}", live());
}

fn step(machine: &Machine, choices: &mut Choices<'_>, pairs: &mut Vec<Pair>) {
    let number = choices.below(machine.queues.len());
    let queue = &machine.queues[number];
    let kind = choices.pick(&UsmKind::ALL);
    if pairs.is_empty() || (pairs.len() < MOST_ARRAYS && choices.byte().is_multiple_of(8)) {
        let count = choices.pick(&[1usize, 0, 5, 64, 1000, 4096]);
        let seed = u32::from(choices.byte());
        let values: Vec<u32> = (0..count as u32).map(|at| at.wrapping_mul(2_654_435_761) ^ seed).collect();
        let array = Array::uninit([count], DType::U32, kind, queue).unwrap();
        array.copy_from_slice(&values).unwrap();
        pairs.push(Pair::new(array, values));
        return;
    }
    let at = choices.below(pairs.len());
    let pair = pairs[at].clone();
    let home = machine.queues.iter().position(|queue| queue == pair.array.queue());
    if std::env::var_os("FUZZ_INPUT").is_some() {
        // So that an input can be read.
        println!(
            "{:?} kind {kind} queue {number}, of {:?}, {} arrays",
            choices.peek() % 18,
            pair.array,
            pairs.len()
        );
    }
    let writable = !pair.array.is_readonly();
    let made = match choices.byte() % 18 {
        0 => {
            pairs.swap_remove(at);
            None
        }
        1..=3 => {
            launch(machine, choices, &pair);
            None
        }
        4 if writable => {
            let value = u32::from(choices.byte());
            pair.array.fill(value).unwrap();
            pair.set(std::iter::repeat(value));
            None
        }
        5 if writable => {
            let values: Vec<u32> = (0..pair.places.len() as u32).map(|at| at * at).collect();
            pair.array.copy_from_slice(&values).unwrap();
            pair.set(values);
            None
        }
        6 | 7 => Some(view(choices, &pair)),
        8 => Some(Pair::new(pair.array.copy().unwrap(), pair.values())),
        9 => Some(Pair::new(pair.array.cast(DType::U64).unwrap().cast(DType::U32).unwrap(), pair.values())),
        10 | 11 => {
            let array = collocate(&pair.array, queue).unwrap();
            let same = pair.array.context() == queue.context() && pair.array.size() > 0;
            assert!(!same || array.address() == pair.array.address(), "within a context nothing moves");
            Some(pair.moved(array))
        }
        12 => Some(pair.moved(pair.array.to(None, Some(kind), None).unwrap())),
        13 if writable => {
            let source = &pairs[choices.below(pairs.len())].clone();
            if source.array.shape() == pair.array.shape() && source.array.context() == pair.array.context() {
                let values = source.values();
                pair.array.assign(&source.array).unwrap();
                pair.set(values);
            }
            None
        }
        14 if home.is_some_and(|home| home < SHARED) => {
            let back = through_dlpack(&pair);
            back.check();
            // It is imported on the current queue.
            (back.array.queue() == pair.array.queue() && pair.goes_out()).then_some(back)
        }
        15 if pair.goes_out() => Some(through_suai(&pair)),
        // Arrow's arrays never change, so this one is read at once and dropped.
        16 if home.is_some_and(|home| home < SHARED)
            && pair.array.ndim() == 1
            && pair.array.is_contiguous() =>
        {
            through_arrow(&pair).check();
            None
        }
        17 => {
            queue.wait().unwrap();
            None
        }
        _ => {
            pair.check();
            None
        }
    };
    if let Some(made) = made
        && pairs.len() < MOST_ARRAYS
    {
        pairs.push(made);
    }
}

/// A kernel on the array, on a queue that reaches it, not always its own.
fn launch(machine: &Machine, choices: &mut Choices<'_>, pair: &Pair) {
    let reach: Vec<_> =
        (0..machine.queues.len()).filter(|at| pair.array.on_queue(&machine.queues[*at]).is_ok()).collect();
    let fits = pair.array.is_contiguous() && !pair.array.is_readonly() && pair.array.size() > 0;
    if !fits || reach.is_empty() {
        return;
    }
    let at = reach[choices.below(reach.len())];
    let steps = choices.pick(&[1u32, 7, 300]);
    let event = machine.work[at].advance(&machine.queues[at], &pair.array, steps).unwrap();
    pair.set(pair.values().into_iter().map(|state| advanced(state, steps)));
    if choices.byte().is_multiple_of(4) {
        event.wait().unwrap();
        assert!(event.done().unwrap());
    }
}

fn view(choices: &mut Choices<'_>, pair: &Pair) -> Pair {
    let shape = pair.array.shape();
    let size = pair.array.size();
    if size > 0 && size.is_multiple_of(4) && pair.array.is_contiguous() && choices.flag() {
        let array = pair.array.reshape([-1, 4]).unwrap();
        let array = if choices.flag() { array.transpose() } else { array };
        let rows = size / 4;
        let transposed = array.shape()[0] == 4 && !(rows == 4 && array.is_contiguous());
        let order = |at: usize| if transposed { at % rows * 4 + at / rows } else { at };
        let places = (0..size).map(|at| pair.places[order(at)]).collect();
        return Pair { array, memory: pair.memory.clone(), places };
    }
    let Some(extent) = shape.first().copied() else { return pair.clone() };
    let (start, step) = (choices.below(extent + 1), choices.pick(&[1isize, 2, 3, -1]));
    let part = Index::Slice { start: Some(start as isize), stop: None, step: Some(step) };
    let array = pair.array.index(&[part]).unwrap();
    let rest = size.checked_div(extent).unwrap_or(0);
    let mut rows: Vec<usize> = Vec::new();
    let mut row = if step < 0 { start.min(extent.wrapping_sub(1)) as isize } else { start as isize };
    while extent > 0 && (0..extent as isize).contains(&row) {
        rows.push(row as usize);
        row += step;
    }
    let places =
        rows.iter().flat_map(|row| pair.places[row * rest..(row + 1) * rest].iter().copied()).collect();
    Pair { array, memory: pair.memory.clone(), places }
}

fn through_dlpack(pair: &Pair) -> Pair {
    let tensor = dlpack::export::<DLManagedTensorVersioned>(&pair.array, Export::default()).unwrap();
    let array = dlpack::import(ForeignTensor::from(tensor), Import::default()).unwrap();
    assert!(pair.array.size() == 0 || array.address() == pair.array.address());
    // Empty arrays share no memory.
    Pair { array, ..pair.clone() }
}

fn through_suai(pair: &Pair) -> Pair {
    let descriptor = suai::export(&pair.array).unwrap();
    let object = SyclObject::Queue(pair.array.queue().clone());
    // SAFETY: the owner is the array itself.
    let array = unsafe { suai::import(&descriptor, &object, Box::new(pair.array.clone())) }.unwrap();
    assert!(pair.array.size() == 0 || array.address() == pair.array.address());
    Pair { array, ..pair.clone() }
}

fn through_arrow(pair: &Pair) -> Pair {
    let column = Column::from_array("x", &pair.array).unwrap();
    let device = column.export_device(SyncMode::Event).unwrap();
    let back = Column::import_device(device.into(), ImportOptions::default()).unwrap();
    assert_eq!(back.len(), pair.places.len());
    let array = back.values().unwrap();
    assert!(array.is_readonly() || array.size() == 0);
    Pair { array, ..pair.clone() }
}
