// The threads that carry out commands. An engine stalls at a wait that is not met, as the hardware does.
#include "engine.h"

#include <cstdio>

#include "memory.h"
#include "report.h"
#include "switches.h"

#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace front {

// Never destroyed: threads of other libraries may use them until the process has ended.
std::mutex &state = *new std::mutex;
std::condition_variable &changed = *new std::condition_variable;

namespace {

// A command in the random order is one of the first this many that may run.
constexpr size_t CHOICE = 8;

// The time after which a command that cannot begin is written to stderr.
constexpr std::chrono::seconds STALL{20};

struct Entry {
  Command command;
  std::shared_ptr<Run> run;
  std::vector<std::shared_ptr<Run>> runs; // of its waits; null: not submitted when this was
  std::shared_ptr<Pending> list;
  bool exclusive;
};

bool met(const Entry &entry) {
  for (size_t i = 0; i < entry.command.waits.size(); ++i) {
    const Wait &wait = entry.command.waits[i];
    if (wait.slot != nullptr) {
      const auto &run = entry.runs[i] != nullptr ? entry.runs[i] : wait.slot->current;
      if (run == nullptr || !run->done) {
        return false;
      }
    } else if (!wait.event->counter_based && !wait.event->signalled) {
      return false;
    }
  }
  return true;
}

// Whether `later` may run before `earlier`, on one engine.
bool may_overtake(const Entry &later, const Entry &earlier) {
  if (later.list == earlier.list) {
    return !later.list->in_order && !later.command.ordered && !earlier.command.ordered;
  }
  return !later.exclusive && !earlier.exclusive;
}

// Describes a command that its engine has been unable to begin for long, which explains a program that hangs.
void describe_stall(const Engine *engine, const Entry &entry, size_t behind) {
  std::string text = entry.command.name + " on engine " + hexadecimal(engine) + " waits for";
  for (size_t i = 0; i < entry.command.waits.size(); ++i) {
    const Wait &wait = entry.command.waits[i];
    const bool submitted = wait.slot != nullptr ? entry.runs[i] != nullptr || wait.slot->current != nullptr
                                                : wait.event->signalled || wait.event->signallers != 0;
    text += " " + hexadecimal(wait.event->handle) + (submitted ? "" : " (no submitted command signals it)");
  }
  std::fprintf(stderr, "usmq's Level Zero driver: stall: %s; %zu commands behind it\n", text.c_str(), behind);
}

void delay() {
  if (const unsigned longest = switches().delay; longest != 0 && random_below(2) == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_below(longest)));
  }
}

} // namespace

class Engine {
public:
  explicit Engine(ze_device_handle_t device) : device(device) {
    std::thread([this] { serve(); }).detach();
  }

  const ze_device_handle_t device;
  std::deque<Entry> entries;
  bool busy = false;

private:
  // The entry to carry out next, or `entries.size()`. The caller holds `state`.
  size_t choose() const {
    if (entries.empty() || lost()) {
      return entries.size();
    }
    if (!switches().random_order) {
      return met(entries.front()) ? 0 : entries.size();
    }
    std::vector<size_t> able;
    for (size_t i = 0; i < entries.size() && i < CHOICE && met(entries[i]); ++i) {
      bool free = true;
      for (size_t j = 0; j < i && free; ++j) {
        free = may_overtake(entries[i], entries[j]);
      }
      if (free) {
        able.push_back(i);
      }
    }
    return able.empty() ? entries.size() : able[random_below(able.size())];
  }

  void serve() {
    std::unique_lock<std::mutex> lock(state);
    for (;;) {
      size_t chosen = choose();
      while (chosen == entries.size()) {
        const auto *first = entries.empty() ? nullptr : entries.front().run.get();
        const bool in_time = changed.wait_for(lock, STALL) == std::cv_status::no_timeout;
        if (!in_time && first != nullptr && !entries.empty() && entries.front().run.get() == first) {
          describe_stall(this, entries.front(), entries.size() - 1);
        }
        chosen = choose();
      }
      Entry entry = std::move(entries[chosen]);
      entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(chosen));
      for (const Wait &wait : entry.command.waits) {
        --wait.event->waiters;
      }
      busy = true;
      lock.unlock();
      carry_out(entry);
      lock.lock();
      complete(entry);
      busy = false;
      lock.unlock();
      changed.notify_all();
      // Memory and handles that the command kept are released without the lock.
      entry = Entry{};
      lock.lock();
    }
  }

  static void carry_out(Entry &entry) {
    delay();
    entry.run->start = now();
    if (entry.command.work) {
      entry.command.work();
    }
    entry.run->end = now();
    delay();
  }

  static void complete(Entry &entry) {
    entry.run->done = true;
    --entry.list->commands;
    if (const auto &event = entry.command.signal) {
      --event->signallers;
      if (!event->counter_based) {
        event->signalled = true;
        event->signalled_by = entry.run;
      }
    }
  }
};

namespace {

using Place = std::tuple<ze_device_handle_t, uint32_t, uint32_t, int>;
std::map<Place, Engine *> &engines = *new std::map<Place, Engine *>;

bool idle(const Engine &engine) { return engine.entries.empty() && !engine.busy; }

} // namespace

Engine *engine_of(ze_device_handle_t device, uint32_t ordinal, uint32_t index, ze_command_queue_priority_t priority) {
  const std::lock_guard<std::mutex> lock(state);
  Engine *&engine = engines[{device, ordinal, index, priority}];
  if (engine == nullptr) {
    engine = new Engine(device);
  }
  return engine;
}

std::shared_ptr<Run> submit(Engine *engine, const Command &command, const std::shared_ptr<Pending> &list,
                            bool exclusive) {
  Entry entry{command, std::make_shared<Run>(), {}, list, exclusive};
  for (const Wait &wait : command.waits) {
    entry.runs.push_back(wait.slot != nullptr ? wait.slot->current : nullptr);
    ++wait.event->waiters;
    wait.event->last_waiter = command.name;
  }
  entry.run->device = engine->device;
  command.slot->current = entry.run;
  if (command.signal != nullptr) {
    ++command.signal->signallers;
  }
  if (switches().trace) {
    std::fprintf(stderr, "  %s on engine %p, waits:", command.name.c_str(), static_cast<void *>(engine));
    for (const Wait &wait : command.waits) {
      std::fprintf(stderr, " %p%s", static_cast<void *>(wait.event->handle),
                   wait.event->signalled ? " (signalled)" : "");
    }
    std::fprintf(stderr, ", signals %p\n",
                 command.signal != nullptr ? static_cast<void *>(command.signal->handle) : nullptr);
  }
  ++list->commands;
  auto run = entry.run;
  engine->entries.push_back(std::move(entry));
  count_append();
  changed.notify_all();
  return run;
}

ze_result_t wait_until(std::unique_lock<std::mutex> &lock, uint64_t timeout, const std::function<bool()> &ready) {
  const uint64_t begin = now();
  while (!ready()) {
    if (lost()) {
      return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    const uint64_t waited = now() - begin;
    if (waited >= timeout) {
      return ZE_RESULT_NOT_READY;
    }
    // At most a second, so that a far timeout does not overflow.
    constexpr uint64_t SECOND = 1'000'000'000;
    changed.wait_for(lock, std::chrono::nanoseconds(std::min(timeout - waited, SECOND)));
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t wait_for(Engine *engine, uint64_t timeout) {
  std::unique_lock<std::mutex> lock(state);
  return wait_until(lock, timeout, [&] { return idle(*engine); });
}

ze_result_t wait_for_device(ze_device_handle_t device, uint64_t timeout) {
  std::unique_lock<std::mutex> lock(state);
  return wait_until(lock, timeout, [&] {
    for (const auto &[place, engine] : engines) {
      if ((device == nullptr || engine->device == device) && !idle(*engine)) {
        return false;
      }
    }
    return true;
  });
}

void wait_for_all() { wait_for_device(nullptr, UINT64_MAX); }

uint64_t now() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

} // namespace front
