// Events that the host completes. SYCL has none, OpenCL does.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

UserEvent user_event(const Context &context) {
  const auto create = opencl_entry<decltype(&clCreateUserEvent)>("clCreateUserEvent");
  const auto release = opencl_entry<decltype(&clReleaseEvent)>("clReleaseEvent");
  Owned<cl_context> native("clReleaseContext");
  native.object = sycl::get_native<sycl::backend::opencl>(context); // which retains it
  cl_int error = CL_SUCCESS;
  UserEvent event(create(native.object, &error), release);
  opencl_check(error, "clCreateUserEvent");
  return event;
}

Event stand_for(const UserEvent &native, const Context &context) {
  USMQ_FAULT_POINT("sycl::make_event");
  return sycl::make_event<sycl::backend::opencl>(std::vector<cl_event>{native.get()}, context);
}

} // namespace

Promise::Promise(const Context &context) : native(user_event(context)), event(stand_for(native, context)) {}

std::unique_ptr<Promise> promise_new(const Context &context) { return std::make_unique<Promise>(context); }

std::unique_ptr<Event> promise_event(const Promise &promise) { return std::make_unique<Event>(promise.event); }

void promise_keep(const Promise &promise) {
  const auto set = opencl_entry<decltype(&clSetUserEventStatus)>("clSetUserEventStatus");
  opencl_check(set(promise.native.get(), CL_COMPLETE), "clSetUserEventStatus");
}

} // namespace usmq
