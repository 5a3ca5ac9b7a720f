// UR: a copy between devices of one context hangs: the OpenCL adapter frees its buffer in an event callback.
#include "parts.h"
#include "upstream.h"

int main() {
  const std::vector<sycl::device> parts = upstream::two_parts();
  if (parts.empty()) {
    return upstream::not_tried("needs a CPU device with two sub-devices");
  }
  const sycl::context context(parts);
  const sycl::property::queue::in_order in_order;
  sycl::queue first(context, parts[0], in_order), second(context, parts[1], in_order);
  void *from = sycl::malloc_device(4096, first), *to = sycl::malloc_device(4096, second);
  first.memset(from, 1, 4096).wait();
  upstream::trying();
  second.memcpy(to, from, 4096).wait();
  return upstream::fixed("the copy ended", "src/device/backend.rs (Capabilities::direct_copies)");
}
