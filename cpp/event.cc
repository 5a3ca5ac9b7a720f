// Events: state, waiting, device timestamps.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

Event::Event(sycl::event event) : handle_(std::move(event)), has_handle_(true) {}

Event::Event(const Context &context, Release release) : release_(release), context_(context) {}

Event::~Event() {
  if (native_ != nullptr) {
    release_(native_);
  }
}

sycl::event &Event::handle() const {
  if (!has_handle_.load(std::memory_order_acquire)) {
    // One lock for all events: most never need a SYCL event.
    static std::mutex lock;
    const std::lock_guard<std::mutex> guard(lock);
    if (!handle_) {
      USMQ_FAULT_POINT("sycl::make_event");
      // NOLINTNEXTLINE(bugprone-unchecked-optional-access): an event has a handle or a context
      handle_ = sycl::make_event<sycl::backend::opencl>(std::vector<cl_event>{native_}, *context_);
      has_handle_.store(true, std::memory_order_release);
    }
  }
  return *handle_; // NOLINT(bugprone-unchecked-optional-access): set above
}

namespace {

EventStatus status_of(cl_event event) {
  static const auto info = opencl_entry<decltype(&clGetEventInfo)>("clGetEventInfo");
  cl_int status = CL_QUEUED;
  opencl_check(info(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr), "clGetEventInfo");
  switch (status) {
  case CL_QUEUED:
  case CL_SUBMITTED:
    return EventStatus::Submitted;
  case CL_RUNNING:
    return EventStatus::Running;
  case CL_COMPLETE:
    return EventStatus::Complete;
  default: // an error
    return EventStatus::Unknown;
  }
}

// Waits in the driver. False if libsycl must wait: also for its report of an error.
bool has_waited(const Event &event) {
  if (event.native() == nullptr) {
    return false;
  }
  static const auto wait = opencl_entry<decltype(&clWaitForEvents)>("clWaitForEvents");
  auto *const native = event.native();
  return wait(1, &native) == CL_SUCCESS;
}

} // namespace

std::size_t event_address(const Event &event) { return reinterpret_cast<std::size_t>(&event); }

std::size_t event_handle(const Event &event) { return reinterpret_cast<std::size_t>(&event.handle()); }

EventStatus event_status(const Event &event) {
  if (event.native() != nullptr) {
    return status_of(event.native());
  }
  switch (event.handle().get_info<sycl::info::event::command_execution_status>()) {
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

void event_wait(const Event &event) {
  if (!has_waited(event)) {
    event.handle().wait_and_throw();
  }
}

void event_join(const Event &event) {
  if (!has_waited(event)) {
    event.handle().wait();
  }
}

std::array<std::uint64_t, 3> event_profiling(const Event &event) {
  namespace ask_for = sycl::info::event_profiling;
  const sycl::event &handle = event.handle();
  return {handle.get_profiling_info<ask_for::command_submit>(), handle.get_profiling_info<ask_for::command_start>(),
          handle.get_profiling_info<ask_for::command_end>()};
}

} // namespace usmq
