// The part of the layer that keeps waits of several threads, of any library, from locking up the CPU driver.
//
// The driver executes commands in its workers and in the threads that wait, at most one of them per core. A thread that
// waits when all places are taken leaves its wait to one of the others. If that thread has begun a command of the same
// out-of-order queue and waits for its parts, it now waits for itself. So this part lets a thread wait for an
// out-of-order queue of a CPU only while no other thread waits. Meanwhile the others query the state of their events.
//
// An out-of-order queue that is released right after a query has found its last command complete stops later queues. So
// it releases such queues later.
#include "layer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <mutex>
#include <sched.h>
#include <utility>

namespace usmq::waits {

namespace {

// The functions of the driver. A copy: loaders of 2026.2 free theirs during process exit, and the runtime may still
// call. Constant after the first table.
cl_icd_dispatch next;

// Waits of one thread are for nothing that the rule concerns, for in-order queues of CPUs, or also for others.
enum class Kind : std::uint8_t { Free, InOrder, OutOfOrder };

// The number of waits of kind InOrder, or `out_of_order`.
std::atomic<std::uint32_t> inside{0};
constexpr std::uint32_t out_of_order = UINT32_MAX;

// Whether an out-of-order queue was created. Before, no wait needs a query.
std::atomic<bool> any_out_of_order{false};

bool enter(Kind kind) {
  if (kind == Kind::Free) {
    return true;
  }
  std::uint32_t before = inside.load(std::memory_order_relaxed);
  do {
    if (kind == Kind::OutOfOrder ? before != 0 : before >= out_of_order - 1) {
      return false;
    }
  } while (!inside.compare_exchange_weak(before, kind == Kind::OutOfOrder ? out_of_order : before + 1));
  return true;
}

void leave(Kind kind) {
  if (kind == Kind::InOrder) {
    inside.fetch_sub(1);
  } else if (kind == Kind::OutOfOrder) {
    inside.store(0);
  }
}

// The number of queues created so far. A new queue may have the address of a released one.
std::atomic<std::uint64_t> created{0};

Kind query_kind(cl_command_queue queue) {
  cl_command_queue_properties properties = 0;
  cl_device_id device = nullptr;
  cl_device_type type = 0;
  const bool known =
      next.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr) == CL_SUCCESS &&
      next.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), static_cast<void *>(&device), nullptr) ==
          CL_SUCCESS &&
      next.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr) == CL_SUCCESS;
  if (!known || (type & CL_DEVICE_TYPE_CPU) == 0) {
    return Kind::Free;
  }
  return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0 ? Kind::OutOfOrder : Kind::InOrder;
}

// Each thread keeps the kinds of a few queues until the next queue is created: the queries cost as much as a short
// wait.
Kind kind_of(cl_command_queue queue) {
  if (!any_out_of_order.load()) {
    return Kind::InOrder;
  }
  struct Known {
    cl_command_queue queue;
    std::uint64_t created;
    Kind kind;
  };
  static thread_local std::array<Known, 8> all{};
  const std::uint64_t now = created.load();
  Known &known = all[(reinterpret_cast<std::uintptr_t>(queue) >> 6) % all.size()];
  if (known.queue != queue || known.created != now) {
    known = {queue, now, query_kind(queue)};
  }
  return known.kind;
}

cl_command_queue queue_of(cl_event event) {
  cl_command_queue queue = nullptr;
  const cl_int status = next.clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof(cl_command_queue),
                                            static_cast<void *>(&queue), nullptr);
  return status == CL_SUCCESS ? queue : nullptr;
}

Kind kind_of(cl_uint count, const cl_event *events) {
  if (!any_out_of_order.load()) {
    return Kind::InOrder;
  }
  Kind strictest = Kind::Free;
  for (cl_uint i = 0; i < count; ++i) {
    if (cl_command_queue queue = queue_of(events[i])) { // a user event has none
      strictest = std::max(strictest, kind_of(queue));
    }
  }
  return strictest;
}

// The state of an event: CL_COMPLETE, an error of the command, or a larger value while it is in flight.
cl_int query_state(cl_event event, cl_int &state) {
  return next.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
}

// Pauses that grow with the time since the first.
class Pauses {
public:
  void pause() {
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited < std::chrono::microseconds(50)) {
      sched_yield();
      return;
    }
    const auto time = std::min<std::chrono::nanoseconds>(waited / 32, std::chrono::milliseconds(1));
    const timespec length{0, static_cast<long>(time.count())};
    nanosleep(&length, nullptr);
  }

private:
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
};

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event *events) {
  if (count == 0 || events == nullptr) {
    return next.clWaitForEvents(count, events);
  }
  const Kind kind = kind_of(count, events);
  bool flushed = false;
  for (Pauses pauses;;) {
    if (enter(kind)) {
      const cl_int status = next.clWaitForEvents(count, events);
      leave(kind);
      return status;
    }
    if (!flushed) { // as a wait does
      flushed = true;
      for (cl_uint i = 0; i < count; ++i) {
        if (cl_command_queue queue = queue_of(events[i])) {
          next.clFlush(queue);
        }
      }
    }
    cl_int last = CL_COMPLETE;
    cl_int failed = CL_SUCCESS;
    for (cl_uint i = 0; i < count; ++i) {
      cl_int state = CL_COMPLETE;
      const cl_int status = query_state(events[i], state);
      if (status != CL_SUCCESS) {
        return status;
      }
      last = std::max(last, state);
      failed = state < CL_COMPLETE ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : failed;
    }
    // The driver may not know yet that the events are complete: a wait would enter it without permission.
    if (last == CL_COMPLETE) {
      return failed;
    }
    pauses.pause();
  }
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  const Kind kind = kind_of(queue);
  cl_event marker = nullptr;
  cl_int status = CL_SUCCESS;
  for (Pauses pauses;;) {
    if (enter(kind)) {
      status = next.clFinish(queue);
      leave(kind);
      break;
    }
    if (marker == nullptr) {
      status = next.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
      if (status != CL_SUCCESS) {
        return status;
      }
      next.clFlush(queue);
    }
    // After a failed command the marker may fail before others are over: only the driver knows when they are.
    cl_int state = CL_QUEUED;
    if (query_state(marker, state) == CL_SUCCESS && state == CL_COMPLETE) {
      break;
    }
    pauses.pause();
  }
  if (marker != nullptr) {
    next.clReleaseEvent(marker);
  }
  return status;
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          cl_command_queue_properties properties, cl_int *status) {
  created.fetch_add(1);
  if ((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0) {
    any_out_of_order.store(true);
  }
  return next.clCreateCommandQueue(context, device, properties, status);
}

cl_command_queue CL_API_CALL create_queue_with(cl_context context, cl_device_id device,
                                               const cl_queue_properties *properties, cl_int *status) {
  created.fetch_add(1);
  for (const cl_queue_properties *entry = properties; entry != nullptr && *entry != 0; entry += 2) {
    if (entry[0] == CL_QUEUE_PROPERTIES && (entry[1] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0) {
      any_out_of_order.store(true);
    }
  }
  return next.clCreateCommandQueueWithProperties(context, device, properties, status);
}

// Queues to release, and when. Never freed: another thread may still release a queue when the process ends.
struct Later {
  std::mutex lock;
  std::deque<std::pair<std::chrono::steady_clock::time_point, cl_command_queue>> queues;
};

cl_int CL_API_CALL release_queue(cl_command_queue queue) {
  constexpr auto delay = std::chrono::milliseconds(250);
  static Later &later = *new Later;
  const auto now = std::chrono::steady_clock::now();
  try {
    const std::lock_guard<std::mutex> guard(later.lock);
    while (!later.queues.empty() && later.queues.front().first <= now) {
      next.clReleaseCommandQueue(later.queues.front().second);
      later.queues.pop_front();
    }
    cl_uint references = 0;
    if (kind_of(queue) == Kind::OutOfOrder &&
        next.clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof references, &references, nullptr) ==
            CL_SUCCESS &&
        references == 1) {
      later.queues.emplace_back(now + delay, queue);
      return CL_SUCCESS;
    }
  } catch (...) { // out of memory: release it now
  }
  return next.clReleaseCommandQueue(queue);
}

// With USMQ_WAIT_LAYER=0 the process does not ask for this part.
bool is_wanted() {
  const char *value = std::getenv("USMQ_WAIT_LAYER"); // NOLINT(concurrency-mt-unsafe): before the runtime has threads
  return value == nullptr || std::strcmp(value, "0") != 0;
}

} // namespace

bool replace_functions(cl_icd_dispatch &table) {
  using T = cl_icd_dispatch;
  const bool fits =
      layer::has<&T::clGetDeviceInfo, &T::clGetCommandQueueInfo, &T::clGetEventInfo, &T::clWaitForEvents, &T::clFinish,
                 &T::clFlush, &T::clEnqueueMarkerWithWaitList, &T::clReleaseEvent, &T::clReleaseCommandQueue>(table);
  if (!fits || !is_wanted()) {
    return false;
  }
  // A second loader in the process opens the layer again.
  static const bool first = (next = table, true);
  static_cast<void>(first);
  layer::replace<&T::clWaitForEvents>(table, wait_for_events);
  layer::replace<&T::clFinish>(table, finish);
  layer::replace<&T::clCreateCommandQueue>(table, create_queue);
  layer::replace<&T::clCreateCommandQueueWithProperties>(table, create_queue_with);
  layer::replace<&T::clReleaseCommandQueue>(table, release_queue);
  return true;
}

} // namespace usmq::waits
