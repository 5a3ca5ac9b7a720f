// Fault injection: which command or allocation of which GPU fails, and how.
#pragma once

#include "devices.h"

#include <chrono>

namespace usmq::emulator {

enum class Outcome : std::uint8_t { works, fails, lost };

// Counts a command of a GPU and returns its outcome.
Outcome next_command(const Root &gpu);

// Counts an allocation of a GPU and returns whether it fails.
bool next_allocation_fails(const Root &gpu);

// Whether the GPU was lost.
bool is_lost(const Root &gpu);

// The additional time of each command of the GPU.
std::chrono::microseconds delay_of(const Root &gpu);

} // namespace usmq::emulator
