// Wraps the functions of cl_khr_command_buffer that use memory or run a buffer.
#include "graphs.h"

#include "checks.h"
#include "commands.h"

#include <atomic>
#include <vector>

namespace usmq::emulator {

namespace {

// The driver's functions, stored when the runtime queries them.
struct Originals {
  std::atomic<clGetCommandBufferInfoKHR_fn> info{nullptr};
  std::atomic<clCommandNDRangeKernelKHR_fn> kernel{nullptr};
  std::atomic<clCommandSVMMemcpyKHR_fn> copy{nullptr};
  std::atomic<clCommandSVMMemFillKHR_fn> fill{nullptr};
  std::atomic<clEnqueueCommandBufferKHR_fn> run{nullptr};
};

Originals originals;

// The queue for which a buffer is recorded.
cl_command_queue queue_of(cl_command_buffer_khr buffer, cl_command_queue given) {
  if (given != nullptr) {
    return given;
  }
  clGetCommandBufferInfoKHR_fn info = originals.info;
  if (info == nullptr) {
    info = reinterpret_cast<clGetCommandBufferInfoKHR_fn>(
        next.clGetExtensionFunctionAddressForPlatform(emulation()->platform, "clGetCommandBufferInfoKHR"));
    originals.info = info;
  }
  std::size_t size = 0;
  if (info == nullptr || info(buffer, CL_COMMAND_BUFFER_QUEUES_KHR, 0, nullptr, &size) != CL_SUCCESS ||
      size < sizeof(cl_command_queue)) {
    return nullptr;
  }
  std::vector<cl_command_queue> queues(size / sizeof(cl_command_queue));
  info(buffer, CL_COMMAND_BUFFER_QUEUES_KHR, size, static_cast<void *>(queues.data()), nullptr);
  return queues.front();
}

cl_int CL_API_CALL record_kernel(cl_command_buffer_khr buffer, cl_command_queue queue,
                                 const cl_command_properties_khr *properties, cl_kernel kernel, cl_uint dimensions,
                                 const std::size_t *offset, const std::size_t *global, const std::size_t *local,
                                 cl_uint wait_count, const cl_sync_point_khr *wait_list, cl_sync_point_khr *point,
                                 cl_mutable_command_khr *handle) {
  return guarded([&] {
    const cl_int status = check_arguments(queue_of(buffer, queue), kernel);
    return status != CL_SUCCESS ? status
                                : originals.kernel.load()(buffer, queue, properties, kernel, dimensions, offset, global,
                                                          local, wait_count, wait_list, point, handle);
  });
}

cl_int CL_API_CALL record_copy(cl_command_buffer_khr buffer, cl_command_queue queue,
                               const cl_command_properties_khr *properties, void *to, const void *from,
                               std::size_t size, cl_uint wait_count, const cl_sync_point_khr *wait_list,
                               cl_sync_point_khr *point, cl_mutable_command_khr *handle) {
  return guarded([&] {
    const cl_int status = check(queue_of(buffer, queue),
                                {{from, "source of a copy", Access::copy_source}, {to, "destination of a copy"}});
    return status != CL_SUCCESS
               ? status
               : originals.copy.load()(buffer, queue, properties, to, from, size, wait_count, wait_list, point, handle);
  });
}

cl_int CL_API_CALL record_fill(cl_command_buffer_khr buffer, cl_command_queue queue,
                               const cl_command_properties_khr *properties, void *to, const void *pattern,
                               std::size_t pattern_size, std::size_t size, cl_uint wait_count,
                               const cl_sync_point_khr *wait_list, cl_sync_point_khr *point,
                               cl_mutable_command_khr *handle) {
  return guarded([&] {
    const cl_int status = check(queue_of(buffer, queue), {{to, "fill"}});
    return status != CL_SUCCESS ? status
                                : originals.fill.load()(buffer, queue, properties, to, pattern, pattern_size, size,
                                                        wait_count, wait_list, point, handle);
  });
}

cl_int CL_API_CALL run_buffer(cl_uint queue_count, cl_command_queue *queues, cl_command_buffer_khr buffer,
                              cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return guarded([&] {
    cl_command_queue queue = queue_of(buffer, queue_count > 0 && queues != nullptr ? queues[0] : nullptr);
    return enqueue(queue, {wait_count, wait_list, event}, Counts::yes, Blocks::no, [&](const Order &order) {
      return originals.run.load()(queue_count, queues, buffer, order.wait_count, order.wait_list, order.event);
    });
  });
}

template <typename Function>
bool takes(const char *name, const char *wanted, std::atomic<Function> &original, void *own) {
  if (std::strcmp(name, wanted) != 0) {
    return false;
  }
  original = reinterpret_cast<Function>(own);
  return true;
}

} // namespace

void *replace_graph_function(const char *name, void *own) {
  if (takes(name, "clCommandNDRangeKernelKHR", originals.kernel, own)) {
    return reinterpret_cast<void *>(record_kernel);
  }
  if (takes(name, "clCommandSVMMemcpyKHR", originals.copy, own)) {
    return reinterpret_cast<void *>(record_copy);
  }
  if (takes(name, "clCommandSVMMemFillKHR", originals.fill, own)) {
    return reinterpret_cast<void *>(record_fill);
  }
  if (takes(name, "clEnqueueCommandBufferKHR", originals.run, own)) {
    return reinterpret_cast<void *>(run_buffer);
  }
  return own;
}

} // namespace usmq::emulator
