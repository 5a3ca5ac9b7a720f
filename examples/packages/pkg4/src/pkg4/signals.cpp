// Numbers at equal distances, and sums of sines.
#include <usmq/kernel.h>

USMQ_KERNEL(1) void pkg4_grid(float low, float high, float *result) {
  float part = static_cast<float>(global_id(0)) / static_cast<float>(global_size(0) - 1);
  // In this form both ends are exact.
  result[global_id(0)] = low * (1 - part) + high * part;
}

USMQ_KERNEL(1) void pkg4_tones(unsigned count, const unsigned *periods, const float *heights, float *result) {
  size_t i = global_id(0), n = global_size(0);
  float sum = 0;
  for (unsigned k = 0; k < count; ++k) {
    // Remove whole periods while the numbers are exact: the sine of a large float32 is inaccurate.
    float part = static_cast<float>(periods[k] * i % n) / static_cast<float>(n);
    sum += heights[k] * sinpi(2 * part);
  }
  result[i] = sum;
}
