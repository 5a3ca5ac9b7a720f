// The kernel of the examples on the front page: y += a * x.
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;

extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>)) void axpy(float a, const float *x,
                                                                                     float *y) {
  size_t i = ext::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] += a * x[i];
}
