//! Measures the time of a block of code on the host, and of its commands on the device.

use super::{Aspect, Event, Priority, Queue, QueueProperties};
use crate::error::{Error, Result};
use crate::runtime::{AnyInterned, ForkMutex, Interned, not_forked};
use std::time::{Duration, Instant};

/// A running measurement. The queue needs no timestamps: two barriers mark the begin and the end of its work, and a
/// queue of the timer records when they complete, on the clock of the device.
///
/// ```
/// use usmq::{Array, Timer, current_queue};
///
/// let timer = Timer::start(&current_queue()?)?;
/// let x = Array::full([1 << 20], 1f32)?;
/// let elapsed = timer.stop()?; // waits for nothing
/// assert!(elapsed.host().as_secs() < 60);
/// assert!(elapsed.device()?.as_nanos() > 0); // waits for the fill
/// # drop(x);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a timer measures until `stop`"]
pub struct Timer {
    queue: Queue,
    /// Its commands are the timer's own: they record timestamps, and delay no other work.
    marks: Queue,
    begin: Event,
    begun: Instant,
}

/// The result of a [`Timer`].
///
/// ```
/// use usmq::{Timer, current_queue};
///
/// let elapsed = Timer::start(&current_queue()?)?.stop()?;
/// println!("host {:?}, device {:?}", elapsed.host(), elapsed.device()?);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Elapsed {
    host: Duration,
    begin: Event,
    end: Event,
}

impl Timer {
    /// Begins to measure: after the commands that were submitted to the queue so far.
    ///
    /// # Errors
    /// [`Error::Value`] if the device has no timestamps, [`Error::Sycl`] if the runtime refuses a command.
    pub fn start(queue: &Queue) -> Result<Self> {
        let device = queue.device();
        if !device.has(Aspect::QueueProfiling)? {
            return Err(Error::value(format!(
                "{device} records no timestamps (it lacks the aspect queue_profiling), so a timer cannot measure its work"
            )));
        }
        let marks = match idle(queue)?.take()? {
            Some(marks) => marks,
            None => {
                let priority = Priority::Normal;
                let properties = QueueProperties { in_order: true, profiling: true, priority };
                Queue::create(queue.context(), device, properties)?
            }
        };
        let begin = mark(queue, &marks)?;
        Ok(Self { queue: queue.clone(), marks, begin, begun: Instant::now() })
    }

    /// Ends the measurement: after the commands that were submitted to the queue so far. Waits for nothing.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime refuses a command.
    pub fn stop(self) -> Result<Elapsed> {
        let host = self.begun.elapsed();
        let end = mark(&self.queue, &self.marks)?;
        idle(&self.queue)?.0.lock()?.push((self.marks, end.clone()));
        Ok(Elapsed { host, begin: self.begin, end })
    }
}

/// The queues of earlier timers, each with its last mark. The runtime keeps some KiB of each queue that ran a command, so
/// timers use them again.
#[derive(Default)]
struct Idle(ForkMutex<Vec<(Queue, Event)>>);

/// The slot of the queue that has them.
const SLOT: usize = 3;

fn idle(queue: &Queue) -> Result<Interned<Idle>> {
    // Another thread may have been initializing the slot at the fork.
    not_forked()?;
    let slot = queue.slot(SLOT).get_or_init(|| AnyInterned::from(Interned::new(Idle::default())));
    slot.downcast().ok_or_else(|| Error::interop("a queue's slot does not hold the queues of timers"))
}

impl Idle {
    /// A queue whose timer is over.
    fn take(&self) -> Result<Option<Queue>> {
        // Without the lock while events are queried.
        let mut known = std::mem::take(&mut *self.0.lock()?);
        let over = known.iter().position(|(_, last)| last.is_complete());
        let queue = over.map(|over| known.swap_remove(over).0);
        self.0.lock()?.extend(known);
        Ok(queue)
    }
}

/// The event whose timestamps tell when the work of `queue` so far was complete.
fn mark(queue: &Queue, marks: &Queue) -> Result<Event> {
    let barrier = queue.barrier_now(&[])?;
    // The wait for the mark flushes only its own queue.
    queue.flush();
    marks.barrier_now(&[barrier])
}

impl Elapsed {
    /// The time that the host spent between start and stop.
    #[must_use]
    pub fn host(&self) -> Duration {
        self.host
    }

    /// The time on the device's clock from the end of the earlier commands, or from the start if there were none, to
    /// the end of the measured commands. Waits for these.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn device(&self) -> Result<Duration> {
        let (begin, end) = (self.begin.timestamps()?.end, self.end.timestamps()?.end);
        Ok(Duration::from_nanos(end.saturating_sub(begin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::discovery;
    use crate::runtime::is_own_process;

    #[test]
    fn timers_use_the_queues_of_earlier_ones_again() -> Result<()> {
        if !is_own_process("device::timer::tests::timers_use_the_queues_of_earlier_ones_again") {
            return Ok(());
        }
        let devices = discovery::devices()?;
        let device = &devices[0];
        let queue = Queue::create(&device.default_context()?, device, QueueProperties::default())?;
        let (outer, first) = (Timer::start(&queue)?, Timer::start(&queue)?);
        let marks = first.marks.clone();
        assert!(outer.marks != marks, "two timers at once have queues of their own");
        first.stop()?.device()?;
        for _ in 0..100 {
            let timer = Timer::start(&queue)?;
            assert!(timer.marks == marks);
            timer.stop()?.device()?;
        }
        outer.stop()?.device().map(drop)
    }
}
