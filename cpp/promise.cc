// Events that the host completes. SYCL has none, OpenCL does.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

cl_event user_event(const Context &context) {
  cl_context native = sycl::get_native<sycl::backend::opencl>(context);
  cl_int error = CL_SUCCESS;
  cl_event event = opencl_entry<decltype(&clCreateUserEvent)>("clCreateUserEvent")(native, &error);
  opencl_entry<decltype(&clReleaseContext)>("clReleaseContext")(native); // get_native retained it
  opencl_check(error, "clCreateUserEvent");
  return event;
}

} // namespace

Promise::Promise(const Context &context)
    : native(user_event(context)),
      event(sycl::make_event<sycl::backend::opencl>(std::vector<cl_event>{native}, context)) {}

Promise::~Promise() {
  try {
    opencl_entry<decltype(&clReleaseEvent)>("clReleaseEvent")(native);
  } catch (...) {
    // The loader had the function when the promise was made.
  }
}

std::unique_ptr<Promise> promise_new(const Context &context) { return std::make_unique<Promise>(context); }

std::unique_ptr<Event> promise_event(const Promise &promise) { return std::make_unique<Event>(promise.event); }

void promise_keep(const Promise &promise, bool success) {
  const auto set = opencl_entry<decltype(&clSetUserEventStatus)>("clSetUserEventStatus");
  opencl_check(set(promise.native, success ? CL_COMPLETE : -1), "clSetUserEventStatus");
}

} // namespace usmq
