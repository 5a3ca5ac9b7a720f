// Counts the calls of the shim that foreign code makes on threads of usmq, since the end of the process waits for these
// calls, but not for the code.
#pragma once

#include <atomic>
#include <cstddef>
#include <stdexcept>

namespace usmq {

// Whether this thread runs a callback, a waker or the drop of another library's object.
inline thread_local bool runs_foreign_code = false;
inline std::atomic<std::size_t> foreign_calls_now{0};
inline std::atomic<bool> foreign_calls_ended{false};

inline void set_foreign_code(bool runs) noexcept { runs_foreign_code = runs; }
inline std::size_t foreign_calls() noexcept { return foreign_calls_now.load(); }
inline void end_foreign_calls() noexcept { foreign_calls_ended.store(true); }

// One call. Either the thread that ends the process sees its count, or the call sees that calls have ended.
class ForeignCall {
public:
  ForeignCall() : counted(runs_foreign_code) {
    if (counted) {
      foreign_calls_now.fetch_add(1);
    }
  }
  ~ForeignCall() {
    if (counted) {
      foreign_calls_now.fetch_sub(1);
    }
  }
  ForeignCall(const ForeignCall &) = delete;
  ForeignCall &operator=(const ForeignCall &) = delete;

  bool is_late() const { return counted && foreign_calls_ended.load(); }

private:
  const bool counted;
};

} // namespace usmq
