// The functions that allocate, free and describe memory.
#include "memory.h"

#include "engine.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>

namespace front {

extern std::mutex &memory_lock;
extern std::map<uintptr_t, Memory> &by_address;
extern std::deque<Memory> &freed;
extern const size_t GUARD;
void write_guards(const Allocation &memory);

namespace {

// Freed memory stays known, so that a late use is seen, until this much is freed.
constexpr size_t KEPT_BYTES = size_t{128} << 20;
constexpr size_t KEPT_NUMBER = 2048;

// New memory is filled with junk up to this size: nothing may rely on zeros.
constexpr size_t JUNK_BYTES = size_t{64} << 10;
constexpr int JUNK = 0xCD;

size_t freed_bytes = 0;
auto &in_use = *new std::unordered_map<ze_device_handle_t, size_t>; // bytes of device memory of each root device

uintptr_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

size_t capacity(ze_device_handle_t root) {
  uint32_t count = 0;
  real().device.pfnGetMemoryProperties(root, &count, nullptr);
  std::vector<ze_device_memory_properties_t> all(count);
  for (auto &one : all) {
    one.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    one.pNext = nullptr;
  }
  real().device.pfnGetMemoryProperties(root, &count, all.data());
  size_t total = 0;
  for (const auto &one : all) {
    total += one.totalSize;
  }
  return total;
}

// Releases a freed allocation for good. The caller holds `memory_lock`.
void forget(std::deque<Memory>::iterator place) {
  const Memory memory = *place;
  freed.erase(place);
  freed_bytes -= memory->size;
  by_address.erase(number(memory->base));
  if (memory->contents != memory->base) {
    munmap(memory->contents - GUARD, memory->mapped);
  }
  real().memory.pfnFree(memory->context, memory->base);
}

void add(const Memory &memory) {
  std::memset(memory->contents, JUNK, std::min(memory->size, JUNK_BYTES));
  write_guards(*memory);
  const std::lock_guard<std::mutex> lock(memory_lock);
  by_address[number(memory->base)] = memory;
}

// Host or shared memory: host memory of the real driver, which both sides read.
ze_result_t allocate_host(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                          size_t alignment, ze_memory_type_t type, ze_device_handle_t device, void **address) {
  const ze_result_t result = real().memory.pfnAllocHost(context, desc, size + GUARD, alignment, address);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  auto memory = std::make_shared<Allocation>();
  memory->base = memory->contents = static_cast<char *>(*address);
  memory->size = size;
  memory->type = type;
  memory->device = device;
  memory->context = context;
  add(memory);
  return ZE_RESULT_SUCCESS;
}

} // namespace

namespace api {

ze_result_t zeMemAllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *device_desc,
                             const ze_host_mem_alloc_desc_t *host_desc, size_t size, size_t alignment,
                             ze_device_handle_t device, void **address) {
  ENTER("zeMemAllocShared");
  ze_host_mem_alloc_desc_t desc = *host_desc;
  if (desc.pNext == nullptr) {
    desc.pNext = device_desc->pNext;
  }
  return allocate_host(context, &desc, size, alignment, ZE_MEMORY_TYPE_SHARED, device, address);
}

ze_result_t zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                           size_t alignment, void **address) {
  ENTER("zeMemAllocHost");
  return allocate_host(context, desc, size, alignment, ZE_MEMORY_TYPE_HOST, nullptr, address);
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                             size_t alignment, ze_device_handle_t device, void **address) {
  ENTER("zeMemAllocDevice");
  const ze_device_handle_t root = root_of(device);
  {
    static const size_t limit = capacity(root);
    const std::lock_guard<std::mutex> lock(memory_lock);
    if (in_use[root] + size > limit) {
      return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
  }
  if (!switches().true_addresses) {
    ze_host_mem_alloc_desc_t host{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, desc->pNext, 0};
    return allocate_host(context, &host, size, alignment, ZE_MEMORY_TYPE_DEVICE, device, address);
  }
  const ze_result_t result = real().memory.pfnAllocDevice(context, desc, size + GUARD, alignment, device, address);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  // As much as the alignment of the address, for kernels that are built on it.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (size + 2 * GUARD + 2 * page - 1) / page * page;
  void *contents = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (contents == MAP_FAILED) {
    real().memory.pfnFree(context, *address);
    return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  auto memory = std::make_shared<Allocation>();
  memory->base = static_cast<char *>(*address);
  memory->size = size;
  memory->contents = static_cast<char *>(contents) + GUARD;
  memory->mapped = mapped;
  memory->type = ZE_MEMORY_TYPE_DEVICE;
  memory->device = device;
  memory->context = context;
  add(memory);
  const std::lock_guard<std::mutex> lock(memory_lock);
  in_use[root] += size;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemFree(ze_context_handle_t context, void *address) {
  ENTER("zeMemFree");
  const Memory memory = find_memory(address);
  if (memory == nullptr) {
    return real().memory.pfnFree(context, address);
  }
  if (memory->base != address) {
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  check_guards(memory, "before zeMemFree");
  const std::lock_guard<std::mutex> lock(memory_lock);
  if (memory->freed) {
    report("freed twice: memory at " + hexadecimal(address));
    return ZE_RESULT_SUCCESS;
  }
  memory->freed = true;
  if (memory->type == ZE_MEMORY_TYPE_DEVICE) {
    in_use[root_of(memory->device)] -= memory->size;
  }
  freed.push_back(memory);
  freed_bytes += memory->size;
  while (freed_bytes > KEPT_BYTES || freed.size() > KEPT_NUMBER) {
    // A command that still runs must find its memory.
    if (freed.front().use_count() > 3) {
      break;
    }
    forget(freed.begin());
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc, void *address) {
  ENTER("zeMemFreeExt");
  if (desc->freePolicy != 0) {
    wait_for_all();
  }
  return api::zeMemFree(context, address);
}

ze_result_t zeMemGetAllocProperties(ze_context_handle_t context, const void *address,
                                    ze_memory_allocation_properties_t *properties, ze_device_handle_t *device) {
  ENTER("zeMemGetAllocProperties");
  const Memory memory = find_memory(address);
  if (memory != nullptr && (memory->freed || static_cast<const char *>(address) >= memory->base + memory->size)) {
    properties->type = ZE_MEMORY_TYPE_UNKNOWN;
    if (device != nullptr) {
      *device = nullptr;
    }
    return ZE_RESULT_SUCCESS;
  }
  const ze_result_t result = real().memory.pfnGetAllocProperties(context, address, properties, device);
  if (result == ZE_RESULT_SUCCESS && memory != nullptr && properties->type != ZE_MEMORY_TYPE_UNKNOWN) {
    properties->type = memory->type;
    if (device != nullptr) {
      *device = memory->device;
    }
  }
  return result;
}

ze_result_t zeMemGetAddressRange(ze_context_handle_t context, const void *address, void **base, size_t *size) {
  ENTER("zeMemGetAddressRange");
  const Memory memory = find_memory(address);
  if (memory == nullptr) {
    return real().memory.pfnGetAddressRange(context, address, base, size);
  }
  if (memory->freed || static_cast<const char *>(address) >= memory->base + memory->size) {
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (base != nullptr) {
    *base = memory->base;
  }
  if (size != nullptr) {
    *size = memory->size;
  }
  return ZE_RESULT_SUCCESS;
}

// Freed memory that is still kept is part of its context.
ze_result_t zeContextDestroy(ze_context_handle_t context) {
  ENTER("zeContextDestroy");
  {
    const std::lock_guard<std::mutex> lock(memory_lock);
    const auto of_context = [&](const Memory &memory) { return memory->context == context; };
    auto place = std::find_if(freed.begin(), freed.end(), of_context);
    for (; place != freed.end(); place = std::find_if(freed.begin(), freed.end(), of_context)) {
      forget(place);
    }
  }
  return real().context.pfnDestroy(context);
}

// The real driver without a GPU refuses residency, so only the front knows it.
ze_result_t zeContextMakeMemoryResident(ze_context_handle_t, ze_device_handle_t device, void *address, size_t) {
  ENTER("zeContextMakeMemoryResident");
  if (const Memory memory = find_memory(address)) {
    const std::lock_guard<std::mutex> lock(memory_lock);
    memory->residents.push_back(root_of(device));
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeContextEvictMemory(ze_context_handle_t, ze_device_handle_t device, void *address, size_t) {
  ENTER("zeContextEvictMemory");
  if (const Memory memory = find_memory(address)) {
    const std::lock_guard<std::mutex> lock(memory_lock);
    auto &residents = memory->residents;
    residents.erase(std::remove(residents.begin(), residents.end(), root_of(device)), residents.end());
  }
  return ZE_RESULT_SUCCESS;
}

// Without GPUs the real driver finds no connection between two of them: the switch decides.
ze_result_t zeDeviceCanAccessPeer(ze_device_handle_t device, ze_device_handle_t peer, ze_bool_t *answer) {
  ENTER("zeDeviceCanAccessPeer");
  const ze_result_t result = real().device.pfnCanAccessPeer(device, peer, answer);
  if (result == ZE_RESULT_SUCCESS && root_of(device) != root_of(peer)) {
    *answer = switches().peers;
  }
  return result;
}

ze_result_t zeDeviceGetP2PProperties(ze_device_handle_t device, ze_device_handle_t peer,
                                     ze_device_p2p_properties_t *properties) {
  ENTER("zeDeviceGetP2PProperties");
  const ze_result_t result = real().device.pfnGetP2PProperties(device, peer, properties);
  if (result == ZE_RESULT_SUCCESS && root_of(device) != root_of(peer)) {
    properties->flags = switches().peers ? ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS : 0;
  }
  return result;
}

} // namespace api
} // namespace front
