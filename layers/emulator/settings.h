// The settings of the emulator, parsed from text: number of GPUs, memory, faults. Needs neither OpenCL nor SYCL,
// since the shim compiles it too, to check the variables before the runtime reads them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace usmq::emulator {

inline constexpr unsigned kMostGpus = 64;

enum class FaultKind : std::uint8_t { alloc, command_error, lost, slow };

// A fault that USMQ_EMULATE_FAULTS asks for.
struct Fault {
  unsigned gpu = 0;
  FaultKind kind = FaultKind::lost;
  // The first command or allocation that fails, counted from 1.
  std::uint64_t at = 1;
  // Whether all later ones fail as well. A lost device stays lost.
  bool stays = false;
  // For a slow device: the additional time of each command.
  std::chrono::microseconds delay{0};
};

struct Settings {
  // 0: nothing is emulated.
  unsigned gpus = 0;
  // Bytes of each GPU; 0: a share of the host's memory.
  std::uint64_t memory = 0;
  bool system_usm = false;
  std::vector<Fault> faults;
};

// The variables as set, empty if unset.
struct Variables {
  std::string gpus;
  std::string memory;
  std::string system_usm;
  std::string faults;
};

Variables variables_of_process();

// Parses the variables into `settings`. Returns an empty text, or the invalid variable, its value and the valid
// values.
std::string read(const Variables &variables, Settings &settings);

} // namespace usmq::emulator
