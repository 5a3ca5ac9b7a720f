// The settings of the emulator, read from text: number of GPUs, memory, faults. Needs neither OpenCL nor SYCL, since
// the shim compiles it too, to check the variables before the runtime reads them.
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
  // The command or allocation that it begins with, counted from 1.
  std::uint64_t at = 1;
  // Whether all that come later fail as well. A lost device stays lost.
  bool stays = false;
  // Of a slow device: how much longer each command takes.
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

// The variables as they are set, empty where they are not.
struct Variables {
  std::string gpus;
  std::string memory;
  std::string system_usm;
  std::string faults;
};

Variables variables_of_process();

// Reads the variables into `settings`. Returns an empty text, or which variable is wrong, its value and what is valid.
std::string read(const Variables &variables, Settings &settings);

} // namespace usmq::emulator
