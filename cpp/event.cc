// Events: state, waiting, device timestamps.
#include "usmq/src/ffi.rs.h"

namespace usmq {

std::size_t event_address(const Event &event) { return reinterpret_cast<std::size_t>(&event); }

bool event_done(const Event &event) {
  return event.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
}

bool event_pending(const Event &event) {
  const auto status = event.get_info<sycl::info::event::command_execution_status>();
  return status == sycl::info::event_command_status::submitted || status == sycl::info::event_command_status::running;
}

void event_wait(const Event &event) {
  Event handle = event;
  handle.wait_and_throw();
}

void event_join(const Event &event) {
  Event handle = event;
  handle.wait();
}

std::array<std::uint64_t, 3> event_profiling(const Event &event) {
  namespace ask_for = sycl::info::event_profiling;
  return {event.get_profiling_info<ask_for::command_submit>(), event.get_profiling_info<ask_for::command_start>(),
          event.get_profiling_info<ask_for::command_end>()};
}

} // namespace usmq
