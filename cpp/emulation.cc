// Checks the settings of the emulated GPUs before the runtime's OpenCL layer reads them.
#include "../layers/emulator/settings.h"
#include "usmq/src/ffi.rs.h"

namespace usmq {

rust::String emulation_fault(rust::Str gpus, rust::Str memory, rust::Str system_usm, rust::Str faults) {
  emulator::Settings settings;
  return emulator::read({std::string(gpus), std::string(memory), std::string(system_usm), std::string(faults)},
                        settings);
}

} // namespace usmq
