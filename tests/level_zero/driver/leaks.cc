// Reports what is left when the process ends.
#include "events.h"
#include "kernels.h"
#include "lists.h"
#include "memory.h"
#include "modules.h"
#include "switches.h"

namespace front {
namespace {

// libsycl and the adapters release what they have in handlers of exit, which run before the destructors of libraries.
__attribute__((destructor)) void report_leaks() {
  if (switches().leaks) {
    report_live_memory();
    report_live_lists();
    report_live_events();
    report_live_modules();
    report_live_kernels();
  }
}

} // namespace
} // namespace front
