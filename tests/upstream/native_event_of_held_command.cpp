// libsycl: the native handle of an event that a host task holds up crashes.
#include "upstream.h"

#include <atomic>
#include <sycl/backend/opencl.hpp>
#include <sycl/sycl.hpp>

int main() {
  sycl::queue queue(sycl::property::queue::in_order{});
  void *memory = sycl::malloc_device(64, queue);
  queue.memset(memory, 0, 64).wait();
  std::atomic<bool> open{false};
  queue.submit([&](sycl::handler &handler) {
    handler.host_task([&] {
      while (!open) {
        upstream::pause(1);
      }
    });
  });
  sycl::event held = queue.memset(memory, 1, 64);
  upstream::trying();
  const auto native = sycl::get_native<sycl::backend::opencl>(held);
  open = true;
  held.wait();
  return upstream::fixed("get_native gave " + std::to_string(native.size()) + " handles",
                         "src/device/cross_context.rs (proxies are signalled by polling, not by the source's handle)");
}
