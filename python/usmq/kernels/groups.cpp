// Rows of equal keys, and aggregates over them: the SYCL kernels behind group_by. The host replaces the word REAL by a
// built-in type (f64 where the device has it, else f32) before the text is compiled.
//
// Values come widened: whole numbers, times, dictionary indices and booleans as 64-bit integers. `known` has one byte
// per row, 0 for a null. Where rows or partial results are added up, each lane takes a run of rows in order, and lanes
// are folded in order: the same input gives the same bits in every run.
#include <usmq/kernel.h>

#define KERNEL USMQ_KERNEL(1) void

static size_t item() { return global_linear_id(); }

// A bitmap's bits as bytes, from bit `first` on.
KERNEL unpack_bits(const unsigned char *bits, size_t first, unsigned char *bytes, size_t n) {
  size_t i = item();
  if (i < n)
    bytes[i] = bits[(first + i) / 8] >> ((first + i) % 8) & 1;
}

// --- which rows are alike

static size_t mixed(size_t hash, size_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ul + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdul;
  return hash ^ hash >> 33;
}

static size_t bits_of(long value) { return size_t(value); }
static size_t bits_of(double value) { return bit_cast<size_t>(value); }
static size_t bits_of(float value) { return bit_cast<unsigned>(value); }

// The row that came first into the slot of this one's key: an open hash table of rows, 0 for an empty slot. What is
// compared does not change, so only the slots are atomic.
template <typename Same> static unsigned find(size_t row, size_t hash, unsigned *slots, size_t mask, Same same) {
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    unsigned found = atomic_compare_exchange(&slots[at], 0, unsigned(row) + 1);
    if (found == 0)
      return unsigned(row);
    if (same(found - 1))
      return found - 1;
  }
}

template <typename Value>
static void like(const unsigned *group, const unsigned char *known, const Value *values, unsigned *slots, size_t mask,
                 unsigned *likes, size_t n) {
  size_t i = item();
  if (i >= n)
    return;
  size_t value = known[i] ? bits_of(values[i]) : 0;
  auto same = [=](size_t j) {
    return group[j] == group[i] && known[j] == known[i] && (!known[i] || bits_of(values[j]) == value);
  };
  likes[i] = find(i, mixed(mixed(group[i], known[i]), value), slots, mask, same);
}

KERNEL like_whole(const unsigned *group, const unsigned char *known, const long *values, unsigned *slots, size_t mask,
                  unsigned *likes, size_t n) {
  like(group, known, values, slots, mask, likes, n);
}

KERNEL like_real(const unsigned *group, const unsigned char *known, const REAL *values, unsigned *slots, size_t mask,
                 unsigned *likes, size_t n) {
  like(group, known, values, slots, mask, likes, n);
}

KERNEL like_text(const unsigned *group, const unsigned char *known, const long *offsets, const unsigned char *text,
                 unsigned *slots, size_t mask, unsigned *likes, size_t n) {
  size_t i = item();
  if (i >= n)
    return;
  size_t length = known[i] ? offsets[i + 1] - offsets[i] : 0;
  size_t hash = mixed(mixed(group[i], known[i]), length);
  for (size_t k = 0; k < length; ++k)
    hash = mixed(hash, text[offsets[i] + k]);
  auto same = [=](size_t j) {
    if (group[j] != group[i] || known[j] != known[i])
      return false;
    if (!known[i])
      return true;
    if (size_t(offsets[j + 1] - offsets[j]) != length)
      return false;
    for (size_t k = 0; k < length; ++k)
      if (text[offsets[j] + k] != text[offsets[i] + k])
        return false;
    return true;
  };
  likes[i] = find(i, hash, slots, mask, same);
}

// --- groups, numbered in the order of their first rows

// `first` begins as n everywhere; it ends as the lowest row of those that are like this one.
KERNEL lowest_rows(const unsigned *likes, unsigned *first, size_t n) {
  size_t i = item();
  if (i < n)
    atomic_min(&first[likes[i]], unsigned(i));
}

static size_t begin_of(size_t lane, size_t lanes, size_t n) { return n / lanes * lane + min(lane, n % lanes); }

// Per lane, how many of its rows are the first of their group.
KERNEL count_groups(const unsigned *likes, const unsigned *first, unsigned *counts, size_t n, size_t lanes) {
  size_t lane = item();
  if (lane >= lanes)
    return;
  unsigned count = 0;
  for (size_t i = begin_of(lane, lanes, n); i < begin_of(lane + 1, lanes, n); ++i)
    count += first[likes[i]] == i;
  counts[lane] = count;
}

// `before` has the groups of the lanes before each. Writes the number of each first row, and the first row of each.
KERNEL number_groups(const unsigned *likes, const unsigned *first, const unsigned *before, unsigned *numbers,
                     unsigned *rows, size_t n, size_t lanes) {
  size_t lane = item();
  if (lane >= lanes)
    return;
  unsigned next = before[lane];
  for (size_t i = begin_of(lane, lanes, n); i < begin_of(lane + 1, lanes, n); ++i)
    if (first[likes[i]] == i) {
      rows[next] = unsigned(i);
      numbers[i] = next++;
    }
}

KERNEL spread_groups(const unsigned *likes, const unsigned *first, const unsigned *numbers, unsigned *group, size_t n) {
  size_t i = item();
  if (i < n)
    group[i] = numbers[first[likes[i]]];
}

// --- the keys of the groups

KERNEL pick_known(const unsigned char *known, const unsigned *rows, unsigned char *picked, size_t groups) {
  size_t g = item();
  if (g < groups)
    picked[g] = known[rows[g]];
}

KERNEL pick_whole(const long *values, const unsigned *rows, long *picked, size_t groups) {
  size_t g = item();
  if (g < groups)
    picked[g] = values[rows[g]];
}

KERNEL pick_real(const REAL *values, const unsigned *rows, REAL *picked, size_t groups) {
  size_t g = item();
  if (g < groups)
    picked[g] = values[rows[g]];
}

KERNEL pick_lengths(const unsigned char *known, const long *offsets, const unsigned *rows, long *lengths,
                    size_t groups) {
  size_t g = item();
  if (g < groups)
    lengths[g] = known[rows[g]] ? offsets[rows[g] + 1] - offsets[rows[g]] : 0;
}

// `ends` are where the picked texts end, one after another.
KERNEL pick_text(const long *offsets, const unsigned char *text, const unsigned *rows, const long *ends,
                 unsigned char *picked, size_t groups) {
  size_t g = item();
  if (g >= groups)
    return;
  size_t begin = g == 0 ? 0 : ends[g - 1];
  for (size_t k = 0; begin + k < size_t(ends[g]); ++k)
    picked[begin + k] = text[offsets[rows[g]] + k];
}

// --- aggregates

// Which of two is the lower: whole numbers without a sign have theirs flipped, and NaN is no number.
static bool lower(long a, long b, size_t flip) { return (a ^ long(flip)) < (b ^ long(flip)); }
static bool lower(REAL a, REAL b, size_t) { return a < b || (isnan(b) && !isnan(a)); }
static bool higher(long a, long b, size_t flip) { return lower(b, a, flip); }
static bool higher(REAL a, REAL b, size_t) { return a > b || (isnan(b) && !isnan(a)); }

static long plus(long a, long b) { return long(size_t(a) + size_t(b)); }
static REAL plus(REAL a, REAL b) { return a + b; }

template <typename Value> struct States {
  long *count;
  Value *sum, *low, *high;

  void add(size_t at, long more, Value sum_of, Value low_of, Value high_of, size_t flip) const {
    if (more == 0)
      return;
    bool any = count[at] > 0;
    count[at] += more;
    sum[at] = any ? plus(sum[at], sum_of) : sum_of;
    if (!any || lower(low_of, low[at], flip))
      low[at] = low_of;
    if (!any || higher(high_of, high[at], flip))
      high[at] = high_of;
  }
};

// The counts begin as 0. Each lane has a state for every group.
template <typename Value>
static void gather(const unsigned *group, const unsigned char *known, const Value *values, size_t flip,
                   States<Value> states, size_t n, size_t lanes, size_t groups) {
  size_t lane = item();
  if (lane >= lanes)
    return;
  for (size_t i = begin_of(lane, lanes, n); i < begin_of(lane + 1, lanes, n); ++i)
    states.add(lane * groups + group[i], known[i], values[i], values[i], values[i], flip);
}

// Adds the states of the other lanes to those of the first.
template <typename Value> static void fold(States<Value> states, size_t flip, size_t lanes, size_t groups) {
  size_t g = item();
  if (g >= groups)
    return;
  for (size_t lane = 1; lane < lanes; ++lane) {
    size_t at = lane * groups + g;
    states.add(g, states.count[at], states.sum[at], states.low[at], states.high[at], flip);
  }
}

KERNEL gather_whole(const unsigned *group, const unsigned char *known, const long *values, size_t flip, long *count,
                    long *sum, long *low, long *high, size_t n, size_t lanes, size_t groups) {
  gather(group, known, values, flip, States<long>{count, sum, low, high}, n, lanes, groups);
}

KERNEL gather_real(const unsigned *group, const unsigned char *known, const REAL *values, size_t flip, long *count,
                   REAL *sum, REAL *low, REAL *high, size_t n, size_t lanes, size_t groups) {
  gather(group, known, values, flip, States<REAL>{count, sum, low, high}, n, lanes, groups);
}

KERNEL fold_whole(size_t flip, long *count, long *sum, long *low, long *high, size_t lanes, size_t groups) {
  fold(States<long>{count, sum, low, high}, flip, lanes, groups);
}

KERNEL fold_real(size_t flip, long *count, REAL *sum, REAL *low, REAL *high, size_t lanes, size_t groups) {
  fold(States<REAL>{count, sum, low, high}, flip, lanes, groups);
}
