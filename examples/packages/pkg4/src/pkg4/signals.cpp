// Numbers at equal distances, and sums of sines.
#include <sycl/sycl.hpp>

namespace ext = sycl::ext::oneapi;

extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>)) void pkg4_grid(float low, float high,
                                                                                          float *result) {
  auto item = ext::this_work_item::get_nd_item<1>();
  float part = static_cast<float>(item.get_global_linear_id()) / static_cast<float>(item.get_global_range(0) - 1);
  // In this form both ends are exact.
  result[item.get_global_linear_id()] = low * (1 - part) + high * part;
}

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>)) void pkg4_tones(
    unsigned count, const unsigned *periods, const float *heights, float *result) {
  auto item = ext::this_work_item::get_nd_item<1>();
  size_t i = item.get_global_linear_id(), n = item.get_global_range(0);
  float sum = 0;
  for (unsigned k = 0; k < count; ++k) {
    // Remove whole periods while the numbers are exact: the sine of a large float32 is inaccurate.
    float part = static_cast<float>(periods[k] * i % n) / static_cast<float>(n);
    sum += heights[k] * sycl::sinpi(2 * part);
  }
  result[i] = sum;
}
