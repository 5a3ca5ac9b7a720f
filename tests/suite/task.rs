//! Tasks on real devices: their queue, the arguments of their functions, and their memory.

#![allow(clippy::unwrap_used)] // A test that cannot count its memory must fail.

use crate::common::{default_queue, other_root};
use std::sync::Arc;
use usmq::interop::arrow::{Column, Table};
use usmq::memory::stats;
use usmq::{
    Array, DType, Error, Queue, QueueManager, QueueProperties, Result, Task, TaskContext, UsmKind,
    current_queue, with_queue,
};

fn live() -> u64 {
    stats(None).unwrap().iter().map(|(_, kind)| kind.live).sum()
}

/// Two queues, on two devices if there are two.
fn two_queues() -> Result<(Queue, Queue)> {
    let first = default_queue()?;
    let second = match other_root(&first)? {
        Some(device) => Queue::new(device, None, QueueProperties::default())?,
        None => Queue::new(first.device(), None, QueueProperties { profiling: true, ..Default::default() })?,
    };
    Ok((first, second))
}

fn text(error: Error) -> String {
    error.to_string()
}

#[test]
fn a_task_runs_on_the_queue_of_its_data() -> Result<()> {
    let (first, second) = two_queues()?;
    let x = with_queue(&second, || Array::from_slice(&[1u32, 2]))?;
    let body = |task: &mut TaskContext| -> Result<Queue> {
        let x = task.array::<u32>()?;
        assert_eq!(task.queue(), x.queue());
        assert_eq!(&current_queue()?, task.queue(), "functions called by the task use its queue");
        let y = task.memory().zeros::<u32>([2])?;
        assert_eq!(y.queue(), task.queue());
        Ok(task.queue().clone())
    };
    let ran = with_queue(&first, || Task::new("follows").arg(&x).run(body))?;
    assert_eq!(&ran, x.queue());
    Ok(())
}

#[test]
fn without_arrays_a_task_runs_on_its_managers_or_the_current_queue() -> Result<()> {
    let (first, second) = two_queues()?;
    let queue = |task: &mut TaskContext| -> Result<Queue> { Ok(task.queue().clone()) };
    with_queue(&first, || -> Result<()> {
        assert_eq!(Task::new("plain").run(queue)?, first);
        assert_eq!(Task::new("told").on(&second).run(queue)?, second);
        let manager = QueueManager::new("package");
        assert_eq!(Task::new("managed").manager(&manager).run(queue)?, first);
        manager.set_default_queue(&second)?;
        assert_eq!(Task::new("managed").manager(&manager).run(queue)?, second);
        Ok(())
    })
}

#[test]
fn arguments_on_different_queues_are_refused_before_the_function_runs() -> Result<()> {
    let (first, second) = two_queues()?;
    let x = with_queue(&first, || Array::from_slice(&[1u32]))?;
    let y = with_queue(&second, || Array::from_slice(&[1u32]))?;
    let never = |_: &mut TaskContext| -> Result<()> { panic!("must not run") };
    if first.device() != second.device() {
        let refused = Task::new("both").arg(&x).arg(&y).run(never).unwrap_err();
        assert!(matches!(refused, Error::Placement { .. }), "{refused}");
        let found = text(refused);
        assert!(
            found.contains("\"both\"") && found.contains("argument 1") && found.contains("argument 2"),
            "{found}"
        );
        let refused = Task::new("away").arg(&x).on(&second).run(never).unwrap_err();
        assert!(matches!(refused, Error::Placement { .. }), "{refused}");
        assert!(text(refused).contains("argument 1 of task \"away\""));
    }
    Ok(())
}

#[test]
fn an_explicit_queue_of_the_same_context_rebinds_the_arguments() -> Result<()> {
    let queue = Queue::new("cpu", None, Default::default())?;
    let other = Queue::new("cpu", None, QueueProperties { in_order: false, ..Default::default() })?;
    let x = with_queue(&queue, || Array::from_slice(&[1u32, 2]))?;
    let column = Column::from_array("x", &x)?;
    let table = Table::new(vec![column.clone()])?;
    Task::new("moved").arg(&x).arg(&column).arg(&table).on(&other).run(|task| -> Result<()> {
        let (x_there, column, table) = (task.array::<u32>()?, task.arg::<Column>()?, task.arg::<Table>()?);
        assert_eq!((x_there.queue(), column.queue(), table.queue()), (&other, &other, &other));
        assert_eq!(x_there.address(), x.address(), "nothing was copied");
        assert_eq!(column.values()?.address(), x.address());
        Ok(())
    })
}

#[test]
fn the_cursor_is_typed_and_ordered() -> Result<()> {
    let x = Array::from_slice(&[1f32])?;
    let task = Task::new("typed").arg(&x).arg(300i64).arg("name").arg(true).object(vec![1u8, 2]);
    task.run(|task| -> Result<()> {
        let wrong = text(task.array::<f64>().unwrap_err());
        assert!(wrong.contains("argument 1 of task \"typed\"") && wrong.contains("float32[1]"), "{wrong}");
        assert!(wrong.contains("array of float64"), "{wrong}");
        assert!(matches!(task.arg::<Table>(), Err(Error::Type { .. })));
        assert_eq!(task.args_left(), 5, "an argument of the wrong type is not taken");
        task.array::<f32>()?;
        let wrong = text(task.arg::<u8>().unwrap_err());
        assert!(wrong.contains("the number 300") && wrong.contains("type u8"), "{wrong}");
        assert_eq!(task.arg::<u16>()?, 300);
        assert_eq!(task.arg::<String>()?, "name");
        assert!(task.arg::<bool>()?);
        assert!(matches!(task.object::<String>(), Err(Error::Type { .. })));
        assert_eq!(*task.object::<Vec<u8>>()?, [1, 2]);
        let missing = text(task.arg::<f64>().unwrap_err());
        assert!(missing.contains("received 5 arguments") && missing.contains("argument 6"), "{missing}");
        Ok(())
    })
}

#[test]
fn unread_arguments_are_an_error_unless_taken_as_the_rest() {
    let task = || Task::new("arity").arg(1i32).arg(2i32).arg(3i32);
    let left = task().run(|task| task.arg::<i32>()).unwrap_err();
    assert!(matches!(left, Error::Type { .. }));
    let left = text(left);
    assert!(left.contains("received 3 arguments") && left.contains("took 1"), "{left}");
    let count = task().run(|task| -> Result<usize> {
        task.arg::<i32>()?;
        Ok(task.rest().len())
    });
    assert_eq!(count.unwrap(), 2);
}

#[test]
fn errors_and_panics_of_the_function_propagate_without_leaks() {
    let before = live();
    let kept = Arc::new(());
    let failed: Result<()> = Task::new("fails").object(kept.clone()).run(|task| {
        task.memory().allocate(1000, UsmKind::Device)?;
        let _x = task.memory().zeros::<f32>([10])?;
        Err(Error::value("no"))
    });
    assert_eq!(text(failed.unwrap_err()), "no", "not covered by the argument that is left");
    let queue = current_queue().unwrap();
    let panicked = std::panic::catch_unwind(|| {
        Task::new("panics").run(|task| -> Result<()> {
            task.memory().allocate(1000, UsmKind::Shared)?;
            panic!("on purpose")
        })
    });
    assert!(panicked.is_err());
    assert_eq!(current_queue().unwrap(), queue, "the scope ended");
    assert_eq!(live(), before);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn task_memory_counts_live_bytes_and_keeps_the_limit() -> Result<()> {
    Task::new("limited").memory_limit(1000).run(|task| -> Result<()> {
        let memory = task.memory();
        assert_eq!((memory.used(), memory.peak(), memory.limit()), (0, 0, Some(1000)));
        let x = memory.empty::<u8>([600])?;
        let view = x.index(&[usmq::Index::At(0)])?;
        let refused = memory.empty::<u8>([401]).unwrap_err();
        let Error::Allocation { asked: 401, used: 600, limit: Some(1000), .. } = &refused else {
            panic!("{refused:?}")
        };
        assert!(refused.to_string().contains("task \"limited\""), "{refused}");
        drop(x);
        assert_eq!(memory.used(), 600, "a view keeps the memory");
        drop(view);
        assert_eq!((memory.used(), memory.peak()), (0, 600));
        let y = memory.release(memory.empty::<u8>([900])?);
        assert_eq!(memory.used(), 0, "an output no longer belongs to the task");
        let block = memory.allocate(1000, UsmKind::Host)?;
        assert!(memory.allocate(1, UsmKind::Host).is_err(), "all USM kinds are counted together");
        assert!(memory.empty::<u8>([0]).is_ok(), "zero bytes always fit");
        memory.deallocate(block)?;
        assert!(memory.empty::<u8>([usize::MAX, 3]).is_err_and(|error| matches!(error, Error::Value { .. })));
        assert_eq!(y.shape(), [900]);
        Ok(())
    })
}

#[test]
fn blocks_are_freed_once_and_only_by_their_task() -> Result<()> {
    let before = live();
    let foreign = Array::zeros::<u8>([16])?;
    let mut released = None;
    Task::new("blocks").run(|task| -> Result<()> {
        let memory = task.memory();
        let (none, also_none) = (memory.allocate(0, UsmKind::Device)?, memory.allocate(0, UsmKind::Device)?);
        assert!(none != 0 && none != also_none, "zero bytes have a unique address");
        memory.deallocate(none)?;
        for unknown in [0, none, foreign.address(), usize::MAX] {
            let error = memory.deallocate(unknown).unwrap_err();
            assert!(matches!(error, Error::Value { .. }));
            assert!(text(error).contains(&format!("{unknown:#x}")));
        }
        let block = memory.allocate(64, UsmKind::Shared)?;
        released = Some(memory.release_block(block)?);
        assert!(memory.deallocate(block).is_err(), "it belongs to the caller now");
        memory.allocate(4096, UsmKind::Device)?;
        Ok(())
    })?;
    let released = released.unwrap();
    assert_eq!((released.dtype(), released.shape()), (DType::U8, &[64][..]));
    released.fill(7u8)?;
    assert_eq!(released.to_vec::<u8>()?, [7; 64]);
    foreign.fill(1u8)?;
    assert_eq!(foreign.to_vec::<u8>()?, [1; 16]);
    drop((released, foreign));
    assert_eq!(live(), before, "remaining blocks are freed with the task");
    Ok(())
}

#[test]
fn task_memory_allocates_nothing_after_its_task() -> Result<()> {
    let mut outlived = None;
    Task::new("over").run(|task| -> Result<()> {
        outlived = Some(task.memory().full([3], 5i32)?);
        Ok(())
    })?;
    assert_eq!(outlived.unwrap().to_vec::<i32>()?, [5, 5, 5], "an array lives as long as its owner");
    Ok(())
}

#[test]
fn many_threads_run_separate_tasks() {
    let before = live();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            scope.spawn(move || {
                for round in 0..50u32 {
                    let sum = Task::new("threads").arg(thread).arg(round).memory_limit(4096).run(
                        |task| -> Result<Vec<u32>> {
                            let (a, b) = (task.arg::<u32>()?, task.arg::<u32>()?);
                            task.memory().full([8], a * 1000 + b)?.to_vec()
                        },
                    );
                    assert_eq!(sum.unwrap(), [thread * 1000 + round; 8]);
                }
            });
        }
    });
    assert_eq!(live(), before);
}
