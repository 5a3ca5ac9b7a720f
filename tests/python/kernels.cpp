// The kernels of the Python tests, written as a user writes them: free functions over built-in types.
#include <cstddef>
#include <sycl/sycl.hpp>

namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;

// A chain that no compiler can shorten, so it takes a time that steps sets, and whose result has a closed form: a
// launch that is lost, doubled or out of order shows in every bit.
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void advance(unsigned *x,
                                                                                                       unsigned steps) {
  size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
  unsigned state = x[i];
  for (unsigned k = 0; k < steps; ++k)
    state = state * 1664525u + 1013904223u;
  x[i] = state;
}

extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void advance_into(const unsigned *x, unsigned *y,
                                                                                   unsigned steps) {
  size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
  unsigned state = x[i];
  for (unsigned k = 0; k < steps; ++k)
    state = state * 1664525u + 1013904223u;
  y[i] = state;
}

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void fill(float *x,
                                                                                                    float value) {
  x[syclext::this_work_item::get_nd_item<1>().get_global_linear_id()] = value;
}

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void axpy(float a,
                                                                                                    const float *x,
                                                                                                    float *y,
                                                                                                    size_t n) {
  size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
  if (i < n)
    y[i] = a * x[i] + y[i];
}

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) void index2(int *x) {
  auto item = syclext::this_work_item::get_nd_item<2>();
  x[item.get_global_linear_id()] = 100 * item.get_global_id(0) + item.get_global_id(1);
}

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<3>)) void index3(int *x) {
  auto item = syclext::this_work_item::get_nd_item<3>();
  x[item.get_global_linear_id()] = 10000 * item.get_global_id(0) + 100 * item.get_global_id(1) + item.get_global_id(2);
}

// The view of a work-item: size and index of its work-group, and its index in the group.
extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void groups(int *size, int *group, int *place) {
  auto item = syclext::this_work_item::get_nd_item<1>();
  size_t i = item.get_global_linear_id();
  size[i] = item.get_local_range(0);
  group[i] = item.get_group(0);
  place[i] = item.get_local_id(0);
}
