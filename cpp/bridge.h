// The header that the generated bridge includes: the real shim, or the stub of a build without SYCL.
#pragma once

#ifdef USMQ_STUB
#include "stub.h"
#else
#include "shim.h"
#endif
