// Shared by all parts of the layer: the functions below it, and the guard against exceptions.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
// The table also contains the deprecated functions.
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
// Command buffers are a provisional extension.
#define CL_ENABLE_BETA_EXTENSIONS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <cstring>
#include <string>
#include <type_traits>

namespace usmq::emulator {

// The functions of the layer or driver below this one; set once, before any other function of the layer is called.
extern const cl_icd_dispatch *next;

// Catches exceptions at C entry points: one that left the layer would terminate the process.
template <typename Body> cl_int guarded(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return CL_OUT_OF_HOST_MEMORY;
  }
}

// The same for functions that return a pointer and report a status by argument.
template <typename Body> auto guarded(cl_int *status, Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    if (status != nullptr) {
      *status = CL_OUT_OF_HOST_MEMORY;
    }
    return nullptr;
  }
}

inline std::nullptr_t failed(cl_int *status, cl_int code) {
  if (status != nullptr) {
    *status = code;
  }
  return nullptr;
}

// Answers a query like OpenCL's clGet…Info functions.
inline cl_int answer(const void *value, std::size_t size, std::size_t room, void *to, std::size_t *size_ret) {
  if (to != nullptr) {
    if (room < size) {
      return CL_INVALID_VALUE;
    }
    if (size != 0) {
      std::memcpy(to, value, size);
    }
  }
  if (size_ret != nullptr) {
    *size_ret = size;
  }
  return CL_SUCCESS;
}

template <typename Value> cl_int answer(const Value &value, std::size_t room, void *to, std::size_t *size_ret) {
  static_assert(std::is_trivially_copyable_v<Value>);
  return answer(static_cast<const void *>(&value), sizeof(Value), room, to, size_ret);
}

// Writes one line to standard error, in one call, so that lines of several threads do not mix.
void say(const std::string &line) noexcept;

} // namespace usmq::emulator
