// Copies, fills, barriers, signals and times: accepted by the real driver, then carried out by an engine.
#include "appends.h"

#include "events.h"
#include "lists.h"
#include "memory.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <cstring>

namespace front {
namespace {

// The real driver carries out copies between ordinary host memory and device memory up to this size itself, and
// its caller waits.
constexpr size_t BLOCKING_COPY = size_t{4} << 20;

bool blocks(const void *to, const void *from, size_t size) {
  return switches().blocking_copies && size <= BLOCKING_COPY && ordinary(to) != ordinary(from);
}

void copy(ze_device_handle_t device, void *to, const void *from, size_t size, const char *name) {
  const char *source = resolve(from, size, device, name);
  std::memmove(resolve(to, size, device, name), source, size);
}

// The offset of a row of a region, and of the first byte after its last row.
size_t row_offset(const ze_copy_region_t &region, size_t pitch, size_t slice_pitch, size_t row, size_t slice) {
  return region.originX + (region.originY + row) * pitch + (region.originZ + slice) * slice_pitch;
}

} // namespace

namespace api {

ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void *to, const void *from, size_t size,
                                          ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events) {
  ENTER("zeCommandListAppendMemoryCopy");
  const ze_result_t result = real().list.pfnAppendMemoryCopy(list, to, from, size, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  return append(list, {"a copy", signal, waits, events, [=] { copy(device, to, from, size, "a copy"); }, false,
                       blocks(to, from, size)});
}

ze_result_t zeCommandListAppendMemoryCopyFromContext(ze_command_list_handle_t list, void *to,
                                                     ze_context_handle_t context, const void *from, size_t size,
                                                     ze_event_handle_t signal, uint32_t waits,
                                                     ze_event_handle_t *events) {
  ENTER("zeCommandListAppendMemoryCopyFromContext");
  const ze_result_t result =
      real().list.pfnAppendMemoryCopyFromContext(list, to, context, from, size, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  return append(list, {"a copy", signal, waits, events, [=] { copy(device, to, from, size, "a copy"); }, false,
                       blocks(to, from, size)});
}

ze_result_t zeCommandListAppendMemoryCopyRegion(ze_command_list_handle_t list, void *to,
                                                const ze_copy_region_t *to_region, uint32_t to_pitch,
                                                uint32_t to_slice_pitch, const void *from,
                                                const ze_copy_region_t *from_region, uint32_t from_pitch,
                                                uint32_t from_slice_pitch, ze_event_handle_t signal, uint32_t waits,
                                                ze_event_handle_t *events) {
  ENTER("zeCommandListAppendMemoryCopyRegion");
  const ze_result_t result =
      real().list.pfnAppendMemoryCopyRegion(list, to, to_region, to_pitch, to_slice_pitch, from, from_region,
                                            from_pitch, from_slice_pitch, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  const auto work = [=, t = *to_region, f = *from_region] {
    const size_t slices = f.depth == 0 ? 1 : f.depth;
    for (size_t slice = 0; slice < slices; ++slice) {
      for (size_t row = 0; row < f.height; ++row) {
        copy(device, static_cast<char *>(to) + row_offset(t, to_pitch, to_slice_pitch, row, slice),
             static_cast<const char *>(from) + row_offset(f, from_pitch, from_slice_pitch, row, slice), f.width,
             "a copy of a region");
      }
    }
  };
  const size_t size = size_t{from_region->width} * from_region->height;
  return append(list, {"a copy of a region", signal, waits, events, work, false, blocks(to, from, size)});
}

ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void *to, const void *pattern,
                                          size_t pattern_size, size_t size, ze_event_handle_t signal, uint32_t waits,
                                          ze_event_handle_t *events) {
  ENTER("zeCommandListAppendMemoryFill");
  const ze_result_t result =
      real().list.pfnAppendMemoryFill(list, to, pattern, pattern_size, size, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  const std::string bytes(static_cast<const char *>(pattern), pattern_size);
  const auto work = [=] {
    char *place = resolve(to, size, device, "a fill");
    for (size_t done = 0; done < size; done += bytes.size()) {
      std::memcpy(place + done, bytes.data(), std::min(bytes.size(), size - done));
    }
  };
  return append(list, {"a fill", signal, waits, events, work});
}

ze_result_t zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t list, const void *address, size_t size) {
  ENTER("zeCommandListAppendMemoryPrefetch");
  const ze_result_t result = real().list.pfnAppendMemoryPrefetch(list, address, size);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  return append(list, {"a prefetch", nullptr, 0, nullptr, [=] { resolve(address, size, device, "a prefetch"); }});
}

ze_result_t zeCommandListAppendMemAdvise(ze_command_list_handle_t list, ze_device_handle_t device, const void *address,
                                         size_t size, ze_memory_advice_t advice) {
  ENTER("zeCommandListAppendMemAdvise");
  // Shared memory is host memory of the real driver, which takes no advice for it.
  (void)list, (void)device, (void)address, (void)size, (void)advice;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t signal, uint32_t waits,
                                       ze_event_handle_t *events) {
  ENTER("zeCommandListAppendBarrier");
  const ze_result_t result = real().list.pfnAppendBarrier(list, signal, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append(list, {"a barrier", signal, waits, events, nullptr, true});
}

ze_result_t zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t list, uint32_t number, const size_t *sizes,
                                                   const void **ranges, ze_event_handle_t signal, uint32_t waits,
                                                   ze_event_handle_t *events) {
  ENTER("zeCommandListAppendMemoryRangesBarrier");
  const ze_result_t result =
      real().list.pfnAppendMemoryRangesBarrier(list, number, sizes, ranges, signal, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append(list, {"a barrier", signal, waits, events, nullptr, true});
}

ze_result_t zeCommandListAppendSignalEvent(ze_command_list_handle_t list, ze_event_handle_t event) {
  ENTER("zeCommandListAppendSignalEvent");
  const ze_result_t result = real().list.pfnAppendSignalEvent(list, event);
  return result != ZE_RESULT_SUCCESS ? result : append(list, {"a signal", event, 0, nullptr, nullptr, true});
}

ze_result_t zeCommandListAppendWaitOnEvents(ze_command_list_handle_t list, uint32_t waits, ze_event_handle_t *events) {
  ENTER("zeCommandListAppendWaitOnEvents");
  const ze_result_t result = real().list.pfnAppendWaitOnEvents(list, waits, events);
  return result != ZE_RESULT_SUCCESS ? result : append(list, {"a wait", nullptr, waits, events, nullptr, true});
}

ze_result_t zeCommandListAppendEventReset(ze_command_list_handle_t list, ze_event_handle_t handle) {
  ENTER("zeCommandListAppendEventReset");
  const ze_result_t result = real().list.pfnAppendEventReset(list, handle);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  std::shared_ptr<Event> event;
  {
    const std::lock_guard<std::mutex> lock(state);
    event = find_event(handle);
  }
  const auto work = [event] {
    const std::lock_guard<std::mutex> lock(state);
    event->signalled = false;
    event->signalled_by = nullptr;
  };
  return append(list, {"a reset", nullptr, 0, nullptr, work, true});
}

ze_result_t zeCommandListAppendWriteGlobalTimestamp(ze_command_list_handle_t list, uint64_t *to,
                                                    ze_event_handle_t signal, uint32_t waits,
                                                    ze_event_handle_t *events) {
  ENTER("zeCommandListAppendWriteGlobalTimestamp");
  const ze_result_t result = real().list.pfnAppendWriteGlobalTimestamp(list, to, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  const auto device = device_of(list);
  const auto work = [=] {
    const uint64_t time = ticks(now(), device);
    std::memcpy(resolve(to, sizeof time, device, "a timestamp"), &time, sizeof time);
  };
  return append(list, {"a timestamp", signal, waits, events, work, true});
}

ze_result_t zeCommandListAppendQueryKernelTimestamps(ze_command_list_handle_t list, uint32_t number,
                                                     ze_event_handle_t *queried, void *to, const size_t *offsets,
                                                     ze_event_handle_t signal, uint32_t waits,
                                                     ze_event_handle_t *events) {
  ENTER("zeCommandListAppendQueryKernelTimestamps");
  const ze_result_t result =
      real().list.pfnAppendQueryKernelTimestamps(list, number, queried, to, offsets, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  std::vector<std::shared_ptr<Event>> all;
  std::vector<size_t> places;
  {
    const std::lock_guard<std::mutex> lock(state);
    for (uint32_t i = 0; i < number; ++i) {
      all.push_back(find_event(queried[i]));
      places.push_back(offsets != nullptr ? offsets[i] : i * sizeof(ze_kernel_timestamp_result_t));
    }
  }
  const auto device = device_of(list);
  const auto work = [=] {
    for (size_t i = 0; i < all.size(); ++i) {
      ze_kernel_timestamp_result_t times;
      {
        const std::lock_guard<std::mutex> lock(state);
        times = timestamps(run_of(*all[i]));
      }
      std::memcpy(resolve(static_cast<char *>(to) + places[i], sizeof times, device, "a query of timestamps"), &times,
                  sizeof times);
    }
  };
  return append(list, {"a query of timestamps", signal, waits, events, work, true});
}

ze_result_t zeCommandListAppendHostFunction(ze_command_list_handle_t list, ze_host_function_callback_t function,
                                            void *data, const void *next, ze_event_handle_t signal, uint32_t waits,
                                            ze_event_handle_t *events) {
  ENTER("zeCommandListAppendHostFunction");
  // The real driver would call the function itself.
  (void)next;
  return append(list, {"a host function", signal, waits, events, [=] { function(data); }, true});
}

} // namespace api
} // namespace front
