// A launch whose arguments stay bound to a kernel of the OpenCL driver, for replays.
#pragma once

#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <array>
#include <memory>
#include <vector>

namespace usmq {

// Enqueues a launch on the driver's queue of an in-order queue, without libsycl. That is in order with the queue's
// commands that libsycl has passed to the driver; no command of libsycl knows the launch, so a later command of the
// same queue must give the event. One thread at a time.
class BoundLaunch {
public:
  // Null if only libsycl can launch it: it has local memory, the arguments of the driver's kernel are other ones, the
  // kernel demands a work-group size, or the driver's queue is not in-order.
  static std::unique_ptr<BoundLaunch> bind(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                           rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more);

  // The pointers by their numbers. `are_recorded`: they are those of each call with this flag, and their memory is kept
  // as long as the launch; other pointers are set again each time, since the driver may keep more than an address.
  void enqueue(rust::Slice<const std::size_t> pointers, bool are_recorded);

private:
  explicit BoundLaunch(const Queue &queue);

  struct Pointer {
    cl_uint index;
    std::size_t number;
  };

  using SetPointer = cl_int(CL_API_CALL *)(cl_kernel, cl_uint, const void *);

  Owned<cl_command_queue> queue_{"clReleaseCommandQueue"};
  Owned<cl_kernel> kernel_{"clReleaseKernel"};
  SetPointer set_pointer_;
  cl_uint dimensions_ = 0;
  std::array<std::size_t, 3> global_{};
  std::array<std::size_t, 3> local_{}; // zeros: the driver chooses
  std::vector<Pointer> pointers_;
  bool has_recorded_ = false;
};

} // namespace usmq
