// The kernels of the launch rows, compiled at run time by both programs.
#include <sycl/sycl.hpp>

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(
    (sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void axpy(float a, const float *x, float *y, size_t n) {
  size_t i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
  if (i < n)
    y[i] += a * x[i];
}

// Works on each of its items for some time.
extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void spin(unsigned steps,
                                                                                                   unsigned *x) {
  size_t i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
  unsigned state = x[i];
  for (unsigned step = 0; step < steps; ++step)
    state = state * 1664525u + 1013904223u;
  x[i] = state;
}
