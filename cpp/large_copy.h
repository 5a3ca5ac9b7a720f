// Large copies on a CPU device: several threads write the target past the caches. The driver's own copy writes through
// them, which also reads the target.
#pragma once

#include "opencl.h"

#include <optional>
#include <sched.h>

namespace usmq {

// A copy between memory that the host can access.
struct LargeCopy {
  char *target;
  const char *source;
  std::size_t bytes;
  unsigned threads;
  // The cores that the process may use.
  cpu_set_t cores;

  // How many threads may copy for a queue of this device, at most: 0 if only the driver may.
  static unsigned threads_of(const sycl::device &device);

  // Nothing if the driver should copy: if the process may use one core only, or if the copy is so small that the time
  // to start threads matters and that the caches could keep the result for the next command.
  static std::optional<LargeCopy> of(std::size_t target, std::size_t source, std::size_t bytes, unsigned threads);

  // Copies as a function that the driver calls when it is the command's turn (OpenCL's native kernel); `copy` is a
  // LargeCopy.
  static void CL_CALLBACK run(void *copy) noexcept;
};

} // namespace usmq
