#include "bound_launch.h"

#include <CL/cl_ext.h>
#include <algorithm>
#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// Whether the driver's kernel has these arguments: one for each value and pointer. The compiler of SYCL removes unused
// ones, and local memory takes several.
bool takes(cl_kernel kernel, rust::Slice<const KernelArg> args) {
  const auto is_plain = [](const KernelArg &arg) {
    return arg.kind == KernelArgKind::Pointer || arg.kind == KernelArgKind::Value;
  };
  cl_uint count = 0;
  const auto info = opencl_entry<decltype(&clGetKernelInfo)>("clGetKernelInfo");
  opencl_check(info(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr), "clGetKernelInfo");
  return count == args.size() && std::all_of(args.begin(), args.end(), is_plain);
}

bool is_in_order(cl_command_queue queue) {
  cl_command_queue_properties properties = 0;
  const auto info = opencl_entry<decltype(&clGetCommandQueueInfo)>("clGetCommandQueueInfo");
  opencl_check(info(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr), "clGetCommandQueueInfo");
  return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
}

// Pointers inside of structures and of memory: libsycl sets the same for its kernels.
void allow_indirect_access(cl_kernel kernel) {
  const auto set = opencl_entry<decltype(&clSetKernelExecInfo)>("clSetKernelExecInfo");
  const cl_bool yes = CL_TRUE;
  for (const cl_kernel_exec_info kind :
       {CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL, CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
        CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL}) {
    opencl_check(set(kernel, kind, sizeof(yes), &yes), "clSetKernelExecInfo");
  }
}

} // namespace

BoundLaunch::BoundLaunch(const Queue &queue)
    : set_pointer_(
          opencl_extension<SetPointer>(queue.handle.get_device().get_platform(), "clSetKernelArgMemPointerINTEL")) {
  queue_.object = sycl::get_native<sycl::backend::opencl>(queue.handle); // which retains it
}

std::unique_ptr<BoundLaunch> BoundLaunch::bind(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                               rust::Slice<const KernelArg> args,
                                               rust::Slice<const std::uint8_t> more) try {
  Owned<cl_kernel> original("clReleaseKernel");
  original.object = sycl::get_native<sycl::backend::opencl>(kernel.handle);
  std::unique_ptr<BoundLaunch> bound(new BoundLaunch(queue));
  if (bound->set_pointer_ == nullptr || !takes(original.object, args) || !is_in_order(bound->queue_.object) ||
      (extents.local[0] == 0 && opencl_required_group(original.object, queue)[0] != 0)) {
    return nullptr;
  }
  opencl_create_again(original.object, bound->kernel_);
  allow_indirect_access(bound->kernel_.object);
  const auto set = opencl_entry<decltype(&clSetKernelArg)>("clSetKernelArg");
  for (std::size_t i = 0; i < args.size(); ++i) {
    const KernelArg &arg = args[i];
    const auto index = static_cast<cl_uint>(i);
    if (arg.kind == KernelArgKind::Pointer) {
      bound->pointers_.push_back({index, arg.value});
    } else {
      opencl_check(set(bound->kernel_.object, index, arg.value, value_of(arg, more)), "clSetKernelArg");
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

void BoundLaunch::enqueue(rust::Slice<const std::size_t> pointers, bool are_recorded) {
  static const auto enqueue = opencl_entry<decltype(&clEnqueueNDRangeKernel)>("clEnqueueNDRangeKernel");
  if (!are_recorded || !has_recorded_) {
    has_recorded_ = false;
    for (const Pointer &pointer : pointers_) {
      const auto *address = reinterpret_cast<const void *>(pointers[pointer.number]);
      opencl_check(set_pointer_(kernel_.object, pointer.index, address), "clSetKernelArgMemPointerINTEL");
    }
    has_recorded_ = are_recorded;
  }
  const std::size_t *local = local_[0] == 0 ? nullptr : local_.data();
  opencl_check(enqueue(queue_.object, kernel_.object, dimensions_, nullptr, global_.data(), local, 0, nullptr, nullptr),
               "clEnqueueNDRangeKernel");
}

} // namespace usmq
