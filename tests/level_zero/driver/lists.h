// Command lists, queues and fences: what an append adds, and when it is submitted.
#pragma once

#include "engine.h"

#include <ze_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace front {

struct List {
  ze_command_list_handle_t handle = nullptr;
  ze_device_handle_t device = nullptr;
  bool immediate = false;
  bool synchronous = false;
  Engine *engine = nullptr;      // of immediate lists
  std::vector<Command> commands; // of others
  uint64_t next_id = 0;          // of a command that may be changed later; 0: none asked for
  std::shared_ptr<Pending> pending = std::make_shared<Pending>();
};

// A command that the real driver has accepted.
struct Appended {
  std::string name;
  ze_event_handle_t signal = nullptr;
  uint32_t waits = 0;
  ze_event_handle_t *events = nullptr;
  std::function<void()> work = nullptr;
  bool ordered = false; // it waits for what its list has before it, and the rest for it
  bool blocks = false;  // the caller waits for it
};

// The list of a handle. The caller holds `state`.
List &find_list(ze_command_list_handle_t handle);

ze_device_handle_t device_of(ze_command_list_handle_t handle);

// Adds a command to a list, and submits it if the list is immediate.
ze_result_t append(ze_command_list_handle_t handle, Appended what);

void report_live_lists();

namespace api {

ze_result_t zeCommandQueueCreate(ze_context_handle_t, ze_device_handle_t, const ze_command_queue_desc_t *,
                                 ze_command_queue_handle_t *);
ze_result_t zeCommandQueueDestroy(ze_command_queue_handle_t);
ze_result_t zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t, uint32_t, ze_command_list_handle_t *,
                                              ze_fence_handle_t);
ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t, uint64_t);
ze_result_t zeCommandListCreate(ze_context_handle_t, ze_device_handle_t, const ze_command_list_desc_t *,
                                ze_command_list_handle_t *);
ze_result_t zeCommandListCreateImmediate(ze_context_handle_t, ze_device_handle_t, const ze_command_queue_desc_t *,
                                         ze_command_list_handle_t *);
ze_result_t zeCommandListDestroy(ze_command_list_handle_t);
ze_result_t zeCommandListReset(ze_command_list_handle_t);
ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t, uint64_t);
ze_result_t zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t, uint32_t, ze_command_list_handle_t *,
                                                        ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t zeFenceCreate(ze_command_queue_handle_t, const ze_fence_desc_t *, ze_fence_handle_t *);
ze_result_t zeFenceDestroy(ze_fence_handle_t);
ze_result_t zeFenceHostSynchronize(ze_fence_handle_t, uint64_t);
ze_result_t zeFenceQueryStatus(ze_fence_handle_t);
ze_result_t zeFenceReset(ze_fence_handle_t);
ze_result_t zeDeviceSynchronize(ze_device_handle_t);
ze_result_t zeContextSystemBarrier(ze_context_handle_t, ze_device_handle_t);

} // namespace api
} // namespace front
