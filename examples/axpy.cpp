// The kernel of the examples on the front page: y += a * x.
#include <usmq/kernel.h>

USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {
  size_t i = global_id(0);
  y[i] += a * x[i];
}
