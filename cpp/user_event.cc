// Events that the host completes. SYCL lacks them; OpenCL has them.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

NativeEvent native_user_event(const Context &context) {
  const auto create = opencl_entry<decltype(&clCreateUserEvent)>("clCreateUserEvent");
  const auto release = opencl_entry<decltype(&clReleaseEvent)>("clReleaseEvent");
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
  cl_int error = CL_SUCCESS;
  NativeEvent event(create(native.object, &error), release);
  opencl_check(error, "clCreateUserEvent");
  return event;
}

} // namespace

std::unique_ptr<UserEvent> user_event_new(const Context &context) {
  return std::make_unique<UserEvent>(UserEvent{native_user_event(context), context});
}

std::unique_ptr<Event> user_event_event(const UserEvent &user_event) {
  auto event = std::make_unique<Event>(user_event.context, user_event.native.get_deleter());
  opencl_check(opencl_entry<decltype(&clRetainEvent)>("clRetainEvent")(user_event.native.get()), "clRetainEvent");
  *event->place() = user_event.native.get();
  return event;
}

void user_event_signal(const UserEvent &user_event) {
  const auto set = opencl_entry<decltype(&clSetUserEventStatus)>("clSetUserEventStatus");
  opencl_check(set(user_event.native.get(), CL_COMPLETE), "clSetUserEventStatus");
}

} // namespace usmq
