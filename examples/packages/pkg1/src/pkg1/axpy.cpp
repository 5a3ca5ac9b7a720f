// result = a * x + y, element by element.
#include <sycl/sycl.hpp>

namespace ext = sycl::ext::oneapi;

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>)) void pkg1_axpy(
    float a, const float *x, const float *y, float *result) {
  size_t i = ext::this_work_item::get_nd_item<1>().get_global_linear_id();
  result[i] = a * x[i] + y[i];
}
