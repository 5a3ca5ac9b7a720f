// Reads and checks the variables of the emulator.
#include "settings.h"

#include <cstdlib>
#include <limits>

namespace usmq::emulator {

namespace {

std::string variable(const char *name) {
  // The layer reads its variables once, before the runtime has threads; the shim reads them for messages only.
  const char *value = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
}

// Parses a decimal number without sign. Returns whether the whole text is one.
bool number(const std::string &text, std::uint64_t &value) {
  if (text.empty()) {
    return false;
  }
  value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      return false;
    }
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) {
      return false;
    }
    value = value * 10 + digit;
  }
  return true;
}

bool ends_with(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

struct Unit {
  const char *name;
  std::uint64_t factor;
};

// Parses a number and a unit. A number without unit uses the last entry, whose name is then empty.
template <std::size_t Count> bool measure(const std::string &text, const Unit (&units)[Count], std::uint64_t &value) {
  for (const Unit &unit : units) {
    const std::string name = unit.name;
    if (!ends_with(text, name) || !number(text.substr(0, text.size() - name.size()), value)) {
      continue;
    }
    if (value > std::numeric_limits<std::uint64_t>::max() / unit.factor) {
      return false;
    }
    value *= unit.factor;
    return true;
  }
  return false;
}

constexpr Unit kBytes[] = {{"KiB", std::uint64_t{1} << 10},
                           {"MiB", std::uint64_t{1} << 20},
                           {"GiB", std::uint64_t{1} << 30},
                           {"TiB", std::uint64_t{1} << 40},
                           {"kB", 1000},
                           {"MB", std::uint64_t{1000} * 1000},
                           {"GB", std::uint64_t{1000} * 1000 * 1000},
                           {"B", 1},
                           {"", 1}};
constexpr Unit kTimes[] = {{"us", 1}, {"ms", 1000}, {"s", std::uint64_t{1000} * 1000}};

// Less memory is too small for a pool of any library.
constexpr std::uint64_t kLeastMemory = std::uint64_t{1} << 20;
// Refuses a longer delay: it is more likely a typing error than a test.
constexpr std::uint64_t kLongestDelay = std::uint64_t{60} * 1000 * 1000;

constexpr const char *kFaultForms =
    "expected faults separated by commas, each gpu:N=lost[@K], gpu:N=command-error[@K[+]], gpu:N=alloc[@K[+]] or "
    "gpu:N=slow:DURATION, as in gpu:1=lost@10,gpu:0=slow:50us";

// Returns the error of one fault.
std::string read_fault(const std::string &text, unsigned gpus, Fault &fault) {
  const std::string prefix = "gpu:";
  const std::size_t equals = text.find('=');
  std::uint64_t gpu = 0;
  if (text.compare(0, prefix.size(), prefix) != 0 || equals == std::string::npos ||
      !number(text.substr(prefix.size(), equals - prefix.size()), gpu)) {
    return kFaultForms;
  }
  if (gpu >= gpus) {
    return "gpu:" + std::to_string(gpu) + " does not exist with USMQ_EMULATE_GPUS=" + std::to_string(gpus);
  }
  fault.gpu = static_cast<unsigned>(gpu);
  std::string kind = text.substr(equals + 1);
  if (kind.compare(0, 5, "slow:") == 0) {
    std::uint64_t delay = 0;
    if (!measure(kind.substr(5), kTimes, delay) || delay == 0 || delay > kLongestDelay) {
      return "expected slow:DURATION with a duration from 1us to 60s, as in slow:50us or slow:2ms";
    }
    fault.kind = FaultKind::slow;
    fault.delay = std::chrono::microseconds(delay);
    return "";
  }
  const std::size_t at = kind.find('@');
  if (at != std::string::npos) {
    fault.stays = ends_with(kind, "+");
    const std::size_t end = kind.size() - (fault.stays ? 1 : 0);
    if (!number(kind.substr(at + 1, end - at - 1), fault.at) || fault.at == 0) {
      return "expected a number from 1 after the @, as in @3, or @3+ for the third and all later ones";
    }
    kind.resize(at);
  }
  if (kind == "lost") {
    fault.kind = FaultKind::lost;
    fault.stays = true;
  } else if (kind == "command-error") {
    fault.kind = FaultKind::command_error;
  } else if (kind == "alloc") {
    fault.kind = FaultKind::alloc;
  } else {
    return kFaultForms;
  }
  return "";
}

std::string wrong(const char *name, const std::string &value, const std::string &what) {
  return std::string(name) + "=\"" + value + "\": " + what;
}

} // namespace

Variables variables_of_process() {
  return {variable("USMQ_EMULATE_GPUS"), variable("USMQ_EMULATE_GPU_MEMORY"), variable("USMQ_EMULATE_SYSTEM_USM"),
          variable("USMQ_EMULATE_FAULTS")};
}

std::string read(const Variables &variables, Settings &settings) {
  settings = Settings{};
  if (variables.gpus.empty()) {
    return "";
  }
  std::uint64_t gpus = 0;
  if (!number(variables.gpus, gpus) || gpus == 0 || gpus > kMostGpus) {
    return wrong("USMQ_EMULATE_GPUS", variables.gpus,
                 "expected a number of GPUs from 1 to " + std::to_string(kMostGpus));
  }
  if (!variables.memory.empty() &&
      (!measure(variables.memory, kBytes, settings.memory) || settings.memory < kLeastMemory)) {
    return wrong("USMQ_EMULATE_GPU_MEMORY", variables.memory,
                 "expected bytes, at least 1MiB, as in 4294967296, 512MiB or 4GiB");
  }
  if (!variables.system_usm.empty() && variables.system_usm != "0" && variables.system_usm != "1") {
    return wrong("USMQ_EMULATE_SYSTEM_USM", variables.system_usm, "expected 0 or 1");
  }
  settings.system_usm = variables.system_usm == "1";
  for (std::size_t start = 0; start < variables.faults.size();) {
    const std::size_t end = variables.faults.find(',', start);
    const std::string text = variables.faults.substr(start, end == std::string::npos ? end : end - start);
    start = end == std::string::npos ? variables.faults.size() : end + 1;
    Fault fault;
    const std::string fault_is_wrong = read_fault(text, static_cast<unsigned>(gpus), fault);
    if (!fault_is_wrong.empty()) {
      std::string what = "\"";
      what.append(text).append("\": ").append(fault_is_wrong);
      return wrong("USMQ_EMULATE_FAULTS", variables.faults, what);
    }
    settings.faults.push_back(fault);
  }
  settings.gpus = static_cast<unsigned>(gpus);
  return "";
}

} // namespace usmq::emulator
