// Kernels: an append goes to the real driver, then an engine runs the module's SPIR-V on the CPU.
#include "kernels.h"

#include "lists.h"
#include "memory.h"
#include "modules.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace front {
namespace {

struct Kernel {
  Launch next; // all but the number of groups
};

std::mutex &one = *new std::mutex;
auto &kernels = *new std::unordered_map<ze_kernel_handle_t, Kernel>;

// Bytes with each pointer to device memory replaced by the place of its contents.
std::string with_host_addresses(std::string bytes, ze_device_handle_t device, const std::string &command,
                                std::vector<Memory> *used) {
  for (size_t at = 0; at + sizeof(void *) <= bytes.size(); at += sizeof(void *)) {
    const void *address = nullptr;
    std::memcpy(&address, bytes.data() + at, sizeof address);
    if (address != nullptr) {
      address = resolve_pointer(address, device, command, used);
      std::memcpy(bytes.data() + at, &address, sizeof address);
    }
  }
  return bytes;
}

void run(const Launch &launch) {
  const std::string command = "kernel " + launch.name;
  const std::vector<Parameter> *parameters = parameters_of(*launch.program, launch.name);
  if (parameters == nullptr) {
    refuse(command + ", which its SPIR-V does not have");
  }
  std::vector<Memory> used;
  std::vector<Argument> arguments = launch.arguments;
  arguments.resize(parameters->size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Parameter::Kind kind = (*parameters)[i].kind;
    if (kind == Parameter::Pointer || kind == Parameter::Structure) {
      arguments[i].bytes = with_host_addresses(arguments[i].bytes, launch.device, command, &used);
    }
  }
  size_t global[3];
  for (int d = 0; d < 3; ++d) {
    global[d] = launch.groups[d] * launch.local[d];
  }
  if (global[0] * global[1] * global[2] == 0) {
    return;
  }
  run_kernel(*launch.program, launch.name, arguments, launch.offset, global, launch.local);
  for (const Memory &memory : used) {
    check_guards(memory, command);
    if (memory->freed) {
      report("memory is freed too early: " + command + " has used memory at " + hexadecimal(memory->base));
    }
  }
}

// Launches with the kernel's present arguments and sizes.
std::shared_ptr<Launch> launch_of(ze_kernel_handle_t kernel, const ze_group_count_t &groups) {
  const std::lock_guard<std::mutex> lock(one);
  auto launch = std::make_shared<Launch>(kernels.at(kernel).next);
  launch->groups[0] = groups.groupCountX;
  launch->groups[1] = groups.groupCountY;
  launch->groups[2] = groups.groupCountZ;
  return launch;
}

// The launches of mutable lists, by list and number.
auto &changeable =
    *new std::unordered_map<ze_command_list_handle_t, std::unordered_map<uint64_t, std::shared_ptr<Launch>>>;

std::string sizes_of(const size_t (&extents)[3]) {
  return std::to_string(extents[0]) + "x" + std::to_string(extents[1]) + "x" + std::to_string(extents[2]);
}

ze_result_t append_launch(ze_command_list_handle_t list, const std::shared_ptr<Launch> &launch,
                          ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events) {
  if (launch->program == nullptr) {
    refuse("kernel " + launch->name + " of a module that is not SPIR-V");
  }
  prepare(*launch->program);
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(state);
    const List &found = find_list(list);
    launch->device = found.device;
    id = found.next_id;
  }
  if (id != 0) {
    const std::lock_guard<std::mutex> lock(one);
    changeable[list][id] = launch;
  }
  const std::string sizes = " of " + sizes_of(launch->groups) + " groups of " + sizes_of(launch->local);
  return append(list, {"kernel " + launch->name + sizes, signal, waits, events, [launch] { run(*launch); }});
}

void set_argument(Argument &argument, size_t size, const void *value) {
  argument.set = true;
  argument.null = value == nullptr;
  argument.bytes = value != nullptr ? std::string(static_cast<const char *>(value), size) : std::string(size, '\0');
}

} // namespace

void report_live_kernels() {
  const std::lock_guard<std::mutex> lock(one);
  if (!kernels.empty()) {
    report("left at exit: " + std::to_string(kernels.size()) + " kernels");
  }
}

namespace api {

ze_result_t zeKernelCreate(ze_module_handle_t module, const ze_kernel_desc_t *desc, ze_kernel_handle_t *handle) {
  ENTER("zeKernelCreate");
  const ze_result_t result = real().kernel.pfnCreate(module, desc, handle);
  if (result == ZE_RESULT_SUCCESS) {
    Kernel kernel;
    kernel.next.name = desc->pKernelName;
    kernel.next.program = program_of_module(module);
    const std::lock_guard<std::mutex> lock(one);
    kernels[*handle] = kernel;
  }
  return result;
}

ze_result_t zeKernelDestroy(ze_kernel_handle_t handle) {
  ENTER("zeKernelDestroy");
  {
    const std::lock_guard<std::mutex> lock(one);
    kernels.erase(handle);
  }
  return real().kernel.pfnDestroy(handle);
}

ze_result_t zeKernelSetGroupSize(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
  ENTER("zeKernelSetGroupSize");
  const ze_result_t result = real().kernel.pfnSetGroupSize(handle, x, y, z);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(one);
    size_t *local = kernels.at(handle).next.local;
    local[0] = x, local[1] = y, local[2] = z;
  }
  return result;
}

ze_result_t zeKernelSetArgumentValue(ze_kernel_handle_t handle, uint32_t index, size_t size, const void *value) {
  ENTER("zeKernelSetArgumentValue");
  const ze_result_t result = real().kernel.pfnSetArgumentValue(handle, index, size, value);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(one);
    auto &arguments = kernels.at(handle).next.arguments;
    if (arguments.size() <= index) {
      arguments.resize(index + 1);
    }
    set_argument(arguments[index], size, value);
  }
  return result;
}

ze_result_t zeKernelSetGlobalOffsetExp(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
  ENTER("zeKernelSetGlobalOffsetExp");
  const ze_result_t result = real().kernel_exp.pfnSetGlobalOffsetExp(handle, x, y, z);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(one);
    size_t *offset = kernels.at(handle).next.offset;
    offset[0] = x, offset[1] = y, offset[2] = z;
  }
  return result;
}

ze_result_t zeCommandListAppendLaunchKernel(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                                            const ze_group_count_t *groups, ze_event_handle_t signal, uint32_t waits,
                                            ze_event_handle_t *events) {
  ENTER("zeCommandListAppendLaunchKernel");
  const ze_result_t result = real().list.pfnAppendLaunchKernel(list, kernel, groups, signal, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append_launch(list, launch_of(kernel, *groups), signal, waits, events);
}

ze_result_t zeCommandListAppendLaunchCooperativeKernel(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                                                       const ze_group_count_t *groups, ze_event_handle_t signal,
                                                       uint32_t waits, ze_event_handle_t *events) {
  ENTER("zeCommandListAppendLaunchCooperativeKernel");
  if (uint64_t{groups->groupCountX} * groups->groupCountY * groups->groupCountZ > 1) {
    refuse("a cooperative launch, whose groups wait for each other");
  }
  const ze_result_t result = real().list.pfnAppendLaunchCooperativeKernel(list, kernel, groups, signal, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append_launch(list, launch_of(kernel, *groups), signal, waits, events);
}

ze_result_t zeCommandListAppendLaunchKernelWithParameters(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                                                          const ze_group_count_t *groups, const void *next,
                                                          ze_event_handle_t signal, uint32_t waits,
                                                          ze_event_handle_t *events) {
  ENTER("zeCommandListAppendLaunchKernelWithParameters");
  if (next != nullptr) {
    refuse("zeCommandListAppendLaunchKernelWithParameters with extensions");
  }
  const ze_result_t result =
      real().list.pfnAppendLaunchKernelWithParameters(list, kernel, groups, next, signal, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append_launch(list, launch_of(kernel, *groups), signal, waits, events);
}

ze_result_t zeCommandListAppendLaunchKernelWithArguments(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                                                         const ze_group_count_t groups, const ze_group_size_t sizes,
                                                         void **values, const void *next, ze_event_handle_t signal,
                                                         uint32_t waits, ze_event_handle_t *events) {
  ENTER("zeCommandListAppendLaunchKernelWithArguments");
  if (next != nullptr) {
    refuse("zeCommandListAppendLaunchKernelWithArguments with extensions");
  }
  const ze_result_t result =
      real().list.pfnAppendLaunchKernelWithArguments(list, kernel, groups, sizes, values, next, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto launch = launch_of(kernel, groups);
  launch->local[0] = sizes.groupSizeX, launch->local[1] = sizes.groupSizeY, launch->local[2] = sizes.groupSizeZ;
  const auto *parameters = launch->program != nullptr ? parameters_of(*launch->program, launch->name) : nullptr;
  launch->arguments.assign(parameters != nullptr ? parameters->size() : 0, Argument{});
  for (size_t i = 0; i < launch->arguments.size(); ++i) {
    const Parameter &parameter = (*parameters)[i];
    if (parameter.kind == Parameter::Local) {
      // The value is the size.
      set_argument(launch->arguments[i], values[i] != nullptr ? *static_cast<size_t *>(values[i]) : 0, nullptr);
    } else {
      set_argument(launch->arguments[i], parameter.size, values[i]);
    }
  }
  return append_launch(list, launch, signal, waits, events);
}

ze_result_t zeCommandListGetNextCommandIdExp(ze_command_list_handle_t list,
                                             const ze_mutable_command_id_exp_desc_t *desc, uint64_t *id) {
  ENTER("zeCommandListGetNextCommandIdExp");
  const ze_result_t result = real().list_exp.pfnGetNextCommandIdExp(list, desc, id);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(state);
    find_list(list).next_id = *id + 1;
  }
  return result;
}

ze_result_t zeCommandListUpdateMutableCommandsExp(ze_command_list_handle_t list,
                                                  const ze_mutable_commands_exp_desc_t *desc) {
  ENTER("zeCommandListUpdateMutableCommandsExp");
  const ze_result_t result = real().list_exp.pfnUpdateMutableCommandsExp(list, desc);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const std::lock_guard<std::mutex> lock(one);
  for (auto *next = static_cast<const ze_base_desc_t *>(desc->pNext); next != nullptr;
       next = static_cast<const ze_base_desc_t *>(next->pNext)) {
    const auto launch = [&](uint64_t id) -> Launch & {
      const auto found = changeable[list].find(id + 1);
      if (found == changeable[list].end()) {
        refuse("a change of a command other than a kernel");
      }
      return *found->second;
    };
    switch (next->stype) {
    case ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC: {
      const auto &change = *reinterpret_cast<const ze_mutable_kernel_argument_exp_desc_t *>(next);
      auto &arguments = launch(change.commandId).arguments;
      if (arguments.size() <= change.argIndex) {
        arguments.resize(change.argIndex + 1);
      }
      set_argument(arguments[change.argIndex], change.argSize, change.pArgValue);
      break;
    }
    case ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC: {
      const auto &change = *reinterpret_cast<const ze_mutable_group_count_exp_desc_t *>(next);
      size_t *groups = launch(change.commandId).groups;
      groups[0] = change.pGroupCount->groupCountX;
      groups[1] = change.pGroupCount->groupCountY;
      groups[2] = change.pGroupCount->groupCountZ;
      break;
    }
    case ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC: {
      const auto &change = *reinterpret_cast<const ze_mutable_group_size_exp_desc_t *>(next);
      size_t *local = launch(change.commandId).local;
      local[0] = change.groupSizeX, local[1] = change.groupSizeY, local[2] = change.groupSizeZ;
      break;
    }
    case ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC: {
      const auto &change = *reinterpret_cast<const ze_mutable_global_offset_exp_desc_t *>(next);
      size_t *offset = launch(change.commandId).offset;
      offset[0] = change.offsetX, offset[1] = change.offsetY, offset[2] = change.offsetZ;
      break;
    }
    default:
      refuse("zeCommandListUpdateMutableCommandsExp with structure " + std::to_string(next->stype));
    }
  }
  return ZE_RESULT_SUCCESS;
}

} // namespace api
} // namespace front
