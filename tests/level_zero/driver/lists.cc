// Command lists, queues and fences.
#include "lists.h"

#include "events.h"
#include "real.h"
#include "report.h"
#include "switches.h"

#include <cstdio>
#include <unordered_map>

namespace front {
namespace {

struct Queue {
  ze_device_handle_t device;
  Engine *engine;
  bool synchronous;
  std::shared_ptr<Pending> pending = std::make_shared<Pending>();
};

struct Fence {
  bool signalled = false;
  std::shared_ptr<Run> run;
};

// Never destroyed, as the engines.
auto &lists = *new std::unordered_map<ze_command_list_handle_t, std::shared_ptr<List>>;
auto &queues = *new std::unordered_map<ze_command_queue_handle_t, std::shared_ptr<Queue>>;
auto &fences = *new std::unordered_map<ze_fence_handle_t, std::shared_ptr<Fence>>;

template <class Map, class Handle> auto &find(Map &map, Handle handle, const char *kind) {
  const auto found = map.find(handle);
  if (found == map.end()) {
    report(std::string(kind) + " that was destroyed, or never made: " + hexadecimal(handle));
    refuse(std::string("a call with ") + kind + " " + hexadecimal(handle));
  }
  return found->second;
}

bool signalled(const Fence &fence) { return fence.signalled || (fence.run != nullptr && fence.run->done); }

// Submits what regular lists hold. The caller holds `state`.
void submit_lists(Engine *engine, uint32_t number, ze_command_list_handle_t *handles) {
  for (uint32_t i = 0; i < number; ++i) {
    const List &list = find_list(handles[i]);
    if (switches().trace) {
      std::fprintf(stderr, "  list %s\n", hexadecimal(handles[i]).c_str());
    }
    for (const Command &command : list.commands) {
      submit(engine, command, list.pending, true);
    }
  }
}

void check_unused(const List &list, const char *what) {
  if (list.pending->commands != 0 && !lost()) {
    report(std::string("a list is ") + what + " too early: " + std::to_string(list.pending->commands) +
           " of its commands are not complete");
  }
}

Command ordered_command(const std::string &name) {
  Command command;
  command.name = name;
  command.ordered = true;
  return command;
}

} // namespace

List &find_list(ze_command_list_handle_t handle) { return *find(lists, handle, "a command list"); }

ze_device_handle_t device_of(ze_command_list_handle_t handle) {
  const std::lock_guard<std::mutex> lock(state);
  return find_list(handle).device;
}

ze_result_t append(ze_command_list_handle_t handle, Appended what) {
  std::unique_lock<std::mutex> lock(state);
  const std::shared_ptr<List> list = find(lists, handle, "a command list");
  Command command;
  command.name = std::move(what.name);
  command.waits = waits_of(what.waits, what.events);
  command.work = std::move(what.work);
  command.ordered = what.ordered;
  command.id = list->next_id;
  list->next_id = 0;
  will_signal(command, what.signal, list->immediate);
  if (!list->immediate) {
    if (switches().trace) {
      std::fprintf(stderr, "  %s in list %s, signals %s\n", command.name.c_str(), hexadecimal(handle).c_str(),
                   hexadecimal(what.signal).c_str());
    }
    list->commands.push_back(std::move(command));
    return ZE_RESULT_SUCCESS;
  }
  const auto run = submit(list->engine, command, list->pending, false);
  if (list->synchronous || what.blocks) {
    return wait_until(lock, UINT64_MAX, [&] { return run->done; });
  }
  return ZE_RESULT_SUCCESS;
}

void report_live_lists() {
  const std::lock_guard<std::mutex> lock(state);
  if (!lists.empty()) {
    report("left at exit: " + std::to_string(lists.size()) + " command lists");
  }
  if (!queues.empty()) {
    report("left at exit: " + std::to_string(queues.size()) + " command queues");
  }
  if (!fences.empty()) {
    report("left at exit: " + std::to_string(fences.size()) + " fences");
  }
}

namespace api {

ze_result_t zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                 const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *handle) {
  ENTER("zeCommandQueueCreate");
  const ze_result_t result = real().queue.pfnCreate(context, device, desc, handle);
  if (result == ZE_RESULT_SUCCESS) {
    auto queue = std::make_shared<Queue>();
    queue->device = device;
    queue->engine = engine_of(device, desc->ordinal, desc->index, desc->priority);
    queue->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    queue->pending->in_order = true;
    const std::lock_guard<std::mutex> lock(state);
    queues[*handle] = queue;
  }
  return result;
}

ze_result_t zeCommandQueueDestroy(ze_command_queue_handle_t handle) {
  ENTER("zeCommandQueueDestroy");
  {
    const std::lock_guard<std::mutex> lock(state);
    const auto &queue = find(queues, handle, "a command queue");
    if (queue->pending->commands != 0 && !lost()) {
      report("a command queue is destroyed too early: its commands are not complete");
    }
    queues.erase(handle);
  }
  return real().queue.pfnDestroy(handle);
}

ze_result_t zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t handle, uint32_t number,
                                              ze_command_list_handle_t *handles, ze_fence_handle_t fence) {
  ENTER("zeCommandQueueExecuteCommandLists");
  const ze_result_t result = real().queue.pfnExecuteCommandLists(handle, number, handles, fence);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  std::unique_lock<std::mutex> lock(state);
  const std::shared_ptr<Queue> queue = find(queues, handle, "a command queue");
  submit_lists(queue->engine, number, handles);
  const auto run = submit(queue->engine, ordered_command("end of command lists"), queue->pending, true);
  if (fence != nullptr) {
    find(fences, fence, "a fence")->run = run;
  }
  return queue->synchronous ? wait_until(lock, UINT64_MAX, [&] { return run->done; }) : ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t handle, uint64_t timeout) {
  ENTER("zeCommandQueueSynchronize");
  std::unique_lock<std::mutex> lock(state);
  const auto pending = find(queues, handle, "a command queue")->pending;
  return wait_until(lock, timeout, [&] { return pending->commands == 0; });
}

ze_result_t zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                const ze_command_list_desc_t *desc, ze_command_list_handle_t *handle) {
  ENTER("zeCommandListCreate");
  const ze_result_t result = real().list.pfnCreate(context, device, desc, handle);
  if (result == ZE_RESULT_SUCCESS) {
    auto list = std::make_shared<List>();
    list->handle = *handle;
    list->device = device;
    list->pending->in_order = (desc->flags & ZE_COMMAND_LIST_FLAG_IN_ORDER) != 0;
    const std::lock_guard<std::mutex> lock(state);
    lists[*handle] = list;
  }
  return result;
}

ze_result_t zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                         const ze_command_queue_desc_t *desc, ze_command_list_handle_t *handle) {
  ENTER("zeCommandListCreateImmediate");
  const ze_result_t result = real().list.pfnCreateImmediate(context, device, desc, handle);
  if (result == ZE_RESULT_SUCCESS) {
    auto list = std::make_shared<List>();
    list->handle = *handle;
    list->device = device;
    list->immediate = true;
    list->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    list->engine = engine_of(device, desc->ordinal, desc->index, desc->priority);
    list->pending->in_order = (desc->flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER) != 0;
    const std::lock_guard<std::mutex> lock(state);
    lists[*handle] = list;
  }
  return result;
}

ze_result_t zeCommandListDestroy(ze_command_list_handle_t handle) {
  ENTER("zeCommandListDestroy");
  {
    const std::lock_guard<std::mutex> lock(state);
    check_unused(find_list(handle), "destroyed");
    lists.erase(handle);
  }
  return real().list.pfnDestroy(handle);
}

ze_result_t zeCommandListReset(ze_command_list_handle_t handle) {
  ENTER("zeCommandListReset");
  const ze_result_t result = real().list.pfnReset(handle);
  const std::lock_guard<std::mutex> lock(state);
  List &list = find_list(handle);
  check_unused(list, "reset");
  list.commands.clear();
  return result;
}

ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t handle, uint64_t timeout) {
  ENTER("zeCommandListHostSynchronize");
  std::unique_lock<std::mutex> lock(state);
  const auto pending = find_list(handle).pending;
  return wait_until(lock, timeout, [&] { return pending->commands == 0; });
}

ze_result_t zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t handle, uint32_t number,
                                                        ze_command_list_handle_t *handles, ze_event_handle_t signal,
                                                        uint32_t waits, ze_event_handle_t *events) {
  ENTER("zeCommandListImmediateAppendCommandListsExp");
  const ze_result_t result =
      real().list_exp.pfnImmediateAppendCommandListsExp(handle, number, handles, signal, waits, events);
  if (result != ZE_RESULT_SUCCESS) {
    return result;
  }
  std::unique_lock<std::mutex> lock(state);
  List &list = find_list(handle);
  Command begin = ordered_command("begin of command lists");
  begin.waits = waits_of(waits, events);
  submit(list.engine, begin, list.pending, true);
  submit_lists(list.engine, number, handles);
  Command end = ordered_command("end of command lists");
  will_signal(end, signal, true);
  const auto run = submit(list.engine, end, list.pending, true);
  return list.synchronous ? wait_until(lock, UINT64_MAX, [&] { return run->done; }) : ZE_RESULT_SUCCESS;
}

ze_result_t zeFenceCreate(ze_command_queue_handle_t queue, const ze_fence_desc_t *desc, ze_fence_handle_t *handle) {
  ENTER("zeFenceCreate");
  const ze_result_t result = real().fence.pfnCreate(queue, desc, handle);
  if (result == ZE_RESULT_SUCCESS) {
    auto fence = std::make_shared<Fence>();
    fence->signalled = (desc->flags & ZE_FENCE_FLAG_SIGNALED) != 0;
    const std::lock_guard<std::mutex> lock(state);
    fences[*handle] = fence;
  }
  return result;
}

ze_result_t zeFenceDestroy(ze_fence_handle_t handle) {
  ENTER("zeFenceDestroy");
  {
    const std::lock_guard<std::mutex> lock(state);
    fences.erase(handle);
  }
  return real().fence.pfnDestroy(handle);
}

ze_result_t zeFenceHostSynchronize(ze_fence_handle_t handle, uint64_t timeout) {
  ENTER("zeFenceHostSynchronize");
  std::unique_lock<std::mutex> lock(state);
  const std::shared_ptr<Fence> fence = find(fences, handle, "a fence");
  return wait_until(lock, timeout, [&] { return signalled(*fence); });
}

ze_result_t zeFenceQueryStatus(ze_fence_handle_t handle) {
  ENTER("zeFenceQueryStatus");
  const std::lock_guard<std::mutex> lock(state);
  return signalled(*find(fences, handle, "a fence")) ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t zeFenceReset(ze_fence_handle_t handle) {
  ENTER("zeFenceReset");
  {
    const std::lock_guard<std::mutex> lock(state);
    *find(fences, handle, "a fence") = Fence{};
  }
  return real().fence.pfnReset(handle);
}

ze_result_t zeDeviceSynchronize(ze_device_handle_t device) {
  ENTER("zeDeviceSynchronize");
  return wait_for_device(device, UINT64_MAX);
}

ze_result_t zeContextSystemBarrier(ze_context_handle_t, ze_device_handle_t) {
  ENTER("zeContextSystemBarrier");
  return ZE_RESULT_SUCCESS;
}

} // namespace api
} // namespace front
