// Command buffers, to which SYCL graphs compile: their commands are checked when recorded, and each run of a buffer
// counts as one command for the faults.
#pragma once

#include "guarded.h"

namespace usmq::emulator {

// `own` is the driver's function of this name. Returns the layer's replacement, or `own` for other names.
void *replace_graph_function(const char *name, void *own);

} // namespace usmq::emulator
