// CPU driver: two threads that wait at once for out-of-order queues can lock it up.
#include "upstream.h"

#include <atomic>
#include <sycl/sycl.hpp>
#include <thread>

int main() {
  const sycl::device device;
  std::atomic<long> rounds{0};
  const auto work = [&] {
    sycl::queue queue(device);
    auto *memory = static_cast<char *>(sycl::malloc_device(4096, queue));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (; std::chrono::steady_clock::now() < end; ++rounds) {
      for (int i = 0; i < 4; ++i) {
        queue.memset(memory + 1024 * i, i, 1024);
      }
      queue.wait();
    }
  };
  upstream::trying();
  std::thread first(work), second(work);
  first.join();
  second.join();
  return upstream::not_seen(std::to_string(rounds) + " waits of two threads");
}
