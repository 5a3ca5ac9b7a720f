// libsycl: a barrier of an out-of-order queue misses a command that was held up when a host task of the queue ended.
#include "upstream.h"

#include <atomic>
#include <sycl/sycl.hpp>

namespace {

using Open = std::atomic<bool>;

sycl::event hold(sycl::queue &queue, Open &open) {
  return queue.submit([&](sycl::handler &handler) {
    handler.host_task([&] {
      while (!open) {
        upstream::pause(1);
      }
    });
  });
}

bool is_complete(const sycl::event &event) {
  return event.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
}

} // namespace

int main() {
  sycl::queue queue{sycl::device()};
  sycl::queue other{queue.get_context(), queue.get_device()};
  int *memory = sycl::malloc_device<int>(64, queue);
  queue.memset(memory, 0, 256).wait();
  Open short_task{false};
  Open long_task{false};
  queue.ext_oneapi_submit_barrier();
  const sycl::event first = hold(queue, short_task);
  const sycl::event blocker = hold(other, long_task);
  // It waits in libsycl for the host task of the other queue.
  const sycl::event command = queue.memset(memory, 1, 256, blocker);
  short_task = true;
  upstream::within(5000, [&] { return is_complete(first); });
  upstream::pause(50); // libsycl updates the queue after the event
  const sycl::event barrier = queue.ext_oneapi_submit_barrier();
  const bool is_early = upstream::within(1000, [&] { return is_complete(barrier); });
  long_task = true;
  queue.wait();
  sycl::free(memory, queue);
  return is_early ? upstream::seen("the barrier was complete before the memset")
                  : upstream::fixed("the barrier waited for the memset", "docs/howto/share.md (dpctl)");
}
