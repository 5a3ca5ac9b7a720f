// Driver handles and extensions: what the front carries out, what goes to the real driver, and what is refused.
#include "drivers.h"

#include "appends.h"
#include "events.h"
#include "kernels.h"
#include "lists.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace front {
namespace {

struct Extension {
  const char *name;
  void *function; // null: the real driver's, which has no effect on memory or order
};

template <class Function> void *address(Function *function) { return reinterpret_cast<void *>(function); }

const std::vector<Extension> &extensions() {
  static const std::vector<Extension> all{
      {"zexCounterBasedEventCreate2", address(&counter_based_event)},
      {"zeCommandListAppendHostFunction", address(&api::zeCommandListAppendHostFunction)},
      {"zeCommandListImmediateAppendCommandListsExp", address(&api::zeCommandListImmediateAppendCommandListsExp)},
      {"zeKernelSetGlobalOffsetExp", address(&api::zeKernelSetGlobalOffsetExp)},
      {"zeCommandListGetNextCommandIdExp", address(&api::zeCommandListGetNextCommandIdExp)},
      {"zeCommandListUpdateMutableCommandsExp", address(&api::zeCommandListUpdateMutableCommandsExp)},
      // Imported memory stays ordinary host memory.
      {"zexDriverImportExternalPointer", nullptr},
      {"zexDriverReleaseImportedPointer", nullptr},
      {"zexDriverGetHostPointerBaseAddress", nullptr},
      {"zeIntelGetDriverVersionString", nullptr},
      {"zeDeviceGetPriorityLevels", nullptr},
      {"zexKernelGetArgumentSize", nullptr},
      {"zexKernelGetArgumentType", nullptr},
      {"zeKernelGetModuleHandleExt", nullptr},
      {"zeModuleGetDeviceHandleExt", nullptr},
      {"zeCommandListGetDeviceHandle", nullptr},
      {"zeCommandListGetContextHandle", nullptr},
      {"zeCommandListGetOrdinal", nullptr},
      {"zeCommandListIsImmediate", nullptr},
      {"zexDeviceGetAggregatedCopyOffloadIncrementValue", nullptr},
      {"zeEventGetCounterBasedFlags", nullptr},
  };
  return all;
}

// Functions that end the process with the name that they were asked for by.
constexpr size_t REFUSALS = 128;
std::array<std::string, REFUSALS> refused_names;

template <size_t N> void refusal() { refuse(refused_names[N]); }

template <size_t... N> constexpr std::array<void (*)(), REFUSALS> refusals(std::index_sequence<N...>) {
  return {&refusal<N>...};
}

void *refusal_of(const char *name) {
  static std::mutex one;
  static size_t used = 0;
  static constexpr auto functions = refusals(std::make_index_sequence<REFUSALS>{});
  const std::lock_guard<std::mutex> lock(one);
  for (size_t i = 0; i < used; ++i) {
    if (refused_names[i] == name) {
      return address(functions[i]);
    }
  }
  if (used == REFUSALS) {
    refuse(name);
  }
  refused_names[used] = name;
  return address(functions[used++]);
}

ze_result_t remember(ze_result_t result, const uint32_t *number, ze_driver_handle_t *drivers) {
  if (result == ZE_RESULT_SUCCESS && drivers != nullptr && *number != 0) {
    remember_driver(drivers[0]);
  }
  return result;
}

} // namespace

namespace api {

ze_result_t zeInit(ze_init_flags_t flags) {
  static const auto function = reinterpret_cast<decltype(&api::zeInit)>(real_symbol("zeInit"));
  return function(flags);
}

ze_result_t zeInitDrivers(uint32_t *number, ze_driver_handle_t *drivers, ze_init_driver_type_desc_t *desc) {
  static const auto function = reinterpret_cast<decltype(&api::zeInitDrivers)>(real_symbol("zeInitDrivers"));
  return remember(function(number, drivers, desc), number, drivers);
}

ze_result_t zeDriverGet(uint32_t *number, ze_driver_handle_t *drivers) {
  return remember(real().driver.pfnGet(number, drivers), number, drivers);
}

// The loader would call the real driver through its handles if it said that they have tables.
ze_result_t zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t *properties) {
  const ze_result_t result = real().driver.pfnGetProperties(driver, properties);
  for (auto *next = static_cast<ze_base_properties_t *>(properties->pNext); next != nullptr;
       next = static_cast<ze_base_properties_t *>(next->pNext)) {
    if (next->stype == ZE_STRUCTURE_TYPE_DRIVER_DDI_HANDLES_EXT_PROPERTIES) {
      reinterpret_cast<ze_driver_ddi_handles_ext_properties_t *>(next)->flags = 0;
    }
  }
  return result;
}

ze_result_t zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name, void **function) {
  const ze_result_t result = real().driver.pfnGetExtensionFunctionAddress(driver, name, function);
  if (switches().trace) {
    std::fprintf(stderr, "zeDriverGetExtensionFunctionAddress(%s): %x\n", name, result);
  }
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  for (const Extension &extension : extensions()) {
    if (std::strcmp(extension.name, name) == 0) {
      if (extension.function != nullptr) {
        *function = extension.function;
      }
      return ZE_RESULT_SUCCESS;
    }
  }
  *function = refusal_of(name);
  return ZE_RESULT_SUCCESS;
}

} // namespace api
} // namespace front
