//! Large copies and fills in two pieces, of which the first has a round size. Profiles count them as one.

use crate::device::{Event, Queue};
use crate::error::Result;
use crate::trace::as_continuation;

/// The part of a copy or fill to submit first; all of it if it is small or round. The OpenCL driver for CPUs runs both as
/// kernels whose work-groups divide the number of elements: for a large prime number of bytes, 64 MiB took 230 ms instead
/// of 4 ms. Pure.
pub(crate) fn rounded(bytes: usize) -> usize {
    const ROUND: usize = 64 << 10;
    if bytes < 4 * ROUND { bytes } else { bytes / ROUND * ROUND }
}

/// Calls `submit` with the start and the size of each piece, inside `ordered_all`. Returns the last event, which comes
/// after the others.
pub(super) fn in_pieces(
    queue: &Queue,
    bytes: usize,
    after: &[Event],
    sent: &mut Vec<Event>,
    submit: impl Fn(&Queue, usize, usize, &[Event]) -> Result<Event>,
) -> Result<Event> {
    let first = rounded(bytes);
    let event = submit(queue, 0, first, after)?;
    if first == bytes {
        return Ok(event);
    }
    sent.push(event.clone());
    let _rest = as_continuation();
    submit(queue, first, bytes - first, &[event])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_sizes_are_rounded() {
        let kib = 1 << 10;
        for (bytes, expected) in [
            (0, 0),
            (1, 1),
            (256 * kib - 1, 256 * kib - 1),
            (256 * kib, 256 * kib),
            (256 * kib + 1, 256 * kib),
            (67_108_859, (64 << 20) - 64 * kib),
        ] {
            assert_eq!(rounded(bytes), expected);
        }
    }
}
