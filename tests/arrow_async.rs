//! The asynchronous Arrow C Device stream as producer and consumer, with conforming and faulty peers.
//!
//! Test names start with the rules they check: A1 to A12 for producers, A20 to A25 for consumers.

mod common;

#[path = "common/arrow_c.rs"]
mod arrow_c;
#[path = "arrow_async/consumer.rs"]
mod consumer;
#[path = "arrow_async/consumer_ends.rs"]
mod consumer_ends;
#[path = "common/leaks.rs"]
mod leaks;

#[path = "arrow_async/late.rs"]
mod late;
#[path = "arrow_async/peer.rs"]
mod peer;
#[path = "arrow_async/producer.rs"]
mod producer;
#[path = "arrow_async/producer_ends.rs"]
mod producer_ends;
#[path = "arrow_async/recorder.rs"]
mod recorder;
#[path = "arrow_async/source.rs"]
mod source;
#[path = "arrow_async/together.rs"]
mod together;
