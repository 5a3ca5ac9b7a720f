//! The profile as a trace in Chrome's format, for ui.perfetto.dev and chrome://tracing.
//!
//! Source: "Trace Event Format". A process is a device, a thread a queue; process 0 is the host.

use super::{Clock, Event, Kind, Profile};
use crate::device::UsmKind;
use serde_json::{Value, json};

/// The host's threads.
const HOST: usize = 0;

impl Profile {
    /// The trace as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut entries = self.names();
        entries.extend(self.events.iter().enumerate().map(|(place, event)| self.entry(place, event)));
        entries.extend(self.flows());
        entries.extend(self.memory());
        let clocks: Vec<_> = self.clocks().into_iter().map(Clock::name).collect();
        let trace = json!({
            "displayTimeUnit": "ns",
            "otherData": { "producer": "usmq", "clocks": clocks, "dropped": self.dropped },
            "traceEvents": entries,
        });
        trace.to_string()
    }

    fn names(&self) -> Vec<Value> {
        let name = |what: &str, process: usize, thread: usize, name: String| json!({ "ph": "M", "name": what, "pid": process, "tid": thread, "args": { "name": name } });
        let mut all = vec![name("process_name", HOST, 0, "host".to_owned())];
        for (place, device) in self.devices.iter().enumerate() {
            all.push(name("process_name", place + 1, 0, format!("{} {}", device.filter, device.name)));
        }
        for (place, queue) in self.queues.iter().enumerate() {
            let order = if queue.in_order { "" } else { ", out-of-order" };
            let clock = queue.clock.name();
            let text = format!("queue {} ({clock} clock{order})", place + 1);
            all.push(name("thread_name", queue.device + 1, place + 1, text));
        }
        let mut threads: Vec<usize> = self.events.iter().filter_map(on_host).collect();
        threads.sort_unstable();
        threads.dedup();
        for thread in threads {
            all.push(name("thread_name", HOST, thread, format!("thread {thread}")));
        }
        all
    }

    fn entry(&self, place: usize, event: &Event) -> Value {
        let (process, thread) = self.track(event);
        let mut args = json!({ "event": place, "reason": event.reason.name(), "thread": event.thread });
        if event.bytes > 0 {
            args["bytes"] = event.bytes.into();
        }
        if let Some(source) = &event.source {
            args["source"] = source.as_str().into();
        }
        if event.kind.is_command() {
            args["clock"] = event.clock.name().into();
            args["submitted"] = microseconds(event.submit).into();
            args["waited for"] = event.waited_for.clone().into();
        }
        if let Some(queue) = event.queue {
            args["queue"] = (queue + 1).into();
        }
        let mut entry = json!({
            "name": event.name,
            "cat": event.kind.name(),
            "pid": process,
            "tid": thread,
            "ts": microseconds(event.start),
            "args": args,
        });
        if matches!(event.kind, Kind::Allocate | Kind::Free) {
            entry["args"]["pool hit"] = event.hit.into();
            (entry["ph"], entry["s"]) = ("i".into(), "p".into());
        } else {
            (entry["ph"], entry["dur"]) = ("X".into(), microseconds(event.duration()).into());
        }
        entry
    }

    /// Arrows from each command to those that waited for it.
    fn flows(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for event in &self.events {
            for before in event.waited_for.iter().map(|place| &self.events[*place]) {
                let id = all.len() / 2 + 1;
                let end = |event: &Event, time: u64| {
                    let (process, thread) = self.track(event);
                    json!({
                        "name": "waits for", "cat": "dependency", "id": id,
                        "pid": process, "tid": thread, "ts": microseconds(time),
                    })
                };
                // An arrow is attached to the event that runs at its time, so it starts inside the event, not
                // at its end.
                let mut from = end(before, before.start + before.duration() / 2);
                from["ph"] = "s".into();
                let mut to = end(event, event.start);
                (to["ph"], to["bp"]) = ("f".into(), "e".into());
                all.extend([from, to]);
            }
        }
        all
    }

    /// The memory of arrays on each device, as counters with one series per USM kind.
    fn memory(&self) -> Vec<Value> {
        let mut held: Vec<[i64; 3]> =
            self.devices.iter().map(|device| device.held.map(|bytes| bytes as i64)).collect();
        let mut all = Vec::new();
        for event in &self.events {
            let change = super::timeline::change(event);
            let (Some(device), Some(kind)) = (event.device.filter(|_| change != 0), event.usm) else {
                continue;
            };
            held[device][kind] += change;
            let series: serde_json::Map<String, Value> = UsmKind::ALL
                .into_iter()
                .zip(held[device])
                .map(|(kind, bytes)| (kind.name().to_owned(), bytes.into()))
                .collect();
            all.push(json!({
                "name": "array memory", "ph": "C", "pid": device + 1, "ts": microseconds(event.end),
                "args": series,
            }));
        }
        all
    }

    /// Process and thread.
    fn track(&self, event: &Event) -> (usize, usize) {
        match (on_host(event), event.queue, event.device) {
            (Some(thread), ..) => (HOST, thread),
            (None, Some(queue), _) => (self.queues[queue].device + 1, queue + 1),
            (None, None, device) => (device.map_or(HOST, |device| device + 1), 0),
        }
    }
}

/// The host thread of an event of the host.
fn on_host(event: &Event) -> Option<usize> {
    match event.kind {
        Kind::Wait | Kind::Build => Some(event.thread as usize),
        _ => None,
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
