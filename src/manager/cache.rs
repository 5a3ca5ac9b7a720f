//! One queue per (device, context, properties): asking twice gives the same queue.

use super::Target;
use crate::device::{Context, Device, Queue, QueueProperties};
use crate::error::Result;
use crate::runtime::Lock;
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::hash::Hash;

/// A map whose values are made outside its lock. Generic, so that its rule is tested without a device.
struct Cache<K, V>(Lock<HashMap<K, V>>);

/// A value that may be prepared for a life as long as the process.
trait Keep: Clone {
    fn keep(self) -> Self;
}

impl Keep for Queue {
    fn keep(self) -> Self {
        Self::keep(self)
    }
}

impl<K: Eq + Hash, V: Keep> Cache<K, V> {
    /// The value for `key`, made if it is new. When two threads make one at once, both get the first that was put.
    fn get_or_make(&self, key: K, make: impl FnOnce(&K) -> Result<V>) -> Result<V> {
        if let Some(value) = self.0.lock()?.get(&key) {
            return Ok(value.clone());
        }
        let made = make(&key)?;
        Ok(self.0.lock()?.entry(key).or_insert_with(|| made.keep()).clone())
    }
}

type Key = (Device, Context, QueueProperties);

static QUEUES: Lazy<Cache<Key, Queue>> = Lazy::new(|| Cache(Lock::default()));

impl Queue {
    /// The queue for `target`: a filter string, a device, or a queue, whose device and context then count.
    ///
    /// The same arguments give the same queue. Without `context`, a root device's queue lives in its platform's
    /// default context, which other SYCL libraries use too, and a sub-device's in a context of its own.
    ///
    /// The default properties are no wish: without `context`, a queue comes back as it is, whatever its own are. See
    /// [`with_properties`](Self::with_properties).
    ///
    /// # Errors
    /// [`Error::Selector`](crate::Error::Selector), [`Error::DeviceNotFound`](crate::Error::DeviceNotFound), or
    /// [`Error::Sycl`](crate::Error::Sycl) when device, context and properties do not go together.
    pub fn new(
        target: impl Into<Target>,
        context: Option<&Context>,
        properties: QueueProperties,
    ) -> Result<Self> {
        let (device, context) = match (target.into(), context) {
            (Target::Queue(queue), None) if properties == QueueProperties::default() => return Ok(queue),
            (Target::Queue(queue), None) => return queue.with_properties(properties),
            (target, context) => {
                let device = target.device()?;
                let context =
                    context.map_or_else(|| device.default_context(), |context| Ok(context.clone()))?;
                (device, context)
            }
        };
        Self::cached(device, context, properties)
    }

    /// The queue of this one's device and context that has exactly these properties: this one, if it has them.
    ///
    /// ```
    /// use usmq::{Queue, QueueProperties, current_queue};
    ///
    /// let loose = current_queue()?.with_properties(QueueProperties { in_order: false, profiling: false })?;
    /// assert!(!loose.in_order());
    /// assert_eq!(Queue::new(&loose, None, QueueProperties::default())?, loose);
    /// assert!(loose.with_properties(QueueProperties::default())?.in_order());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when the runtime refuses.
    pub fn with_properties(&self, properties: QueueProperties) -> Result<Self> {
        if properties == self.properties() {
            return Ok(self.clone());
        }
        Self::cached(self.device().clone(), self.context().clone(), properties)
    }

    fn cached(device: Device, context: Context, properties: QueueProperties) -> Result<Self> {
        QUEUES.get_or_make((device, context, properties), |(device, context, properties)| {
            Self::create(context, device, *properties)
        })
    }

    /// A queue of another library. It is that queue, not a new one beside it: commands of both share its order.
    ///
    /// # Safety
    /// `address` is that of a live `sycl::queue` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) when its device is not visible to usmq.
    pub unsafe fn from_raw(address: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        let queue = unsafe { Self::adopt(address) }?;
        let known = QUEUES.0.lock()?.values().find(|known| **known == queue).cloned();
        Ok(known.unwrap_or(queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicU32, Ordering};

    impl Keep for u32 {
        fn keep(self) -> Self {
            self
        }
    }

    #[test]
    fn a_key_is_made_once_and_a_failure_is_not_kept() {
        let cache = Cache(Lock::default());
        let fail = |_: &&str| Err(Error::Value("no".to_owned()));
        assert!(cache.get_or_make("a", fail).is_err());
        assert_eq!(cache.get_or_make("a", |_| Ok(1)).unwrap(), 1);
        assert_eq!(cache.get_or_make("a", |_| Ok(2)).unwrap(), 1);
    }

    #[test]
    fn threads_that_make_one_key_at_once_share_the_first() {
        let cache = Cache(Lock::default());
        let made = AtomicU32::new(0);
        let values: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        cache.get_or_make("a", |_| Ok(made.fetch_add(1, Ordering::Relaxed))).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(values.iter().all(|value| *value == values[0]));
    }
}
