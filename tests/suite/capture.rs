//! Captures: replays give the results of direct work, on several queues, devices and contexts.

use crate::common::{
    IN_ORDER, Random, Work, default_queue, four_queues, other_root, queues_elsewhere, states_of,
};
use std::sync::atomic::{AtomicBool, Ordering};
use usmq::{
    Array, DType, Elementwise, Error, Graph, Index, Queue, Reduction, Result, UsmKind, capture, capture_with,
    collocate, with_queue,
};

const SIZE: usize = 12;

fn part(array: &Array, start: isize, stop: Option<isize>, step: Option<isize>) -> Result<Array> {
    array.index(&[Index::Slice { start: Some(start), stop, step }])
}

/// A step of a random program: numbers of queues and arrays.
#[derive(Debug, Clone, Copy)]
enum Step {
    Advance { queue: usize, x: usize, steps: u32 },
    Into { queue: usize, x: usize, y: usize, steps: u32 },
    Mix { queue: usize, x: usize, y: usize },
    Fill { x: usize, value: u32 },
    Assign { x: usize, y: usize },
    Halves { x: usize },
    Reverse { x: usize, y: usize },
    Cast { x: usize, y: usize },
    Temporary { x: usize, y: usize },
}

fn random_program(random: &mut Random, queues: usize, arrays: usize, length: usize) -> Vec<Step> {
    let mut program = Vec::new();
    for _ in 0..length {
        let (queue, x, y) = (random.below(queues), random.below(arrays), random.below(arrays));
        let steps = *random.pick(&[1, 7, 300, 4000]);
        program.push(match random.below(9) {
            0 => Step::Advance { queue, x, steps },
            1 if x != y => Step::Into { queue, x, y, steps },
            2 if x != y => Step::Mix { queue, x, y },
            3 if random.below(4) == 0 => Step::Fill { x, value: random.next() as u32 },
            4 => Step::Assign { x, y },
            5 => Step::Halves { x },
            6 => Step::Reverse { x, y },
            7 => Step::Cast { x, y },
            _ => Step::Temporary { x, y },
        });
    }
    program
}

/// Kernels run on any queue that reaches the arrays; copies between contexts go through `collocate`.
fn run(program: &[Step], work: &[Work], queues: &[Queue], arrays: &[Array]) -> Result<()> {
    let reach = |queue: usize, array: &Array| {
        let own = queues
            .iter()
            .filter(|queue| queue.context() == array.context() && queue.device() == array.device());
        let own: Vec<_> = own.collect();
        own[queue % own.len()].clone()
    };
    let kernels = |queue: &Queue| {
        let at = queues.iter().position(|known| known == queue);
        at.map(|at| &work[at]).ok_or_else(|| Error::value(format!("{queue} is not a queue of the test")))
    };
    for step in program {
        match *step {
            Step::Advance { queue, x, steps } => {
                let queue = reach(queue, &arrays[x]);
                kernels(&queue)?.advance(&queue, &arrays[x], steps)?;
            }
            Step::Into { queue, x, y, steps } => {
                let queue = reach(queue, &arrays[y]);
                let x = collocate(&arrays[x], arrays[y].queue())?;
                kernels(&queue)?.advance_into(&queue, &x, &arrays[y], steps)?;
            }
            Step::Mix { queue, x, y } => {
                let queue = reach(queue, &arrays[y]);
                let x = collocate(&arrays[x], arrays[y].queue())?;
                kernels(&queue)?.mix(&queue, &x, &arrays[y])?;
            }
            Step::Fill { x, value } => arrays[x].fill(value)?,
            Step::Assign { x, y } => arrays[y].assign(&collocate(&arrays[x], arrays[y].queue())?)?,
            Step::Halves { x } => {
                let half = (SIZE / 2) as isize;
                part(&arrays[x], 0, Some(half), None)?.assign(&part(&arrays[x], half, None, None)?)?;
            }
            Step::Reverse { x, y } => {
                let reversed = part(&arrays[x], -1, None, Some(-1))?;
                arrays[y].assign(&collocate(&reversed, arrays[y].queue())?)?;
            }
            Step::Cast { x, y } => {
                let wide = arrays[x].cast(DType::U64)?;
                arrays[y].assign(&collocate(&wide, arrays[y].queue())?)?;
            }
            Step::Temporary { x, y } => {
                let copy = arrays[x].copy()?;
                let queue = reach(0, &copy);
                kernels(&queue)?.advance(&queue, &copy, 3)?;
                arrays[y].assign(&collocate(&copy, arrays[y].queue())?)?;
            }
        }
    }
    Ok(())
}

fn values(arrays: &[Array]) -> Result<Vec<Vec<u32>>> {
    arrays.iter().map(Array::to_vec::<u32>).collect()
}

/// Runs random programs directly, and as replays, on equal arrays.
fn compare(queues: &[Queue], arrays: usize, seeds: std::ops::Range<u64>, replays: usize) -> Result<()> {
    let work: Vec<_> = queues.iter().map(Work::new).collect::<Result<_>>()?;
    for seed in seeds {
        let mut random = Random::new(seed);
        let homes: Vec<usize> = (0..arrays).map(|_| random.below(queues.len())).collect();
        let fresh = || -> Result<Vec<Array>> {
            let one = |(number, home): (usize, &usize)| {
                let values: Vec<u32> = (0..SIZE).map(|at| (number * 1000 + at) as u32).collect();
                states_of(&values, &queues[*home])
            };
            homes.iter().enumerate().map(one).collect()
        };
        let length = 1 + random.below(24);
        let program = random_program(&mut random, queues.len(), arrays, length);
        let (direct, replayed) = (fresh()?, fresh()?);
        let before = values(&replayed)?;
        let graph = capture(|| run(&program, &work, queues, &replayed))?;
        assert_eq!(values(&replayed)?, before, "a capture runs nothing, seed {seed}");
        for round in 0..replays {
            run(&program, &work, queues, &direct)?;
            graph.replay()?;
            if round % 7 == 3 {
                // Direct work between the replays.
                let between = random_program(&mut random, queues.len(), arrays, 3);
                run(&between, &work, queues, &direct)?;
                run(&between, &work, queues, &replayed)?;
            }
        }
        assert_eq!(values(&direct)?, values(&replayed)?, "seed {seed}, {program:?}\n{}", graph.explain());
    }
    Ok(())
}

#[test]
fn replays_on_one_queue_equal_direct_work() -> Result<()> {
    compare(&[default_queue()?], 3, 0..12, 50)
}

#[test]
fn replays_on_four_queues_of_a_device_equal_direct_work() -> Result<()> {
    let queues = four_queues(default_queue()?.device(), None)?;
    compare(&queues, 4, 100..112, 50)
}

#[test]
fn replays_across_contexts_equal_direct_work() -> Result<()> {
    let queue = default_queue()?;
    let mut queues = vec![queue.clone()];
    queues.extend(queues_elsewhere(&queue)?);
    compare(&queues, 4, 200..208, 50)
}

#[test]
fn replays_on_two_devices_equal_direct_work() -> Result<()> {
    let queue = default_queue()?;
    let Some(other) = other_root(&queue)? else {
        println!("skipped: needs two devices");
        return Ok(());
    };
    let other = Queue::new(&other, None, IN_ORDER)?;
    compare(&[queue, other], 4, 300..308, 50)
}

fn elementwise(declaration: &str, expression: &str) -> Result<Elementwise> {
    // SAFETY: the expressions of these tests use their own element only.
    unsafe { Elementwise::new(declaration, expression) }
}

fn shared_zeros() -> Result<Array> {
    let array = Array::uninit(4, DType::F32, UsmKind::Shared, &default_queue()?)?;
    array.fill(0f32)?;
    Ok(array)
}

fn chain(length: usize, x: &Array, y: &Array) -> Result<Graph> {
    let add = elementwise("const float *x, float *y", "y[i] += x[i]")?;
    capture_with(&[("x", x)], || (0..length).try_for_each(|_| add.launch((x, y)).map(drop)))
}

#[test]
fn inputs_are_exchanged_with_their_views() -> Result<()> {
    let data = Array::from_slice(&(0..24u8).map(f32::from).collect::<Vec<_>>())?.reshape([4, 6])?;
    let row = |number: isize| data.index(&[Index::At(number)]);
    let x = row(0)?;
    let y = Array::zeros::<f32>(3)?;
    let add = elementwise("const float *x, float *y", "y[i] += x[i]")?;
    let graph = capture_with(&[("x", &x)], || {
        let odd = part(&x, 1, None, Some(2))?.contiguous()?;
        add.launch((&odd, &y))?;
        add.launch((part(&x, 3, None, None)?, &y))
    })?;
    let expected = |row: usize| (0..3).map(move |at| (6 * row + 2 * at + 1 + 6 * row + at + 3) as f32);
    graph.replay_with(&[("x", &row(2)?)])?;
    assert_eq!(y.to_vec::<f32>()?, expected(2).collect::<Vec<_>>());
    y.fill(0f32)?;
    graph.replay()?;
    assert_eq!(y.to_vec::<f32>()?, expected(0).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn wrong_inputs_are_errors() -> Result<()> {
    let (x, y) = (Array::full(4, 1f32)?, Array::zeros::<f32>(4)?);
    let graph = chain(2, &x, &y)?;
    let replay = |array: &Array| graph.replay_with(&[("x", array)]).map(drop);
    assert!(
        matches!(replay(&Array::zeros::<f64>(4)?), Err(Error::Type { message: text, .. }) if text.contains("float32"))
    );
    assert!(
        matches!(replay(&Array::zeros::<f32>(5)?), Err(Error::Value { message: text, .. }) if text.contains("shape [4]"))
    );
    let loose = part(&Array::zeros::<f32>(8)?, 0, None, Some(2))?;
    assert!(
        matches!(replay(&loose), Err(Error::Value { message: text, .. }) if text.contains("strides [1]"))
    );
    let shared = Array::uninit(4, DType::F32, UsmKind::Shared, x.queue())?;
    assert!(
        matches!(replay(&shared), Err(Error::Placement { message: text, .. }) if text.contains("Array::to"))
    );
    assert!(
        matches!(replay(&y), Err(Error::Value { message: text, .. }) if text.contains("same allocation"))
    );
    let unknown = graph.replay_with(&[("z", &x)]);
    assert!(
        matches!(unknown, Err(Error::Value { message: text, .. }) if text.contains("its inputs are [\"x\"]"))
    );
    assert!(graph.replay_with(&[("x", &x), ("x", &x)]).is_err());
    assert_eq!(y.to_vec::<f32>()?, [0.0; 4], "a refused replay runs nothing");
    for elsewhere in queues_elsewhere(x.queue())? {
        let there = with_queue(&elsewhere, || Array::full(4, 1f32))?;
        assert!(matches!(replay(&there), Err(Error::Placement { .. })));
    }
    let twice = capture_with(&[("a", &x), ("a", &y)], || Ok(()));
    assert!(matches!(twice, Err(Error::Value { message: text, .. }) if text.contains("name \"a\"")));
    let overlap = capture_with(&[("a", &x), ("b", &part(&x, 1, None, None)?)], || Ok(()));
    assert!(matches!(overlap, Err(Error::Value { message: text, .. }) if text.contains("share memory")));
    let head = part(&x, 0, Some(2), None)?;
    let add = elementwise("const float *x, float *y", "y[i] += x[i]")?;
    let outside = capture_with(&[("x", &head)], || add.launch((&x, &y)));
    assert!(
        matches!(outside, Err(Error::Capture { found, .. }) if found.contains("outside of its elements"))
    );
    Ok(())
}

/// The error of a call inside a capture that writes `y`.
fn inside<T>(y: &Array, call: impl FnOnce() -> Result<T>) -> Result<Error> {
    let mut refused = None;
    let graph = capture(|| {
        y.fill(1f32)?;
        refused = call().err();
        Ok(())
    })?;
    graph.replay()?.wait()?;
    refused.ok_or_else(|| Error::value("the call was not refused"))
}

#[test]
fn calls_that_need_results_at_once_are_errors_inside_a_capture() -> Result<()> {
    let y = shared_zeros()?;
    let inner = chain(1, &y, &y.copy()?)?;
    let is_named = |error: &Error, name: &str| {
        matches!(error, Error::Capture { .. }) && error.to_string().contains(name)
    };
    for (name, error) in [
        ("to_vec", inside(&y, || y.to_vec::<f32>())?),
        ("to_bytes", inside(&y, || y.to_bytes())?),
        ("copy_to_slice", inside(&y, || y.copy_to_slice(&mut [0f32; 4]))?),
        ("a host view", inside(&y, || y.host_view::<f32>().map(drop))?),
        ("a host view", inside(&y, || y.host_view_mut::<f32>().map(drop))?),
        ("wait()", inside(&y, || y.wait())?),
        ("a wait for queue", inside(&y, || y.queue().wait())?),
        ("__sycl_usm_array_interface__", inside(&y, || usmq::interop::suai::export(&y).map(drop))?),
        ("a capture inside a capture", inside(&y, || capture(|| Ok(())))?),
        ("replay()", inside(&y, || inner.replay())?),
    ] {
        assert!(is_named(&error, name), "{name}: {error}");
    }
    let event = inside(&y, || {
        let scale = elementwise("float *y", "y[i] *= 2")?;
        scale.launch((&y,))?.wait()
    })?;
    assert!(is_named(&event, "a wait for this event"), "{event}");
    let outside = y.queue().barrier(&[])?;
    let error = inside(&y, || y.queue().barrier(&[outside]))?;
    assert!(is_named(&error, "outside the capture"), "{error}");
    Ok(())
}

#[test]
fn other_arrays_can_be_waited_for_and_exported_inside_a_capture() -> Result<()> {
    let (x, y) = (Array::full(4, 1f32)?, Array::zeros::<f32>(4)?);
    let graph = capture(|| {
        y.assign(&x)?;
        x.wait()?;
        usmq::interop::suai::export(&x).map(drop)
    })?;
    graph.replay()?;
    assert_eq!(y.to_vec::<f32>()?, [1.0; 4]);
    Ok(())
}

#[test]
fn a_failed_capture_runs_nothing_and_leaves_the_arrays_usable() -> Result<()> {
    let y = Array::full(4, 2f32)?;
    let failed = capture(|| -> Result<()> {
        y.fill(7f32)?;
        Err(Error::value("stop"))
    });
    assert!(matches!(failed, Err(Error::Value { message: text, .. }) if text == "stop"));
    assert_eq!(y.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

#[test]
fn host_values_and_reductions_are_part_of_a_capture() -> Result<()> {
    // SAFETY: the expression reads its own element only.
    let sum = unsafe { Reduction::new("const float *x", "float", "x[i]", "a + b", "0") }?;
    let total = Array::zeros::<f32>(())?;
    let graph = capture(|| {
        let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
        total.assign(&sum.launch((&x,))?)
    })?;
    for _ in 0..3 {
        total.fill(0f32)?;
        graph.replay()?;
        assert_eq!(total.to_vec::<f32>()?, [6.0]);
    }
    Ok(())
}

#[test]
fn a_graph_keeps_its_memory_and_its_replays_outlive_it() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let result = states_of(&[0; SIZE], &queue)?;
    let graph = {
        let start = states_of(&[5; SIZE], &queue)?;
        capture(|| {
            let copy = start.copy()?;
            work.advance(&queue, &copy, 20_000)?;
            result.assign(&copy)
        })?
    };
    // Memory that the graph did not hold would be reused here.
    for _ in 0..20 {
        let other = states_of(&[9; SIZE], &queue)?;
        work.advance(&queue, &other, 1)?;
    }
    for _ in 0..30 {
        graph.replay()?;
    }
    drop(graph);
    for _ in 0..20 {
        states_of(&[9; SIZE], &queue)?;
    }
    assert_eq!(result.to_vec::<u32>()?, [crate::common::advanced(5, 20_000); SIZE]);
    Ok(())
}

#[test]
fn threads_replay_one_graph_at_the_same_time() -> Result<()> {
    let (x, y) = (Array::full(64, 1f32)?, Array::zeros::<f32>(64)?);
    let (graph, other) = (chain(3, &x, &y)?, Array::full(64, 2f32)?);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (graph, other) = (&graph, &other);
            scope.spawn(move || {
                for _ in 0..50 {
                    let inputs = [("x", other)];
                    graph.replay_with(if thread % 2 == 0 { &[] } else { &inputs }).expect("a replay");
                }
            });
        }
    });
    assert_eq!(y.to_vec::<f32>()?, [(2 * 50 * 3 + 2 * 50 * 3 * 2) as f32; 64]);
    Ok(())
}

#[test]
fn two_threads_capture_beside_direct_work_of_a_third() -> Result<()> {
    let (x, direct) = (Array::full(64, 1f32)?, Array::zeros::<f32>(64)?);
    let targets = [Array::zeros::<f32>(64)?, Array::zeros::<f32>(64)?];
    let add = elementwise("const float *x, float *y", "y[i] += x[i]")?;
    let is_over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| -> Result<usize> {
        let third = scope.spawn(|| -> Result<usize> {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) || rounds == 0 {
                add.launch((&x, &direct))?;
                rounds += 1;
                if rounds % 64 == 0 {
                    direct.wait()?;
                }
            }
            Ok(rounds)
        });
        let captures = targets.each_ref().map(|target| {
            let (x, add) = (&x, &add);
            scope.spawn(move || -> Result<()> {
                for _ in 0..20 {
                    let graph = capture(|| (0..3).try_for_each(|_| add.launch((x, target)).map(drop)))?;
                    graph.replay()?;
                }
                Ok(())
            })
        });
        for capture in captures {
            capture.join().expect("no panic")?;
        }
        is_over.store(true, Ordering::Relaxed);
        third.join().expect("no panic")
    })?;
    for target in &targets {
        assert_eq!(target.to_vec::<f32>()?, [60.0; 64]);
    }
    assert_eq!(direct.to_vec::<f32>()?, [rounds as f32; 64]);
    Ok(())
}

#[test]
fn an_explanation_names_each_part_and_the_picture_each_command() -> Result<()> {
    let (x, y) = (Array::full(4, 1f32)?, Array::zeros::<f32>(4)?);
    let text = chain(3, &x, &y)?.explain();
    assert!(text.starts_with("graph of 3 commands in 1 part\ninput \"x\": float32[4]"), "{text}");
    assert!(text.contains("3 commands, prepared list"), "{text}");
    let shared = shared_zeros()?;
    let hinted = capture(|| {
        shared.prefetch(None)?;
        shared.fill(0f32)
    })?;
    assert!(hinted.explain().contains("prepared list: "), "{}", hinted.explain());
    shared.fill(1f32)?;
    hinted.replay()?;
    assert_eq!(shared.to_vec::<f32>()?, [0.0; 4]);
    let svg = hinted.svg();
    assert!(svg.starts_with("<svg ") && svg.contains("prefetch 16 B") && svg.contains("fill 16 B"), "{svg}");
    let empty = capture(|| Ok(()))?;
    assert!(empty.explain().contains("0 commands in 0 parts"));
    empty.replay()?.wait()
}
