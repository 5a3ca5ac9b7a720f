// Event pools and events. Counter-based events name the command that they follow; others are flags.
#include "events.h"

#include "real.h"
#include "report.h"
#include "switches.h"

#include <unordered_map>
#include <unordered_set>

namespace front {
namespace {

// Never destroyed, as the engines.
auto &events = *new std::unordered_map<ze_event_handle_t, std::shared_ptr<Event>>;
auto &counting_pools = *new std::unordered_set<ze_event_pool_handle_t>;
size_t live_pools = 0;

struct Clock {
  double per_nanosecond;
  uint64_t mask;
};

Clock clock_of(ze_device_handle_t device) {
  static auto &one = *new std::mutex;
  static auto &known = *new std::unordered_map<ze_device_handle_t, Clock>;
  const std::lock_guard<std::mutex> lock(one);
  auto [place, is_new] = known.try_emplace(device);
  if (is_new) {
    ze_device_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2; // cycles per second
    real().device.pfnGetProperties(device, &properties);
    const uint32_t bits = properties.kernelTimestampValidBits;
    place->second = {static_cast<double>(properties.timerResolution) / 1e9,
                     bits >= 64 || bits == 0 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1};
  }
  return place->second;
}

bool complete(const Event &event) {
  if (!event.counter_based) {
    return event.signalled;
  }
  if (event.follows == nullptr) {
    return true; // its initial state
  }
  return event.follows->current != nullptr && event.follows->current->done;
}

std::string busy(const Event &event) {
  return hexadecimal(event.handle) + ": " + std::to_string(event.waiters) +
         " submitted commands wait for it, the last one " + event.last_waiter + ", " +
         std::to_string(event.signallers) + " will signal it";
}

ze_result_t add(ze_result_t result, const ze_event_handle_t *handle, bool counter_based) {
  if (result == ZE_RESULT_SUCCESS) {
    auto event = std::make_shared<Event>();
    event->handle = *handle;
    event->counter_based = counter_based;
    const std::lock_guard<std::mutex> lock(state);
    events[*handle] = event;
  }
  return result;
}

} // namespace

std::shared_ptr<Event> find_event(ze_event_handle_t handle) {
  if (handle == nullptr) {
    return nullptr;
  }
  const auto found = events.find(handle);
  if (found == events.end()) {
    report("an event that was destroyed, or never made: " + hexadecimal(handle));
    refuse("a command with event " + hexadecimal(handle));
  }
  return found->second;
}

std::vector<Wait> waits_of(uint32_t number, ze_event_handle_t *handles) {
  std::vector<Wait> waits;
  for (uint32_t i = 0; i < number; ++i) {
    const auto event = find_event(handles[i]);
    if (event->counter_based && event->follows == nullptr) {
      continue;
    }
    waits.push_back({event, event->counter_based ? event->follows : nullptr});
  }
  return waits;
}

void will_signal(Command &command, ze_event_handle_t handle, bool immediate) {
  command.signal = find_event(handle);
  if (command.signal == nullptr) {
    return;
  }
  if (command.signal->counter_based) {
    command.signal->follows = command.slot;
  } else if (immediate && command.signal->waiters != 0) {
    report("an event is reused: " + command.name + " signals event " + busy(*command.signal));
  }
}

std::shared_ptr<Run> run_of(const Event &event) {
  return event.counter_based ? event.follows != nullptr ? event.follows->current : nullptr : event.signalled_by;
}

uint64_t ticks(uint64_t nanoseconds, ze_device_handle_t device) {
  const Clock clock = clock_of(device);
  return static_cast<uint64_t>(static_cast<long double>(nanoseconds) * clock.per_nanosecond) & clock.mask;
}

ze_kernel_timestamp_result_t timestamps(const std::shared_ptr<Run> &run) {
  ze_kernel_timestamp_result_t result{};
  if (run != nullptr && run->device != nullptr) {
    const uint64_t start = ticks(run->start, run->device);
    const uint64_t end = ticks(run->end, run->device);
    result.global = result.context = {start, end};
  }
  return result;
}

void report_live_events() {
  const std::lock_guard<std::mutex> lock(state);
  if (!events.empty()) {
    report("left at exit: " + std::to_string(events.size()) + " events");
  }
  if (live_pools != 0) {
    report("left at exit: " + std::to_string(live_pools) + " event pools");
  }
}

ze_result_t counter_based_event(ze_context_handle_t context, ze_device_handle_t device, const void *desc,
                                ze_event_handle_t *event) {
  ENTER("zexCounterBasedEventCreate2");
  using Create = ze_result_t (*)(ze_context_handle_t, ze_device_handle_t, const void *, ze_event_handle_t *);
  static const auto create = reinterpret_cast<Create>(real_extension("zexCounterBasedEventCreate2"));
  return add(create(context, device, desc, event), event, true);
}

namespace api {

ze_result_t zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t number,
                              ze_device_handle_t *devices, ze_event_pool_handle_t *pool) {
  ENTER("zeEventPoolCreate");
  const ze_result_t result = real().pool.pfnCreate(context, desc, number, devices, pool);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(state);
    ++live_pools;
    counting_pools.erase(*pool);
    for (auto *next = static_cast<const ze_base_desc_t *>(desc->pNext); next != nullptr;
         next = static_cast<const ze_base_desc_t *>(next->pNext)) {
      if (next->stype == ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC) {
        counting_pools.insert(*pool);
      }
    }
  }
  return result;
}

ze_result_t zeEventPoolDestroy(ze_event_pool_handle_t pool) {
  ENTER("zeEventPoolDestroy");
  const ze_result_t result = real().pool.pfnDestroy(pool);
  if (result == ZE_RESULT_SUCCESS) {
    const std::lock_guard<std::mutex> lock(state);
    --live_pools;
  }
  return result;
}

ze_result_t zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t *desc, ze_event_handle_t *event) {
  ENTER("zeEventCreate");
  bool counting;
  {
    const std::lock_guard<std::mutex> lock(state);
    counting = counting_pools.count(pool) != 0;
  }
  return add(real().event.pfnCreate(pool, desc, event), event, counting);
}

ze_result_t zeEventCounterBasedCreate(ze_context_handle_t context, ze_device_handle_t device,
                                      const ze_event_counter_based_desc_t *desc, ze_event_handle_t *event) {
  ENTER("zeEventCounterBasedCreate");
  return add(real().event.pfnCounterBasedCreate(context, device, desc, event), event, true);
}

ze_result_t zeEventDestroy(ze_event_handle_t handle) {
  ENTER("zeEventDestroy");
  {
    const std::lock_guard<std::mutex> lock(state);
    const auto event = find_event(handle);
    if (!lost() && !event->counter_based && (event->waiters != 0 || event->signallers != 0)) {
      report("an event is destroyed too early: event " + busy(*event));
    }
    events.erase(handle);
  }
  return real().event.pfnDestroy(handle);
}

ze_result_t zeEventHostSignal(ze_event_handle_t handle) {
  ENTER("zeEventHostSignal");
  {
    const std::lock_guard<std::mutex> lock(state);
    const auto event = find_event(handle);
    auto run = std::make_shared<Run>();
    run->done = true;
    run->start = run->end = now();
    event->signalled = true;
    event->signalled_by = run;
  }
  changed.notify_all();
  return real().event.pfnHostSignal(handle);
}

ze_result_t zeEventHostReset(ze_event_handle_t handle) {
  ENTER("zeEventHostReset");
  {
    const std::lock_guard<std::mutex> lock(state);
    const auto event = find_event(handle);
    if (!event->counter_based) {
      if (event->waiters != 0 || event->signallers != 0) {
        report("an event is reset too early: event " + busy(*event));
      }
      event->signalled = false;
      event->signalled_by = nullptr;
    }
  }
  return real().event.pfnHostReset(handle);
}

ze_result_t zeEventHostSynchronize(ze_event_handle_t handle, uint64_t timeout) {
  ENTER("zeEventHostSynchronize");
  std::unique_lock<std::mutex> lock(state);
  const auto event = find_event(handle);
  if (event->counter_based) {
    const auto slot = event->follows; // another thread may give the event to another command
    return wait_until(lock, timeout,
                      [&] { return slot == nullptr || (slot->current != nullptr && slot->current->done); });
  }
  return wait_until(lock, timeout, [&] { return event->signalled; });
}

ze_result_t zeEventQueryStatus(ze_event_handle_t handle) {
  ENTER("zeEventQueryStatus");
  const std::lock_guard<std::mutex> lock(state);
  return complete(*find_event(handle)) ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t zeEventQueryKernelTimestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t *result) {
  ENTER("zeEventQueryKernelTimestamp");
  const std::lock_guard<std::mutex> lock(state);
  const auto event = find_event(handle);
  if (!complete(*event)) {
    return ZE_RESULT_NOT_READY;
  }
  *result = timestamps(run_of(*event));
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetGlobalTimestamps(ze_device_handle_t device, uint64_t *host, uint64_t *clock) {
  ENTER("zeDeviceGetGlobalTimestamps");
  const uint64_t time = now();
  *host = time;
  *clock = ticks(time, device);
  return ZE_RESULT_SUCCESS;
}

} // namespace api
} // namespace front
