//! Values that several share: made once per key, and kept for the process or for as long as somebody uses them.

use super::Lock;
use crate::error::Result;
use once_cell::sync::Lazy;
use std::any::Any;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A handle. What stays for the rest of the process needs no count, so its clones cost nothing.
pub(crate) enum Held<T: ?Sized + 'static> {
    Kept(&'static T),
    Counted(Arc<T>),
}

/// What is kept, so that who looks for memory that was lost finds it.
static KEPT: Lazy<Lock<Vec<Arc<dyn Any + Send + Sync>>>> = Lazy::new(Lock::default);

impl<T: Send + Sync> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::Counted(Arc::new(value))
    }

    /// The same value for the rest of the process.
    pub(crate) fn keep(self) -> Self {
        match self {
            Self::Counted(value) => {
                if let Ok(mut kept) = KEPT.lock() {
                    kept.push(value.clone());
                }
                // SAFETY: the count that this takes is never given back, so the value stays.
                Self::Kept(unsafe { &*Arc::into_raw(value) })
            }
            kept @ Self::Kept(_) => kept,
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// A handle that keeps nothing.
    pub(crate) fn known(&self) -> Known<T> {
        match self {
            Self::Kept(value) => Known::Kept(value),
            Self::Counted(value) => Known::Counted(Arc::downgrade(value)),
        }
    }
}

/// A handle to a value of a type that a lower floor does not know.
pub(crate) type Opaque = Held<dyn Any + Send + Sync>;

impl<T: Send + Sync> From<Held<T>> for Opaque {
    fn from(held: Held<T>) -> Self {
        match held {
            Held::Kept(value) => Self::Kept(value),
            Held::Counted(value) => Self::Counted(value),
        }
    }
}

impl Opaque {
    pub(crate) fn downcast<T: Send + Sync>(&self) -> Option<Held<T>> {
        match self {
            Self::Kept(value) => value.downcast_ref().map(Held::Kept),
            Self::Counted(value) => value.clone().downcast().ok().map(Held::Counted),
        }
    }
}

impl<T: ?Sized> Clone for Held<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Kept(value) => Self::Kept(value),
            Self::Counted(value) => Self::Counted(value.clone()),
        }
    }
}

impl<T: ?Sized> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Kept(value) => value,
            Self::Counted(value) => value,
        }
    }
}

/// A value that goes with its last [`Held`], if it is not kept.
pub(crate) enum Known<T: 'static> {
    Kept(&'static T),
    Counted(Weak<T>),
}

impl<T> Known<T> {
    pub(crate) fn get(&self) -> Option<Held<T>> {
        match self {
            Self::Kept(value) => Some(Held::Kept(value)),
            Self::Counted(value) => value.upgrade().map(Held::Counted),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Kept(_) => true,
            Self::Counted(value) => value.strong_count() > 0,
        }
    }
}

/// One value per key. A value is made, and goes, outside the lock.
pub(crate) struct Shared<K, T: 'static>(Lock<HashMap<K, Known<T>>>);

impl<K, T> Default for Shared<K, T> {
    fn default() -> Self {
        Self(Lock::default())
    }
}

impl<K: Eq + Hash, T: Send + Sync> Shared<K, T> {
    /// The value for `key`, made if there is none. When two threads make one at once, both get the first that was put.
    /// From a call that says so on, the value is kept.
    pub(crate) fn get_or_make(
        &self,
        key: K,
        keep: bool,
        make: impl FnOnce(&K) -> Result<Held<T>>,
    ) -> Result<Held<T>> {
        let made = match self.find(&key)? {
            Some(value) if value.is_kept() || !keep => return Ok(value),
            Some(value) => value,
            None => make(&key)?,
        };
        let mut values = self.0.lock()?;
        let (value, unused) = match values.get(&key).and_then(Known::get) {
            Some(first) => (first, Some(made)),
            None => (made, None),
        };
        let value = if keep { value.keep() } else { value };
        let gone: Vec<_> = values.extract_if(|_, value| !value.is_alive()).collect();
        values.insert(key, value.known());
        drop(values);
        drop((unused, gone));
        Ok(value)
    }

    fn find(&self, key: &K) -> Result<Option<Held<T>>> {
        Ok(self.0.lock()?.get(key).and_then(Known::get))
    }

    /// Every value there is.
    pub(crate) fn all(&self) -> Result<Vec<Held<T>>> {
        Ok(self.0.lock()?.values().filter_map(Known::get).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_key_is_made_once_and_a_failure_is_not_kept() {
        let shared = Shared::<&str, u32>::default();
        assert!(shared.get_or_make("a", true, |_| Err(Error::Value("no".to_owned()))).is_err());
        assert_eq!(*shared.get_or_make("a", true, |_| Ok(Held::new(1))).unwrap(), 1);
        assert_eq!(*shared.get_or_make("a", true, |_| Ok(Held::new(2))).unwrap(), 1);
        assert_eq!(shared.all().unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_kept_goes_with_its_last_handle() {
        let (shared, owner) = (Shared::<&str, Arc<()>>::default(), Arc::new(()));
        let make = |_: &&str| Ok(Held::new(owner.clone()));
        let first = shared.get_or_make("a", false, make).unwrap();
        let second = shared.get_or_make("a", false, make).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        drop((first, second));
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(shared.all().unwrap().is_empty());
        let _other = shared.get_or_make("b", false, make).unwrap();
        assert_eq!(shared.0.lock().unwrap().len(), 1, "nothing is left of what went");
    }

    #[test]
    fn a_value_is_kept_from_the_time_someone_asks_for_that() {
        let (shared, owner) = (Shared::<&str, Arc<()>>::default(), Arc::new(()));
        let make = |_: &&str| Ok(Held::new(owner.clone()));
        let counted = shared.get_or_make("a", false, make).unwrap();
        let kept = shared.get_or_make("a", true, make).unwrap();
        assert!(kept.is_kept() && !counted.is_kept());
        drop(counted);
        assert!(shared.get_or_make("a", false, make).unwrap().is_kept());
        assert_eq!(Arc::strong_count(&owner), 2);
    }

    #[test]
    fn what_was_put_meanwhile_is_the_one_that_is_kept() {
        let (shared, mut first) = (Shared::<&str, u32>::default(), None);
        let kept = shared.get_or_make("a", true, |_| {
            first = Some(shared.get_or_make("a", false, |_| Ok(Held::new(1)))?);
            Ok(Held::new(2))
        });
        assert_eq!(*kept.unwrap(), 1);
        drop(first);
        assert_eq!(*shared.get_or_make("a", false, |_| Ok(Held::new(3))).unwrap(), 1);
    }

    #[test]
    fn threads_that_make_one_key_at_once_share_the_first() {
        for keep in [false, true] {
            let shared = Shared::<&str, u32>::default();
            let made = AtomicU32::new(0);
            let make = |_: &&str| Ok(Held::new(made.fetch_add(1, Ordering::Relaxed)));
            let get = || shared.get_or_make("a", keep, make).unwrap();
            let values: Vec<Held<u32>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..16).map(|_| scope.spawn(get)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(values.iter().all(|value| **value == *values[0]), "kept: {keep}");
        }
    }

    #[test]
    fn a_floor_that_knows_the_type_has_it_back() {
        for held in [Held::new(5u32), Held::new(5u32).keep()] {
            let opaque = Opaque::from(held);
            assert_eq!(opaque.downcast::<u32>().map(|value| *value), Some(5));
            assert!(opaque.downcast::<u64>().is_none());
        }
    }
}
