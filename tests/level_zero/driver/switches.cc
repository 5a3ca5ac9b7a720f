// Reads the switches, counts calls for injected failures, and seeds the random numbers.
#include "switches.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <unistd.h>

namespace front {
namespace {

const char *text(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value && *value ? value : otherwise;
}

uint64_t number(const char *name, uint64_t otherwise) {
  const char *value = std::getenv(name);
  return value && *value ? std::strtoull(value, nullptr, 0) : otherwise;
}

Switches read() {
  Switches result{};
  result.true_addresses = number("USMQ_LEVEL_ZERO_TRUE_ADDRESSES", 1) != 0;
  result.peers = number("USMQ_LEVEL_ZERO_PEERS", 1) != 0;
  result.blocking_copies = number("USMQ_LEVEL_ZERO_BLOCKING_COPIES", 0) != 0;
  result.random_order = number("USMQ_LEVEL_ZERO_RANDOM_ORDER", 0) != 0;
  result.trace = number("USMQ_LEVEL_ZERO_TRACE", 0) != 0;
  result.leaks = number("USMQ_LEVEL_ZERO_LEAKS", 0) != 0;
  result.delay = static_cast<unsigned>(number("USMQ_LEVEL_ZERO_DELAY", 0));
  result.seed = number("USMQ_LEVEL_ZERO_SEED", 1);
  result.lost_after = number("USMQ_LEVEL_ZERO_LOST_AFTER", 0);
  result.reports = text("USMQ_LEVEL_ZERO_REPORTS", "");
  result.opencl = text("USMQ_LEVEL_ZERO_OPENCL", "libintelocl.so");
  result.real = text("USMQ_LEVEL_ZERO_REAL", "libze_intel_gpu.so.1");
  // CALL:NUMBER or CALL:NUMBER:RESULT, the result as a number.
  const std::string fail = text("USMQ_LEVEL_ZERO_FAIL", "");
  if (const size_t colon = fail.find(':'); colon != std::string::npos) {
    result.fail_call = fail.substr(0, colon);
    const std::string rest = fail.substr(colon + 1);
    result.fail_number = std::strtoull(rest.c_str(), nullptr, 0);
    const size_t second = rest.find(':');
    result.fail_result = second == std::string::npos
                             ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                             : static_cast<ze_result_t>(std::strtoull(rest.c_str() + second + 1, nullptr, 0));
  }
  return result;
}

std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> appended{0};

} // namespace

const Switches &switches() {
  static const Switches &all = *new Switches(read());
  return all;
}

ze_result_t enter(const char *call) {
  const Switches &all = switches();
  if (all.trace) {
    std::fprintf(stderr, "[%d] %s\n", gettid(), call);
  }
  if (lost() && std::strstr(call, "Destroy") == nullptr && std::strstr(call, "Free") == nullptr) {
    return ZE_RESULT_ERROR_DEVICE_LOST;
  }
  if (all.fail_number != 0 && (all.fail_call == "any" || all.fail_call == call) && ++calls == all.fail_number) {
    return all.fail_result;
  }
  return ZE_RESULT_SUCCESS;
}

void count_append() { ++appended; }

bool lost() { return switches().lost_after != 0 && appended.load() >= switches().lost_after; }

uint64_t random_below(uint64_t limit) {
  static auto &one = *new std::mutex;
  static auto &generator = *new std::mt19937_64{switches().seed};
  const std::lock_guard<std::mutex> lock(one);
  return limit == 0 ? 0 : generator() % limit;
}

} // namespace front
