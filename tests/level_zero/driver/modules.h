// Modules: Intel's compiler checks them; their SPIR-V is kept for the CPU.
#pragma once

#include "opencl.h"

#include <ze_api.h>

#include <memory>
#include <string>

namespace front {

// The program of a module, or null for a module that is not SPIR-V.
std::shared_ptr<Program> program_of_module(ze_module_handle_t module);

ze_device_handle_t device_of_module(ze_module_handle_t module);

void report_live_modules();

namespace api {

ze_result_t zeModuleCreate(ze_context_handle_t, ze_device_handle_t, const ze_module_desc_t *, ze_module_handle_t *,
                           ze_module_build_log_handle_t *);
ze_result_t zeModuleDestroy(ze_module_handle_t);
ze_result_t zeModuleGetNativeBinary(ze_module_handle_t, size_t *, uint8_t *);
ze_result_t zeModuleGetGlobalPointer(ze_module_handle_t, const char *, size_t *, void **);

} // namespace api
} // namespace front
