// The part of the layer that makes all queues of the CPU driver in-order, for every library of the process.
//
// The driver executes commands in its workers and in the threads that wait, at most one of them per core. A thread that
// waits when all places are taken leaves its wait to one of the others. If that thread has begun a command of the same
// out-of-order queue and waits for its parts, it now waits for itself, for ever. The driver also crashes when an
// out-of-order queue gets a command while its last barrier ends, and a released out-of-order queue can stop later ones.
// Queues that execute in order have none of these defects (docs/upstream.md), and an out-of-order queue may execute in
// order: its commands only wait for commands that were enqueued before.
#include "layer.h"

#include <cstdlib>
#include <vector>

namespace usmq::queues {

namespace {

// The functions of the driver. A copy: loaders of 2026.2 free theirs during process exit, and the runtime may still
// call. Constant after the first table.
cl_icd_dispatch next;

constexpr cl_command_queue_properties out_of_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;

bool is_cpu(cl_device_id device) {
  cl_device_type type = 0;
  return next.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr) == CL_SUCCESS &&
         (type & CL_DEVICE_TYPE_CPU) != 0;
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          cl_command_queue_properties properties, cl_int *status) {
  return next.clCreateCommandQueue(context, device, is_cpu(device) ? properties & ~out_of_order : properties, status);
}

cl_command_queue CL_API_CALL create_queue_with(cl_context context, cl_device_id device,
                                               const cl_queue_properties *properties, cl_int *status) {
  if (properties == nullptr || !is_cpu(device)) {
    return next.clCreateCommandQueueWithProperties(context, device, properties, status);
  }
  try {
    std::vector<cl_queue_properties> own;
    for (const cl_queue_properties *entry = properties; *entry != 0; entry += 2) {
      own.push_back(entry[0]);
      own.push_back(entry[0] == CL_QUEUE_PROPERTIES ? entry[1] & ~out_of_order : entry[1]);
    }
    own.push_back(0);
    return next.clCreateCommandQueueWithProperties(context, device, own.data(), status);
  } catch (...) {
    if (status != nullptr) {
      *status = CL_OUT_OF_HOST_MEMORY;
    }
    return nullptr;
  }
}

// With USMQ_WAIT_LAYER=0 the process does not ask for this part.
bool is_wanted() {
  const char *value = std::getenv("USMQ_WAIT_LAYER"); // NOLINT(concurrency-mt-unsafe): before the runtime has threads
  return value == nullptr || std::strcmp(value, "0") != 0;
}

} // namespace

bool replace_functions(cl_icd_dispatch &table) {
  using T = cl_icd_dispatch;
  const bool fits = layer::has<&T::clGetDeviceInfo, &T::clCreateCommandQueueWithProperties>(table);
  if (!fits || !is_wanted()) {
    return false;
  }
  // A second loader in the process opens the layer again.
  static const bool first = (next = table, true);
  static_cast<void>(first);
  layer::replace<&T::clCreateCommandQueue>(table, create_queue);
  layer::replace<&T::clCreateCommandQueueWithProperties>(table, create_queue_with);
  return true;
}

} // namespace usmq::queues
