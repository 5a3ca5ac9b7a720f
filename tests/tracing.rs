//! Events for subscribers of `tracing`: launches, copies, memory, collocate, builds.

#![allow(clippy::unwrap_used)] // A test that cannot be set up must fail.

mod common;

use common::{Work, default_queue, queues_elsewhere, states_of};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use usmq::interop::arrow::{Column, SyncMode};
use usmq::{Array, Elementwise, Queue, Result, capture, collocate};

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records the events that it receives.
struct Recorder(AtomicU64);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "usmq"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text(format!("span {}", span.metadata().name()));
        span.record(&mut text);
        TOLD.lock().unwrap().push(text.0);
        Id::from_u64(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{}", event.metadata().level()));
        event.record(&mut text);
        TOLD.lock().unwrap().push(text.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_receives_commands_memory_builds_and_moves() -> Result<()> {
    tracing::subscriber::set_global_default(Recorder(AtomicU64::new(0))).unwrap();
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[1, 2, 3], &queue)?;
    work.advance(&queue, &x, 1)?;
    x.to_vec::<u32>()?;
    collocate(&x, &queue)?;
    Array::zeros::<u8>([77])?;
    let told = TOLD.lock().unwrap();
    let has = |parts: &[&str]| told.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    for parts in [
        &["span build", "name=\"advance\""][..],
        &["TRACE", "kind=\"allocate\"", "bytes=12"],
        &["DEBUG", "kind=\"copy\"", "bytes=12", "queue="],
        &["DEBUG", "kind=\"kernel\"", "name=\"advance\""],
        &["span collocate", "array=uint32[3]"],
        &["DEBUG", "kind=\"fill\"", "bytes=77"],
        &["TRACE", "kind=\"free\"", "bytes=77"],
    ] {
        assert!(has(parts), "nothing tells {parts:?}: {told:#?}");
    }
    Ok(())
}

thread_local! {
    /// Whether the subscriber of this thread uses usmq: it does not tell itself of that.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Uses usmq in each call, also the array of the command that it is told of.
struct UsesUsmq {
    queue: Queue,
    work: Work,
    x: Array,
    told: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl UsesUsmq {
    fn use_usmq(&self, about: Option<&Metadata<'_>>, call: &str) {
        if INSIDE.replace(true) {
            return;
        }
        self.work.advance(&self.queue, &self.x, 1).unwrap();
        assert_eq!(self.x.to_vec::<u32>().unwrap().len(), 3);
        let y = Array::zeros::<u32>([3]).unwrap();
        y.fill(1u32).unwrap();
        drop(y);
        let about = about.map(|about| format!(" {} {}", about.level(), about.name())).unwrap_or_default();
        *self.told.lock().unwrap().entry(format!("{call}{about}")).or_default() += 1;
        INSIDE.set(false);
    }
}

impl Subscriber for UsesUsmq {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "usmq"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.use_usmq(Some(span.metadata()), "span");
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        self.use_usmq(Some(event.metadata()), "event");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {
        self.use_usmq(None, "enter");
    }

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_may_use_the_arrays_that_it_is_told_of() -> Result<()> {
    let (sender, ended) = channel();
    let told = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = told.clone();
    std::thread::spawn(move || {
        let body = || -> Result<()> {
            let queue = default_queue()?;
            let work = Work::new(&queue)?;
            let x = states_of(&[1, 2, 3], &queue)?;
            let subscriber =
                UsesUsmq { queue: queue.clone(), work: Work::new(&queue)?, x: x.clone(), told: seen };
            tracing::subscriber::with_default(subscriber, || {
                let y = x.copy()?;
                work.advance(&queue, &x, 1)?;
                work.advance_into(&queue, &x, &y, 1)?;
                x.fill(7u32)?;
                x.copy_from_slice(&[4u32, 5, 6])?;
                drop(y);
                // SAFETY: work-item i touches element i of x only.
                unsafe { Elementwise::new("uint *x", "x[i] += 17") }?.launch((&x,))?.wait()?;
                let graph = capture(|| work.advance(&queue, &x, 1).map(drop))?;
                graph.replay()?.wait()?;
                for elsewhere in queues_elsewhere(&queue)? {
                    collocate(&x, &elsewhere)?.wait()?;
                }
                let column = Column::from_array("x", &x)?;
                Column::import_device(column.export_device(SyncMode::Event)?.into(), Default::default())?;
                Ok(())
            })
        };
        sender.send(body()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap()?;
    let told = told.lock().unwrap();
    for call in ["event DEBUG", "event TRACE", "span DEBUG build", "span DEBUG collocate", "enter"] {
        assert!(told.keys().any(|key| key.starts_with(call)), "{call}: {told:?}");
    }
    Ok(())
}
