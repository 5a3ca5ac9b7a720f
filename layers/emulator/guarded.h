// Shared by all parts of the emulator: the guard against exceptions, and its messages.
#pragma once

#include "../layer.h"

#include <string>

namespace usmq::emulator {

using layer::answer;

// The functions of the first part or of the driver; set before any other function of the emulator is called.
extern const cl_icd_dispatch &next;

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

// Writes one line to standard error, in one call, so that lines of several threads do not mix.
void say(const std::string &line) noexcept;

} // namespace usmq::emulator
