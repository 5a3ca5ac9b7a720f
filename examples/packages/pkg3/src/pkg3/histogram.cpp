// Each work-item finds the bin of one element by binary search, and counts it.
#include <usmq/kernel.h>

USMQ_KERNEL(1) void pkg3_histogram(const float *x, const float *edges, unsigned bins, unsigned *counts) {
  float value = x[global_id(0)];
  // Written so that NaN, for which no comparison holds, is outside.
  if (!(value >= edges[0] && value <= edges[bins]))
    return;
  unsigned bin = 0, end = bins;
  while (end - bin > 1) {
    unsigned middle = bin + (end - bin) / 2;
    if (edges[middle] <= value)
      bin = middle;
    else
      end = middle;
  }
  atomic_add(&counts[bin], 1);
}
