#include "bound_launch.h"

#include <algorithm>

namespace usmq {

std::unique_ptr<BoundLaunch> BoundLaunch::bind(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                               rust::Slice<const KernelArg> args,
                                               rust::Slice<const std::uint8_t> more) try {
  if (!queue.driver || !kernel.driver || !kernel.driver->takes(args)) {
    return nullptr;
  }
  std::unique_ptr<BoundLaunch> bound(new BoundLaunch(queue.driver));
  bound->kernel_ = kernel.driver->create();
  const auto set = opencl_entry<decltype(&clSetKernelArg)>("clSetKernelArg");
  for (std::size_t i = 0; i < args.size(); ++i) {
    const KernelArg &arg = args[i];
    const auto index = static_cast<cl_uint>(i);
    if (arg.kind == KernelArgKind::Pointer) {
      bound->pointers_.push_back({index, arg.value});
    } else {
      opencl_check(set(bound->kernel_->object, index, arg.value, value_of(arg, more)), "clSetKernelArg");
    }
  }
  // OpenCL's first dimension varies fastest, SYCL's last.
  bound->dimensions_ = extents.dimensions;
  std::reverse_copy(extents.global.begin(), extents.global.begin() + extents.dimensions, bound->global_.begin());
  std::reverse_copy(extents.local.begin(), extents.local.begin() + extents.dimensions, bound->local_.begin());
  return bound;
} catch (const sycl::exception &) {
  return nullptr; // libsycl reports it at the launch
}

cl_int BoundLaunch::enqueue(rust::Slice<const std::size_t> pointers, bool are_recorded,
                            const std::vector<cl_event> &after, cl_event *event) {
  if (!are_recorded || !has_recorded_) {
    has_recorded_ = false;
    for (const Pointer &pointer : pointers_) {
      const cl_int status = queue_->set_pointer(kernel_->object, pointer.index, pointers[pointer.number]);
      if (status != CL_SUCCESS) {
        return status;
      }
    }
    has_recorded_ = are_recorded;
  }
  const std::size_t *local = local_[0] == 0 ? nullptr : local_.data();
  return queue_->enqueue(kernel_->object, dimensions_, global_.data(), local, after, event);
}

} // namespace usmq
