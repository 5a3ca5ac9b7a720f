// Unified shared memory: kinds, and what the runtime knows of a pointer.
#include "usmq/src/ffi.rs.h"

namespace usmq {

UsmSource::UsmSource(std::uint8_t code, const Device &on, const Context &in, const UsmBudget &of)
    : kind(static_cast<UsmCode>(code) == UsmCode::Host     ? sycl::usm::alloc::host
           : static_cast<UsmCode>(code) == UsmCode::Shared ? sycl::usm::alloc::shared
                                                           : sycl::usm::alloc::device),
      device(on), context(in), budget(of) {}

std::uint8_t usm_kind(std::size_t pointer, const Context &context) {
  switch (sycl::get_pointer_type(reinterpret_cast<const void *>(pointer), context)) {
  case sycl::usm::alloc::host:
    return static_cast<std::uint8_t>(UsmCode::Host);
  case sycl::usm::alloc::device:
    return static_cast<std::uint8_t>(UsmCode::Device);
  case sycl::usm::alloc::shared:
    return static_cast<std::uint8_t>(UsmCode::Shared);
  default:
    return static_cast<std::uint8_t>(UsmCode::Unknown);
  }
}

std::unique_ptr<Device> usm_device(std::size_t pointer, const Context &context) {
  return std::make_unique<Device>(sycl::get_pointer_device(reinterpret_cast<const void *>(pointer), context));
}

} // namespace usmq
