// CPU driver: it can lock up when an out-of-order queue is released as soon as its last command is complete.
#include "upstream.h"

#include <sycl/sycl.hpp>

int main() {
  const sycl::device device;
  const sycl::context context(device);
  void *memory = sycl::malloc_device(4096, device, context);
  upstream::trying();
  long rounds = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    sycl::queue queue(context, device);
    const sycl::event event = queue.memset(memory, 1, 4096);
    while (event.get_info<sycl::info::event::command_execution_status>() !=
           sycl::info::event_command_status::complete) {
    }
  }
  return upstream::not_seen(std::to_string(rounds) + " queues");
}
