// Events: state, waiting, device timestamps.
#include "usmq/src/ffi.rs.h"

namespace usmq {

std::size_t event_address(const Event &event) { return reinterpret_cast<std::size_t>(&event); }

EventStatus event_status(const Event &event) {
  switch (event.get_info<sycl::info::event::command_execution_status>()) {
  case sycl::info::event_command_status::submitted:
    return EventStatus::Submitted;
  case sycl::info::event_command_status::running:
    return EventStatus::Running;
  case sycl::info::event_command_status::complete:
    return EventStatus::Complete;
  default:
    return EventStatus::Unknown;
  }
}

// SYCL's waits are not const, although they may be called from any thread; no event of usmq is a const object.
void event_wait(const Event &event) { const_cast<Event &>(event).wait_and_throw(); }

void event_join(const Event &event) { const_cast<Event &>(event).wait(); }

std::array<std::uint64_t, 3> event_profiling(const Event &event) {
  namespace ask_for = sycl::info::event_profiling;
  return {event.get_profiling_info<ask_for::command_submit>(), event.get_profiling_info<ask_for::command_start>(),
          event.get_profiling_info<ask_for::command_end>()};
}

} // namespace usmq
