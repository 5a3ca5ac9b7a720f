// Wraps the functions that enqueue a command.
#include "commands.h"

#include "checks.h"
#include "events.h"
#include "failures.h"

#include <thread>
#include <tuple>

namespace usmq::emulator {

namespace {

// Enqueues a marker in place of a command: it completes after the command's dependencies, and counts as failed.
cl_int enqueue_failed(cl_command_queue queue, const Order &order, cl_int status, Blocks blocks) {
  cl_event marker = nullptr;
  const cl_int put = next.clEnqueueMarkerWithWaitList(queue, order.wait_count, order.wait_list, &marker);
  if (put != CL_SUCCESS) {
    return put;
  }
  // The layer keeps one reference: clFinish reports the failure if the program takes no event.
  mark_failed(marker, queue, status);
  if (order.event != nullptr) {
    next.clRetainEvent(marker);
    *order.event = marker;
  }
  if (blocks == Blocks::yes) {
    next.clWaitForEvents(1, &marker);
    return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  }
  return CL_SUCCESS;
}

void CL_CALLBACK sleep_for(void *argument) {
  std::chrono::microseconds delay{};
  std::memcpy(&delay, argument, sizeof delay);
  std::this_thread::sleep_for(delay);
}

// Keeps the device busy before a command. In an out-of-order queue the command waits for the delay by an event.
cl_int enqueue_delay(cl_command_queue queue, const Order &order, std::chrono::microseconds delay, cl_event *event) {
  return next.clEnqueueNativeKernel(queue, sleep_for, &delay, sizeof delay, 0, nullptr, nullptr, order.wait_count,
                                    order.wait_list, event);
}

Blocks blocks_if(cl_bool blocking) { return blocking != CL_FALSE ? Blocks::yes : Blocks::no; }

// Generates the layer's function for an entry of the table whose last parameters are those of `Order`.
template <auto Entry, Counts Counted, typename Function> struct Command;

template <auto Entry, Counts Counted, typename... Parameters>
struct Command<Entry, Counted, cl_int(CL_API_CALL *)(cl_command_queue, Parameters...)> {
  static cl_int CL_API_CALL call(cl_command_queue queue, Parameters... parameters) {
    return guarded([&] {
      const std::tuple<Parameters...> given(parameters...);
      constexpr std::size_t last = sizeof...(Parameters) - 1;
      const Order order{std::get<last - 2>(given), std::get<last - 1>(given), std::get<last>(given)};
      return enqueue(queue, order, Counted, blocks(given), [&](const Order &now) {
        std::tuple<Parameters...> changed(given);
        std::get<last - 2>(changed) = now.wait_count;
        std::get<last - 1>(changed) = now.wait_list;
        std::get<last>(changed) = now.event;
        return std::apply([&](auto... all) { return (next.*Entry)(queue, all...); }, changed);
      });
    });
  }

  // Reads and writes have it after the memory object; no other function has this type there.
  static Blocks blocks([[maybe_unused]] const std::tuple<Parameters...> &given) {
    if constexpr (std::is_same_v<std::decay_t<std::tuple_element_t<0, std::tuple<Parameters...>>>, cl_mem> &&
                  std::is_same_v<std::decay_t<std::tuple_element_t<1, std::tuple<Parameters...>>>, cl_bool>) {
      return blocks_if(std::get<1>(given));
    }
    return Blocks::no;
  }
};

template <auto Entry, Counts Counted = Counts::yes> void replace(cl_icd_dispatch &table) {
  using Function = std::remove_reference_t<decltype(table.*Entry)>;
  layer::replace<Entry>(table, Command<Entry, Counted, Function>::call);
}

// Enqueues a command if the queue's device may use the pointers.
template <std::size_t Count, typename Put>
cl_int enqueue_checked(cl_command_queue queue, const Use (&uses)[Count], const Order &order, Counts counts,
                       Blocks blocks, const Put &put) {
  return guarded([&] {
    const cl_int status = check(queue, uses);
    return status == CL_SUCCESS ? enqueue(queue, order, counts, blocks, put) : status;
  });
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                  const std::size_t *offset, const std::size_t *global, const std::size_t *local,
                                  cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return guarded([&] {
    const cl_int status = check_arguments(queue, kernel);
    if (status != CL_SUCCESS) {
      return status;
    }
    return enqueue(queue, {wait_count, wait_list, event}, Counts::yes, Blocks::no, [&](const Order &order) {
      return next.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, order.wait_count,
                                         order.wait_list, order.event);
    });
  });
}

cl_int CL_API_CALL enqueue_svm_copy(cl_command_queue queue, cl_bool blocking, void *to, const void *from,
                                    std::size_t size, cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return enqueue_checked(queue, {{from, "source of a copy", Access::copy_source}, {to, "destination of a copy"}},
                         {wait_count, wait_list, event}, Counts::yes, blocks_if(blocking), [&](const Order &order) {
                           return next.clEnqueueSVMMemcpy(queue, blocking, to, from, size, order.wait_count,
                                                          order.wait_list, order.event);
                         });
}

cl_int CL_API_CALL enqueue_svm_fill(cl_command_queue queue, void *to, const void *pattern, std::size_t pattern_size,
                                    std::size_t size, cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return enqueue_checked(queue, {{to, "fill"}}, {wait_count, wait_list, event}, Counts::yes, Blocks::no,
                         [&](const Order &order) {
                           return next.clEnqueueSVMMemFill(queue, to, pattern, pattern_size, size, order.wait_count,
                                                           order.wait_list, order.event);
                         });
}

// Refuses functions of the host: nothing is known about the memory that they use.
cl_int CL_API_CALL enqueue_native(cl_command_queue /*queue*/, void(CL_CALLBACK * /*function*/)(void *), void * /*args*/,
                                  std::size_t /*size*/, cl_uint /*count*/, const cl_mem * /*list*/,
                                  const void ** /*places*/, cl_uint /*wait_count*/, const cl_event * /*wait_list*/,
                                  cl_event * /*event*/) {
  return CL_INVALID_OPERATION;
}

} // namespace

cl_int enqueue_by(cl_command_queue queue, const Order &order, Counts counts, Blocks blocks, PutCommand call,
                  void *put) {
  const Emulation *known = emulation();
  if (known == nullptr || known->settings.faults.empty()) {
    return call(put, order);
  }
  const Root *root = root_of(queue);
  const Root *gpu = root != nullptr && root->is_gpu ? root : nullptr;
  if (gpu != nullptr) {
    const Outcome outcome = counts == Counts::yes ? next_command(*gpu) : is_lost(*gpu) ? Outcome::lost : Outcome::works;
    if (outcome == Outcome::lost) {
      return CL_DEVICE_NOT_AVAILABLE;
    }
    if (outcome == Outcome::fails) {
      return enqueue_failed(queue, order, kCommandFailed, blocks);
    }
  }
  if (waits_for_failed(queue, order.wait_count, order.wait_list)) {
    return enqueue_failed(queue, order, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, blocks);
  }
  const auto delay = gpu != nullptr && counts == Counts::yes ? delay_of(*gpu) : std::chrono::microseconds{0};
  if (delay.count() == 0) {
    return call(put, order);
  }
  cl_event slept = nullptr;
  const cl_int status = enqueue_delay(queue, order, delay, &slept);
  if (status != CL_SUCCESS) {
    return status;
  }
  const cl_int done = call(put, Order{1, &slept, order.event});
  next.clReleaseEvent(slept);
  return done;
}

void replace_commands(cl_icd_dispatch &table) {
  layer::replace<&cl_icd_dispatch::clEnqueueNDRangeKernel>(table, enqueue_kernel);
  layer::replace<&cl_icd_dispatch::clEnqueueSVMMemcpy>(table, enqueue_svm_copy);
  layer::replace<&cl_icd_dispatch::clEnqueueSVMMemFill>(table, enqueue_svm_fill);
  layer::replace<&cl_icd_dispatch::clEnqueueNativeKernel>(table, enqueue_native);
  replace<&cl_icd_dispatch::clEnqueueReadBuffer>(table);
  replace<&cl_icd_dispatch::clEnqueueWriteBuffer>(table);
  replace<&cl_icd_dispatch::clEnqueueCopyBuffer>(table);
  replace<&cl_icd_dispatch::clEnqueueReadBufferRect>(table);
  replace<&cl_icd_dispatch::clEnqueueWriteBufferRect>(table);
  replace<&cl_icd_dispatch::clEnqueueCopyBufferRect>(table);
  replace<&cl_icd_dispatch::clEnqueueFillBuffer>(table);
  replace<&cl_icd_dispatch::clEnqueueReadImage>(table);
  replace<&cl_icd_dispatch::clEnqueueWriteImage>(table);
  replace<&cl_icd_dispatch::clEnqueueCopyImage>(table);
  replace<&cl_icd_dispatch::clEnqueueFillImage>(table);
  replace<&cl_icd_dispatch::clEnqueueMarkerWithWaitList, Counts::no>(table);
  replace<&cl_icd_dispatch::clEnqueueBarrierWithWaitList, Counts::no>(table);
}

cl_int CL_API_CALL enqueue_copy(cl_command_queue queue, cl_bool blocking, void *to, const void *from, std::size_t size,
                                cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return enqueue_checked(queue, {{from, "source of a copy", Access::copy_source}, {to, "destination of a copy"}},
                         {wait_count, wait_list, event}, Counts::yes, blocks_if(blocking), [&](const Order &order) {
                           return usm().copy(queue, blocking, to, from, size, order.wait_count, order.wait_list,
                                             order.event);
                         });
}

cl_int CL_API_CALL enqueue_fill(cl_command_queue queue, void *to, const void *pattern, std::size_t pattern_size,
                                std::size_t size, cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
  return enqueue_checked(
      queue, {{to, "fill"}}, {wait_count, wait_list, event}, Counts::yes, Blocks::no, [&](const Order &order) {
        return usm().fill(queue, to, pattern, pattern_size, size, order.wait_count, order.wait_list, order.event);
      });
}

cl_int CL_API_CALL enqueue_migrate(cl_command_queue queue, const void *pointer, std::size_t size,
                                   cl_mem_migration_flags flags, cl_uint wait_count, const cl_event *wait_list,
                                   cl_event *event) {
  return enqueue_checked(
      queue, {{pointer, "prefetch"}}, {wait_count, wait_list, event}, Counts::yes, Blocks::no, [&](const Order &order) {
        return usm().migrate(queue, pointer, size, flags, order.wait_count, order.wait_list, order.event);
      });
}

cl_int CL_API_CALL enqueue_advise(cl_command_queue queue, const void *pointer, std::size_t size,
                                  cl_mem_advice_intel advice, cl_uint wait_count, const cl_event *wait_list,
                                  cl_event *event) {
  return enqueue_checked(
      queue, {{pointer, "advice"}}, {wait_count, wait_list, event}, Counts::no, Blocks::no, [&](const Order &order) {
        return usm().advise(queue, pointer, size, advice, order.wait_count, order.wait_list, order.event);
      });
}

} // namespace usmq::emulator
