// Platforms, devices and their properties.
#include "usmq/src/ffi.rs.h"

namespace usmq {

const char *backend_name(sycl::backend backend) {
  switch (backend) {
  case sycl::backend::opencl:
    return "opencl";
  case sycl::backend::ext_oneapi_level_zero:
    return "level_zero";
  case sycl::backend::ext_oneapi_cuda:
    return "cuda";
  case sycl::backend::ext_oneapi_hip:
    return "hip";
  case sycl::backend::ext_oneapi_native_cpu:
    return "native_cpu";
  default:
    return "other";
  }
}

namespace {

const char *type_name(const Device &device) {
  switch (device.get_info<sycl::info::device::device_type>()) {
  case sycl::info::device_type::cpu:
    return "cpu";
  case sycl::info::device_type::gpu:
    return "gpu";
  case sycl::info::device_type::accelerator:
    return "accelerator";
  default:
    return "custom";
  }
}

// A driver that cannot answer one query must not hide the device: the result is then zero or empty.
template <typename Info> typename Info::return_type ask(const Device &device) noexcept {
  try {
    return device.get_info<Info>();
  } catch (...) {
    return {};
  }
}

std::unique_ptr<std::vector<Device>> list_of(std::vector<Device> devices) {
  return std::make_unique<std::vector<Device>>(std::move(devices));
}

} // namespace

std::size_t platform_count() { return sycl::platform::get_platforms().size(); }

PlatformInfo platform_info(std::size_t index) {
  const auto platform = sycl::platform::get_platforms().at(index);
  PlatformInfo info;
  info.name = platform.get_info<sycl::info::platform::name>();
  info.vendor = platform.get_info<sycl::info::platform::vendor>();
  info.version = platform.get_info<sycl::info::platform::version>();
  info.backend = backend_name(platform.get_backend());
  return info;
}

std::unique_ptr<std::vector<Device>> platform_devices(std::size_t index) {
  return list_of(sycl::platform::get_platforms().at(index).get_devices());
}

std::unique_ptr<Device> device_copy(const Device &device) { return std::make_unique<Device>(device); }

std::size_t device_id(const Device &device) { return std::hash<Device>{}(device); }

DeviceInfo device_info(const Device &device) {
  namespace ask_for = sycl::info::device;
  DeviceInfo info;
  info.name = ask<ask_for::name>(device);
  info.vendor = ask<ask_for::vendor>(device);
  info.driver_version = ask<ask_for::driver_version>(device);
  info.backend = backend_name(device.get_backend());
  info.device_type = type_name(device);
  info.max_compute_units = ask<ask_for::max_compute_units>(device);
  info.max_work_group_size = ask<ask_for::max_work_group_size>(device);
  info.max_sub_devices = ask<ask_for::partition_max_sub_devices>(device);
  info.global_mem_size = ask<ask_for::global_mem_size>(device);
  info.local_mem_size = ask<ask_for::local_mem_size>(device);
  info.max_alloc_size = ask<ask_for::max_mem_alloc_size>(device);
  info.usm_device = device.has(sycl::aspect::usm_device_allocations);
  info.usm_shared = device.has(sycl::aspect::usm_shared_allocations);
  info.usm_host = device.has(sycl::aspect::usm_host_allocations);
  info.usm_system = device.has(sycl::aspect::usm_system_allocations);
  info.score = sycl::default_selector_v(device);
  return info;
}

rust::Vec<rust::String> device_aspects(const Device &device) {
  using sycl::aspect;
  static constexpr std::pair<aspect, const char *> kAspects[] = {
      {aspect::cpu, "cpu"},
      {aspect::gpu, "gpu"},
      {aspect::accelerator, "accelerator"},
      {aspect::custom, "custom"},
      {aspect::emulated, "emulated"},
      {aspect::fp16, "fp16"},
      {aspect::fp64, "fp64"},
      {aspect::atomic64, "atomic64"},
      {aspect::image, "image"},
      {aspect::online_compiler, "online_compiler"},
      {aspect::online_linker, "online_linker"},
      {aspect::queue_profiling, "queue_profiling"},
      {aspect::usm_device_allocations, "usm_device_allocations"},
      {aspect::usm_host_allocations, "usm_host_allocations"},
      {aspect::usm_atomic_host_allocations, "usm_atomic_host_allocations"},
      {aspect::usm_shared_allocations, "usm_shared_allocations"},
      {aspect::usm_atomic_shared_allocations, "usm_atomic_shared_allocations"},
      {aspect::usm_system_allocations, "usm_system_allocations"},
  };
  rust::Vec<rust::String> names;
  for (const auto &[which, name] : kAspects) {
    if (device.has(which)) {
      names.push_back(name);
    }
  }
  return names;
}

std::unique_ptr<Device> device_parent(const Device &device) {
  namespace ask_for = sycl::info::device;
  if (device.get_info<ask_for::partition_type_property>() == sycl::info::partition_property::no_partition) {
    return nullptr;
  }
  return std::make_unique<Device>(device.get_info<ask_for::parent_device>());
}

std::unique_ptr<std::vector<Device>> device_split_equally(const Device &device, std::size_t compute_units) {
  return list_of(device.create_sub_devices<sycl::info::partition_property::partition_equally>(compute_units));
}

std::unique_ptr<std::vector<Device>> device_split_by_counts(const Device &device,
                                                            rust::Slice<const std::size_t> counts) {
  const std::vector<std::size_t> wanted(counts.begin(), counts.end());
  return list_of(device.create_sub_devices<sycl::info::partition_property::partition_by_counts>(wanted));
}

std::unique_ptr<std::vector<Device>> device_split_by_numa(const Device &device) {
  return list_of(device.create_sub_devices<sycl::info::partition_property::partition_by_affinity_domain>(
      sycl::info::partition_affinity_domain::numa));
}

bool device_enable_peer_access(const Device &device, const Device &peer) {
  // Only the runtime can answer: peer access depends on the bus, not on the context.
  auto handle = device;
  if (!handle.ext_oneapi_can_access_peer(peer, sycl::ext::oneapi::peer_access::access_supported)) {
    return false;
  }
  try {
    handle.ext_oneapi_enable_peer_access(peer);
  } catch (const sycl::exception &error) {
    // Another library has already enabled it.
    if (error.code() != sycl::errc::invalid) {
      throw;
    }
  }
  return true;
}

namespace exp = sycl::ext::oneapi::experimental;

rust::String device_versions(const Device &device) {
  const auto platform = device.get_platform();
  std::string all;
  for (const auto &text :
       {device.get_info<sycl::info::device::name>(), device.get_info<sycl::info::device::vendor>(),
        device.get_info<sycl::info::device::version>(), device.get_info<sycl::info::device::driver_version>(),
        platform.get_info<sycl::info::platform::name>(), platform.get_info<sycl::info::platform::version>()}) {
    all += text + "\n";
  }
  return all;
}

bool device_builds_opencl(const Device &device) {
  auto handle = device;
  return handle.ext_oneapi_can_build(exp::source_language::opencl);
}

bool device_builds_spirv(const Device &device) {
  auto handle = device;
  return handle.ext_oneapi_can_build(exp::source_language::spirv);
}

} // namespace usmq
