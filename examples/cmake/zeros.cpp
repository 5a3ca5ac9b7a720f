// A SYCL library that a Python program loads. It works on the queue of the Python code that calls it.
//
//     with usmq.use_queue("gpu:1"):
//         library.zeros(1000, address_of_schema, address_of_array)      # ctypes; tests/python/test_cmake.py does so

#include <cstdint>
#include <usmq.hpp>

extern "C" {

// The queue that this library would use, as `sycl::queue*`; released with release_queue. NULL: see what_is_wrong.
void *which_queue() {
  void *queue = nullptr;
  usmq_current_queue(&queue);
  return queue;
}

void release_queue(void *queue) { usmq_queue_release(queue); }

const char *what_is_wrong() { return usmq_last_error(); }

// Makes a column of doubles on the current queue, for any consumer of Arrow device arrays. 0, or a usmq_status.
int zeros(std::int64_t length, struct ArrowSchema *schema, struct ArrowDeviceArray *array) try {
  if (length < 0)
    return USMQ_ERROR_VALUE;
  sycl::queue queue = usmq::current_queue();
  usmq::block<double> values = usmq::allocate<double>(static_cast<std::size_t>(length), queue);
  queue.memset(values.get(), 0, static_cast<std::size_t>(length) * sizeof(double));
  // No wait: the array has an event. The block may be freed: the array keeps the memory.
  return usmq_arrow_export(values.get(), "g", length, schema, array);
} catch (const usmq::error &error) {
  return error.status();
} catch (const std::exception &) {
  return USMQ_ERROR_INTERNAL;
}
}
