// Kernels from SYCL C++, OpenCL C and SPIR-V, through the runtime's kernel compiler.
#include "usmq/src/ffi.rs.h"

#include <cstring>

namespace usmq {

namespace exp = sycl::ext::oneapi::experimental;

namespace {

std::vector<std::string> strings(const rust::Vec<rust::String> &list) {
  std::vector<std::string> strings;
  for (const auto &text : list) {
    strings.emplace_back(text);
  }
  return strings;
}

} // namespace

std::unique_ptr<Bundle> bundle_from_sycl(const Context &context, const Device &device, rust::Str source,
                                         IncludeFile include, const rust::Vec<rust::String> &options,
                                         rust::Str registered) {
  const auto flags = strings(options);
  auto text = exp::create_kernel_bundle_from_source(
      context, exp::source_language::sycl, std::string(source),
      exp::properties{exp::include_files{std::string(include.name), std::string(include.text)}});
  if (registered.empty()) {
    return std::make_unique<Bundle>(exp::build(text, {device}, exp::properties{exp::build_options{flags}}));
  }
  const std::vector<std::string> names{std::string(registered)};
  return std::make_unique<Bundle>(
      exp::build(text, {device}, exp::properties{exp::build_options{flags}, exp::registered_names{names}}));
}

std::unique_ptr<Bundle> bundle_from_opencl(const Context &context, const Device &device, rust::Str source,
                                           const rust::Vec<rust::String> &options) {
  auto text = exp::create_kernel_bundle_from_source(context, exp::source_language::opencl, std::string(source));
  return std::make_unique<Bundle>(exp::build(text, {device}, exp::properties{exp::build_options{strings(options)}}));
}

std::unique_ptr<Bundle> bundle_from_spirv(const Context &context, const Device &device,
                                          rust::Slice<const std::uint8_t> module) {
  std::vector<std::byte> bytes(module.size());
  std::memcpy(bytes.data(), module.data(), module.size());
  auto binary = exp::create_kernel_bundle_from_source(context, exp::source_language::spirv, bytes);
  return std::make_unique<Bundle>(exp::build(binary, {device}));
}

std::unique_ptr<Kernel> bundle_kernel(const Bundle &bundle, rust::Str name) {
  auto handle = bundle;
  const std::string kernel_name(name);
  if (!handle.ext_oneapi_has_kernel(kernel_name)) {
    return nullptr;
  }
  return std::make_unique<Kernel>(Kernel{handle.ext_oneapi_get_kernel(kernel_name), nullptr});
}

std::array<std::size_t, 4> kernel_group_sizes(const Kernel &kernel, const Device &device) {
  namespace info = sycl::info::kernel_device_specific;
  const auto required = kernel.handle.get_info<info::compile_work_group_size>(device);
  return {required[0], required[1], required[2], kernel.handle.get_info<info::work_group_size>(device)};
}

} // namespace usmq
