// The owners of USM, and the remaining memory of each GPU.
#pragma once

#include "devices.h"

#include <cstdint>
#include <optional>

namespace usmq::emulator {

// The driver's functions for USM, which are an extension of OpenCL.
struct UsmFunctions {
  clHostMemAllocINTEL_fn host_alloc = nullptr;
  clDeviceMemAllocINTEL_fn device_alloc = nullptr;
  clSharedMemAllocINTEL_fn shared_alloc = nullptr;
  clMemFreeINTEL_fn free = nullptr;
  clMemBlockingFreeINTEL_fn blocking_free = nullptr;
  clGetMemAllocInfoINTEL_fn info = nullptr;
  clSetKernelArgMemPointerINTEL_fn set_argument = nullptr;
  clEnqueueMemFillINTEL_fn fill = nullptr;
  clEnqueueMemcpyINTEL_fn copy = nullptr;
  clEnqueueMigrateMemINTEL_fn migrate = nullptr;
  clEnqueueMemAdviseINTEL_fn advise = nullptr;
};

// Queries the platform for them. If one is missing, reports it and returns false.
bool find_usm_functions(cl_platform_id platform);
const UsmFunctions &usm() noexcept;

enum class UsmKind : std::uint8_t { host, device, shared };

// One allocation; its start is the key in the map of allocations.
struct Allocation {
  std::size_t size = 0;
  UsmKind kind = UsmKind::host;
  cl_context context = nullptr;
  // As given by the program, possibly a sub-device; null for host memory.
  cl_device_id device = nullptr;
  // The root device that owns it; null for host memory.
  const Root *owner = nullptr;
};

// The allocation that contains an address.
std::optional<Allocation> find_allocation(const void *pointer);

void *CL_API_CALL host_alloc(cl_context context, const cl_mem_properties_intel *properties, std::size_t size,
                             cl_uint alignment, cl_int *status);
void *CL_API_CALL device_alloc(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                               std::size_t size, cl_uint alignment, cl_int *status);
void *CL_API_CALL shared_alloc(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                               std::size_t size, cl_uint alignment, cl_int *status);
cl_int CL_API_CALL mem_free(cl_context context, void *pointer);
cl_int CL_API_CALL mem_blocking_free(cl_context context, void *pointer);
cl_int CL_API_CALL mem_alloc_info(cl_context context, const void *pointer, cl_mem_info_intel info, std::size_t room,
                                  void *to, std::size_t *size);

} // namespace usmq::emulator
