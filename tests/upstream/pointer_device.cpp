// UR: the OpenCL adapter names the first device of a context for every pointer (`Context->Devices[0]`).
#include "parts.h"
#include "upstream.h"

int main() {
  const std::vector<sycl::device> parts = upstream::two_parts();
  if (parts.empty()) {
    return upstream::not_tried("needs a CPU device with two sub-devices");
  }
  const sycl::context context(parts);
  void *memory = sycl::malloc_device(64, parts[1], context);
  const sycl::device named = sycl::get_pointer_device(memory, context);
  sycl::free(memory, context);
  return named == parts[1] ? upstream::fixed("the second device is named", "cpp/usm.cc (usm_info)")
                           : upstream::seen("memory of the second device is said to be of the first");
}
