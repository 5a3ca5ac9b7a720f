// Events: state, waiting, device timestamps.
#include "usmq/src/ffi.rs.h"

namespace usmq {

std::size_t event_address(const Event &event) { return reinterpret_cast<std::size_t>(&event); }

EventStatus event_status(const Event &event) {
  using status = sycl::info::event::command_execution_status;
  auto code = event.handle.get_info<status>();
  if (code == sycl::info::event_command_status::complete) {
    // If libsycl submits a held-back command during the query, it answers "complete". Its next answer is the driver's.
    code = event.handle.get_info<status>();
  }
  switch (code) {
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

// An event without an object of the driver has no references.
bool event_is_with_driver(const Event &event) {
  return event.handle.get_info<sycl::info::event::reference_count>() > 0;
}

// If libsycl submits a held-back command at that moment, a wait returns at once. The next one is the driver's.
void event_wait(const Event &event) {
  event.handle.wait_and_throw();
  if (event_status(event) != EventStatus::Complete) {
    event.handle.wait_and_throw();
  }
}

void event_join(const Event &event) {
  event.handle.wait();
  if (event_status(event) != EventStatus::Complete) {
    event.handle.wait();
  }
}

std::array<std::uint64_t, 3> event_profiling(const Event &event) {
  namespace ask_for = sycl::info::event_profiling;
  const sycl::event &handle = event.handle;
  return {handle.get_profiling_info<ask_for::command_submit>(), handle.get_profiling_info<ask_for::command_start>(),
          handle.get_profiling_info<ask_for::command_end>()};
}

} // namespace usmq
