// Unified shared memory: kinds, and what the runtime knows of a pointer.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// Of the OpenCL extension cl_intel_unified_shared_memory.
constexpr cl_uint kAllocBase = 0x419B; // CL_MEM_ALLOC_BASE_PTR_INTEL
constexpr cl_uint kAllocSize = 0x419C; // CL_MEM_ALLOC_SIZE_INTEL

} // namespace

UsmSource::UsmSource(std::uint8_t code, const Device &on, const Context &in, const UsmBudget &of)
    : kind(static_cast<UsmCode>(code) == UsmCode::Host     ? sycl::usm::alloc::host
           : static_cast<UsmCode>(code) == UsmCode::Shared ? sycl::usm::alloc::shared
                                                           : sycl::usm::alloc::device),
      device(on), context(in), budget(of) {}

std::array<std::size_t, 2> usm_range(std::size_t pointer, const Context &context) {
  if (context.get_backend() != sycl::backend::opencl) {
    return {0, 0};
  }
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
  const auto devices = context.get_devices();
  Owned<cl_device_id> device("clReleaseDevice");
  device.object = sycl::get_native<sycl::backend::opencl>(devices.front());
  cl_platform_id platform = nullptr;
  opencl_check(opencl_entry<decltype(&clGetDeviceInfo)>("clGetDeviceInfo")(device.object, CL_DEVICE_PLATFORM,
                                                                           sizeof platform, &platform, nullptr),
               "clGetDeviceInfo");
  const auto find =
      opencl_entry<decltype(&clGetExtensionFunctionAddressForPlatform)>("clGetExtensionFunctionAddressForPlatform");
  using Info = cl_int(CL_API_CALL *)(cl_context, const void *, cl_uint, std::size_t, void *, std::size_t *);
  const auto info = reinterpret_cast<Info>(find(platform, "clGetMemAllocInfoINTEL"));
  if (info == nullptr) {
    return {0, 0};
  }
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

} // namespace usmq
