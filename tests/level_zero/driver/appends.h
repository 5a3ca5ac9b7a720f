// Appends of everything but kernels.
#pragma once

#include <ze_api.h>

namespace front::api {

ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t, void *, const void *, size_t, ze_event_handle_t,
                                          uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendMemoryCopyFromContext(ze_command_list_handle_t, void *, ze_context_handle_t,
                                                     const void *, size_t, ze_event_handle_t, uint32_t,
                                                     ze_event_handle_t *);
ze_result_t zeCommandListAppendMemoryCopyRegion(ze_command_list_handle_t, void *, const ze_copy_region_t *, uint32_t,
                                                uint32_t, const void *, const ze_copy_region_t *, uint32_t, uint32_t,
                                                ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t, void *, const void *, size_t, size_t,
                                          ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t, const void *, size_t);
ze_result_t zeCommandListAppendMemAdvise(ze_command_list_handle_t, ze_device_handle_t, const void *, size_t,
                                         ze_memory_advice_t);
ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t, ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t, uint32_t, const size_t *, const void **,
                                                   ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendSignalEvent(ze_command_list_handle_t, ze_event_handle_t);
ze_result_t zeCommandListAppendWaitOnEvents(ze_command_list_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendEventReset(ze_command_list_handle_t, ze_event_handle_t);
ze_result_t zeCommandListAppendWriteGlobalTimestamp(ze_command_list_handle_t, uint64_t *, ze_event_handle_t, uint32_t,
                                                    ze_event_handle_t *);
ze_result_t zeCommandListAppendQueryKernelTimestamps(ze_command_list_handle_t, uint32_t, ze_event_handle_t *, void *,
                                                     const size_t *, ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeCommandListAppendHostFunction(ze_command_list_handle_t, ze_host_function_callback_t, void *, const void *,
                                            ze_event_handle_t, uint32_t, ze_event_handle_t *);

} // namespace front::api
