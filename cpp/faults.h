// Fault injection for tests: in a build with USMQ_FAULTS any call of the shim can be made to fail. Other builds
// contain no code of this.
#pragma once

#ifdef USMQ_FAULTS

namespace usmq::faults {

// Throws if a test has selected this call. The text names the call.
void reached(const char *where);

} // namespace usmq::faults

#define USMQ_FAULT_POINT(where) ::usmq::faults::reached(where)
#else
#define USMQ_FAULT_POINT(where) static_cast<void>(0)
#endif
