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
  auto native = native_user_event(context);
  USMQ_FAULT_POINT("sycl::make_event");
  auto event = sycl::make_event<sycl::backend::opencl>(std::vector<cl_event>{native.get()}, context);
  return std::make_unique<UserEvent>(UserEvent{std::move(native), std::move(event)});
}

std::unique_ptr<Event> user_event_event(const UserEvent &user_event) { return own(user_event.event); }

void user_event_signal(const UserEvent &user_event) {
  const auto set = opencl_entry<decltype(&clSetUserEventStatus)>("clSetUserEventStatus");
  opencl_check(set(user_event.native.get(), CL_COMPLETE), "clSetUserEventStatus");
}

} // namespace usmq
