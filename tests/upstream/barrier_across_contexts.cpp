// libsycl: `ext_oneapi_submit_barrier` refuses an event of another OpenCL context.
#include "upstream.h"

#include <sycl/sycl.hpp>

int main() {
  const sycl::device device;
  sycl::queue first(sycl::context(device), device);
  sycl::queue second(sycl::context(device), device);
  void *memory = sycl::malloc_device(64, first);
  const sycl::event event = first.memset(memory, 1, 64);
  upstream::trying();
  try {
    second.ext_oneapi_submit_barrier({event}).wait();
  } catch (const sycl::exception &error) {
    first.wait();
    return upstream::seen(error.what());
  }
  return upstream::fixed("the barrier was taken", "cpp/queue.cc (queue_barrier) and src/device/cross_context.rs");
}
