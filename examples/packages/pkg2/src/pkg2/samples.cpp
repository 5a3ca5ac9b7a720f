// A number of [0, 1) from a seed and the place of the sample, so that no state is shared between items.
#include <usmq/kernel.h>

// A bijection of 32 bits in which each bit of the input reaches all of the output: the finaliser of MurmurHash3.
static unsigned mixed(unsigned h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

USMQ_KERNEL(1) void pkg2_samples(unsigned seed, float *result) {
  size_t i = global_id(0);
  // 24 bits are what a float32 holds exactly.
  result[i] = static_cast<float>(mixed(mixed(seed) + static_cast<unsigned>(i)) >> 8) * 0x1p-24f;
}
