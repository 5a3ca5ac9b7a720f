// Selects the call that fails, and how: compiled into builds with USMQ_FAULTS only.
#include "faults.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <sycl/sycl.hpp>
#include <thread>

namespace usmq::faults {

namespace {

// As in `src/runtime/faults.rs`.
constexpr int kSycl = 0;
constexpr int kBadAlloc = 1;
constexpr int kInt = 2;

struct Plan {
  std::mutex lock;
  bool armed = false;
  bool lasting = false;
  bool others = false;
  int what = kSycl;
  std::thread::id owner;
  std::uint64_t at = 0;
  std::uint64_t seen = 0;
  std::uint64_t thrown = 0;
  char first[512] = "";
};

Plan &plan() {
  // Never destroyed: threads may call the shim during process exit.
  static Plan &only = *new Plan;
  return only;
}

} // namespace

void reached(const char *where) {
  auto &now = plan();
  int what = kSycl;
  {
    std::lock_guard<std::mutex> guard(now.lock);
    if (!now.armed || (std::this_thread::get_id() == now.owner) == now.others) {
      return;
    }
    ++now.seen;
    if (now.lasting ? now.seen < now.at : now.seen != now.at) {
      return;
    }
    if (now.thrown++ == 0) {
      // A long name is truncated, which is sufficient.
      static_cast<void>(std::snprintf(now.first, sizeof now.first, "%s", where));
    }
    what = now.what;
  }
  switch (what) {
  case kBadAlloc:
    throw std::bad_alloc();
  case kInt:
    throw 42; // NOLINT(bugprone-std-exception-baseclass): that no kind of exception gets past the shim is the point
  default:
    throw sycl::exception(sycl::make_error_code(sycl::errc::runtime), "a fault of the tests");
  }
}

} // namespace usmq::faults

extern "C" {

// Makes the `at`-th call from now on fail, counted from 1 among the calls of this thread or of all other threads,
// once or with every later call.
void usmq_fault_arm(std::uint64_t at, int what, bool lasting, bool others) {
  auto &now = usmq::faults::plan();
  std::lock_guard<std::mutex> guard(now.lock);
  now.armed = true;
  now.lasting = lasting;
  now.others = others;
  now.what = what;
  now.owner = std::this_thread::get_id();
  now.at = at;
  now.seen = 0;
  now.thrown = 0;
  now.first[0] = '\0';
}

// Ends it; returns the number of failed calls.
std::uint64_t usmq_fault_disarm() {
  auto &now = usmq::faults::plan();
  std::lock_guard<std::mutex> guard(now.lock);
  now.armed = false;
  return now.thrown;
}

// The call that failed first, as the compiler spells it.
const char *usmq_fault_place() { return usmq::faults::plan().first; }
}
