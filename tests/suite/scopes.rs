//! Scopes: entry, nesting and exit for every end of the body, separate per thread and future.

use crate::common::{IN_ORDER, default_queue, four_queues};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Wake, Waker};
use usmq::{
    Array, Context, Error, InQueue, Queue, QueueManager, Result, Scope, Target, current_queue, with_queue,
};

/// Eight different queues, none of them SYCL's default one.
fn eight_queues() -> Result<Vec<Queue>> {
    let outside = default_queue()?;
    let device = outside.device();
    let (a, b) = (Context::new(std::slice::from_ref(device))?, Context::new(std::slice::from_ref(device))?);
    let queues = [four_queues(device, Some(&a))?, four_queues(device, Some(&b))?].concat();
    assert!(!queues.contains(&outside));
    Ok(queues)
}

#[test]
fn nested_scopes_replace_and_restore_the_queue() -> Result<()> {
    let queues = eight_queues()?;
    let outside = current_queue()?;
    fn nest(queues: &[Queue], outside: &Queue) -> Result<usize> {
        assert_eq!(&current_queue()?, outside);
        let Some((queue, rest)) = queues.split_first() else { return Ok(0) };
        let inner = with_queue(queue, || nest(rest, queue))?;
        assert_eq!(&current_queue()?, outside);
        Ok(inner + 1)
    }
    assert_eq!(nest(&queues, &outside)?, 8);
    // `None` keeps the current queue.
    with_queue(&queues[3], || {
        assert_eq!(with_queue(Target::Unset, current_queue)?, queues[3]);
        assert_eq!(with_queue(None::<&str>, current_queue)?, queues[3]);
        Ok(())
    })
}

#[test]
fn an_error_inside_a_scope_propagates_and_restores_the_queue() -> Result<()> {
    let queues = eight_queues()?;
    let outside = current_queue()?;
    let failed = with_queue(&queues[0], || {
        let inner = with_queue(&queues[1], || {
            assert_eq!(current_queue()?, queues[1]);
            Err::<(), _>(Error::value("on purpose"))
        });
        assert_eq!(current_queue()?, queues[0]);
        inner
    });
    assert!(matches!(failed, Err(Error::Value { message: text, .. }) if text == "on purpose"));
    assert_eq!(current_queue()?, outside);
    Ok(())
}

#[test]
fn a_failed_scope_does_not_run_its_body() -> Result<()> {
    let queues = eight_queues()?;
    with_queue(&queues[0], || {
        for (wrong, is_right_error) in [
            ("cpu:99", (|error| matches!(error, Error::DeviceNotFound { .. })) as fn(&Error) -> bool),
            ("not a device", |error| matches!(error, Error::Selector { .. })),
        ] {
            let error = with_queue::<(), _>(wrong, || panic!("the body ran")).expect_err(wrong);
            assert!(is_right_error(&error), "{error}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
        assert_eq!(current_queue()?, queues[0]);
        Ok(())
    })
}

#[test]
fn panic_inside_a_scope_restores_the_stack() -> Result<()> {
    let queues = eight_queues()?;
    let outside = current_queue()?;
    let manager = QueueManager::new("panics");
    let captured = with_queue(&queues[5], || Ok::<_, Error>(Scope::capture()))?;
    let bodies: [&dyn Fn() -> Result<()>; 3] = [
        &|| with_queue(&queues[1], || with_queue(&queues[2], || panic!("on purpose"))),
        &|| manager.with_queue(&queues[3], || panic!("on purpose")),
        &|| captured.enter(|| with_queue(&queues[4], || panic!("on purpose"))),
    ];
    with_queue(&queues[0], || {
        for body in bodies {
            assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
            assert_eq!(current_queue()?, queues[0]);
            assert_eq!(manager.current_queue()?, queues[0]);
        }
        Ok::<_, Error>(())
    })?;
    assert_eq!(current_queue()?, outside);
    Ok(())
}

#[test]
fn sixty_four_threads_keep_separate_scopes() -> Result<()> {
    let queues = eight_queues()?;
    let outside = default_queue()?;
    let all_inside = Barrier::new(64);
    let work = |number: usize| {
        let mine = &queues[number % 8];
        let before = current_queue();
        with_queue(mine, || {
            all_inside.wait();
            assert_eq!(before?, outside);
            for round in 0..200 {
                let inner = &queues[(number + round) % 8];
                assert_eq!(&with_queue(inner, current_queue)?, inner);
                assert_eq!(&current_queue()?, mine);
            }
            let x = Array::full([16], number as u32)?;
            assert_eq!(x.queue(), mine);
            assert_eq!(x.to_vec::<u32>()?, [number as u32; 16]);
            Ok::<_, Error>(())
        })?;
        assert_eq!(current_queue()?, outside);
        Ok::<_, Error>(())
    };
    std::thread::scope(|threads| {
        let work = &work;
        let running: Vec<_> = (0..64).map(|number| threads.spawn(move || work(number))).collect();
        running.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
    });
    Ok(())
}

#[test]
fn a_captured_scope_can_be_entered_on_any_thread_and_replaces_its_scope() -> Result<()> {
    let queues = eight_queues()?;
    let outside = default_queue()?;
    let manager = QueueManager::new("carried");
    let nothing = Scope::capture();
    let scope = with_queue(&queues[0], || {
        with_queue(&queues[1], || manager.with_queue(&queues[2], || Ok::<_, Error>(Scope::capture())))
    })?;
    assert_eq!(current_queue()?, outside, "capturing must not enter the scope");
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                assert_eq!(current_queue().unwrap(), outside);
                with_queue(&queues[3], || {
                    scope.enter(|| {
                        assert_eq!(current_queue()?, queues[1]);
                        assert_eq!(manager.current_queue()?, queues[2]);
                        // In an empty captured scope this thread's own scope has no effect.
                        assert_eq!(nothing.enter(current_queue)?, outside);
                        assert_eq!(with_queue(&queues[4], current_queue)?, queues[4]);
                        Ok::<_, Error>(())
                    })?;
                    assert_eq!(current_queue()?, queues[3]);
                    assert_eq!(manager.current_queue()?, queues[3]);
                    Ok::<_, Error>(())
                })
                .unwrap();
            });
        }
    });
    // A scope outlives the thread that captured it, and is entered twice at once.
    let queue = queues[6].clone();
    let carried = std::thread::spawn(move || with_queue(&queue, || Ok::<_, Error>(Scope::capture()))).join();
    let carried = carried.expect("no panic")?;
    assert_eq!(carried.enter(|| carried.enter(current_queue))?, queues[6]);
    assert_eq!(queues[7].scope().enter(current_queue)?, queues[7]);
    assert_eq!(current_queue()?, outside);
    Ok(())
}

#[test]
fn workers_of_a_thread_pool_see_the_scope_of_each_job() -> Result<()> {
    type Job = Box<dyn FnOnce() + Send>;
    let queues = eight_queues()?;
    let outside = default_queue()?;
    let (jobs, inbox) = mpsc::channel::<Job>();
    let inbox = Arc::new(Mutex::new(inbox));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let inbox = inbox.clone();
            std::thread::spawn(move || {
                loop {
                    let job = inbox.lock().unwrap().recv();
                    let Ok(job) = job else { return };
                    job();
                }
            })
        })
        .collect();
    let (answer, answers) = mpsc::channel();
    for number in 0..400 {
        let answer = answer.clone();
        let ask = move || answer.send((number, current_queue().unwrap())).unwrap();
        // Every ninth job has no scope, and must not see one of another job.
        let job: Job = match queues.get(number % 9) {
            Some(queue) => {
                let scope = with_queue(queue, || Ok::<_, Error>(Scope::capture()))?;
                Box::new(move || scope.enter(ask))
            }
            None => Box::new(ask),
        };
        jobs.send(job).expect("the workers run");
    }
    drop((jobs, answer));
    let mut count = 0;
    for (number, queue) in answers {
        assert_eq!(&queue, queues.get(number % 9).unwrap_or(&outside), "job {number}");
        count += 1;
    }
    assert_eq!(count, 400);
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    Ok(())
}

/// Is pending once, so that another future of the executor runs in between.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Polls the tasks in turn until all are ready. Between polls the queue must be this thread's own.
fn run(mut tasks: Vec<Task<'_>>) -> Result<()> {
    let wakes = Arc::new(Count(AtomicUsize::new(tasks.len())));
    let waker = Waker::from(wakes.clone());
    let own = current_queue()?;
    while !tasks.is_empty() {
        assert!(wakes.0.swap(0, Ordering::Relaxed) > 0, "no task can continue");
        let mut waiting = Vec::new();
        for mut task in tasks {
            let polled = task.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            assert_eq!(current_queue()?, own);
            match polled {
                Poll::Ready(result) => result?,
                Poll::Pending => waiting.push(task),
            }
        }
        tasks = waiting;
    }
    Ok(())
}

#[test]
fn interleaved_futures_on_one_thread_keep_their_queues() -> Result<()> {
    let queues = eight_queues()?;
    let order = Mutex::new(Vec::new());
    let work = async |number: usize, queue: &Queue| {
        for step in 0..50u32 {
            let x = Array::full([4], step)?;
            assert_eq!((x.queue(), &current_queue()?), (queue, queue));
            order.lock().unwrap().push(number);
            pause().await;
            assert_eq!(&current_queue()?, queue);
            let inner = &queues[(number + 4) % 8];
            assert_eq!(&with_queue(inner, current_queue)?, inner);
            assert_eq!(x.to_vec::<u32>()?, [step; 4]);
        }
        Ok(())
    };
    let (first, second) =
        (work(0, &queues[0]).in_queue(&queues[0]), work(1, &queues[1]).in_queue(&queues[1]));
    let outside = async {
        for _ in 0..20 {
            assert_eq!(current_queue()?, default_queue()?);
            pause().await;
        }
        Ok(())
    };
    run(vec![Box::pin(first), Box::pin(outside), Box::pin(second)])?;
    let order = order.into_inner().expect("no panic");
    assert_eq!(order.len(), 100);
    assert!(order.chunks(2).all(|pair| pair == [0, 1]), "the two did not interleave: {order:?}");
    Ok(())
}

#[test]
fn a_future_keeps_its_queue_when_it_moves_to_another_thread() -> Result<()> {
    let queues = eight_queues()?;
    let (queue, inner) = (queues[2].clone(), queues[3].clone());
    let mine = queue.clone();
    let work = async move {
        for _ in 0..8 {
            assert_eq!(current_queue()?, mine);
            pause().await;
            // A future inside a future, with its own queue.
            let nested = async {
                pause().await;
                current_queue()
            };
            assert_eq!(nested.in_queue(&inner).await?, inner);
            assert_eq!(current_queue()?, mine);
        }
        Ok(())
    };
    let mut task: Task<'static> = Box::pin(work.in_queue(&queue));
    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
    let mut polls = 0;
    loop {
        let waker = waker.clone();
        let polled = std::thread::spawn(move || {
            let own = current_queue().unwrap();
            let polled = task.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            assert_eq!(current_queue().unwrap(), own);
            (task, polled)
        });
        let (back, polled) = polled.join().expect("no panic");
        task = back;
        polls += 1;
        if let Poll::Ready(result) = polled {
            result?;
            break;
        }
    }
    assert_eq!(polls, 17);
    Ok(())
}

#[test]
fn a_future_that_panics_leaves_no_scope_behind() -> Result<()> {
    let queues = eight_queues()?;
    let body = async || -> Result<()> {
        pause().await;
        panic!("on purpose")
    };
    let task: Task<'_> = Box::pin(body().in_queue(&queues[1]));
    with_queue(&queues[0], || {
        assert!(catch_unwind(AssertUnwindSafe(|| run(vec![task]))).is_err());
        assert_eq!(current_queue()?, queues[0]);
        Ok(())
    })
}

/// Records the current queue when it is dropped.
struct SaysQueue(mpsc::Sender<Result<Queue>>);

impl Drop for SaysQueue {
    fn drop(&mut self) {
        let _ = self.0.send(current_queue());
    }
}

#[test]
fn a_cancelled_future_drops_its_locals_in_its_scope() -> Result<()> {
    let queues = eight_queues()?;
    let (say, said) = mpsc::channel();
    let mut task = Box::pin(
        async move {
            let _local = SaysQueue(say);
            pause().await;
        }
        .in_queue(&queues[1]),
    );
    with_queue(&queues[0], || {
        assert!(task.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
        drop(task);
        assert_eq!(said.recv().expect("it was dropped")?, queues[1]);
        assert_eq!(current_queue()?, queues[0]);
        Ok(())
    })
}

#[test]
fn an_unpolled_future_drops_its_captures_in_its_scope() -> Result<()> {
    let queues = eight_queues()?;
    let (say, said) = mpsc::channel();
    let captured = SaysQueue(say);
    drop(async move { drop(captured) }.in_queue(&queues[2]));
    assert_eq!(said.recv().expect("it was dropped")?, queues[2]);
    assert_eq!(current_queue()?, default_queue()?);
    Ok(())
}

/// The result in a destructor of thread-local data, after the thread dropped its scopes.
#[derive(Debug)]
struct AtEnd {
    current: Result<Queue>,
    of_manager: Result<Queue>,
    with: Result<Queue>,
    own_manager: Result<Queue>,
    captured: Result<Queue>,
    entered: Result<Queue>,
    polled: Poll<Result<Queue>>,
    elements: Result<Vec<i32>>,
    made: Result<Array>,
}

struct AsksLate(Array, mpsc::Sender<AtEnd>);

impl Drop for AsksLate {
    fn drop(&mut self) {
        let queue = self.0.queue();
        let manager = QueueManager::new("late");
        let mut task = Box::pin(async { current_queue() }.in_queue(queue));
        let found = AtEnd {
            current: current_queue(),
            of_manager: manager.current_queue(),
            with: with_queue(queue, current_queue),
            own_manager: manager.with_queue(queue, || manager.current_queue()),
            captured: Scope::capture().enter(current_queue),
            entered: queue.scope().enter(current_queue),
            polled: task.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())),
            elements: self.0.to_vec(),
            made: Array::zeros::<i32>([4]),
        };
        let _ = self.1.send(found);
    }
}

#[test]
fn a_thread_local_destructor_gets_an_error_after_the_scopes_are_destroyed() {
    std::thread_local! {
        static KEPT: std::cell::RefCell<Option<AsksLate>> = const { std::cell::RefCell::new(None) };
    }
    let (say, said) = mpsc::channel();
    let thread = std::thread::spawn(move || -> Result<()> {
        // It is created before usmq's own thread-local data, so it is dropped later.
        KEPT.with_borrow_mut(|kept| assert!(kept.is_none()));
        let array = with_queue(default_queue()?, || Array::from_slice(&[1, 2]))?;
        KEPT.set(Some(AsksLate(array, say)));
        Ok(())
    });
    thread.join().expect("no panic").expect("no error");
    let found = said.recv().expect("it was dropped");
    let refused = |result: &Result<Queue>| match result {
        Err(Error::Value { message, .. }) => message.contains("thread"),
        _ => false,
    };
    let Poll::Ready(polled) = &found.polled else { panic!("{found:?}") };
    for result in [
        &found.current,
        &found.of_manager,
        &found.with,
        &found.own_manager,
        &found.captured,
        &found.entered,
        polled,
    ] {
        assert!(refused(result), "{found:?}");
    }
    assert!(matches!(&found.made, Err(Error::Value { .. })), "{found:?}");
    // Calls without the current queue work.
    assert_eq!(found.elements.expect("its queue is known"), [1, 2]);
}

#[test]
fn a_queue_requested_twice_is_one_queue() -> Result<()> {
    let device = default_queue()?.device().clone();
    let filter = device.filter_string().unwrap_or_default();
    assert_eq!(Queue::new(filter, None, IN_ORDER)?, Queue::new(&device, None, IN_ORDER)?);
    let several = four_queues(&device, None)?;
    assert_eq!(several, four_queues(&device, None)?);
    for (position, queue) in several.iter().enumerate() {
        assert!(!several[..position].contains(queue));
        assert_eq!(Queue::new(queue, None, IN_ORDER)?, *queue, "the queue is used unchanged");
    }
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let device = device.clone();
            std::thread::spawn(move || four_queues(&device, None))
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic")?, several);
    }
    Ok(())
}
