// Unified shared memory: kinds, and the runtime's information about a pointer.
#include "level_zero.h"
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <algorithm>
#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// From the OpenCL extension cl_intel_unified_shared_memory.
constexpr cl_uint kAllocType = 0x419A;   // CL_MEM_ALLOC_TYPE_INTEL
constexpr cl_uint kAllocBase = 0x419B;   // CL_MEM_ALLOC_BASE_PTR_INTEL
constexpr cl_uint kAllocSize = 0x419C;   // CL_MEM_ALLOC_SIZE_INTEL
constexpr cl_uint kAllocDevice = 0x419D; // CL_MEM_ALLOC_DEVICE_INTEL
constexpr cl_uint kTypeHost = 0x4197;    // CL_MEM_TYPE_HOST_INTEL
constexpr cl_uint kTypeDevice = 0x4198;  // CL_MEM_TYPE_DEVICE_INTEL
constexpr cl_uint kTypeShared = 0x4199;  // CL_MEM_TYPE_SHARED_INTEL

// Sufficient for vector loads of every device and for Arrow's recommendation.
constexpr std::size_t kAlignment = 64;

sycl::usm::alloc usm_kind_of(std::uint8_t code) {
  switch (static_cast<UsmCode>(code)) {
  case UsmCode::Host:
    return sycl::usm::alloc::host;
  case UsmCode::Shared:
    return sycl::usm::alloc::shared;
  default:
    return sycl::usm::alloc::device;
  }
}

using MemoryInfo = cl_int(CL_API_CALL *)(cl_context, const void *, cl_uint, std::size_t, void *, std::size_t *);

MemoryInfo memory_info(const sycl::platform &platform) {
  return opencl_extension<MemoryInfo>(platform, "clGetMemAllocInfoINTEL");
}

} // namespace

std::array<std::size_t, 2> usm_driver(const Context &context) {
  const auto info = memory_info(context.get_platform());
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it, as the SYCL context does
  return {reinterpret_cast<std::size_t>(native.object), reinterpret_cast<std::size_t>(info)};
}

UsmInfo usm_info(std::array<std::size_t, 2> driver, std::size_t pointer) {
  const auto context = reinterpret_cast<cl_context>(driver[0]);
  const auto info = reinterpret_cast<MemoryInfo>(driver[1]);
  const auto *address = reinterpret_cast<const void *>(pointer);
  const auto query = [&](cl_uint name, auto &value) {
    opencl_check(info(context, address, name, sizeof value, &value, nullptr), "clGetMemAllocInfoINTEL");
  };
  cl_uint type = 0;
  query(kAllocType, type);
  UsmInfo found{static_cast<std::uint8_t>(UsmCode::Unknown), 0, 0, 0};
  if (type != kTypeHost && type != kTypeDevice && type != kTypeShared) {
    return found;
  }
  found.kind = static_cast<std::uint8_t>(type == kTypeHost     ? UsmCode::Host
                                         : type == kTypeDevice ? UsmCode::Device
                                                               : UsmCode::Shared);
  query(kAllocBase, found.base);
  query(kAllocSize, found.bytes);
  if (type != kTypeHost) {
    query(kAllocDevice, found.device);
  }
  return found;
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

std::size_t device_native(const Device &device) {
  if (device.get_backend() == sycl::backend::ext_oneapi_level_zero) {
    return level_zero_device(device);
  }
  Owned<cl_device_id> native("clReleaseDevice");
  native.object = sycl::get_native<sycl::backend::opencl>(device); // which retains it, as the SYCL device does
  return reinterpret_cast<std::size_t>(native.object);
}

std::size_t usm_alloc(std::uint8_t kind, const Device &device, const Context &context, std::size_t bytes) noexcept {
  const ForeignCall counted;
  if (counted.is_late()) {
    return 0;
  }
  try {
    USMQ_FAULT_POINT("sycl::aligned_alloc");
    return reinterpret_cast<std::size_t>(
        sycl::aligned_alloc(kAlignment, std::max<std::size_t>(bytes, 1), device, context, usm_kind_of(kind)));
  } catch (...) {
    return 0;
  }
}

bool usm_free(const Context &context, std::size_t pointer) noexcept {
  const ForeignCall counted;
  if (counted.is_late()) {
    return false;
  }
  try {
    USMQ_FAULT_POINT("sycl::free");
    sycl::free(reinterpret_cast<void *>(pointer), context);
    return true;
  } catch (...) {
    return false;
  }
}

// `kept` is dropped also if this fails.
std::size_t shared_pointer_new(std::size_t address, rust::Box<Kept> kept) noexcept {
  try {
    USMQ_FAULT_POINT("std::make_shared");
    const auto owner = std::make_shared<rust::Box<Kept>>(std::move(kept));
    return reinterpret_cast<std::size_t>(new std::shared_ptr<void>(owner, reinterpret_cast<void *>(address)));
  } catch (...) {
    return 0;
  }
}

void shared_pointer_free(std::size_t pointer) noexcept { delete reinterpret_cast<std::shared_ptr<void> *>(pointer); }

} // namespace usmq
