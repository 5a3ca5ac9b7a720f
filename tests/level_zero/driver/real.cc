// Loads Intel's driver.
#include "real.h"

#include "report.h"
#include "switches.h"

#include <dlfcn.h>

namespace front {
namespace {

ze_driver_handle_t known_driver = nullptr;

} // namespace

Real &real() {
  static Real tables{};
  return tables;
}

void *real_symbol(const char *name) {
  static void *library = [] {
    void *result = dlopen(switches().real.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (result == nullptr) {
      refuse(std::string("Intel's driver: ") + dlerror());
    }
    return result;
  }();
  return dlsym(library, name);
}

void remember_driver(ze_driver_handle_t driver) { known_driver = driver; }

void *real_extension(const char *name) {
  void *function = nullptr;
  real().driver.pfnGetExtensionFunctionAddress(known_driver, name, &function);
  return function;
}

} // namespace front
