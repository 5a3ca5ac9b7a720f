//! Callbacks, futures of events, and asynchronous reads.

use crate::common::gate::Gate;
use crate::common::{LOOSE, LOOSE_PROFILING, Work, advanced, default_queue, queues_elsewhere, states_of};
use ::futures::executor::block_on;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use usmq::{Array, Error, Event, EventFuture, Queue, ReadFuture, Result};

/// Steps of a command that runs for some tens of milliseconds.
const LONG: u32 = 20_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts how often a task is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn wait(&self) {
        let begun = Instant::now();
        while self.get() == 0 {
            assert!(begun.elapsed() < PATIENCE, "the task is never woken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn poll_with<F: Future>(future: Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(count.clone())))
}

/// A command that runs for some time.
fn long(work: &Work, queue: &Queue) -> Result<(Array, Event)> {
    let x = states_of(&[1, 2, 3, 4], queue)?;
    let event = work.advance(queue, &x, LONG)?;
    Ok((x, event))
}

/// As [`long`], held up by a gate.
fn held(work: &Work, queue: &Queue) -> Result<(Gate, Array, Event)> {
    let x = states_of(&[1, 2, 3, 4], queue)?;
    let gate = Gate::new(queue)?;
    let event = work.advance(queue, &x, LONG)?;
    Ok((gate, x, event))
}

fn long_result() -> Vec<u32> {
    (1..=4).map(|state| advanced(state, LONG)).collect()
}

#[test]
fn futures_may_move_between_threads() {
    const fn check<T: Send + Sync + Unpin + 'static>() {}
    check::<EventFuture>();
    const fn check_send<T: Send + Unpin + 'static>() {}
    check_send::<ReadFuture<f32>>();
}

#[test]
fn an_event_is_ready_after_its_command_on_each_kind_of_queue() -> Result<()> {
    let queue = default_queue()?;
    let mut queues =
        vec![queue.clone(), queue.with_properties(LOOSE)?, queue.with_properties(LOOSE_PROFILING)?];
    queues.extend(queues_elsewhere(&queue)?);
    for queue in queues {
        let work = Work::new(&queue)?;
        let (x, event) = long(&work, &queue)?;
        block_on(async {
            (&event).await?;
            assert!(event.done()?);
            event.clone().await?; // again, now that it is complete
            assert_eq!(x.to_vec_async::<u32>().await?, long_result());
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn a_task_is_woken_once_and_never_polls() -> Result<()> {
    let queue = default_queue()?;
    let (gate, _x, event) = held(&Work::new(&queue)?, &queue)?;
    let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut future = pin!(event.into_future());
    assert!(poll_with(future.as_mut(), &first).is_pending());
    // The task moved to another executor: only the waker of the last poll counts.
    assert!(poll_with(future.as_mut(), &second).is_pending());
    gate.open();
    second.wait();
    assert_eq!((first.get(), second.get()), (0, 1));
    assert!(matches!(poll_with(future.as_mut(), &second), Poll::Ready(Ok(()))));
    Ok(())
}

#[test]
fn a_dropped_future_ends_the_wait_but_not_the_command() -> Result<()> {
    let queue = default_queue()?;
    let (gate, x, event) = held(&Work::new(&queue)?, &queue)?;
    let count = Arc::<Count>::default();
    {
        let mut future = pin!((&event).into_future());
        assert!(poll_with(future.as_mut(), &count).is_pending());
    }
    gate.open();
    event.wait()?;
    assert_eq!(x.to_vec::<u32>()?, long_result());
    // The thread of the callbacks has run one after the command.
    let (sender, after) = channel();
    event.on_complete(move || sender.send(()).unwrap());
    after.recv_timeout(PATIENCE).unwrap();
    assert_eq!((count.get(), Arc::strong_count(&count)), (0, 1), "the waker is dropped with the future");
    Ok(())
}

#[test]
fn hundreds_of_futures_are_ready_in_one_task() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[7; 16], &queue)?;
    let events = (0..300).map(|_| work.advance(&queue, &x, 1000)).collect::<Result<Vec<_>>>()?;
    block_on(async {
        let read = x.to_vec_async::<u32>();
        for event in events {
            event.await?;
        }
        assert_eq!(read.await?, [advanced(7, 300_000); 16]);
        Ok::<_, Error>(())
    })
}

#[test]
fn a_callback_runs_on_another_thread_and_may_submit_and_wait() -> Result<()> {
    let queue = default_queue()?;
    let work = Arc::new(Work::new(&queue)?);
    let (x, event) = long(&work, &queue)?;
    let (sender, done) = channel();
    event.on_complete(|| panic!("a callback that panics does not stop the others"));
    let in_callback = {
        let (event, queue) = (event.clone(), queue.clone());
        move || -> Result<_> {
            assert!(event.done()?);
            work.advance(&queue, &x, 5)?.wait()?;
            Ok((std::thread::current().id(), x.to_vec::<u32>()?))
        }
    };
    event.on_complete(move || sender.send(in_callback()).unwrap());
    let (thread, values) = done.recv_timeout(PATIENCE).unwrap()?;
    assert_ne!(thread, std::thread::current().id());
    let expected: Vec<_> = long_result().into_iter().map(|state| advanced(state, 5)).collect();
    assert_eq!(values, expected);
    Ok(())
}

#[test]
fn the_callback_of_each_command_runs_once() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[7; 4], &queue)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sender, done) = channel();
    for number in 0..20 {
        let event = work.advance(&queue, &x, 1_000_000)?;
        let (seen, sender) = (seen.clone(), sender.clone());
        event.on_complete(move || {
            seen.lock().unwrap().push(number);
            sender.send(()).unwrap();
        });
    }
    (0..20).for_each(|_| done.recv_timeout(PATIENCE).unwrap());
    let mut seen = seen.lock().unwrap();
    seen.sort_unstable();
    assert_eq!(*seen, (0..20).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_read_has_the_elements_as_of_its_call() -> Result<()> {
    let queue = default_queue()?;
    let (x, _) = long(&Work::new(&queue)?, &queue)?;
    let column = x.reshape([2, 2])?.transpose();
    let (read, strided, empty) = (
        x.to_vec_async::<u32>(),
        column.to_vec_async::<u32>(),
        Array::empty::<u32>([0])?.to_vec_async::<u32>(),
    );
    x.fill(0u32)?;
    let expected = long_result();
    block_on(async {
        assert_eq!(strided.await?, [expected[0], expected[2], expected[1], expected[3]]);
        assert_eq!(read.await?, expected);
        assert!(empty.await?.is_empty());
        assert!(matches!(x.to_vec_async::<f32>().await, Err(Error::Type { .. })));
        Ok::<_, Error>(())
    })
}

/// Ends reads early by `end`, in each of twenty rounds.
fn end_reads_early(end: impl Fn(&Array)) -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    for _ in 0..20 {
        let (gate, x, event) = held(&work, &queue)?;
        end(&x);
        // Memory of the same size, which the copies must not write to.
        let own: Vec<Vec<u32>> = (0..64).map(|_| vec![u32::MAX; 4]).collect();
        gate.open();
        event.wait()?;
        queue.wait()?;
        assert!(own.iter().flatten().all(|value| *value == u32::MAX));
        assert_eq!(x.to_vec::<u32>()?, long_result());
    }
    Ok(())
}

#[test]
fn a_read_that_is_dropped_leaves_its_memory_to_the_copy() -> Result<()> {
    end_reads_early(|x| {
        let count = Arc::<Count>::default();
        let mut polled = Box::pin(x.to_vec_async::<u32>());
        assert!(poll_with(polled.as_mut(), &count).is_pending());
        drop(polled);
        drop(x.to_vec_async::<u32>());
    })
}

#[test]
fn a_leaked_read_leaves_its_memory_to_the_copy() -> Result<()> {
    end_reads_early(|x| std::mem::forget(x.to_vec_async::<u32>()))
}
