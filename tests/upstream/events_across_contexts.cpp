// libsycl: a chain of commands that depend on events of another OpenCL context corrupts its graph.
#include "upstream.h"

#include <sycl/sycl.hpp>
#include <vector>

int main() {
  const sycl::device device;
  const sycl::property::queue::in_order in_order;
  sycl::queue queues[] = {{sycl::context(device), device, in_order}, {sycl::context(device), device, in_order}};
  void *memory[] = {sycl::malloc_device(64, queues[0]), sycl::malloc_device(64, queues[1])};
  upstream::trying();
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    sycl::event last;
    for (int hop = 0; hop < 100; ++hop) {
      last = queues[hop % 2].memset(memory[hop % 2], hop, 64, last);
    }
    last.wait();
  }
  return upstream::not_seen(std::to_string(kRounds) + " chains of 100 commands");
}
