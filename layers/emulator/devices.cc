// Creates the emulated GPUs from the CPU device, and answers the runtime's queries about them.
#include "devices.h"

#include "memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace usmq::emulator {

namespace {

std::atomic<const Emulation *> current{nullptr};

// Sub-devices by the driver's handle. A reused handle replaces its entry.
struct Parts {
  std::mutex lock;
  std::map<cl_device_id, const Root *> roots;
};

Parts &parts() {
  static auto *instance = new Parts; // never destroyed: see emulation()
  return *instance;
}

template <typename Value> Value info_of(cl_device_id device, cl_device_info info) {
  Value value{};
  next.clGetDeviceInfo(device, info, sizeof value, &value, nullptr);
  return value;
}

std::string text_of(cl_device_id device, cl_device_info info) {
  std::size_t size = 0;
  if (next.clGetDeviceInfo(device, info, 0, nullptr, &size) != CL_SUCCESS) {
    return "";
  }
  std::string text(size, '\0');
  next.clGetDeviceInfo(device, info, size, text.data(), nullptr);
  return text.substr(0, text.find('\0'));
}

// The CPU device of a platform, if it supports USM; null otherwise.
cl_device_id cpu_of(cl_platform_id platform) {
  cl_device_id cpu = nullptr;
  cl_uint count = 0;
  if (next.clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &cpu, &count) != CL_SUCCESS || count == 0) {
    return nullptr;
  }
  const std::string extensions = text_of(cpu, CL_DEVICE_EXTENSIONS);
  return extensions.find("cl_intel_unified_shared_memory") != std::string::npos ? cpu : nullptr;
}

// `count` devices of the CPU's cores. One partition divides the cores; with more devices than cores, further
// partitions give further handles to the same cores.
std::vector<cl_device_id> partition(cl_device_id cpu, unsigned count) {
  const auto cores = std::max(info_of<cl_uint>(cpu, CL_DEVICE_MAX_COMPUTE_UNITS), cl_uint{1});
  // At least two cores, so that an emulated GPU can be partitioned, too.
  const cl_uint each = std::max(cores / count, std::min(cores, cl_uint{2}));
  std::vector<cl_device_id> devices;
  while (devices.size() < count) {
    const cl_uint now = std::min(static_cast<cl_uint>(count - devices.size()), cores / each);
    std::vector<cl_device_partition_property> by_counts{CL_DEVICE_PARTITION_BY_COUNTS};
    by_counts.insert(by_counts.end(), now, static_cast<cl_device_partition_property>(each));
    by_counts.push_back(CL_DEVICE_PARTITION_BY_COUNTS_LIST_END);
    by_counts.push_back(0);
    std::vector<cl_device_id> some(now);
    cl_uint got = 0;
    const cl_int status = next.clCreateSubDevices(cpu, by_counts.data(), now, some.data(), &got);
    if (status != CL_SUCCESS || got != now) {
      say("the CPU driver cannot partition its device (OpenCL error " + std::to_string(status) +
          "); usmq shows no emulated GPUs");
      return {};
    }
    devices.insert(devices.end(), some.begin(), some.end());
  }
  return devices;
}

Emulation *make(const Settings &settings) {
  cl_uint count = 0;
  if (next.clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) {
    return nullptr;
  }
  std::vector<cl_platform_id> platforms(count);
  next.clGetPlatformIDs(count, platforms.data(), nullptr);
  cl_device_id cpu = nullptr;
  const auto found = std::find_if(platforms.begin(), platforms.end(), [&](cl_platform_id platform) {
    cpu = cpu_of(platform);
    return cpu != nullptr;
  });
  if (found == platforms.end()) {
    say("usmq shows no emulated GPUs, because no OpenCL platform has a CPU device with USM");
    return nullptr;
  }
  const auto devices = partition(cpu, settings.gpus);
  if (devices.empty() || !find_usm_functions(*found)) {
    return nullptr;
  }
  auto *emulation = new Emulation{settings, *found, {}};
  const auto host = info_of<cl_ulong>(cpu, CL_DEVICE_GLOBAL_MEM_SIZE);
  const auto largest = info_of<cl_ulong>(cpu, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  // Divides half of the host's memory; the other half is for the program and the CPU device.
  const std::uint64_t memory = settings.memory != 0 ? settings.memory : host / 2 / settings.gpus;
  const std::string cpu_name = text_of(cpu, CL_DEVICE_NAME);
  for (unsigned number = 0; number < settings.gpus; ++number) {
    const std::string place = std::to_string(number);
    Root gpu{devices[number], "gpu:", "Emulated GPU ", true, number, memory, std::min<std::uint64_t>(memory, largest)};
    gpu.label.append(place);
    gpu.name.append(place).append(" (").append(cpu_name).append(")");
    emulation->roots.push_back(std::move(gpu));
  }
  emulation->roots.push_back({cpu, "cpu:0", "", false, 0, host, largest});
  return emulation;
}

// The settings of the process, read once.
const Settings &settings() {
  static const auto *instance = [] { // never destroyed: see emulation()
    auto *read_once = new Settings;
    const std::string wrong = read(variables_of_process(), *read_once);
    if (!wrong.empty()) {
      say(wrong + "; no GPU is emulated");
    }
    return read_once;
  }();
  return *instance;
}

// Finds the platform and creates the GPUs at the first device query: before that, drivers may not be loaded.
void prepare() {
  static std::once_flag once;
  std::call_once(once, [] { current.store(make(settings())); });
}

const Root *gpu_root(cl_device_id device) {
  const Root *root = root_of(device);
  return root != nullptr && root->is_gpu ? root : nullptr;
}

bool is_root(const Root &root, cl_device_id device) { return root.device == device; }

// As on a discrete GPU: only the device reaches its memory.
cl_int usm_capabilities(cl_device_id device, cl_device_info info, std::size_t room, void *to, std::size_t *size) {
  cl_device_unified_shared_memory_capabilities_intel can = 0;
  switch (info) {
  case CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL:
    can = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL;
    break;
  case CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL:
  case CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
    can = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL | CL_UNIFIED_SHARED_MEMORY_ATOMIC_ACCESS_INTEL;
    break;
  case CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL:
    can = emulation()->settings.system_usm ? info_of<decltype(can)>(device, info) : 0;
    break;
  default:
    break;
  }
  return answer(can, room, to, size);
}

// Each GPU has its own number in the last byte of the CPU's UUID.
cl_int uuid(const Root &root, std::size_t room, void *to, std::size_t *size) {
  std::array<cl_uchar, CL_UUID_SIZE_KHR> id{};
  const cl_int status = next.clGetDeviceInfo(root.device, CL_DEVICE_UUID_KHR, sizeof id, id.data(), nullptr);
  if (status != CL_SUCCESS) {
    return status;
  }
  id.back() = static_cast<cl_uchar>(root.number + 1);
  return answer(id.data(), sizeof id, room, to, size);
}

} // namespace

bool is_wanted() { return settings().gpus != 0; }

unsigned gpus() noexcept {
  const Emulation *known = emulation();
  return known != nullptr ? known->settings.gpus : 0;
}

const Emulation *emulation() noexcept { return current.load(std::memory_order_acquire); }

const Root *root_of(cl_device_id device) {
  const Emulation *known = emulation();
  if (known == nullptr || device == nullptr) {
    return nullptr;
  }
  for (const Root &root : known->roots) {
    if (root.device == device) {
      return &root;
    }
  }
  std::lock_guard<std::mutex> guard(parts().lock);
  const auto found = parts().roots.find(device);
  return found != parts().roots.end() ? found->second : nullptr;
}

const Root *root_of(cl_command_queue queue) {
  cl_device_id device = nullptr;
  if (emulation() == nullptr || queue == nullptr ||
      next.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), static_cast<void *>(&device), nullptr) !=
          CL_SUCCESS) {
    return nullptr;
  }
  return root_of(device);
}

cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *devices,
                                  cl_uint *count) {
  return guarded([&]() -> cl_int {
    prepare();
    const Emulation *known = emulation();
    if (known == nullptr || known->platform != platform) {
      return next.clGetDeviceIDs(platform, type, room, devices, count);
    }
    if ((room == 0 && devices != nullptr) || (devices == nullptr && count == nullptr)) {
      return CL_INVALID_VALUE;
    }
    // The first GPU is the platform's default device.
    std::vector<cl_device_id> found;
    for (const Root &root : known->roots) {
      const cl_device_type own = root.is_gpu ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU;
      const bool is_default = (type & CL_DEVICE_TYPE_DEFAULT) != 0 && type != CL_DEVICE_TYPE_ALL && found.empty();
      if ((type & own) != 0 || is_default) {
        found.push_back(root.device);
      }
    }
    if (found.empty()) {
      return next.clGetDeviceIDs(platform, type & ~(CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU), room, devices, count);
    }
    if (devices != nullptr) {
      std::copy_n(found.begin(), std::min<std::size_t>(room, found.size()), devices);
    }
    if (count != nullptr) {
      *count = static_cast<cl_uint>(found.size());
    }
    return CL_SUCCESS;
  });
}

cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info info, std::size_t room, void *to,
                                   std::size_t *size) {
  return guarded([&]() -> cl_int {
    const Root *root = gpu_root(device);
    if (root == nullptr) {
      return next.clGetDeviceInfo(device, info, room, to, size);
    }
    switch (info) {
    case CL_DEVICE_TYPE:
      return answer<cl_device_type>(CL_DEVICE_TYPE_GPU, room, to, size);
    case CL_DEVICE_NAME:
      return answer(root->name.c_str(), root->name.size() + 1, room, to, size);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return answer<cl_ulong>(root->memory, room, to, size);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return answer<cl_ulong>(root->largest_alloc, room, to, size);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
      return answer<cl_bool>(CL_FALSE, room, to, size);
    case CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL:
      return usm_capabilities(device, info, room, to, size);
    case CL_DEVICE_SVM_CAPABILITIES: {
      auto can = info_of<cl_device_svm_capabilities>(device, info);
      if (!emulation()->settings.system_usm) {
        can &= ~static_cast<cl_device_svm_capabilities>(CL_DEVICE_SVM_FINE_GRAIN_SYSTEM);
      }
      return answer(can, room, to, size);
    }
    default:
      break;
    }
    if (!is_root(*root, device)) {
      return next.clGetDeviceInfo(device, info, room, to, size);
    }
    // To the driver it is a sub-device of the CPU.
    switch (info) {
    case CL_DEVICE_PARENT_DEVICE:
      return answer<cl_device_id>(nullptr, room, to, size);
    case CL_DEVICE_PARTITION_TYPE:
      return answer<cl_device_partition_property>(0, room, to, size);
    case CL_DEVICE_REFERENCE_COUNT:
      return answer<cl_uint>(1, room, to, size);
    case CL_DEVICE_UUID_KHR:
      return uuid(*root, room, to, size);
    default:
      return next.clGetDeviceInfo(device, info, room, to, size);
    }
  });
}

cl_int CL_API_CALL create_sub_devices(cl_device_id device, const cl_device_partition_property *properties, cl_uint room,
                                      cl_device_id *devices, cl_uint *count) {
  return guarded([&]() -> cl_int {
    const Root *root = root_of(device);
    cl_uint made = 0;
    const cl_int status = next.clCreateSubDevices(device, properties, room, devices, &made);
    if (count != nullptr) {
      *count = made;
    }
    if (status == CL_SUCCESS && root != nullptr && devices != nullptr) {
      std::lock_guard<std::mutex> guard(parts().lock);
      for (cl_uint i = 0; i < std::min(made, room); ++i) {
        parts().roots[devices[i]] = root;
      }
    }
    return status;
  });
}

// Root devices are not reference-counted, but the driver would count these.
cl_int CL_API_CALL retain_device(cl_device_id device) {
  return guarded([&]() -> cl_int {
    const Root *root = gpu_root(device);
    return root != nullptr && is_root(*root, device) ? CL_SUCCESS : next.clRetainDevice(device);
  });
}

cl_int CL_API_CALL release_device(cl_device_id device) {
  return guarded([&]() -> cl_int {
    const Root *root = gpu_root(device);
    return root != nullptr && is_root(*root, device) ? CL_SUCCESS : next.clReleaseDevice(device);
  });
}

cl_context CL_API_CALL create_context_from_type(const cl_context_properties *properties, cl_device_type type,
                                                void(CL_CALLBACK *notify)(const char *, const void *, std::size_t,
                                                                          void *),
                                                void *user_data, cl_int *status) {
  return guarded(status, [&]() -> cl_context {
    cl_platform_id platform = nullptr;
    for (const auto *property = properties; property != nullptr && *property != 0; property += 2) {
      if (*property == CL_CONTEXT_PLATFORM) {
        platform = reinterpret_cast<cl_platform_id>(property[1]); // NOLINT: OpenCL passes handles as numbers
      }
    }
    prepare();
    const Emulation *known = emulation();
    if (known == nullptr || (platform != nullptr && platform != known->platform)) {
      return next.clCreateContextFromType(properties, type, notify, user_data, status);
    }
    std::vector<cl_device_id> devices(known->roots.size());
    cl_uint count = 0;
    const cl_int found =
        get_device_ids(known->platform, type, static_cast<cl_uint>(devices.size()), devices.data(), &count);
    if (found != CL_SUCCESS) {
      return failed(status, found);
    }
    return next.clCreateContext(properties, count, devices.data(), notify, user_data, status);
  });
}

} // namespace usmq::emulator
