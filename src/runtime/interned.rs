//! Shared values: created once per key, and kept for the process or while they are in use.

use super::ForkMutex;
use crate::error::Result;
use once_cell::sync::Lazy;
use std::any::Any;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A handle. Process-lifetime values need no reference count, so their clones cost nothing.
pub(crate) enum Interned<T: ?Sized + 'static> {
    Process(&'static T),
    Counted(Arc<T>),
}

/// References to process-lifetime values, so that leak checkers find them.
static PROCESS_LIFETIME: Lazy<ForkMutex<Vec<Arc<dyn Any + Send + Sync>>>> = Lazy::new(ForkMutex::default);

impl<T: Send + Sync> Interned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::Counted(Arc::new(value))
    }

    /// The same value, kept for the rest of the process.
    pub(crate) fn make_process_lifetime(self) -> Self {
        match self {
            Self::Counted(value) => {
                if let Ok(mut kept) = PROCESS_LIFETIME.lock() {
                    kept.push(value.clone());
                }
                // SAFETY: this reference count is never released, so the value lives forever.
                Self::Process(unsafe { &*Arc::into_raw(value) })
            }
            kept @ Self::Process(_) => kept,
        }
    }

    pub(crate) fn is_process_lifetime(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// A weak handle.
    pub(crate) fn downgrade(&self) -> WeakInterned<T> {
        match self {
            Self::Process(value) => WeakInterned::Process(value),
            Self::Counted(value) => WeakInterned::Counted(Arc::downgrade(value)),
        }
    }
}

/// A handle to a value whose type a lower layer does not know.
pub(crate) type AnyInterned = Interned<dyn Any + Send + Sync>;

impl<T: Send + Sync> From<Interned<T>> for AnyInterned {
    fn from(held: Interned<T>) -> Self {
        match held {
            Interned::Process(value) => Self::Process(value),
            Interned::Counted(value) => Self::Counted(value),
        }
    }
}

impl AnyInterned {
    pub(crate) fn downcast<T: Send + Sync>(&self) -> Option<Interned<T>> {
        match self {
            Self::Process(value) => value.downcast_ref().map(Interned::Process),
            Self::Counted(value) => value.clone().downcast().ok().map(Interned::Counted),
        }
    }
}

impl<T: ?Sized> Clone for Interned<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Process(value) => Self::Process(value),
            Self::Counted(value) => Self::Counted(value.clone()),
        }
    }
}

impl<T: ?Sized> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Process(value) => value,
            Self::Counted(value) => value,
        }
    }
}

/// A value that is dropped with its last [`Interned`], unless it is process-lifetime.
pub(crate) enum WeakInterned<T: 'static> {
    Process(&'static T),
    Counted(Weak<T>),
}

impl<T> WeakInterned<T> {
    pub(crate) fn get(&self) -> Option<Interned<T>> {
        match self {
            Self::Process(value) => Some(Interned::Process(value)),
            Self::Counted(value) => value.upgrade().map(Interned::Counted),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Process(_) => true,
            Self::Counted(value) => value.strong_count() > 0,
        }
    }
}

/// One value per key. Values are created and dropped outside the lock.
pub(crate) struct Interner<K, T: 'static>(ForkMutex<HashMap<K, WeakInterned<T>>>);

impl<K, T> Default for Interner<K, T> {
    fn default() -> Self {
        Self(ForkMutex::default())
    }
}

impl<K: Eq + Hash, T: Send + Sync> Interner<K, T> {
    /// The value for `key`, created if missing. If two threads create one concurrently, both get the first
    /// that was inserted. A call with the flag set makes the value process-lifetime.
    pub(crate) fn get_or_make(
        &self,
        key: K,
        keep: bool,
        make: impl FnOnce(&K) -> Result<Interned<T>>,
    ) -> Result<Interned<T>> {
        let made = match self.find(&key)? {
            Some(value) if value.is_process_lifetime() || !keep => return Ok(value),
            Some(value) => value,
            None => make(&key)?,
        };
        let mut values = self.0.lock()?;
        let (value, unused) = match values.get(&key).and_then(WeakInterned::get) {
            Some(first) => (first, Some(made)),
            None => (made, None),
        };
        let value = if keep { value.make_process_lifetime() } else { value };
        let gone: Vec<_> = values.extract_if(|_, value| !value.is_alive()).collect();
        values.insert(key, value.downgrade());
        drop(values);
        drop((unused, gone));
        Ok(value)
    }

    /// The value for `key`, if it exists.
    pub(crate) fn find(&self, key: &K) -> Result<Option<Interned<T>>> {
        Ok(self.0.lock()?.get(key).and_then(WeakInterned::get))
    }

    /// Every existing value.
    pub(crate) fn all(&self) -> Result<Vec<Interned<T>>> {
        Ok(self.0.lock()?.values().filter_map(WeakInterned::get).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_value_is_created_once_per_key_and_failures_are_not_stored() {
        let interner = Interner::<&str, u32>::default();
        assert!(interner.get_or_make("a", true, |_| Err(Error::value("no"))).is_err());
        assert_eq!(*interner.get_or_make("a", true, |_| Ok(Interned::new(1))).unwrap(), 1);
        assert_eq!(*interner.get_or_make("a", true, |_| Ok(Interned::new(2))).unwrap(), 1);
        assert_eq!(interner.all().unwrap().len(), 1);
    }

    #[test]
    fn a_weak_value_is_dropped_with_its_last_handle() {
        let (interner, owner) = (Interner::<&str, Arc<()>>::default(), Arc::new(()));
        let make = |_: &&str| Ok(Interned::new(owner.clone()));
        let first = interner.get_or_make("a", false, make).unwrap();
        let second = interner.get_or_make("a", false, make).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        drop((first, second));
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(interner.all().unwrap().is_empty());
        let _other = interner.get_or_make("b", false, make).unwrap();
        assert_eq!(interner.0.lock().unwrap().len(), 1, "nothing is left of what went");
    }

    #[test]
    fn a_value_is_kept_from_the_first_request_to_keep_it() {
        let (interner, owner) = (Interner::<&str, Arc<()>>::default(), Arc::new(()));
        let make = |_: &&str| Ok(Interned::new(owner.clone()));
        let counted = interner.get_or_make("a", false, make).unwrap();
        let kept = interner.get_or_make("a", true, make).unwrap();
        assert!(kept.is_process_lifetime() && !counted.is_process_lifetime());
        drop(counted);
        assert!(interner.get_or_make("a", false, make).unwrap().is_process_lifetime());
        assert_eq!(Arc::strong_count(&owner), 2);
    }

    #[test]
    fn a_value_inserted_concurrently_is_the_one_that_is_kept() {
        let (interner, mut first) = (Interner::<&str, u32>::default(), None);
        let kept = interner.get_or_make("a", true, |_| {
            first = Some(interner.get_or_make("a", false, |_| Ok(Interned::new(1)))?);
            Ok(Interned::new(2))
        });
        assert_eq!(*kept.unwrap(), 1);
        drop(first);
        assert_eq!(*interner.get_or_make("a", false, |_| Ok(Interned::new(3))).unwrap(), 1);
    }

    #[test]
    fn threads_that_create_one_key_together_share_the_first_value() {
        for keep in [false, true] {
            let interner = Interner::<&str, u32>::default();
            let made = AtomicU32::new(0);
            let make = |_: &&str| Ok(Interned::new(made.fetch_add(1, Ordering::Relaxed)));
            let get = || interner.get_or_make("a", keep, make).unwrap();
            let values: Vec<Interned<u32>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..16).map(|_| scope.spawn(get)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(values.iter().all(|value| **value == *values[0]), "kept: {keep}");
        }
    }

    #[test]
    fn a_layer_that_knows_the_type_gets_its_value_back() {
        for held in [Interned::new(5u32), Interned::new(5u32).make_process_lifetime()] {
            let any = AnyInterned::from(held);
            assert_eq!(any.downcast::<u32>().map(|value| *value), Some(5));
            assert!(any.downcast::<u64>().is_none());
        }
    }
}
