// Large copies on a CPU device: several threads write the target past the caches. The driver's own copy writes through
// them, which also reads the target.
#pragma once

#include "opencl.h"

namespace usmq {

// A copy between memory that the host can access.
struct LargeCopy {
  char *target;
  const char *source;
  std::size_t bytes;
  unsigned threads; // at most

  // Whether threads copy these bytes faster than the driver: the time to start them must not matter, and the caches
  // must not hold what the next command needs.
  static bool is_faster(std::size_t target, std::size_t source, std::size_t bytes);

  // How many threads may copy for a queue of this device: 0 if only the driver may.
  static unsigned threads_of(const sycl::device &device);

  // Copies as a function that the driver calls when it is the command's turn (OpenCL's native kernel); `copy` is a
  // LargeCopy.
  static void CL_CALLBACK run(void *copy) noexcept;
};

} // namespace usmq
