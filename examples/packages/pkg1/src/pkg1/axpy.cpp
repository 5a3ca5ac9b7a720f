// result = a * x + y, element by element.
#include <usmq/kernel.h>

USMQ_KERNEL(1) void pkg1_axpy(float a, const float *x, const float *y, float *result) {
  size_t i = global_id(0);
  result[i] = a * x[i] + y[i];
}
