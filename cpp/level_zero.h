// The SYCL runtime's Level Zero loader, for functions that SYCL does not offer.
#pragma once

#include "shim.h"

namespace usmq {

// The user events of a context of the level_zero backend.
std::unique_ptr<UserEvents> level_zero_user_events(const Context &context);

// The driver's handle of a device of the level_zero backend.
std::size_t level_zero_device(const Device &device);

} // namespace usmq
