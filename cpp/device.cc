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

namespace {

// Every aspect that the runtime's headers name, without the deprecated ones.
constexpr std::pair<sycl::aspect, const char *> kAspects[] = {
// The header uses this name.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
#define __SYCL_ASPECT(ASPECT, ID) {sycl::aspect::ASPECT, #ASPECT},
#include <sycl/info/aspects.def>
#undef __SYCL_ASPECT
};

bool has(const Device &device, sycl::aspect aspect) {
  try {
    return device.has(aspect);
  } catch (const sycl::exception &error) {
    // A driver that does not know an extension.
    if (error.code() == sycl::errc::feature_not_supported) {
      return false;
    }
    throw;
  }
}

} // namespace

rust::Vec<rust::String> device_aspects(const Device &device) {
  rust::Vec<rust::String> names;
  for (const auto &[which, name] : kAspects) {
    if (has(device, which)) {
      names.push_back(name);
    }
  }
  return names;
}

rust::Vec<rust::String> aspect_names() {
  rust::Vec<rust::String> names;
  for (const auto &[which, name] : kAspects) {
    names.push_back(name);
  }
  return names;
}

namespace {

const char *cache_name(sycl::info::global_mem_cache_type type) {
  switch (type) {
  case sycl::info::global_mem_cache_type::read_only:
    return "read_only";
  case sycl::info::global_mem_cache_type::read_write:
    return "read_write";
  default:
    return "none";
  }
}

const char *local_memory_name(sycl::info::local_mem_type type) {
  switch (type) {
  case sycl::info::local_mem_type::local:
    return "local";
  case sycl::info::local_mem_type::global:
    return "global";
  default:
    return "none";
  }
}

const char *partition_name(sycl::info::partition_property property) {
  switch (property) {
  case sycl::info::partition_property::partition_equally:
    return "partition_equally";
  case sycl::info::partition_property::partition_by_counts:
    return "partition_by_counts";
  case sycl::info::partition_property::partition_by_affinity_domain:
    return "partition_by_affinity_domain";
  default:
    return "other";
  }
}

const char *domain_name(sycl::info::partition_affinity_domain domain) {
  switch (domain) {
  case sycl::info::partition_affinity_domain::numa:
    return "numa";
  case sycl::info::partition_affinity_domain::L4_cache:
    return "L4_cache";
  case sycl::info::partition_affinity_domain::L3_cache:
    return "L3_cache";
  case sycl::info::partition_affinity_domain::L2_cache:
    return "L2_cache";
  case sycl::info::partition_affinity_domain::L1_cache:
    return "L1_cache";
  case sycl::info::partition_affinity_domain::next_partitionable:
    return "next_partitionable";
  default:
    return "other";
  }
}

// Asks for the sizes of work-items; a range has no default to return after a failed query.
template <int N> std::array<std::size_t, N> work_item_sizes(const Device &device) noexcept {
  std::array<std::size_t, N> sizes{};
  try {
    const auto range = device.get_info<sycl::info::device::max_work_item_sizes<N>>();
    for (int i = 0; i < N; ++i) {
      sizes[i] = range[i];
    }
  } catch (...) {
  }
  return sizes;
}

} // namespace

DeviceProperties device_properties(const Device &device) {
  namespace ask_for = sycl::info::device;
  DeviceProperties info;
  info.vendor_id = ask<ask_for::vendor_id>(device);
  info.address_bits = ask<ask_for::address_bits>(device);
  info.max_clock_frequency = ask<ask_for::max_clock_frequency>(device);
  info.max_work_item_dims = ask<ask_for::max_work_item_dimensions>(device);
  info.max_work_item_sizes1d = work_item_sizes<1>(device)[0];
  info.max_work_item_sizes2d = work_item_sizes<2>(device);
  info.max_work_item_sizes3d = work_item_sizes<3>(device);
  info.max_num_sub_groups = ask<ask_for::max_num_sub_groups>(device);
  for (const auto size : ask<ask_for::sub_group_sizes>(device)) {
    info.sub_group_sizes.push_back(size);
  }
  info.sub_group_independent_forward_progress = ask<ask_for::sub_group_independent_forward_progress>(device);
  info.preferred_vector_widths = {
      ask<ask_for::preferred_vector_width_char>(device),  ask<ask_for::preferred_vector_width_short>(device),
      ask<ask_for::preferred_vector_width_int>(device),   ask<ask_for::preferred_vector_width_long>(device),
      ask<ask_for::preferred_vector_width_float>(device), ask<ask_for::preferred_vector_width_double>(device),
      ask<ask_for::preferred_vector_width_half>(device),
  };
  info.native_vector_widths = {
      ask<ask_for::native_vector_width_char>(device),  ask<ask_for::native_vector_width_short>(device),
      ask<ask_for::native_vector_width_int>(device),   ask<ask_for::native_vector_width_long>(device),
      ask<ask_for::native_vector_width_float>(device), ask<ask_for::native_vector_width_double>(device),
      ask<ask_for::native_vector_width_half>(device),
  };
  info.global_mem_cache_type = cache_name(ask<ask_for::global_mem_cache_type>(device));
  info.global_mem_cache_line_size = ask<ask_for::global_mem_cache_line_size>(device);
  info.global_mem_cache_size = ask<ask_for::global_mem_cache_size>(device);
  info.local_mem_type = local_memory_name(ask<ask_for::local_mem_type>(device));
  info.mem_base_addr_align = ask<ask_for::mem_base_addr_align>(device);
  info.error_correction_support = ask<ask_for::error_correction_support>(device);
  info.max_parameter_size = ask<ask_for::max_parameter_size>(device);
  info.max_samplers = ask<ask_for::max_samplers>(device);
  info.max_read_image_args = ask<ask_for::max_read_image_args>(device);
  info.max_write_image_args = ask<ask_for::max_write_image_args>(device);
  info.image_2d_max = {ask<ask_for::image2d_max_width>(device), ask<ask_for::image2d_max_height>(device)};
  info.image_3d_max = {ask<ask_for::image3d_max_width>(device), ask<ask_for::image3d_max_height>(device),
                       ask<ask_for::image3d_max_depth>(device)};
  info.profiling_timer_resolution = ask<ask_for::profiling_timer_resolution>(device);
  for (const auto property : ask<ask_for::partition_properties>(device)) {
    info.partition_properties.push_back(partition_name(property));
  }
  for (const auto domain : ask<ask_for::partition_affinity_domains>(device)) {
    info.partition_affinity_domains.push_back(domain_name(domain));
  }
  return info;
}

rust::Vec<NamedNumber> device_intel_info(const Device &device) {
  namespace ask_for = sycl::ext::intel::info::device;
  using sycl::aspect;
  rust::Vec<NamedNumber> numbers;
  const auto add = [&](const char *name, aspect needed, auto number) {
    if (has(device, needed)) {
      numbers.push_back({name, static_cast<std::uint64_t>(number())});
    }
  };
  add("device_id", aspect::ext_intel_device_id, [&] { return ask<ask_for::device_id>(device); });
  // The CPU driver claims some of these aspects.
  if (device.is_gpu()) {
    add("gpu_eu_count", aspect::ext_intel_gpu_eu_count, [&] { return ask<ask_for::gpu_eu_count>(device); });
    add("gpu_hw_threads_per_eu", aspect::ext_intel_gpu_hw_threads_per_eu,
        [&] { return ask<ask_for::gpu_hw_threads_per_eu>(device); });
    add("gpu_eu_count_per_subslice", aspect::ext_intel_gpu_eu_count_per_subslice,
        [&] { return ask<ask_for::gpu_eu_count_per_subslice>(device); });
    add("gpu_eu_simd_width", aspect::ext_intel_gpu_eu_simd_width,
        [&] { return ask<ask_for::gpu_eu_simd_width>(device); });
    add("gpu_slices", aspect::ext_intel_gpu_slices, [&] { return ask<ask_for::gpu_slices>(device); });
    add("gpu_subslices_per_slice", aspect::ext_intel_gpu_subslices_per_slice,
        [&] { return ask<ask_for::gpu_subslices_per_slice>(device); });
  }
  add("max_mem_bandwidth", aspect::ext_intel_max_mem_bandwidth,
      [&] { return ask<ask_for::max_mem_bandwidth>(device); });
  add("free_memory", aspect::ext_intel_free_memory, [&] { return ask<ask_for::free_memory>(device); });
  add("memory_clock_rate", aspect::ext_intel_memory_clock_rate,
      [&] { return ask<ask_for::memory_clock_rate>(device); });
  add("memory_bus_width", aspect::ext_intel_memory_bus_width, [&] { return ask<ask_for::memory_bus_width>(device); });
  return numbers;
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
