// Modules. A native binary carries its SPIR-V behind its end, so that caches of binaries work.
#include "modules.h"

#include "memory.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace front {
namespace {

// The end of a native binary with its source: the source, its size, this.
constexpr char TRAILER[] = "usmq level zero front v1";
constexpr size_t TRAILER_SIZE = sizeof TRAILER;

struct Module {
  ze_device_handle_t device;
  std::string trailer; // empty: a binary without SPIR-V
  std::shared_ptr<Program> program;
  std::vector<void *> variables;
};

std::mutex &one = *new std::mutex;
auto &modules = *new std::unordered_map<ze_module_handle_t, Module>;

std::vector<std::pair<uint32_t, std::string>> constants_of(const std::string &module,
                                                           const ze_module_constants_t *values) {
  std::vector<std::pair<uint32_t, std::string>> result;
  const ModuleFacts facts = values != nullptr && values->numConstants != 0 ? read_spirv(module) : ModuleFacts{};
  for (uint32_t i = 0; values != nullptr && i < values->numConstants; ++i) {
    // Constants of other modules of the same program may be among them.
    const auto found = facts.constants.find(values->pConstantIds[i]);
    if (found != facts.constants.end()) {
      result.emplace_back(found->first,
                          std::string(static_cast<const char *>(values->pConstantValues[i]), found->second));
    }
  }
  return result;
}

void add(Source &source, const uint8_t *module, size_t size, const ze_module_constants_t *constants) {
  source.modules.emplace_back(reinterpret_cast<const char *>(module), size);
  source.constants.push_back(constants_of(source.modules.back(), constants));
}

// The modules of a description in SPIR-V.
Source source_of(const ze_module_desc_t &desc) {
  Source source;
  for (auto *next = static_cast<const ze_base_desc_t *>(desc.pNext); next != nullptr;
       next = static_cast<const ze_base_desc_t *>(next->pNext)) {
    if (next->stype == ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC) {
      const auto &program = *reinterpret_cast<const ze_module_program_exp_desc_t *>(next);
      for (uint32_t i = 0; i < program.count; ++i) {
        add(source, program.pInputModules[i], program.inputSizes[i],
            program.pConstants != nullptr ? program.pConstants[i] : nullptr);
      }
    }
  }
  if (source.modules.empty()) {
    add(source, desc.pInputModule, desc.inputSize, desc.pConstants);
  }
  return source;
}

// The size of the source and the trailer behind a native binary, or 0.
size_t trailer_of(const uint8_t *binary, size_t size) {
  if (size < TRAILER_SIZE + 8 || std::memcmp(binary + size - TRAILER_SIZE, TRAILER, TRAILER_SIZE) != 0) {
    return 0;
  }
  uint64_t source = 0;
  std::memcpy(&source, binary + size - TRAILER_SIZE - 8, 8);
  return source + 8 + TRAILER_SIZE;
}

} // namespace

std::shared_ptr<Program> program_of_module(ze_module_handle_t module) {
  const std::lock_guard<std::mutex> lock(one);
  return modules.at(module).program;
}

ze_device_handle_t device_of_module(ze_module_handle_t module) {
  const std::lock_guard<std::mutex> lock(one);
  return modules.at(module).device;
}

void report_live_modules() {
  const std::lock_guard<std::mutex> lock(one);
  if (!modules.empty()) {
    report("left at exit: " + std::to_string(modules.size()) + " modules");
  }
}

namespace api {

ze_result_t zeModuleCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_module_desc_t *desc,
                           ze_module_handle_t *handle, ze_module_build_log_handle_t *log) {
  ENTER("zeModuleCreate");
  ze_module_desc_t described = *desc;
  Module module{device, {}, nullptr, {}};
  if (desc->format == ZE_MODULE_FORMAT_IL_SPIRV) {
    const Source source = source_of(*desc);
    module.program = program_of(source);
    module.trailer = source.serialize();
  } else if (const size_t size = trailer_of(desc->pInputModule, desc->inputSize)) {
    described.inputSize -= size;
    module.trailer =
        std::string(reinterpret_cast<const char *>(desc->pInputModule) + described.inputSize, size - 8 - TRAILER_SIZE);
    module.program = program_of(Source::parse(module.trailer));
  }
  const ze_result_t result = real().module.pfnCreate(context, device, &described, handle, log);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(one);
    modules[*handle] = module;
  }
  return result;
}

ze_result_t zeModuleDestroy(ze_module_handle_t handle) {
  ENTER("zeModuleDestroy");
  {
    const std::lock_guard<std::mutex> lock(one);
    for (void *variable : modules[handle].variables) {
      remove_variable(variable);
    }
    modules.erase(handle);
  }
  return real().module.pfnDestroy(handle);
}

ze_result_t zeModuleGetNativeBinary(ze_module_handle_t handle, size_t *size, uint8_t *binary) {
  ENTER("zeModuleGetNativeBinary");
  std::string trailer;
  {
    const std::lock_guard<std::mutex> lock(one);
    trailer = modules.at(handle).trailer;
  }
  if (trailer.empty()) {
    return real().module.pfnGetNativeBinary(handle, size, binary);
  }
  size_t real_size = 0;
  if (const ze_result_t result = real().module.pfnGetNativeBinary(handle, &real_size, nullptr)) {
    return result;
  }
  const size_t whole = real_size + trailer.size() + 8 + TRAILER_SIZE;
  if (binary == nullptr) {
    *size = whole;
    return ZE_RESULT_SUCCESS;
  }
  if (*size < whole) {
    return ZE_RESULT_ERROR_INVALID_SIZE;
  }
  const uint64_t source = trailer.size();
  const ze_result_t result = real().module.pfnGetNativeBinary(handle, &real_size, binary);
  std::memcpy(binary + real_size, trailer.data(), trailer.size());
  std::memcpy(binary + real_size + trailer.size(), &source, 8);
  std::memcpy(binary + real_size + trailer.size() + 8, TRAILER, TRAILER_SIZE);
  *size = whole;
  return result;
}

ze_result_t zeModuleGetGlobalPointer(ze_module_handle_t handle, const char *name, size_t *size, void **address) {
  ENTER("zeModuleGetGlobalPointer");
  size_t bytes = 0;
  void *place = nullptr;
  const ze_result_t result = real().module.pfnGetGlobalPointer(handle, name, &bytes, &place);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto program = program_of_module(handle);
  void *contents = program != nullptr ? variable_of(*program, name) : nullptr;
  if (contents == nullptr) {
    refuse(std::string("global variable ") + name);
  }
  {
    const std::lock_guard<std::mutex> lock(one);
    add_variable(place, bytes, contents, modules.at(handle).device);
    modules.at(handle).variables.push_back(place);
  }
  if (size != nullptr) {
    *size = bytes;
  }
  if (address != nullptr) {
    *address = place;
  }
  return ZE_RESULT_SUCCESS;
}

} // namespace api
} // namespace front
