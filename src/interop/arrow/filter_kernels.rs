//! The kernels of `filter`, and their launch.

use crate::array::Array;
use crate::device::submit::{Extents, KernelArgs};
use crate::device::{Code, Includes, Program, Queue};
use crate::error::Result;
use crate::memory::{Access, ordered};
use crate::trace::{Kind, Label};
use std::sync::Arc;

/// The most work-items that go through rows in sequence, one range of rows each: enough for the device's units, and few
/// enough for one work-item that adds up their counts.
pub(super) const LANES: usize = 1024;

/// Texts, lists and run ends: `end` of a range never exceeds `limit`, the size of the target of the offsets, and the
/// number of a run is below the number of runs. Data of another library may have any numbers.
const TEXT: &str = r"#include <usmq/kernel.h>
typedef unsigned long u64;
typedef unsigned char u8;

static bool is_set(const u8 *bits, u64 bit) { return bits[bit / 8] >> (bit % 8) & 1; }

struct Lane {
  u64 begin, end;
  Lane(u64 lane, u64 lanes, u64 count) {
    u64 size = (count + lanes - 1) / lanes;
    begin = lane * size < count ? lane * size : count;
    end = count - begin < size ? count : begin + size;
  }
};

template <class T> struct Range {
  u64 begin, end;
  Range(const T *offsets, u64 number, u64 limit) {
    begin = offsets[number] < 0 ? 0 : (u64)offsets[number];
    end = offsets[number + 1] < 0 ? 0 : (u64)offsets[number + 1];
    end = end < limit ? end : limit;
    begin = begin < end ? begin : end;
  }
};

// 64 rows each: whether the mask selects them.
USMQ_KERNEL(1) void usmq_filter_mask(const u8 *bits, const u8 *known, u64 first, u64 rows, u64 *words) {
  u64 item = global_linear_id(), begin = item * 64, last = (first + rows - 1) / 8;
  if (begin >= rows) return;
  u64 word = 0;
  for (unsigned part = 0; part < 8; ++part) {
    u64 byte = (first + begin) / 8 + part, shift = first % 8;
    if (byte > last) break;
    unsigned both = bits[byte] & known[byte];
    if (shift && byte < last) both |= (unsigned)(bits[byte + 1] & known[byte + 1]) << 8;
    word |= (u64)(u8)(both >> shift) << (8 * part);
  }
  words[item] = rows - begin < 64 ? word & (((u64)1 << (rows - begin)) - 1) : word;
}

USMQ_KERNEL(1) void usmq_filter_count(const u64 *words, u64 size, u64 lanes, u64 *counts) {
  u64 lane = global_linear_id(), count = 0;
  if (lane >= lanes) return;
  Lane own(lane, lanes, size);
  for (u64 at = own.begin; at < own.end; ++at) count += popcount(words[at]);
  counts[lane] = count;
}

USMQ_KERNEL(1) void usmq_filter_scan(u64 lanes, u64 *counts) {
  if (global_linear_id() > 0) return;
  u64 sum = 0;
  for (u64 lane = 0; lane < lanes; ++lane) {
    u64 own = counts[lane];
    counts[lane] = sum;
    sum += own;
  }
  counts[lanes] = sum;
}

USMQ_KERNEL(1) void usmq_filter_rows(const u64 *words, u64 size, u64 lanes, const u64 *starts, u64 *numbers) {
  u64 lane = global_linear_id();
  if (lane >= lanes) return;
  Lane own(lane, lanes, size);
  u64 to = starts[lane];
  for (u64 at = own.begin; at < own.end; ++at)
    for (u64 word = words[at]; word; word &= word - 1) numbers[to++] = at * 64 + popcount((word & -word) - 1);
}

USMQ_KERNEL(1) void usmq_filter_bits(const u8 *bitmap, const u64 *numbers, u64 first, u64 count, u8 *target) {
  u64 item = global_linear_id(), begin = item * 8;
  if (begin >= count) return;
  unsigned bits = 0;
  for (unsigned bit = 0; bit < 8 && begin + bit < count; ++bit)
    bits |= (is_set(bitmap, first + numbers[begin + bit]) ? 1u : 0u) << bit;
  target[item] = (u8)bits;
}

USMQ_KERNEL(1) void usmq_filter_fixed(const u64 *numbers, u64 size, u64 width, u64 *target) {
  u64 item = global_linear_id();
  if (item < size) target[item] = numbers[item / width] * width + item % width;
}

#define GATHER(SIZE, T)                                                                                            \
  USMQ_KERNEL(1) void usmq_filter_gather##SIZE(const T *source, const u64 *numbers, u64 size, u64 width, T *target) { \
    u64 item = global_linear_id();                                                                                 \
    if (item < size) target[item] = source[width == 1 ? numbers[item] : numbers[item / width] * width + item % width]; \
  }
GATHER(1, u8)
GATHER(2, unsigned short)
GATHER(4, unsigned int)
GATHER(8, u64)

#define RANGES(SIZE, T)                                                                                            \
  USMQ_KERNEL(1) void usmq_filter_lengths##SIZE(const T *offsets, const u64 *numbers, u64 count, u64 lanes, u64 limit, \
                                                u64 *sums) {                                                       \
    u64 lane = global_linear_id(), sum = 0;                                                                        \
    if (lane >= lanes) return;                                                                                     \
    Lane own(lane, lanes, count);                                                                                  \
    for (u64 item = own.begin; item < own.end; ++item) {                                                           \
      Range<T> range(offsets, numbers[item], limit);                                                               \
      sum += range.end - range.begin;                                                                              \
    }                                                                                                              \
    sums[lane] = sum;                                                                                              \
  }                                                                                                                \
  USMQ_KERNEL(1) void usmq_filter_offsets##SIZE(const T *offsets, const u64 *numbers, u64 count, u64 lanes, u64 limit, \
                                                const u64 *sums, T *taken) {                                       \
    u64 lane = global_linear_id();                                                                                 \
    if (lane >= lanes) return;                                                                                     \
    Lane own(lane, lanes, count);                                                                                  \
    u64 at = sums[lane];                                                                                           \
    for (u64 item = own.begin; item < own.end; ++item) {                                                           \
      Range<T> range(offsets, numbers[item], limit);                                                               \
      taken[item] = (T)at;                                                                                         \
      at += range.end - range.begin;                                                                               \
    }                                                                                                              \
    if (lane + 1 == lanes) taken[count] = (T)at;                                                                   \
  }                                                                                                                \
  USMQ_KERNEL(1) void usmq_filter_text##SIZE(const T *offsets, const T *taken, const u64 *numbers, const u8 *text, \
                                             u64 count, u64 limit, u64 lanes, u8 *target) {                        \
    u64 lane = global_linear_id();                                                                                 \
    if (lane >= lanes) return;                                                                                     \
    Lane own(lane, lanes, count);                                                                                  \
    for (u64 item = own.begin; item < own.end; ++item) {                                                           \
      Range<T> range(offsets, numbers[item], limit);                                                               \
      u64 at = (u64)taken[item];                                                                                   \
      for (u64 byte = range.begin; byte < range.end; ++byte) target[at++] = text[byte];                            \
    }                                                                                                              \
  }                                                                                                                \
  USMQ_KERNEL(1) void usmq_filter_items##SIZE(const T *offsets, const T *taken, const u64 *numbers, u64 count,     \
                                              u64 limit, u64 *target) {                                            \
    u64 item = global_linear_id();                                                                                 \
    if (item >= count) return;                                                                                     \
    Range<T> range(offsets, numbers[item], limit);                                                                 \
    u64 at = (u64)taken[item];                                                                                     \
    for (u64 number = range.begin; number < range.end; ++number) target[at++] = number;                            \
  }
RANGES(4, int)
RANGES(8, long)

#define RUNS(SIZE, T)                                                                                              \
  USMQ_KERNEL(1) void usmq_filter_runs##SIZE(const T *ends, const u64 *numbers, u64 count, u64 runs, u64 offset,   \
                                             u64 *target, T *taken) {                                              \
    u64 item = global_linear_id();                                                                                 \
    if (item >= count) return;                                                                                     \
    u64 row = offset + numbers[item], low = 0, high = runs - 1;                                                    \
    while (low < high) {                                                                                           \
      u64 middle = (low + high) / 2;                                                                               \
      if ((u64)ends[middle] > row) high = middle;                                                                  \
      else low = middle + 1;                                                                                       \
    }                                                                                                              \
    target[item] = low;                                                                                            \
    taken[item] = (T)(item + 1);                                                                                   \
  }
RUNS(2, short)
RUNS(4, int)
RUNS(8, long)
";

/// An argument that a kernel reads.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Read(&'a Array),
    Number(u64),
}

/// The work-items of a launch.
#[derive(Clone, Copy)]
pub(super) enum Items {
    /// One for each element of the result.
    Each(usize),
    /// One for each range of rows, through which it goes in sequence.
    Lanes(usize),
}

impl Arg<'_> {
    pub(super) fn number(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

/// Launches a kernel of the text above, whose last parameters are the arrays that it writes to.
pub(super) fn launch(
    queue: &Queue,
    name: &str,
    items: Items,
    args: &[Arg<'_>],
    written: &[&Array],
) -> Result<()> {
    let name: Arc<str> = Arc::from(name);
    let code = Code::Sycl(TEXT.into());
    let no_flags = Arc::from(Vec::new());
    let program = Program::get(queue.context(), queue.device(), &code, &name, &no_flags, Includes::NONE)?;
    let mut list = KernelArgs::default();
    let mut operands = Vec::new();
    for arg in args {
        match arg {
            Arg::Read(array) => {
                list.pointer(array.address());
                operands.push((array.allocation(), Access::Read));
            }
            Arg::Number(number) => list.value(&number.to_le_bytes()),
        }
    }
    for array in written {
        list.pointer(array.address());
        operands.push((array.allocation(), Access::Write));
    }
    let bytes = written.iter().map(|array| array.nbytes()).sum();
    let extents = match items {
        Items::Each(items) => Extents::padded(items),
        Items::Lanes(lanes) => {
            let mut extents = Extents::range(&[lanes]);
            if queue.device().computes_in_waiting_threads() {
                // Alone in its group, a work-item that loops is not vectorised with others: the compiler of the CPU
                // driver would turn each step into gathers and scatters.
                extents.local[0] = 1;
            }
            extents
        }
    };
    let label = Label { kind: Kind::Copy, name: Some(&name), bytes };
    ordered(queue, &operands, |after| {
        // SAFETY: the callers give the arguments of the kernel's parameters. Numbers of rows are below the length of each
        // buffer that they index, and ranges end at their limit. The logs of the allocations keep them until the event
        // is complete.
        unsafe { queue.submit(&program, extents, &list, label, after) }
    })?;
    Ok(())
}
