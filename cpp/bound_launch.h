// A launch whose arguments stay bound to a kernel of the OpenCL driver, for replays.
#pragma once

#include "driver_queue.h"

#include <array>
#include <memory>
#include <vector>

namespace usmq {

// One thread at a time.
class BoundLaunch {
public:
  // Null if only libsycl can launch it.
  static std::unique_ptr<BoundLaunch> bind(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                           rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more);

  // The pointers by their numbers. `are_recorded`: they are those of each call with this flag, and their memory is kept
  // as long as the launch; other pointers are set again each time, since the driver may keep more than an address.
  // Without `event` no event is made. After an error nothing was enqueued.
  cl_int enqueue(rust::Slice<const std::size_t> pointers, bool are_recorded, const std::vector<cl_event> &after,
                 cl_event *event);

  std::unique_ptr<Event> new_event() const { return queue_->new_event(); }

private:
  explicit BoundLaunch(std::shared_ptr<DriverQueue> queue) : queue_(std::move(queue)) {}

  struct Pointer {
    cl_uint index;
    std::size_t number;
  };

  std::shared_ptr<DriverQueue> queue_;
  std::unique_ptr<Owned<cl_kernel>> kernel_;
  cl_uint dimensions_ = 0;
  std::array<std::size_t, 3> global_{};
  std::array<std::size_t, 3> local_{}; // zeros: the driver chooses
  std::vector<Pointer> pointers_;
  bool has_recorded_ = false;
};

} // namespace usmq
