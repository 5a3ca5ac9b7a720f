// Live and freed allocations: where their contents are, and who may use them.
#pragma once

#include <ze_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace front {

struct Allocation {
  char *base; // the address that the application knows
  size_t size;
  char *contents; // where the host reads them; `base` unless addresses are true
  size_t mapped;  // the size of the mapping of separate contents
  ze_memory_type_t type;
  ze_device_handle_t device; // null: host memory
  ze_context_handle_t context;
  bool freed;
  std::vector<ze_device_handle_t> residents; // devices for which it was made resident
};

using Memory = std::shared_ptr<Allocation>;

// The allocation that contains the address or whose guard zones do, freed ones included, or null.
Memory find_memory(const void *address);

// Where the host reads `size` bytes at `address` for a command of `device`. Reports freed memory, overruns, and
// another device's memory; refuses addresses outside of all memory.
char *resolve(const void *address, size_t size, ze_device_handle_t device, const std::string &command);

// The address, or where the host reads it if it lies in device memory. For pointers inside of arguments.
const void *resolve_pointer(const void *address, ze_device_handle_t device, const std::string &command,
                            std::vector<Memory> *used);

// Reports an overrun of memory that a command could write.
void check_guards(const Memory &memory, const std::string &command);

// Whether the memory is ordinary host memory, unknown to the driver.
bool ordinary(const void *address);

// Adds memory whose contents lie elsewhere: a global variable of a module.
void add_variable(void *address, size_t size, void *contents, ze_device_handle_t device);
void remove_variable(void *address);

// The root of a device.
ze_device_handle_t root_of(ze_device_handle_t device);

void report_live_memory();

namespace api {

ze_result_t zeMemAllocShared(ze_context_handle_t, const ze_device_mem_alloc_desc_t *, const ze_host_mem_alloc_desc_t *,
                             size_t, size_t, ze_device_handle_t, void **);
ze_result_t zeMemAllocDevice(ze_context_handle_t, const ze_device_mem_alloc_desc_t *, size_t, size_t,
                             ze_device_handle_t, void **);
ze_result_t zeMemAllocHost(ze_context_handle_t, const ze_host_mem_alloc_desc_t *, size_t, size_t, void **);
ze_result_t zeMemFree(ze_context_handle_t, void *);
ze_result_t zeMemFreeExt(ze_context_handle_t, const ze_memory_free_ext_desc_t *, void *);
ze_result_t zeMemGetAllocProperties(ze_context_handle_t, const void *, ze_memory_allocation_properties_t *,
                                    ze_device_handle_t *);
ze_result_t zeMemGetAddressRange(ze_context_handle_t, const void *, void **, size_t *);
ze_result_t zeContextDestroy(ze_context_handle_t);
ze_result_t zeContextMakeMemoryResident(ze_context_handle_t, ze_device_handle_t, void *, size_t);
ze_result_t zeContextEvictMemory(ze_context_handle_t, ze_device_handle_t, void *, size_t);
ze_result_t zeDeviceCanAccessPeer(ze_device_handle_t, ze_device_handle_t, ze_bool_t *);
ze_result_t zeDeviceGetP2PProperties(ze_device_handle_t, ze_device_handle_t, ze_device_p2p_properties_t *);

} // namespace api
} // namespace front
