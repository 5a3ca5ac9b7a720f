// Counts the commands and allocations of each GPU against the faults in USMQ_EMULATE_FAULTS.
#include "failures.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace usmq::emulator {

namespace {

struct Counts {
  std::atomic<std::uint64_t> commands{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<bool> lost{false};
};

std::array<Counts, kMostGpus> counts;

const std::vector<Fault> &faults() { return emulation()->settings.faults; }

bool has(const Root &gpu, FaultKind kind, std::uint64_t number) {
  return std::any_of(faults().begin(), faults().end(), [&](const Fault &fault) {
    return fault.gpu == gpu.number && fault.kind == kind && (fault.stays ? fault.at <= number : fault.at == number);
  });
}

} // namespace

Outcome next_command(const Root &gpu) {
  if (faults().empty()) {
    return Outcome::works;
  }
  const std::uint64_t number = ++counts[gpu.number].commands;
  if (has(gpu, FaultKind::lost, number)) {
    counts[gpu.number].lost = true;
  }
  if (is_lost(gpu)) {
    return Outcome::lost;
  }
  return has(gpu, FaultKind::command_error, number) ? Outcome::fails : Outcome::works;
}

bool next_allocation_fails(const Root &gpu) {
  return !faults().empty() && has(gpu, FaultKind::alloc, ++counts[gpu.number].allocations);
}

bool is_lost(const Root &gpu) { return counts[gpu.number].lost; }

std::chrono::microseconds delay_of(const Root &gpu) {
  std::chrono::microseconds sum{0};
  for (const Fault &fault : faults()) {
    if (fault.gpu == gpu.number && fault.kind == FaultKind::slow) {
      sum += fault.delay;
    }
  }
  return sum;
}

} // namespace usmq::emulator
