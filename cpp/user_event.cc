// User events: those of OpenCL, and the choice by backend.
#include "level_zero.h"
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// OpenCL counts references: the driver keeps it until no command waits for it.
class OpenClUserEvent : public UserEvent {
public:
  explicit OpenClUserEvent(const Context &context) : context_(context) {
    const auto create = opencl_entry<decltype(&clCreateUserEvent)>("clCreateUserEvent");
    Owned<cl_context> native("clReleaseContext");
    native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
    cl_int error = CL_SUCCESS;
    native_.object = create(native.object, &error);
    opencl_check(error, "clCreateUserEvent");
  }

  sycl::event event() const override {
    USMQ_FAULT_POINT("sycl::make_event");
    return sycl::make_event<sycl::backend::opencl>(std::vector<cl_event>{native_.object}, context_);
  }

  void signal() const override {
    static const auto set = opencl_entry<decltype(&clSetUserEventStatus)>("clSetUserEventStatus");
    opencl_check(set(native_.object, CL_COMPLETE), "clSetUserEventStatus");
  }

  void reset() const override {
    throw sycl::exception(sycl::make_error_code(sycl::errc::feature_not_supported),
                          "OpenCL has no function that resets a user event");
  }

private:
  Context context_;
  Owned<cl_event> native_{"clReleaseEvent"};
};

class OpenClUserEvents : public UserEvents {
public:
  explicit OpenClUserEvents(const Context &context) : context_(context) {}
  std::unique_ptr<UserEvent> create() const override { return std::make_unique<OpenClUserEvent>(context_); }

private:
  Context context_;
};

} // namespace

std::unique_ptr<UserEvents> user_events_new(const Context &context) {
  switch (context.get_backend()) {
  case sycl::backend::opencl:
    return std::make_unique<OpenClUserEvents>(context);
  case sycl::backend::ext_oneapi_level_zero:
    return level_zero_user_events(context);
  default:
    throw sycl::exception(sycl::make_error_code(sycl::errc::feature_not_supported),
                          std::string("no user events on the backend ") + backend_name(context.get_backend()));
  }
}

std::unique_ptr<UserEvent> user_event_new(const UserEvents &user_events) { return user_events.create(); }

std::unique_ptr<Event> user_event_event(const UserEvent &user_event) { return own(user_event.event()); }

void user_event_signal(const UserEvent &user_event) { user_event.signal(); }

void user_event_reset(const UserEvent &user_event) { user_event.reset(); }

} // namespace usmq
