// CPU driver: each host address that was a source or target of a copy keeps about 100 bytes for good.
#include "upstream.h"

#include <malloc.h>
#include <sycl/sycl.hpp>
#include <vector>

namespace {

// The growth of the heap, in bytes per copy, while copies go to addresses this far apart.
double growth(sycl::queue &queue, const void *memory, std::vector<char> &host, std::size_t apart) {
  constexpr std::size_t copies = 20000;
  const auto copy_all = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      queue.memcpy(host.data() + i * apart, memory, 64).wait();
    }
  };
  copy_all(100);
  const auto used = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = used();
  copy_all(copies);
  return (used() - before) / copies;
}

} // namespace

int main() {
  sycl::queue queue{sycl::device(), sycl::property::queue::in_order{}};
  void *memory = sycl::malloc_device(64, queue);
  queue.memset(memory, 1, 64).wait();
  std::vector<char> host(20000 * 64);
  const double same = growth(queue, memory, host, 0);
  const double other = growth(queue, memory, host, 64);
  const double again = growth(queue, memory, host, 64);
  sycl::free(memory, queue);
  const std::string found = "bytes per copy: " + std::to_string(other) + " to new addresses, " + std::to_string(again) +
                            " to the same ones again, " + std::to_string(same) + " to one address";
  return other > 16 ? upstream::seen(found) : upstream::fixed(found, "tests/soak.py (size)");
}
