// libsycl: a wait for a command behind a host task holds the lock that every submission needs.
#include "upstream.h"

#include <atomic>
#include <sycl/sycl.hpp>
#include <thread>

int main() {
  const sycl::device device;
  sycl::queue behind(device, sycl::property::queue::in_order{});
  sycl::queue other(device, sycl::property::queue::in_order{});
  void *memory = sycl::malloc_device(64, behind);
  void *unrelated = sycl::malloc_device(64, other);
  other.memset(unrelated, 0, 64).wait();
  std::atomic<bool> open{false}, submitted{false};
  behind.submit([&](sycl::handler &handler) {
    handler.host_task([&] {
      while (!open) {
        upstream::pause(1);
      }
    });
  });
  sycl::event held = behind.memset(memory, 1, 64);
  std::thread waits([&] { held.wait(); });
  upstream::pause(200);
  std::thread submits([&] {
    other.submit([&](sycl::handler &handler) { handler.host_task([] {}); });
    submitted = true;
  });
  const bool done = upstream::within(2000, [&] { return submitted.load(); });
  open = true;
  waits.join();
  submits.join();
  other.wait();
  return done ? upstream::fixed("a submission to an unrelated queue returned during the wait",
                                "src/device/event.rs (before_libsycl) and src/completion")
              : upstream::seen("a submission to an unrelated queue did not return in 2 s");
}
