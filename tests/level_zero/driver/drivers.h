// Driver handles, and the extensions that the front offers.
#pragma once

#include <ze_api.h>

namespace front::api {

ze_result_t zeInit(ze_init_flags_t);
ze_result_t zeDriverGet(uint32_t *, ze_driver_handle_t *);
ze_result_t zeInitDrivers(uint32_t *, ze_driver_handle_t *, ze_init_driver_type_desc_t *);
ze_result_t zeDriverGetProperties(ze_driver_handle_t, ze_driver_properties_t *);
ze_result_t zeDriverGetExtensionFunctionAddress(ze_driver_handle_t, const char *, void **);

} // namespace front::api
