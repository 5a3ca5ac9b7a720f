// UR: asking a queue whether it is empty crashes beside a submission of another thread (OpenCL adapter).
#include "upstream.h"

#include <atomic>
#include <sycl/sycl.hpp>
#include <thread>

int main() {
  sycl::queue queue(sycl::property::queue::in_order{});
  void *memory = sycl::malloc_device(64, queue);
  queue.memset(memory, 0, 64).wait();
  std::atomic<bool> stop{false};
  std::atomic<long> asked{0};
  upstream::trying();
  std::thread asks([&] {
    while (!stop) {
      (void)queue.ext_oneapi_empty();
      ++asked;
    }
  });
  long submitted = 0;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
       std::chrono::steady_clock::now() < end; ++submitted) {
    queue.memset(memory, 1, 64);
    if (submitted % 64 == 0) {
      queue.wait();
    }
  }
  stop = true;
  asks.join();
  queue.wait();
  return upstream::not_seen(std::to_string(submitted) + " submissions beside " + std::to_string(asked) + " questions");
}
