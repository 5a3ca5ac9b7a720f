// The emulated GPUs, and which of them owns a device, queue or pointer.
#pragma once

#include "guarded.h"
#include "settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace usmq::emulator {

// A root device of the platform with emulated GPUs: one of these, or the CPU itself.
struct Root {
  cl_device_id device = nullptr;
  // The name in messages: gpu:0, cpu:0.
  std::string label;
  // The device name for users; empty for the CPU.
  std::string name;
  bool is_gpu = false;
  unsigned number = 0;
  std::uint64_t memory = 0;
  std::uint64_t largest_alloc = 0;
};

struct Emulation {
  Settings settings;
  cl_platform_id platform = nullptr;
  // The GPUs in order, then the CPU.
  std::vector<Root> roots;
};

// Whether the process asks for emulated GPUs, with valid settings.
bool is_wanted();

// The emulation of this process; null until a platform is queried for its devices, and if nothing is emulated. Lives
// until the process ends, since drivers call back during process exit.
const Emulation *emulation() noexcept;

// The root device of a device or sub-device; null for devices of other platforms.
const Root *root_of(cl_device_id device);
const Root *root_of(cl_command_queue queue);

// The OpenCL functions that the layer replaces.
cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *devices,
                                  cl_uint *count);
cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info info, std::size_t room, void *to,
                                   std::size_t *size);
cl_int CL_API_CALL create_sub_devices(cl_device_id device, const cl_device_partition_property *properties, cl_uint room,
                                      cl_device_id *parts, cl_uint *count);
cl_int CL_API_CALL retain_device(cl_device_id device);
cl_int CL_API_CALL release_device(cl_device_id device);
cl_context CL_API_CALL create_context_from_type(const cl_context_properties *properties, cl_device_type type,
                                                void(CL_CALLBACK *notify)(const char *, const void *, std::size_t,
                                                                          void *),
                                                void *user_data, cl_int *status);

} // namespace usmq::emulator
