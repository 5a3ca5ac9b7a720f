// libsycl: each submission of an executable graph keeps host memory, also after the graph is destroyed.
#include "upstream.h"

#include <malloc.h>
#include <optional>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/sycl.hpp>

namespace exp = sycl::ext::oneapi::experimental;

int main() {
  const sycl::device device;
  if (!device.has(sycl::aspect::ext_oneapi_limited_graph)) {
    return upstream::not_tried("the device has no SYCL graphs");
  }
  sycl::queue queue(device, sycl::property::queue::in_order{});
  int *memory = sycl::malloc_device<int>(100, queue);
  // The memory of the host after graphs of ten commands that were submitted so often.
  const auto kept = [&](int submissions) {
    const std::size_t before = mallinfo2().uordblks;
    {
      exp::command_graph graph(queue.get_context(), device);
      std::optional<exp::node> last;
      for (int command = 0; command < 10; ++command) {
        exp::node next = graph.add([&](sycl::handler &handler) { handler.memset(memory, command, 400); });
        if (last) {
          graph.make_edge(*last, next);
        }
        last = next;
      }
      auto executable = graph.finalize();
      for (int submission = 0; submission < submissions; ++submission) {
        queue.submit([&](sycl::handler &handler) { handler.ext_oneapi_graph(executable); }).wait();
      }
      queue.wait();
    }
    const std::size_t after = mallinfo2().uordblks;
    return after > before ? after - before : 0;
  };
  kept(100);
  const std::size_t few = kept(100);
  const std::size_t many = kept(1100);
  const std::size_t each = many > few ? (many - few) / 1000 : 0;
  sycl::free(memory, queue);
  return each > 1000 ? upstream::seen(std::to_string(each) + " bytes for each submission of ten commands")
                     : upstream::fixed("submissions keep no memory",
                                       "src/device/backend.rs (prefers_graphs) and docs/howto/capture.md");
}
