// Two devices that one context can have, without a GPU: sub-devices of the CPU device.
#pragma once

#include <sycl/sycl.hpp>
#include <vector>

namespace upstream {

// None where the device cannot be divided.
inline std::vector<sycl::device> two_parts() {
  try {
    auto parts = sycl::device().create_sub_devices<sycl::info::partition_property::partition_equally>(1);
    if (parts.size() >= 2) {
      return {parts[0], parts[1]};
    }
  } catch (const sycl::exception &) {
    // One core, or a device of another kind.
  }
  return {};
}

} // namespace upstream
