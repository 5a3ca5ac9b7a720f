// Intel's driver: its tables, as it filled them.
#pragma once

#include <ze_api.h>
#include <ze_ddi.h>

namespace front {

struct Real {
  ze_driver_dditable_t driver;
  ze_device_dditable_t device;
  ze_context_dditable_t context;
  ze_mem_dditable_t memory;
  ze_event_pool_dditable_t pool;
  ze_event_dditable_t event;
  ze_event_exp_dditable_t event_exp;
  ze_fence_dditable_t fence;
  ze_command_queue_dditable_t queue;
  ze_command_list_dditable_t list;
  ze_command_list_exp_dditable_t list_exp;
  ze_module_dditable_t module;
  ze_kernel_dditable_t kernel;
  ze_kernel_exp_dditable_t kernel_exp;
};

Real &real();

// A function of the real library, or null.
void *real_symbol(const char *name);

// A function that the real driver gives as an extension, or null.
void *real_extension(const char *name);

// Remembers a driver handle, for `real_extension`.
void remember_driver(ze_driver_handle_t driver);

} // namespace front
