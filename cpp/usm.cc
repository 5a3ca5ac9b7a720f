// Unified shared memory: kinds, and the runtime's information about a pointer.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// From the OpenCL extension cl_intel_unified_shared_memory.
constexpr cl_uint kAllocBase = 0x419B;   // CL_MEM_ALLOC_BASE_PTR_INTEL
constexpr cl_uint kAllocSize = 0x419C;   // CL_MEM_ALLOC_SIZE_INTEL
constexpr cl_uint kAllocDevice = 0x419D; // CL_MEM_ALLOC_DEVICE_INTEL

} // namespace

UsmSource::UsmSource(std::uint8_t code, const Device &on, const Context &in, const UsmBudget &of)
    : kind(static_cast<UsmCode>(code) == UsmCode::Host     ? sycl::usm::alloc::host
           : static_cast<UsmCode>(code) == UsmCode::Shared ? sycl::usm::alloc::shared
                                                           : sycl::usm::alloc::device),
      device(on), context(in), budget(of) {}

namespace {

using MemoryInfo = cl_int(CL_API_CALL *)(cl_context, const void *, cl_uint, std::size_t, void *, std::size_t *);

MemoryInfo memory_info(const sycl::platform &platform) {
  return opencl_extension<MemoryInfo>(platform, "clGetMemAllocInfoINTEL");
}

} // namespace

std::array<std::size_t, 2> usm_range(std::size_t pointer, const Context &context) {
  const auto info = memory_info(context.get_platform());
  if (info == nullptr) {
    return {0, 0};
  }
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
  const void *address = reinterpret_cast<const void *>(pointer);
  void *base = nullptr;
  std::size_t bytes = 0;
  opencl_check(info(native.object, address, kAllocBase, sizeof base, &base, nullptr), "clGetMemAllocInfoINTEL");
  opencl_check(info(native.object, address, kAllocSize, sizeof bytes, &bytes, nullptr), "clGetMemAllocInfoINTEL");
  return {reinterpret_cast<std::size_t>(base), bytes};
}

std::uint8_t usm_kind(std::size_t pointer, const Context &context) {
  switch (sycl::get_pointer_type(reinterpret_cast<const void *>(pointer), context)) {
  case sycl::usm::alloc::host:
    return static_cast<std::uint8_t>(UsmCode::Host);
  case sycl::usm::alloc::device:
    return static_cast<std::uint8_t>(UsmCode::Device);
  case sycl::usm::alloc::shared:
    return static_cast<std::uint8_t>(UsmCode::Shared);
  default:
    return static_cast<std::uint8_t>(UsmCode::Unknown);
  }
}

std::unique_ptr<Device> usm_device(std::size_t pointer, const Context &context) {
  return std::make_unique<Device>(sycl::get_pointer_device(reinterpret_cast<const void *>(pointer), context));
}

std::unique_ptr<Device> usm_device_of_driver(std::size_t pointer, const Context &context) {
  const auto info = memory_info(context.get_platform());
  if (info == nullptr) {
    return nullptr;
  }
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
  cl_device_id owner = nullptr;
  opencl_check(
      info(native.object, reinterpret_cast<const void *>(pointer), kAllocDevice, sizeof owner, &owner, nullptr),
      "clGetMemAllocInfoINTEL");
  for (const auto &device : context.get_devices()) {
    Owned<cl_device_id> candidate("clReleaseDevice");
    candidate.object = sycl::get_native<sycl::backend::opencl>(device); // which retains it
    if (candidate.object == owner) {
      return std::make_unique<Device>(device);
    }
  }
  return nullptr; // host memory, or the parent of a sub-device
}

} // namespace usmq
