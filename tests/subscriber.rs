//! A subscriber of `tracing` that uses usmq itself.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod common;

use common::{Work, default_queue, queues_elsewhere, states_of};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use usmq::interop::arrow::{Column, SyncMode};
use usmq::{Array, Elementwise, Queue, Result, capture, collocate};

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
                // `tracing` never enables an event whose first place in the code is reached inside a subscriber.
                INSIDE.set(true);
                drop(x.copy()?);
                INSIDE.set(false);
                let y = x.copy()?;
                work.advance(&queue, &x, 1)?;
                work.advance_into(&queue, &x, &y, 1)?;
                x.fill(7u32)?;
                x.copy_from_slice(&[4u32, 5, 6])?;
                drop(y);
                // SAFETY: work-item i touches element i of x only.
                unsafe { Elementwise::new("unsigned *x", "x[i] += 17") }?.launch((&x,))?.wait()?;
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
