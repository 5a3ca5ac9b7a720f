//! The asynchronous Arrow C Device stream, both ways: against peers that keep the rules and peers that break them.
//!
//! Names begin with the rules that they hold: A1 to A12 are a producer's, A20 to A25 a consumer's.

mod common;

#[path = "common/arrow_c.rs"]
mod arrow_c;
#[path = "arrow_async/consumer.rs"]
mod consumer;
#[path = "arrow_async/consumer_ends.rs"]
mod consumer_ends;
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
