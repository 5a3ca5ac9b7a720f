//! A mock driver for tests: streams are threads that run their work in order, memory is host memory, and all
//! calls are counted. As CUDA does, it blocks calls of other threads while a thread copies to memory that is not registered,
//! and lets allocations wait for memory that is about to be freed. It tests order and release; tests on a CUDA device check that the real driver
//! agrees.

use super::driver::{Driver, Handle, Location};
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

pub(super) const CONTEXT: Handle = 0xc0;

/// Closed until [`Latch::open`], then permanently open.
#[derive(Default)]
struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.open.lock()
    }

    /// False if that takes longer.
    fn wait_for(&self, time: Duration) -> bool {
        let mut open = self.open.lock();
        *open || !self.opened.wait_for(&mut open, time).timed_out()
    }

    fn wait(&self) {
        while !self.wait_for(Duration::from_secs(1)) {}
    }
}

type Task = Box<dyn FnOnce() + Send>;

struct Stream(Sender<Task>);

impl Default for Stream {
    fn default() -> Self {
        let (sender, tasks) = channel::<Task>();
        std::thread::spawn(move || tasks.iter().for_each(|task| task()));
        Self(sender)
    }
}

#[derive(Default)]
pub(super) struct MockDriver {
    streams: Mutex<Vec<Stream>>,
    /// Held by a thread that waits inside the driver.
    inside: Mutex<()>,
    /// The streams do no more work, and waits fail.
    pub(super) is_lost: Arc<AtomicBool>,
    /// Opened when memory is freed.
    frees: Mutex<Vec<Arc<Latch>>>,
    events: Mutex<HashMap<Handle, Arc<Latch>>>,
    next_event: AtomicUsize,
    memory: Arc<Mutex<HashMap<usize, Box<[u8]>>>>,
    pub(super) registered: Mutex<Vec<usize>>,
    pub(super) copies: AtomicUsize,
    /// Copies of these numbers are refused.
    pub(super) refuse: Mutex<Range<usize>>,
    pub(super) slow: Arc<AtomicBool>,
    /// How many arrays of usmq fit; 0 stands for no limit.
    pub(super) room: AtomicUsize,
    /// Streams cannot report their end.
    pub(super) no_end: AtomicBool,
    /// Streams cannot be made to wait for events.
    pub(super) no_order: AtomicBool,
}

impl MockDriver {
    /// Adds work to a stream.
    pub(super) fn submit(&self, stream: Handle, task: impl FnOnce() + Send + 'static) {
        self.streams.lock()[stream - 1].0.send(Box::new(task)).unwrap();
    }

    /// Blocks until the work of a stream is complete.
    pub(super) fn finish(&self, stream: Handle) {
        let event = self.record(CONTEXT, stream).unwrap();
        self.wait(event).unwrap();
        self.forget(event);
    }

    pub(super) fn is_complete(&self, event: Handle) -> bool {
        self.event(event).is_open()
    }

    pub(super) fn live_events(&self) -> usize {
        self.events.lock().len()
    }

    pub(super) fn live_memory(&self) -> usize {
        self.memory.lock().len()
    }

    /// Memory of "another library", with contents.
    pub(super) fn foreign(&self, bytes: &[u8]) -> usize {
        let memory: Box<[u8]> = bytes.into();
        let pointer = memory.as_ptr() as usize;
        self.memory.lock().insert(pointer, memory);
        pointer
    }

    pub(super) fn read(&self, pointer: usize) -> Vec<u8> {
        self.memory.lock()[&pointer].to_vec()
    }

    fn event(&self, event: Handle) -> Arc<Latch> {
        drop(self.inside.lock());
        self.events.lock()[&event].clone()
    }

    /// Copies to memory that is not registered, as another library does: returns at the end, and blocks the calls of other
    /// threads until then.
    pub(super) fn copy_to_pageable(&self, stream: Handle, source: usize, bytes: usize) -> Vec<u8> {
        let inside = self.inside.lock();
        let (mut target, done) = (vec![0; bytes], Arc::new(Latch::default()));
        let (to, opened) = (target.as_mut_ptr() as usize, done.clone());
        self.submit(stream, move || {
            // SAFETY: both are live until the latch is open.
            unsafe { std::ptr::copy_nonoverlapping(source as *const u8, to as *mut u8, bytes) };
            opened.open();
        });
        done.wait();
        drop(inside);
        target
    }
}

impl Driver for MockDriver {
    fn name(&self, _: usize) -> Result<String> {
        Ok("recorder".to_owned())
    }

    fn primary_context(&self, _: usize) -> Result<Handle> {
        Ok(CONTEXT)
    }

    fn locate(&self, pointer: usize) -> Result<Option<Location>> {
        let known = self.memory.lock().contains_key(&pointer);
        Ok(known.then_some(Location { device: 0, context: CONTEXT }))
    }

    fn new_stream(&self, context: Handle) -> Result<Handle> {
        drop(self.inside.lock());
        assert_eq!(context, CONTEXT);
        let mut streams = self.streams.lock();
        streams.push(Stream::default());
        Ok(streams.len())
    }

    fn allocate(&self, _: Handle, stream: Handle, bytes: usize) -> Result<usize> {
        drop(self.inside.lock());
        let room = self.room.load(Ordering::SeqCst);
        if room > 0 && self.live_memory() - self.frees.lock().len() >= room {
            return Err(Error::Allocation {
                asked: bytes as u64,
                kind: "CUDA",
                device: "recorder".to_owned(),
                used: 0,
                reserved: 0,
                limit: None,
                total: 0,
                note: String::new(),
            });
        }
        let mut frees = self.frees.lock();
        for freed in frees.drain(..) {
            self.submit(stream, move || freed.wait());
        }
        drop(frees);
        Ok(self.foreign(&vec![0xee; bytes]))
    }

    fn free(&self, _: Handle, stream: Handle, pointer: usize) -> Result<()> {
        drop(self.inside.lock());
        let (memory, freed) = (self.memory.clone(), Arc::new(Latch::default()));
        // An allocation finds the release only after it was submitted.
        let mut frees = self.frees.lock();
        frees.push(freed.clone());
        self.submit(stream, move || {
            drop(memory.lock().remove(&pointer).unwrap());
            freed.open();
        });
        Ok(())
    }

    fn record(&self, _: Handle, stream: Handle) -> Result<Handle> {
        drop(self.inside.lock());
        let event = self.next_event.fetch_add(1, Ordering::SeqCst) + 1;
        let latch = Arc::new(Latch::default());
        self.events.lock().insert(event, latch.clone());
        self.submit(stream, move || latch.open());
        Ok(event)
    }

    fn forget(&self, event: Handle) {
        self.events.lock().remove(&event).unwrap();
    }

    fn stream_wait_event(&self, _: Handle, stream: Handle, event: Handle) -> Result<()> {
        drop(self.inside.lock());
        if self.no_order.load(Ordering::SeqCst) {
            return Err(Error::interop("ordering failed in the CUDA driver: on purpose"));
        }
        let event = self.event(event);
        self.submit(stream, move || event.wait());
        Ok(())
    }

    fn allocate_words(&self, _: Handle, bytes: usize) -> Result<usize> {
        drop(self.inside.lock());
        // Never freed, as a driver promises. The list shows LeakSanitizer that this is meant.
        static ALL: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let words = vec![0u128; bytes.div_ceil(16)].leak().as_ptr() as usize;
        ALL.lock().push(words);
        Ok(words)
    }

    fn stream_wait_word(&self, _: Handle, stream: Handle, address: usize) -> Result<()> {
        drop(self.inside.lock());
        // SAFETY: memory of `allocate_words`.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        self.submit(stream, move || {
            while word.load(Ordering::Acquire) != 1 {
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        Ok(())
    }

    fn stream_set_word(&self, _: Handle, stream: Handle, address: usize) -> Result<()> {
        if self.no_end.load(Ordering::SeqCst) {
            return Err(Error::interop("reporting the end of a copy failed in the CUDA driver: on purpose"));
        }
        drop(self.inside.lock());
        // SAFETY: memory of `allocate_words`.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        self.submit(stream, move || word.store(1, Ordering::Release));
        Ok(())
    }

    fn wait(&self, event: Handle) -> Result<()> {
        let event = self.event(event);
        while !event.wait_for(Duration::from_millis(10)) {
            if self.is_lost.load(Ordering::SeqCst) {
                return Err(Error::interop("waiting for an event failed in the CUDA driver: on purpose"));
            }
        }
        Ok(())
    }

    unsafe fn copy(
        &self,
        _: Handle,
        stream: Handle,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> Result<()> {
        drop(self.inside.lock());
        let number = self.copies.fetch_add(1, Ordering::SeqCst);
        if self.refuse.lock().contains(&number) {
            return Err(Error::interop("copying failed in the CUDA driver: on purpose"));
        }
        let slow = self.slow.clone();
        let is_lost = self.is_lost.clone();
        self.submit(stream, move || {
            if slow.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            while is_lost.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: the promise of the caller that started the copy.
            unsafe { std::ptr::copy_nonoverlapping(source as *const u8, target as *mut u8, bytes) };
        });
        Ok(())
    }

    unsafe fn register(&self, _: Handle, pointer: usize, _: usize) -> Result<bool> {
        self.registered.lock().push(pointer);
        Ok(true)
    }

    fn unregister(&self, _: Handle, pointer: usize) {
        let mut registered = self.registered.lock();
        let at = registered.iter().position(|known| *known == pointer).unwrap();
        registered.remove(at);
    }
}
