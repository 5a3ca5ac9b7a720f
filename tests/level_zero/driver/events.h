// Event pools and events, as the application sees them.
#pragma once

#include "engine.h"

#include <ze_api.h>

#include <memory>

namespace front {

// The event of a handle, or null for a null handle. The caller holds `state`.
std::shared_ptr<Event> find_event(ze_event_handle_t handle);

// Resolves a wait list. The caller holds `state`.
std::vector<Wait> waits_of(uint32_t number, ze_event_handle_t *events);

// Makes the event the one that the command signals. The caller holds `state`.
void will_signal(Command &command, ze_event_handle_t handle, bool immediate);

// What the device of a run writes for its times; zeros for none and for signals by the host.
ze_kernel_timestamp_result_t timestamps(const std::shared_ptr<Run> &run);

// The run that signalled the event, or null. The caller holds `state`.
std::shared_ptr<Run> run_of(const Event &event);

// Ticks of the device's clock at a time in nanoseconds.
uint64_t ticks(uint64_t nanoseconds, ze_device_handle_t device);

void report_live_events();

// Extensions, which have no place in the headers.
ze_result_t counter_based_event(ze_context_handle_t context, ze_device_handle_t device, const void *desc,
                                ze_event_handle_t *event);

namespace api {

ze_result_t zeEventPoolCreate(ze_context_handle_t, const ze_event_pool_desc_t *, uint32_t, ze_device_handle_t *,
                              ze_event_pool_handle_t *);
ze_result_t zeEventPoolDestroy(ze_event_pool_handle_t);
ze_result_t zeEventCreate(ze_event_pool_handle_t, const ze_event_desc_t *, ze_event_handle_t *);
ze_result_t zeEventCounterBasedCreate(ze_context_handle_t, ze_device_handle_t, const ze_event_counter_based_desc_t *,
                                      ze_event_handle_t *);
ze_result_t zeEventDestroy(ze_event_handle_t);
ze_result_t zeEventHostSignal(ze_event_handle_t);
ze_result_t zeEventHostReset(ze_event_handle_t);
ze_result_t zeEventHostSynchronize(ze_event_handle_t, uint64_t);
ze_result_t zeEventQueryStatus(ze_event_handle_t);
ze_result_t zeEventQueryKernelTimestamp(ze_event_handle_t, ze_kernel_timestamp_result_t *);
ze_result_t zeDeviceGetGlobalTimestamps(ze_device_handle_t, uint64_t *, uint64_t *);

} // namespace api
} // namespace front
