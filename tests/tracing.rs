//! Events for subscribers of `tracing`: launches, copies, memory, collocate, builds.

#![allow(clippy::unwrap_used)] // A test that cannot be set up must fail.

mod common;

use common::{Work, default_queue, states_of};
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use usmq::{Array, Result, collocate};

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
