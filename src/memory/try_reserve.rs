//! Fallible host allocation for caller-controlled sizes: `Vec` itself aborts the process if memory is short.

use crate::error::{Error, Result};

/// An empty list with capacity for `count` elements; `what` names them in the error.
pub(crate) fn try_with_capacity<T>(count: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    reserve(&mut list, count, what)?;
    Ok(list)
}

/// Reserves capacity for `more` elements in a list whose length the caller controls.
pub(crate) fn reserve<T>(list: &mut Vec<T>, more: usize, what: &'static str) -> Result<()> {
    let asked = list.len().saturating_add(more).saturating_mul(size_of::<T>()) as u64;
    list.try_reserve(more).map_err(|_| Error::HostMemory { asked, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_host_allocation_is_an_error_with_its_size() {
        for count in [1 << 60, usize::MAX] {
            let Err(Error::HostMemory { asked, what }) = try_with_capacity::<u64>(count, "numbers") else {
                panic!("room for {count} numbers")
            };
            assert_eq!((asked, what), ((count as u64).saturating_mul(8), "numbers"));
        }
    }

    #[test]
    fn a_list_that_cannot_grow_stays_unchanged() {
        let mut list = vec![1u64, 2];
        let Err(Error::HostMemory { asked, .. }) = reserve(&mut list, 1 << 60, "numbers") else {
            panic!("room for more")
        };
        assert_eq!((asked, &list[..]), (((1 << 60) + 2) * 8, &[1, 2][..]));
        reserve(&mut list, 100, "numbers").unwrap();
        assert!(list.capacity() >= 102);
    }
}
