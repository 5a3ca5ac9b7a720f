// Maintains the map of allocations and the limits of the GPUs.
#include "memory.h"

#include "checks.h"
#include "failures.h"

#include <array>
#include <map>
#include <mutex>

namespace usmq::emulator {

namespace {

UsmFunctions functions;

struct Ledger {
  std::mutex lock;
  std::map<std::uintptr_t, Allocation> allocations;
  std::array<std::uint64_t, kMostGpus> used{};

  void give_back(const Allocation &allocation) {
    if (allocation.owner != nullptr && allocation.owner->is_gpu) {
      used[allocation.owner->number] -= allocation.size;
    }
  }

  // Adds an allocation. Older entries in the same address range were freed with their context.
  void put(std::uintptr_t start, const Allocation &allocation) {
    auto next_one = allocations.lower_bound(start);
    if (next_one != allocations.begin()) {
      auto before = std::prev(next_one);
      if (before->first + before->second.size > start) {
        next_one = before;
      }
    }
    while (next_one != allocations.end() && next_one->first < start + allocation.size) {
      give_back(next_one->second);
      next_one = allocations.erase(next_one);
    }
    allocations[start] = allocation;
  }

  std::optional<std::pair<std::uintptr_t, Allocation>> take(std::uintptr_t start) {
    const auto found = allocations.find(start);
    if (found == allocations.end()) {
      return std::nullopt;
    }
    auto taken = std::make_pair(found->first, found->second);
    allocations.erase(found);
    return taken;
  }
};

Ledger &ledger() {
  static auto *instance = new Ledger; // never destroyed: see emulation()
  return *instance;
}

// Reserves bytes against the limit of a GPU before the driver is called, so that concurrent threads cannot exceed it.
bool reserve(const Root &gpu, std::uint64_t size) {
  std::lock_guard<std::mutex> guard(ledger().lock);
  std::uint64_t &used = ledger().used[gpu.number];
  if (size > gpu.memory - used) {
    return false;
  }
  used += size;
  return true;
}

void unreserve(const Root &gpu, std::uint64_t size) {
  std::lock_guard<std::mutex> guard(ledger().lock);
  ledger().used[gpu.number] -= size;
}

// Allocates with `ask`, within the limits of the GPU in `allocation`.
template <typename Ask> void *allocate(Allocation allocation, cl_int *status, Ask ask) {
  const Root *gpu = allocation.owner != nullptr && allocation.owner->is_gpu ? allocation.owner : nullptr;
  if (gpu != nullptr) {
    if (is_lost(*gpu)) {
      return failed(status, CL_DEVICE_NOT_AVAILABLE);
    }
    if (allocation.size > gpu->largest_alloc) {
      return failed(status, CL_INVALID_BUFFER_SIZE);
    }
    if (next_allocation_fails(*gpu) || !reserve(*gpu, allocation.size)) {
      return failed(status, CL_OUT_OF_RESOURCES);
    }
  }
  void *pointer = ask();
  if (pointer == nullptr) {
    if (gpu != nullptr) {
      unreserve(*gpu, allocation.size);
    }
    return nullptr;
  }
  std::lock_guard<std::mutex> guard(ledger().lock);
  ledger().put(reinterpret_cast<std::uintptr_t>(pointer), allocation);
  return pointer;
}

// Removes an allocation before the driver frees it: afterwards another thread may get the same address.
template <typename Free> cl_int release(void *pointer, Free free) {
  std::optional<std::pair<std::uintptr_t, Allocation>> taken;
  {
    std::lock_guard<std::mutex> guard(ledger().lock);
    taken = ledger().take(reinterpret_cast<std::uintptr_t>(pointer));
  }
  const cl_int status = free();
  if (taken) {
    std::lock_guard<std::mutex> guard(ledger().lock);
    if (status == CL_SUCCESS) {
      ledger().give_back(taken->second);
    } else {
      ledger().put(taken->first, taken->second);
    }
  }
  return status;
}

template <typename Function> bool find(cl_platform_id platform, const char *name, Function &function) {
  function = reinterpret_cast<Function>(next.clGetExtensionFunctionAddressForPlatform(platform, name));
  if (function == nullptr) {
    say(std::string("the CPU driver has no ") + name + "; usmq shows no emulated GPUs");
  }
  return function != nullptr;
}

} // namespace

bool find_usm_functions(cl_platform_id platform) {
  return find(platform, "clHostMemAllocINTEL", functions.host_alloc) &&
         find(platform, "clDeviceMemAllocINTEL", functions.device_alloc) &&
         find(platform, "clSharedMemAllocINTEL", functions.shared_alloc) &&
         find(platform, "clMemFreeINTEL", functions.free) &&
         find(platform, "clMemBlockingFreeINTEL", functions.blocking_free) &&
         find(platform, "clGetMemAllocInfoINTEL", functions.info) &&
         find(platform, "clSetKernelArgMemPointerINTEL", functions.set_argument) &&
         find(platform, "clEnqueueMemFillINTEL", functions.fill) &&
         find(platform, "clEnqueueMemcpyINTEL", functions.copy) &&
         find(platform, "clEnqueueMigrateMemINTEL", functions.migrate) &&
         find(platform, "clEnqueueMemAdviseINTEL", functions.advise);
}

const UsmFunctions &usm() noexcept { return functions; }

std::optional<Allocation> find_allocation(const void *pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard<std::mutex> guard(ledger().lock);
  const auto &allocations = ledger().allocations;
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) {
    return std::nullopt;
  }
  --found;
  if (address - found->first >= found->second.size) {
    return std::nullopt;
  }
  return found->second;
}

void *CL_API_CALL host_alloc(cl_context context, const cl_mem_properties_intel *properties, std::size_t size,
                             cl_uint alignment, cl_int *status) {
  return guarded(status, [&]() -> void * {
    return allocate({size, UsmKind::host, context, nullptr, nullptr}, status,
                    [&] { return functions.host_alloc(context, properties, size, alignment, status); });
  });
}

void *CL_API_CALL device_alloc(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                               std::size_t size, cl_uint alignment, cl_int *status) {
  return guarded(status, [&]() -> void * {
    return allocate({size, UsmKind::device, context, device, root_of(device)}, status,
                    [&] { return functions.device_alloc(context, device, properties, size, alignment, status); });
  });
}

void *CL_API_CALL shared_alloc(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                               std::size_t size, cl_uint alignment, cl_int *status) {
  return guarded(status, [&]() -> void * {
    return allocate({size, UsmKind::shared, context, device, root_of(device)}, status,
                    [&] { return functions.shared_alloc(context, device, properties, size, alignment, status); });
  });
}

cl_int CL_API_CALL mem_free(cl_context context, void *pointer) {
  return guarded([&] { return release(pointer, [&] { return functions.free(context, pointer); }); });
}

cl_int CL_API_CALL mem_blocking_free(cl_context context, void *pointer) {
  return guarded([&] { return release(pointer, [&] { return functions.blocking_free(context, pointer); }); });
}

cl_int CL_API_CALL mem_alloc_info(cl_context context, const void *pointer, cl_mem_info_intel info, std::size_t room,
                                  void *to, std::size_t *size) {
  return guarded([&]() -> cl_int {
    if (info == CL_MEM_ALLOC_DEVICE_INTEL) {
      const auto allocation = find_allocation(pointer);
      note_asked_owner(allocation);
      // The driver would report the CPU, whose sub-devices these are.
      if (allocation && allocation->context == context && allocation->device != nullptr) {
        return answer(allocation->device, room, to, size);
      }
    }
    return functions.info(context, pointer, info, room, to, size);
  });
}

} // namespace usmq::emulator
