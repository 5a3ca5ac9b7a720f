//! Converts records to a profile: one time base, and list indices for queues, devices and dependencies.

use super::{Clock, Device, Event, Kind, Profile, Queue};
use crate::device::UsmKind;
use crate::trace::record::{DeviceHandle, QueueHandle, Record};
use std::collections::HashMap;

/// The profile under construction, and its indices.
#[derive(Default)]
struct Collected {
    profile: Profile,
    devices: Vec<DeviceHandle>,
    /// The root devices by the driver's handle, if another library's work is among the records.
    roots: Vec<(usize, DeviceHandle)>,
    /// Maps the id of a queue to its index.
    queues: HashMap<usize, usize>,
    /// Maps the number of a record to its index.
    places: HashMap<u64, usize>,
    /// Nanoseconds to add to a device's timestamps.
    offsets: Vec<i64>,
    threads: HashMap<u32, u32>,
    /// The end of the last command of each in-order queue.
    last_end: HashMap<usize, u64>,
}

/// Creates the profile of the records between two times; `held` has the bytes of arrays at the start.
pub(super) fn profile(
    records: &[Record],
    dropped: u64,
    (opened, closed): (u64, u64),
    held: &[(crate::Device, &'static str, u64)],
) -> Profile {
    let mut all = Collected { roots: roots(records), ..Collected::default() };
    all.profile.began = opened;
    all.profile.dropped = dropped;
    for record in records {
        if let Some(device) = &record.device {
            all.device(device);
        }
        if let Some(queue) = &record.queue {
            all.queue(queue);
        }
    }
    all.offsets = all.devices.iter().map(|device| all.offset(device, records)).collect();
    for record in records {
        all.add(record, closed);
    }
    all.correct_late_ends();
    for (device, kind, bytes) in held {
        let place = all.devices.iter().position(|known| known.id() == device.id());
        if let (Some(place), Some(kind)) = (place, usm_kind(kind)) {
            all.profile.devices[place].held[kind] += *bytes;
        }
    }
    let mut profile = all.profile;
    let last = profile.events.iter().map(|event| event.end).max().unwrap_or(0);
    profile.duration = (closed - opened).max(last);
    profile
}

impl Collected {
    /// usmq's device for one that only the runtime's trace has named.
    fn known(&self, device: &DeviceHandle) -> DeviceHandle {
        let native = device.foreign_native();
        let root = self.roots.iter().find(|(root, _)| Some(*root) == native);
        root.map_or(device, |(_, root)| root).clone()
    }

    fn device(&mut self, device: &DeviceHandle) -> usize {
        let device = &self.known(device);
        if let Some(place) = self.devices.iter().position(|known| known.id() == device.id()) {
            return place;
        }
        let filter = match device.filter_and_parent() {
            (filter, None) => filter.to_owned(),
            (filter, parent) => {
                let parts = self.devices.iter().filter(|known| known.filter_and_parent().1 == parent).count();
                format!("part {} of {filter}", parts + 1)
            }
        };
        self.devices.push(device.clone());
        self.profile.devices.push(Device { filter, name: device.name().to_owned(), held: [0; 3] });
        self.devices.len() - 1
    }

    fn queue(&mut self, queue: &QueueHandle) -> usize {
        if let Some(place) = self.queues.get(&queue.id()) {
            return *place;
        }
        let place = self.profile.queues.len();
        let device = self.device(&queue.device());
        self.profile.queues.push(Queue { device, in_order: queue.in_order(), clock: Clock::Host });
        self.queues.insert(queue.id(), place);
        place
    }

    fn add(&mut self, record: &Record, closed: u64) {
        let place = self.profile.events.len();
        let queue = record.queue.as_ref().map(|queue| self.queue(queue));
        let device = record.device.as_ref().map(|device| self.device(device));
        let waited_for: Vec<usize> =
            record.waited_for.iter().filter_map(|id| self.places.get(id)).copied().collect();
        let began = self.profile.began;
        let since = |time: u64| time.saturating_sub(began);
        let (start, end, clock) = match (record.stamps, device) {
            _ if !record.kind.is_command() => (since(record.called.0), since(record.called.1), Clock::Host),
            (Some([_, start, end]), Some(device)) => {
                let shift = |time: u64| since(time.saturating_add_signed(self.offsets[device]));
                (shift(start), shift(end).max(shift(start)), Clock::Device)
            }
            _ => {
                // 0: the record was dropped with its queue.
                let end = since(if record.seen == 0 { closed } else { record.seen });
                let before = waited_for.iter().map(|place| self.profile.events[*place].end);
                let order = queue.and_then(|queue| self.last_end.get(&queue)).copied();
                let start = before.chain(order).fold(since(record.called.0), u64::max);
                (start.min(end), end, Clock::Host)
            }
        };
        if let Some(queue) = queue.filter(|_| record.kind.is_command()) {
            let Queue { in_order, clock: of_queue, .. } = &mut self.profile.queues[queue];
            if clock == Clock::Device {
                *of_queue = Clock::Device;
            }
            if *in_order {
                self.last_end.insert(queue, end);
            }
        }
        if record.continues
            && let Some(first) = waited_for.last().copied()
        {
            let event = &mut self.profile.events[first];
            event.bytes += record.bytes;
            event.end = event.end.max(end);
            self.places.insert(record.id, first);
            return;
        }
        let thread = self.threads.len() as u32 + 1;
        let thread = *self.threads.entry(record.thread).or_insert(thread);
        self.places.insert(record.id, place);
        self.profile.events.push(Event {
            kind: record.kind,
            reason: record.reason,
            name: name(record),
            queue,
            device,
            thread,
            bytes: record.bytes,
            submit: since(record.called.0),
            start,
            end,
            clock,
            hit: record.hit,
            usm: record.usm.and_then(usm_kind),
            source: record.site.as_ref().map(|site| format!("{}:{}", site.file, site.line)),
            call: record.call,
            host: record.host,
            waited_for,
        });
    }
}

impl Collected {
    /// The host observes ends late. The device start time of a dependent command bounds the end.
    fn correct_late_ends(&mut self) {
        let events = &mut self.profile.events;
        let mut next_start: HashMap<usize, u64> = HashMap::new();
        for place in (0..events.len()).rev() {
            if !events[place].kind.is_command() {
                continue;
            }
            let queue = events[place].queue.filter(|queue| self.profile.queues[*queue].in_order);
            let event = &mut events[place];
            if let Some(next) =
                queue.and_then(|queue| next_start.get(&queue)).filter(|_| event.clock == Clock::Host)
            {
                event.end = event.end.min(*next);
                event.start = event.start.min(event.end);
            }
            let (start, waited_for) = (event.start, event.waited_for.clone());
            if let Some(queue) = queue {
                next_start.insert(queue, start);
            }
            for place in waited_for {
                let before = &mut events[place];
                if before.clock == Clock::Host {
                    before.end = before.end.min(start);
                    before.start = before.start.min(before.end);
                }
            }
        }
    }
}

/// The root devices, if the records name devices of other libraries.
fn roots(records: &[Record]) -> Vec<(usize, DeviceHandle)> {
    let devices = records.iter().filter_map(|record| record.device.as_ref());
    if devices.filter_map(|device| device.foreign_native()).next().is_none() {
        return Vec::new();
    }
    // Without them the devices keep the names that the runtime has told.
    let roots = crate::device::devices().unwrap_or_default();
    roots.iter().filter_map(|root| Some((root.native_handle()?, root.into()))).collect()
}

/// The index of a USM kind in [`UsmKind::ALL`].
fn usm_kind(name: &str) -> Option<usize> {
    UsmKind::ALL.iter().position(|kind| kind.name() == name)
}

/// The change in bytes held by arrays.
pub(super) fn change(event: &Event) -> i64 {
    match event.kind {
        Kind::Allocate => event.bytes as i64,
        Kind::Free => -(event.bytes as i64),
        _ => 0,
    }
}

fn name(record: &Record) -> String {
    match (&record.name, record.usm) {
        (Some(name), _) => name.to_string(),
        (None, Some(usm)) => format!("{} {usm} USM", record.kind.name()),
        (None, None) => record.kind.name().to_owned(),
    }
}

impl Collected {
    /// The offset that converts a device's timestamps to host time. Commands start after the begin of their call, and end
    /// before the host observes it, which bounds the offset on both sides. The time of submission does not: on Level Zero
    /// the runtime estimates it; on Intel's driver without a GPU the estimate was wrong by 0.2 s.
    fn offset(&self, device: &DeviceHandle, records: &[Record]) -> i64 {
        let (mut least, mut most) = (i64::MIN, i64::MAX);
        let is_here = |of: &DeviceHandle| self.known(of).id() == device.id();
        for record in records.iter().filter(|record| record.device.as_ref().is_some_and(is_here)) {
            let Some([_, start, end]) = record.stamps else { continue };
            least = least.max(record.called.0 as i64 - start as i64);
            most = most.min(record.seen as i64 - end as i64);
        }
        match (least, most) {
            (i64::MIN, _) => 0,
            // The bounds permit the same time base.
            (least, most) if least <= 0 && 0 <= most => 0,
            (least, most) => least.midpoint(most),
        }
    }
}
