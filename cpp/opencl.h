// The SYCL runtime's OpenCL loader, for functions that SYCL does not offer.
#pragma once

#include "faults.h"
#include "shim.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <array>
#include <atomic>
#include <dlfcn.h>
#include <string>
#include <sycl/sycl.hpp>

namespace usmq {

// Uses the OpenCL entry points of the loader that the SYCL runtime has opened. Linking another loader would need its
// dependencies at load time even without OpenCL, and could load a second one into the process.
template <typename Function> Function opencl_entry(const char *name) {
  USMQ_FAULT_POINT(name);
  static std::atomic<void *> loader{nullptr};
  void *library = loader.load();
  if (library == nullptr) {
    // Kept open: looking it up takes microseconds.
    library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD);
    loader.store(library);
  }
  void *symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::feature_not_supported),
                          std::string("the OpenCL loader of the SYCL runtime has no ") + name);
  }
  return reinterpret_cast<Function>(symbol);
}

// The address of a function of an extension; null if the platform has none. Lookups take microseconds, so the results
// are cached.
void *opencl_extension_address(const sycl::platform &platform, const char *name);

template <typename Function> Function opencl_extension(const sycl::platform &platform, const char *name) {
  return reinterpret_cast<Function>(opencl_extension_address(platform, name));
}

// Owns one reference to a native object. The release function is looked up before the object exists, so that the
// lookup cannot fail later.
template <typename Object> class Owned {
public:
  using Release = cl_int(CL_API_CALL *)(Object);
  explicit Owned(const char *release) : release_(find(release)) {}
  Owned(const Owned &) = delete;
  ~Owned() {
    if (object != nullptr) {
      release_(object);
    }
  }
  Object object = nullptr;

private:
  // One function per type of object, looked up once.
  static Release find(const char *name) {
    static const auto release = opencl_entry<Release>(name);
    return release;
  }

  Release release_;
};

void opencl_flush(const Queue &queue);

// Creates a kernel as `kernel`, of the same program, whose arguments are unset.
void opencl_create_again(cl_kernel kernel, Owned<cl_kernel> &copy);

inline void opencl_check(cl_int status, const char *what) {
  if (status != CL_SUCCESS) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::runtime),
                          std::string(what) + " failed with OpenCL error " + std::to_string(status));
  }
}

} // namespace usmq
