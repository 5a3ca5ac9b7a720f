// Kernels from SYCL C++ source, through the runtime compiler.
#include "usmq/src/ffi.rs.h"

namespace usmq {

namespace exp = sycl::ext::oneapi::experimental;

std::unique_ptr<Bundle> bundle_from_sycl(const Context &context, const Device &device, rust::Str source,
                                         const rust::Vec<rust::String> &options, rust::Str registered) {
  std::vector<std::string> flags;
  for (const auto &option : options) {
    flags.emplace_back(option);
  }
  auto text = exp::create_kernel_bundle_from_source(context, exp::source_language::sycl, std::string(source));
  if (registered.empty()) {
    return std::make_unique<Bundle>(exp::build(text, {device}, exp::properties{exp::build_options{flags}}));
  }
  const std::vector<std::string> names{std::string(registered)};
  return std::make_unique<Bundle>(
      exp::build(text, {device}, exp::properties{exp::build_options{flags}, exp::registered_names{names}}));
}

std::unique_ptr<Kernel> bundle_kernel(const Bundle &bundle, rust::Str name) {
  auto handle = bundle;
  const std::string kernel_name(name);
  if (!handle.ext_oneapi_has_kernel(kernel_name)) {
    return nullptr;
  }
  return std::make_unique<Kernel>(handle.ext_oneapi_get_kernel(kernel_name));
}

} // namespace usmq
