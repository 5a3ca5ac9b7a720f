// Events of commands that end in an error.
//
// The CPU driver crashes when one of its events ends in an error, so it never gets one: the command is replaced by a
// marker, which completes, and the layer answers queries for its event.
#pragma once

#include "guarded.h"

namespace usmq::emulator {

// The status of such an event.
inline constexpr cl_int kCommandFailed = CL_OUT_OF_RESOURCES;

// Marks an event of a queue as that of a failed command. The caller keeps its reference to the event.
void mark_failed(cl_event event, cl_command_queue queue, cl_int status);

// Whether a command would wait for a failed one: by an event, or because it follows it in an in-order queue whose
// failure no wait has reported yet.
bool waits_for_failed(cl_command_queue queue, cl_uint count, const cl_event *events);

// The OpenCL functions that the layer replaces.
cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event *events);
cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info info, std::size_t room, void *to, std::size_t *size);
cl_int CL_API_CALL get_event_profiling_info(cl_event event, cl_profiling_info info, std::size_t room, void *to,
                                            std::size_t *size);
cl_int CL_API_CALL set_event_callback(cl_event event, cl_int type, void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
                                      void *user_data);
cl_int CL_API_CALL release_event(cl_event event);
cl_int CL_API_CALL finish(cl_command_queue queue);

} // namespace usmq::emulator
