// Each work-item finds the bin of one element by binary search, and counts it.
#include <sycl/sycl.hpp>

namespace ext = sycl::ext::oneapi;

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>)) void pkg3_histogram(
    const float *x, const float *edges, unsigned bins, unsigned *counts) {
  float value = x[ext::this_work_item::get_nd_item<1>().get_global_linear_id()];
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
  sycl::atomic_ref<unsigned, sycl::memory_order::relaxed, sycl::memory_scope::device>(counts[bin]).fetch_add(1u);
}
