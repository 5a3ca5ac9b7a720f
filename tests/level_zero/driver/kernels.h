// Kernels: their arguments and sizes, and their launches.
#pragma once

#include "opencl.h"

#include <ze_api.h>

#include <memory>
#include <string>
#include <vector>

namespace front {

// What one launch needs; the parts that a mutable list can change are changed here.
struct Launch {
  std::string name;
  std::shared_ptr<Program> program;
  ze_device_handle_t device = nullptr;
  std::vector<Argument> arguments;
  size_t groups[3] = {1, 1, 1};
  size_t local[3] = {1, 1, 1};
  size_t offset[3] = {0, 0, 0};
};

void report_live_kernels();

namespace api {

ze_result_t zeKernelCreate(ze_module_handle_t, const ze_kernel_desc_t *, ze_kernel_handle_t *);
ze_result_t zeKernelDestroy(ze_kernel_handle_t);
ze_result_t zeKernelSetGroupSize(ze_kernel_handle_t, uint32_t, uint32_t, uint32_t);
ze_result_t zeKernelSetArgumentValue(ze_kernel_handle_t, uint32_t, size_t, const void *);
ze_result_t zeKernelSetGlobalOffsetExp(ze_kernel_handle_t, uint32_t, uint32_t, uint32_t);
ze_result_t zeCommandListAppendLaunchKernel(ze_command_list_handle_t, ze_kernel_handle_t, const ze_group_count_t *,
                                            ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendLaunchCooperativeKernel(ze_command_list_handle_t, ze_kernel_handle_t,
                                                       const ze_group_count_t *, ze_event_handle_t, uint32_t,
                                                       ze_event_handle_t *);
ze_result_t zeCommandListAppendLaunchKernelWithParameters(ze_command_list_handle_t, ze_kernel_handle_t,
                                                          const ze_group_count_t *, const void *, ze_event_handle_t,
                                                          uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendLaunchKernelWithArguments(ze_command_list_handle_t, ze_kernel_handle_t,
                                                         const ze_group_count_t, const ze_group_size_t, void **,
                                                         const void *, ze_event_handle_t, uint32_t,
                                                         ze_event_handle_t *);
ze_result_t zeCommandListGetNextCommandIdExp(ze_command_list_handle_t, const ze_mutable_command_id_exp_desc_t *,
                                             uint64_t *);
ze_result_t zeCommandListUpdateMutableCommandsExp(ze_command_list_handle_t, const ze_mutable_commands_exp_desc_t *);

} // namespace api
} // namespace front
