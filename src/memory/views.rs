//! Host views of an allocation: while one lives, commands and other accesses that conflict with it are errors.

use super::access_log::Access;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The live views of an allocation, in its log. Views begin while the log is locked, and end at any time.
#[derive(Default)]
pub(super) struct Views(Option<Arc<LiveViews>>);

struct LiveViews {
    /// The number of views that read, or [`EXCLUSIVE`].
    count: AtomicIsize,
    /// The array of the first view, for errors.
    array: String,
}

const EXCLUSIVE: isize = -1;

/// One view, until it is dropped.
pub(crate) struct ViewToken(Arc<LiveViews>);

impl Views {
    /// An error for an access that conflicts with a live view.
    pub(super) fn check(&self, access: Access) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(live) => live.check(access),
        }
    }

    /// A view of `array`, which may write if `is_exclusive`.
    pub(super) fn begin(&mut self, is_exclusive: bool, array: &dyn fmt::Display) -> Result<ViewToken> {
        self.check(if is_exclusive { Access::Write } else { Access::Read })?;
        let live = self.0.take().filter(|live| live.count.load(Ordering::Acquire) > 0);
        let live = live
            .unwrap_or_else(|| Arc::new(LiveViews { count: AtomicIsize::new(0), array: array.to_string() }));
        if is_exclusive {
            live.count.store(EXCLUSIVE, Ordering::Relaxed);
        } else {
            live.count.fetch_add(1, Ordering::Relaxed);
        }
        self.0 = Some(live.clone());
        Ok(ViewToken(live))
    }
}

impl LiveViews {
    fn check(&self, access: Access) -> Result<()> {
        let count = self.count.load(Ordering::Acquire);
        if count == 0 || (count > 0 && !access.writes()) {
            return Ok(());
        }
        Err(Error::HostView { array: self.array.clone(), is_mutable: count == EXCLUSIVE })
    }
}

impl Drop for ViewToken {
    /// Takes no lock. The accesses of the view happen before those that see its end.
    fn drop(&mut self) {
        if self.0.count.load(Ordering::Relaxed) == EXCLUSIVE {
            self.0.count.store(0, Ordering::Release);
        } else {
            self.0.count.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_read_exclude_writes_and_a_view_that_writes_excludes_all() {
        let mut views = Views::default();
        views.check(Access::ReadWrite).unwrap();
        let first = views.begin(false, &"x").unwrap();
        let second = views.begin(false, &"y").unwrap();
        views.check(Access::Read).unwrap();
        assert!(views.begin(true, &"x").is_err());
        drop(first);
        let error = views.check(Access::Write).unwrap_err().to_string();
        assert!(error.contains("x has a host view"), "{error}");
        drop(second);
        let only = views.begin(true, &"z").unwrap();
        assert!(views.check(Access::Read).is_err() && views.begin(false, &"z").is_err());
        let error = views.check(Access::Read).unwrap_err().to_string();
        assert!(error.contains("z has a mutable host view"), "{error}");
        drop(only);
        views.check(Access::ReadWrite).unwrap();
        drop(views.begin(false, &"w").unwrap());
        views.check(Access::Write).unwrap();
    }
}
