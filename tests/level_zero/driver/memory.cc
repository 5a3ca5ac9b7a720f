// The registry of allocations: addresses, guard zones, freed memory that is kept for a while, and access by devices.
#include "memory.h"

#include "real.h"
#include "report.h"
#include "switches.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unordered_map>

namespace front {

// For memory_api.cc. Never destroyed, as the engines.
std::mutex &memory_lock = *new std::mutex;
auto &by_address = *new std::map<uintptr_t, Memory>; // live and freed
auto &freed = *new std::deque<Memory>;               // the oldest first

namespace {

// The pattern of guard zones, after each allocation and before the contents of device memory.
constexpr unsigned char GUARD_BYTE = 0xA5;

// The lowest address of the upper half: device memory, which the host cannot read.
constexpr uintptr_t UPPER_HALF = uintptr_t{1} << 47;

uintptr_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

const char *kind(const Allocation &memory) {
  return memory.type == ZE_MEMORY_TYPE_HOST ? "host" : memory.type == ZE_MEMORY_TYPE_SHARED ? "shared" : "device";
}

std::string describe(const Allocation &memory) {
  return std::string(kind(memory)) + " memory of " + std::to_string(memory.size) + " bytes at " +
         hexadecimal(memory.base);
}

// Whether the device may use the memory. Host memory belongs to its context, all else to its device, and to others
// with peer access.
bool reachable(const Allocation &memory, ze_device_handle_t device) {
  return switches().peers || memory.device == nullptr || root_of(memory.device) == root_of(device);
}

// Reports freed memory, and memory that the device cannot reach.
void check_use(const Memory &memory, ze_device_handle_t device, const std::string &command) {
  if (memory->freed) {
    report("use of freed memory: " + command + " uses " + describe(*memory));
  }
  if (!reachable(*memory, device)) {
    report("no peer access: " + command + " uses " + describe(*memory) + " of another device");
  }
}

} // namespace

extern const size_t GUARD = 256;

void write_guards(const Allocation &memory) {
  std::memset(memory.contents + memory.size, GUARD_BYTE, GUARD);
  if (memory.contents != memory.base) {
    std::memset(memory.contents - GUARD, GUARD_BYTE, GUARD);
  }
}

void check_guards(const Memory &memory, const std::string &command) {
  if (memory->context == nullptr) {
    return; // a variable of a module has no zones
  }
  const auto broken = [&](const char *zone) {
    return std::any_of(zone, zone + GUARD, [](char byte) { return static_cast<unsigned char>(byte) != GUARD_BYTE; });
  };
  const bool after = broken(memory->contents + memory->size);
  const bool before = memory->contents != memory->base && broken(memory->contents - GUARD);
  if (after || before) {
    report(std::string("overrun: ") + command + ": bytes " + (after ? "after " : "before ") + describe(*memory) +
           " were written");
    write_guards(*memory);
  }
}

Memory find_memory(const void *address) {
  const std::lock_guard<std::mutex> lock(memory_lock);
  auto next = by_address.upper_bound(number(address));
  if (next == by_address.begin()) {
    return nullptr;
  }
  const Memory &memory = std::prev(next)->second;
  return number(address) < number(memory->base) + memory->size + GUARD ? memory : nullptr;
}

bool ordinary(const void *address) { return find_memory(address) == nullptr && number(address) < UPPER_HALF; }

char *resolve(const void *address, size_t size, ze_device_handle_t device, const std::string &command) {
  const Memory memory = find_memory(address);
  if (switches().trace) {
    std::fprintf(stderr, "%s: %zu bytes at %p, %s\n", command.c_str(), size, address,
                 memory == nullptr ? "ordinary" : kind(*memory));
  }
  if (memory == nullptr) {
    if (number(address) >= UPPER_HALF) {
      report("an address outside of all memory: " + command + " uses " + hexadecimal(address));
      refuse(command + " at " + hexadecimal(address));
    }
    return static_cast<char *>(const_cast<void *>(address));
  }
  check_use(memory, device, command);
  const size_t offset = number(address) - number(memory->base);
  if (offset + size > memory->size) {
    report("overrun: " + command + " uses " + std::to_string(size) + " bytes at offset " + std::to_string(offset) +
           " of " + describe(*memory));
    refuse(command + " beyond its memory");
  }
  return memory->contents + offset;
}

const void *resolve_pointer(const void *address, ze_device_handle_t device, const std::string &command,
                            std::vector<Memory> *used) {
  const Memory memory = find_memory(address);
  if (memory == nullptr) {
    return address;
  }
  check_use(memory, device, command);
  if (std::find(used->begin(), used->end(), memory) == used->end()) {
    used->push_back(memory);
  }
  return memory->contents + (number(address) - number(memory->base));
}

void add_variable(void *address, size_t size, void *contents, ze_device_handle_t device) {
  auto memory = std::make_shared<Allocation>();
  memory->base = static_cast<char *>(address);
  memory->size = size;
  memory->contents = static_cast<char *>(contents);
  memory->type = ZE_MEMORY_TYPE_DEVICE;
  memory->device = device;
  const std::lock_guard<std::mutex> lock(memory_lock);
  by_address[number(address)] = memory;
}

void remove_variable(void *address) {
  const std::lock_guard<std::mutex> lock(memory_lock);
  by_address.erase(number(address));
}

ze_device_handle_t root_of(ze_device_handle_t device) {
  static auto &one = *new std::mutex;
  static auto &known = *new std::unordered_map<ze_device_handle_t, ze_device_handle_t>;
  const std::lock_guard<std::mutex> lock(one);
  auto [place, is_new] = known.try_emplace(device, device);
  if (is_new) {
    ze_device_handle_t root = nullptr;
    if (real().device.pfnGetRootDevice(device, &root) == ZE_RESULT_SUCCESS && root != nullptr) {
      place->second = root;
    }
  }
  return place->second;
}

void report_live_memory() {
  std::vector<std::string> left;
  {
    const std::lock_guard<std::mutex> lock(memory_lock);
    for (const auto &[address, memory] : by_address) {
      if (!memory->freed && memory->context != nullptr) {
        left.push_back(describe(*memory));
      }
    }
  }
  for (const std::string &memory : left) {
    report("left at exit: " + memory);
  }
}

} // namespace front
