// Commands, and the threads that carry them out: one for each hardware engine, in the order of submission.
#pragma once

#include <ze_api.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace front {

// One lock for the state of all events, lists and engines. It is never held while a command is carried out.
extern std::mutex &state;
extern std::condition_variable &changed;

// One execution of a command.
struct Run {
  bool done = false;
  uint64_t start = 0; // nanoseconds
  uint64_t end = 0;
  ze_device_handle_t device = nullptr; // null: the host
};

// A command, as a counter-based event names it: its latest execution, or none yet.
struct Slot {
  std::shared_ptr<Run> current;
};

struct Event {
  ze_event_handle_t handle = nullptr;
  bool counter_based = false;
  std::shared_ptr<Slot> follows; // counter-based: the command that signals it
  bool signalled = false;        // others: the flag
  std::shared_ptr<Run> signalled_by;
  unsigned waiters = 0; // submitted commands that wait for it
  std::string last_waiter = "none";
  unsigned signallers = 0; // submitted commands that will signal it
};

struct Wait {
  std::shared_ptr<Event> event;
  std::shared_ptr<Slot> slot; // counter-based: the command, resolved when the wait was appended
};

struct Command {
  std::string name;
  std::vector<Wait> waits;
  std::function<void()> work; // null: none
  std::shared_ptr<Event> signal;
  std::shared_ptr<Slot> slot = std::make_shared<Slot>();
  bool ordered = false; // no command of its list overtakes it, nor it them
  uint64_t id = 0;      // of mutable lists
};

// What a list has submitted and is not complete yet.
struct Pending {
  unsigned commands = 0;
  bool in_order = false;
};

class Engine;

// The engine of these properties of a device; queues and immediate lists of the same ones share it.
Engine *engine_of(ze_device_handle_t device, uint32_t ordinal, uint32_t index, ze_command_queue_priority_t priority);

// Submits a command; the caller holds `state`. `exclusive`: nothing of other lists overtakes it.
std::shared_ptr<Run> submit(Engine *engine, const Command &command, const std::shared_ptr<Pending> &list,
                            bool exclusive);

// Waits until `ready` is true, at most `timeout` nanoseconds. The caller holds `lock` on `state`.
ze_result_t wait_until(std::unique_lock<std::mutex> &lock, uint64_t timeout, const std::function<bool()> &ready);

// Waits for every submitted command of the engine, or of all engines of a device (null: of all devices).
ze_result_t wait_for(Engine *engine, uint64_t timeout);
ze_result_t wait_for_device(ze_device_handle_t device, uint64_t timeout);
void wait_for_all();

uint64_t now();

} // namespace front
