// Events: state, waiting, device timestamps.
#include "usmq/src/ffi.rs.h"

namespace usmq {

std::size_t event_address(const Event &event) { return reinterpret_cast<std::size_t>(&event); }

namespace {

sycl::info::event_command_status ask(const Event &event) {
  return event.handle.get_info<sycl::info::event::command_execution_status>();
}

// If libsycl submits a held-back command at that moment, a wait returns at once. The next one is the driver's.
template <class Wait> void wait_to_the_end(const Event &event, Wait wait) {
  wait();
  if (ask(event) != sycl::info::event_command_status::complete) {
    wait();
  }
}

} // namespace

EventStatus event_status(const Event &event) {
  auto code = ask(event);
  if (code == sycl::info::event_command_status::complete) {
    // If libsycl submits a held-back command during the query, it answers "complete". Its next answer is the driver's.
    code = ask(event);
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

void event_wait(const Event &event) {
  wait_to_the_end(event, [&event] { event.handle.wait_and_throw(); });
}

void event_join(const Event &event) {
  wait_to_the_end(event, [&event] { event.handle.wait(); });
}

std::array<std::uint64_t, 3> event_profiling(const Event &event) {
  namespace ask_for = sycl::info::event_profiling;
  const sycl::event &handle = event.handle;
  return {handle.get_profiling_info<ask_for::command_submit>(), handle.get_profiling_info<ask_for::command_start>(),
          handle.get_profiling_info<ask_for::command_end>()};
}

} // namespace usmq
