// libsycl: a memcpy or memset on an out-of-order queue does not wait for a barrier behind a host task.
#include "upstream.h"

#include <atomic>
#include <sycl/sycl.hpp>

int main() {
  sycl::queue queue{sycl::device()};
  int *memory = sycl::malloc_device<int>(64, queue);
  queue.memset(memory, 0, 256).wait();
  std::atomic<bool> open{false};
  queue.submit([&](sycl::handler &handler) {
    handler.host_task([&] {
      while (!open) {
        upstream::pause(1);
      }
    });
  });
  // All earlier commands of the queue come before this, all later ones after it.
  queue.ext_oneapi_submit_barrier();
  // The same command through a handler waits.
  sycl::event later = queue.memset(memory, 1, 256);
  const bool is_early = upstream::within(1000, [&] {
    return later.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
  });
  open = true;
  queue.wait();
  sycl::free(memory, queue);
  return is_early ? upstream::seen("the memset was complete before the host task")
                  : upstream::fixed("the memset waited for the barrier", "docs/howto/share.md (dpnp)");
}
