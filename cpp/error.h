// The only place that converts C++ exceptions to Rust errors: text "code\x1fmessage", code = sycl::errc name.
#pragma once

#include "faults.h"
#include "foreign_code.h"

#include <exception>
#include <new>
#include <string>

#ifndef USMQ_STUB
#include <sycl/sycl.hpp>
#endif

namespace usmq {

// Separates the code from the message; no error text of SYCL contains a control character.
inline constexpr char kCodeEnd = '\x1f';

inline std::string coded(const char *code, const char *message) { return std::string(code) + kCodeEnd + message; }

#ifndef USMQ_STUB

inline const char *errc_name(const std::error_code &code) {
  if (code.category() != sycl::sycl_category()) {
    return "unknown";
  }
  switch (static_cast<sycl::errc>(code.value())) {
  case sycl::errc::success:
    return "success";
  case sycl::errc::runtime:
    return "runtime";
  case sycl::errc::kernel:
    return "kernel";
  case sycl::errc::accessor:
    return "accessor";
  case sycl::errc::nd_range:
    return "nd_range";
  case sycl::errc::event:
    return "event";
  case sycl::errc::kernel_argument:
    return "kernel_argument";
  case sycl::errc::build:
    return "build";
  case sycl::errc::invalid:
    return "invalid";
  case sycl::errc::memory_allocation:
    return "memory_allocation";
  case sycl::errc::platform:
    return "platform";
  case sycl::errc::profiling:
    return "profiling";
  case sycl::errc::feature_not_supported:
    return "feature_not_supported";
  case sycl::errc::kernel_not_supported:
    return "kernel_not_supported";
  case sycl::errc::backend_mismatch:
    return "backend_mismatch";
  default:
    return "unknown";
  }
}

// The text of an exception that was stored instead of thrown (async handlers, frees in a destructor).
inline std::string describe(const std::exception_ptr &error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const sycl::exception &e) {
    return coded(errc_name(e.code()), e.what());
  } catch (const std::bad_alloc &e) {
    return coded("memory_allocation", e.what());
  } catch (const std::exception &e) {
    return coded("unknown", e.what());
  } catch (...) {
    return coded("unknown", "an exception that is not a std::exception");
  }
}

#endif

} // namespace usmq

namespace rust::behavior {

// Ensures that no exception of any type crosses into Rust. cxx selects this overload over its own, which handles only
// std::exception and would let any other exception terminate the process.
template <typename Try, typename Fail> static void trycatch(Try &&call, Fail &&fail) noexcept {
  try {
    const usmq::ForeignCall counted;
    if (counted.is_late()) {
      return fail(usmq::coded("exit", ""));
    }
    USMQ_FAULT_POINT(__PRETTY_FUNCTION__);
    call();
#ifndef USMQ_STUB
  } catch (const sycl::exception &e) {
    fail(usmq::coded(usmq::errc_name(e.code()), e.what()));
#endif
  } catch (const std::bad_alloc &e) {
    fail(usmq::coded("memory_allocation", e.what()));
  } catch (const std::exception &e) {
    fail(e.what());
  } catch (...) {
    fail(usmq::coded("unknown", "an exception that is not a std::exception"));
  }
}

} // namespace rust::behavior
