// Command buffers, which SYCL graphs become: their commands are checked when they are recorded, and each run of a
// buffer is one command for the faults.
#pragma once

#include "layer.h"

namespace usmq::emulator {

// The driver's function of this name is `own`. Returns the layer's in its place, and `own` for other names.
void *replace_graph_function(const char *name, void *own);

} // namespace usmq::emulator
