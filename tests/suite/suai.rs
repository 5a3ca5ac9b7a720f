//! `__sycl_usm_array_interface__` in Rust: descriptions are read correctly, and owners are released once.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::common::default_queue;
use std::any::Any;
use std::sync::Arc;
use usmq::interop::suai::{Descriptor, SyclObject, export, import};
use usmq::{Array, Context, DType, Error, Index, Queue, Result, UsmKind};

/// Detects whether its clones were dropped.
struct Owner(Arc<()>);

impl Owner {
    fn new() -> Self {
        Self(Arc::new(()))
    }

    fn boxed(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(self.0.clone())
    }

    fn is_let_go(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The completion service drops owners soon after the last use.
    fn is_soon_let_go(&self) -> bool {
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.is_let_go()
        })
    }
}

fn numbers(kind: UsmKind, queue: &Queue) -> Result<Array> {
    let array = Array::uninit([3, 4], DType::I32, kind, queue)?;
    array.copy_from_slice(&(0..12).collect::<Vec<i32>>())?;
    Ok(array)
}

/// The description as another library would export it, with `owner` as owner.
fn taken(descriptor: &Descriptor, queue: &Queue, owner: &Owner) -> Result<Array> {
    // SAFETY: the tests keep the memory.
    unsafe { import(descriptor, &SyclObject::Queue(queue.clone()), owner.boxed()) }
}

#[test]
fn arrays_of_every_usm_kind_round_trip_at_the_same_addresses() -> Result<()> {
    let queue = default_queue()?;
    let reversed = Index::Slice { start: None, stop: None, step: Some(-1) };
    let odd = Index::Slice { start: Some(1), stop: None, step: Some(2) };
    for kind in UsmKind::ALL {
        let whole = numbers(kind, &queue)?;
        for array in [whole.clone(), whole.index(&[reversed, odd])?, whole.index(&[Index::At(2)])?] {
            let descriptor = export(&array)?;
            assert_eq!(descriptor.strides.is_none(), array.is_contiguous());
            let owner = Owner::new();
            let back = taken(&descriptor, &queue, &owner)?;
            assert_eq!(
                (back.address(), back.usm_kind(), back.queue()),
                (array.address(), Some(kind), &queue)
            );
            assert_eq!((back.shape(), back.strides()), (array.shape(), array.strides()));
            assert_eq!(back.to_vec::<i32>()?, array.to_vec::<i32>()?);
            back.fill(7i32)?;
            back.wait()?;
            drop(back);
            assert!(owner.is_soon_let_go());
            assert!(array.to_vec::<i32>()?.iter().all(|value| *value == 7));
        }
    }
    Ok(())
}

#[test]
fn offset_and_strides_count_elements_and_read_only_is_kept() -> Result<()> {
    let queue = default_queue()?;
    let whole = numbers(UsmKind::Device, &queue)?;
    let descriptor = Descriptor {
        pointer: whole.address(),
        readonly: true,
        shape: vec![2, 3],
        strides: Some(vec![-4, 1]),
        offset: 5,
        dtype: DType::I32,
    };
    let owner = Owner::new();
    let view = taken(&descriptor, &queue, &owner)?;
    assert_eq!(view.to_vec::<i32>()?, [5, 6, 7, 1, 2, 3]);
    assert!(view.is_readonly() && export(&view)?.readonly);
    assert!(matches!(view.fill(0i32), Err(Error::Value { .. })));
    let part = view.index(&[Index::At(1)])?;
    drop(view);
    assert!(!owner.is_let_go(), "a view of a view keeps it");
    assert_eq!(part.to_vec::<i32>()?, [1, 2, 3]);
    drop(part);
    assert!(owner.is_soon_let_go());
    Ok(())
}

#[test]
fn the_owner_stays_until_work_in_flight_is_complete() -> Result<()> {
    let queue = default_queue()?;
    let source = Array::uninit([64 << 20], DType::U8, UsmKind::Device, &queue)?;
    source.fill(3u8)?;
    let owner = Owner::new();
    let copy = taken(&export(&source)?, &queue, &owner)?.copy()?;
    // The array is dropped, its copy may be pending.
    assert_eq!(copy.to_vec::<u8>()?[(64 << 20) - 1], 3);
    for _ in 0..1000 {
        if owner.is_let_go() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(Error::value("the owner is kept for good"))
}

#[test]
fn a_context_alone_identifies_memory_and_empty_arrays_need_none() -> Result<()> {
    let queue = default_queue()?;
    let array = numbers(UsmKind::Shared, &queue)?;
    let by_context = SyclObject::Context(queue.context().clone());
    let owner = Owner::new();
    // SAFETY: `array` keeps the memory.
    let view = unsafe { import(&export(&array)?, &by_context, owner.boxed()) }?;
    assert_eq!((view.queue().context(), view.queue().device()), (queue.context(), queue.device()));
    assert_eq!(view.to_vec::<i32>()?, array.to_vec::<i32>()?);
    let empty = Descriptor { pointer: 0, shape: vec![0, 3], strides: None, ..export(&array)? };
    let nothing = Owner::new();
    // SAFETY: no memory.
    let made = unsafe { import(&empty, &by_context, nothing.boxed()) }?;
    assert_eq!((made.shape(), made.size()), (&[0, 3][..], 0));
    assert!(nothing.is_soon_let_go());
    Ok(())
}

#[test]
fn invalid_memory_is_refused_and_its_owner_released() -> Result<()> {
    let queue = default_queue()?;
    let array = numbers(UsmKind::Device, &queue)?;
    let good = export(&array)?;
    let host = [0i32; 12];
    let wrong = [
        ("memory of the host", Descriptor { pointer: host.as_ptr() as usize, ..good.clone() }),
        ("null", Descriptor { pointer: 0, ..good.clone() }),
        ("an odd address", Descriptor { pointer: good.pointer + 1, ..good.clone() }),
        ("an end outside", Descriptor { shape: vec![1 << 40], ..good.clone() }),
        ("a start outside", Descriptor { offset: -(1 << 40), ..good.clone() }),
        ("no address", Descriptor { offset: isize::MAX, ..good.clone() }),
        ("more than can be counted", Descriptor { shape: vec![usize::MAX, 2], ..good.clone() }),
        ("too few strides", Descriptor { strides: Some(vec![1]), ..good.clone() }),
        ("endless strides", Descriptor { strides: Some(vec![isize::MAX, 1]), ..good.clone() }),
    ];
    for (what, descriptor) in wrong {
        let owner = Owner::new();
        let refused = taken(&descriptor, &queue, &owner);
        assert!(matches!(refused, Err(Error::Value { .. } | Error::Interop { .. })), "{what}: {refused:?}");
        assert!(owner.is_soon_let_go(), "{what}");
    }
    let elsewhere = Context::new(&[queue.device().clone()])?;
    let owner = Owner::new();
    // SAFETY: refused, since it is memory of another context.
    let refused = unsafe { import(&good, &SyclObject::Context(elsewhere), owner.boxed()) };
    assert!(matches!(refused, Err(Error::Interop { .. })), "{refused:?}");
    assert!(owner.is_soon_let_go());
    assert_eq!(array.to_vec::<i32>()?, (0..12).collect::<Vec<i32>>());
    Ok(())
}

#[test]
fn a_dtype_without_a_typestr_is_not_exported() -> Result<()> {
    let array = Array::uninit([2], DType::BF16, UsmKind::Device, &default_queue()?)?;
    assert!(matches!(export(&array), Err(Error::Interop { message: text, .. }) if text.contains("bfloat16")));
    Ok(())
}
