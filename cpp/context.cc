// Contexts: the platform's default context for root devices, others on request only.
#include "usmq/src/ffi.rs.h"

namespace usmq {

std::unique_ptr<Context> context_default(const Device &device) {
  return std::make_unique<Context>(device.get_platform().khr_get_default_context());
}

std::unique_ptr<std::vector<Device>> device_list() { return std::make_unique<std::vector<Device>>(); }

void device_list_push(std::vector<Device> &list, const Device &device) { list.push_back(device); }

std::unique_ptr<Context> context_new(const std::vector<Device> &devices) { return std::make_unique<Context>(devices); }

std::unique_ptr<Context> context_copy_from(std::size_t address) {
  return std::make_unique<Context>(*reinterpret_cast<const sycl::context *>(address));
}

std::size_t context_copy_to_heap(const Context &context) {
  return reinterpret_cast<std::size_t>(new sycl::context(context));
}

void context_free_heap(std::size_t address) { delete reinterpret_cast<sycl::context *>(address); }

rust::String context_backend(const Context &context) { return backend_name(context.get_backend()); }

std::size_t context_id(const Context &context) { return std::hash<Context>{}(context); }

std::unique_ptr<std::vector<Device>> context_devices(const Context &context) {
  return std::make_unique<std::vector<Device>>(context.get_devices());
}

} // namespace usmq
