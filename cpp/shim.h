// All functions that Rust may call, in the order of the bridge in src/ffi.rs. Host code only: no kernels and no
// policy.
#pragma once

#include "error.h"
#include "rust/cxx.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

struct _cl_program;

namespace usmq {

using Device = sycl::device;
using Context = sycl::context;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

// Mutable: SYCL's waits are not const, although they may be called from any thread.
struct Event {
  mutable sycl::event handle;
};

struct Kernel {
  sycl::kernel handle;
  // The driver's program, if nothing else keeps it: more kernels can be created from it. The driver keeps the code of a
  // kernel, but not this handle.
  std::shared_ptr<_cl_program> program;
};

// Errors that SYCL reports after the call that caused them. The next wait on the queue raises them.
class ErrorStore {
public:
  void put(std::string text) {
    std::lock_guard<std::mutex> guard(lock_);
    texts_.push_back(std::move(text));
    any_.store(true, std::memory_order_release);
  }
  // Throws the stored errors as one exception, if there are any. Each wait calls it.
  void raise() {
    if (any_.load(std::memory_order_acquire)) {
      raise_all();
    }
  }

private:
  void raise_all();
  std::mutex lock_;
  std::vector<std::string> texts_;
  std::atomic<bool> any_{false};
};

// Mutable: the methods of sycl::queue that submit or wait may be called from any thread, but are not const.
struct Queue {
  mutable sycl::queue handle;
  std::shared_ptr<ErrorStore> errors;
};

// An event of one context that the host completes. SYCL lacks them; OpenCL and Level Zero have them.
class UserEvent {
public:
  virtual ~UserEvent() = default;
  // The SYCL event that stands for it.
  virtual sycl::event event() const = 0;
  virtual void signal() const = 0;
  // Makes it pending again. No command may wait for it any more.
  virtual void reset() const = 0;
};

// Makes the user events of one context.
class UserEvents {
public:
  virtual ~UserEvents() = default;
  virtual std::unique_ptr<UserEvent> create() const = 0;
};

// Commands that are submitted together, each time with other pointers.
struct CommandList {
  struct Command;
  CommandList();
  CommandList(const CommandList &) = delete;
  ~CommandList();
  std::vector<Command> commands;
  // The commands, besides the last one, that no other command comes after.
  std::vector<std::uint32_t> ends;
  // Whether a command or the end needs the event of a command besides the last one.
  bool has_names = false;
};

// An executable SYCL graph.
struct SyclGraph {
  struct Executable;
  explicit SyclGraph(std::unique_ptr<Executable> made);
  SyclGraph(const SyclGraph &) = delete;
  ~SyclGraph();
  std::unique_ptr<Executable> executable;
};

struct DeviceInfo;
struct DeviceProperties;
struct NamedNumber;
struct PlatformInfo;
struct IncludeFile;
struct Extents;
struct KernelArg;
struct PlainCommand;
struct ListPlace;
struct UsmInfo;
struct Kept;
enum class EventStatus : std::uint8_t;
enum class PriorityCode : std::uint8_t;
enum class CommandKind : std::uint8_t;

// platforms
std::size_t platform_count();
PlatformInfo platform_info(std::size_t index);
std::unique_ptr<std::vector<Device>> platform_devices(std::size_t index);

// devices
// The name of a backend in filter strings.
const char *backend_name(sycl::backend backend);
std::unique_ptr<Device> device_copy(const Device &device);
std::size_t device_id(const Device &device);
DeviceInfo device_info(const Device &device);
rust::Vec<rust::String> device_aspects(const Device &device);
rust::Vec<rust::String> aspect_names();
DeviceProperties device_properties(const Device &device);
rust::Vec<NamedNumber> device_intel_info(const Device &device);
std::unique_ptr<Device> device_parent(const Device &device);
std::unique_ptr<std::vector<Device>> device_split_equally(const Device &device, std::size_t compute_units);
std::unique_ptr<std::vector<Device>> device_split_by_counts(const Device &device,
                                                            rust::Slice<const std::size_t> counts);
std::unique_ptr<std::vector<Device>> device_split_by_numa(const Device &device);
bool device_enable_peer_access(const Device &device, const Device &peer);
rust::String device_versions(const Device &device);
bool device_builds_opencl(const Device &device);
bool device_builds_spirv(const Device &device);

// contexts
std::unique_ptr<Context> context_default(const Device &device);
std::unique_ptr<std::vector<Device>> device_list();
void device_list_push(std::vector<Device> &list, const Device &device);
std::unique_ptr<Context> context_new(const std::vector<Device> &devices);
std::unique_ptr<Context> context_copy_from(std::size_t address);
std::size_t context_copy_to_heap(const Context &context);
void context_free_heap(std::size_t address);
rust::String context_backend(const Context &context);
std::size_t context_id(const Context &context);
std::unique_ptr<std::vector<Device>> context_devices(const Context &context);

// queues
std::unique_ptr<Queue> queue_new(const Context &context, const Device &device, bool in_order, bool profiling,
                                 PriorityCode priority);
std::unique_ptr<Queue> queue_copy_from(std::size_t address);
std::size_t queue_copy_to_heap(const Queue &queue);
void queue_free_heap(std::size_t address);
std::size_t queue_id(const Queue &queue);
std::size_t queue_id_at(std::size_t address);
std::unique_ptr<Device> queue_device(const Queue &queue);
std::unique_ptr<Context> queue_context(const Queue &queue);
bool queue_in_order(const Queue &queue);
bool queue_profiling(const Queue &queue);
PriorityCode queue_priority(const Queue &queue);
void queue_join(const Queue &queue);
void queue_flush(const Queue &queue);
void queue_wait(const Queue &queue);
void queue_raise_errors(const Queue &queue);
void queue_raise_stored(const Queue &queue);
void queue_store_error(const Queue &queue, rust::Str text);

// commands; `after` holds addresses of events that live during the call
std::unique_ptr<Event> queue_barrier(const Queue &queue, rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_memcpy(const Queue &queue, std::size_t target, std::size_t source, std::size_t bytes,
                                    rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_memset(const Queue &queue, std::size_t target, std::uint8_t value, std::size_t bytes,
                                    rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_prefetch(const Queue &queue, std::size_t pointer, std::size_t bytes,
                                      rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_mem_advise(const Queue &queue, std::size_t pointer, std::size_t bytes, std::int32_t advice,
                                        rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_launch(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                    rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more,
                                    rust::Slice<const std::size_t> after);
std::unique_ptr<Event> queue_barrier_after_foreign(const Queue &queue, std::size_t event);

// parts of a command, for graph.cc
std::unique_ptr<Event> own(sycl::event event);
void wait_for(sycl::handler &handler, rust::Slice<const std::size_t> after);
void set_arg(sycl::handler &handler, int index, const KernelArg &arg, rust::Slice<const std::uint8_t> more);
void start_kernel(sycl::handler &handler, const Kernel &kernel, const Extents &extents);

// lists of commands and SYCL graphs
std::unique_ptr<CommandList> list_new();
void list_add_launch(CommandList &list, const Queue &queue, const Kernel &kernel, const Extents &extents,
                     rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more, ListPlace place);
void list_add(CommandList &list, const Queue &queue, const PlainCommand &command, ListPlace place);
void list_end(CommandList &list, rust::Slice<const std::uint32_t> ends);
std::unique_ptr<Event> list_submit(const CommandList &list, rust::Slice<const std::size_t> addresses,
                                   rust::Slice<const std::size_t> after, rust::String &failure);
std::unique_ptr<SyclGraph> graph_new(const CommandList &list, const Context &context, const Device &device,
                                     rust::Slice<const std::size_t> addresses, rust::Slice<const std::uint32_t> edges);
std::unique_ptr<Event> graph_submit(const SyclGraph &graph, const Queue &queue, rust::Slice<const std::size_t> after);

// user events: events of one context that the host completes, for order between contexts
std::unique_ptr<UserEvents> user_events_new(const Context &context);
std::unique_ptr<UserEvent> user_event_new(const UserEvents &user_events);
std::unique_ptr<Event> user_event_event(const UserEvent &user_event);
void user_event_signal(const UserEvent &user_event);
void user_event_reset(const UserEvent &user_event);

// events
std::size_t event_address(const Event &event);
EventStatus event_status(const Event &event);
bool event_is_with_driver(const Event &event);
void event_wait(const Event &event);
void event_join(const Event &event);
std::array<std::uint64_t, 3> event_profiling(const Event &event);

// unified shared memory
std::array<std::size_t, 2> usm_driver(const Context &context);
UsmInfo usm_info(std::array<std::size_t, 2> driver, std::size_t pointer);
std::uint8_t usm_kind(std::size_t pointer, const Context &context);
std::unique_ptr<Device> usm_device(std::size_t pointer, const Context &context);
std::size_t device_native(const Device &device);
std::size_t usm_alloc(std::uint8_t kind, const Device &device, const Context &context, std::size_t bytes) noexcept;
bool usm_free(const Context &context, std::size_t pointer) noexcept;
std::size_t shared_pointer_new(std::size_t address, rust::Box<Kept> kept) noexcept;
void shared_pointer_free(std::size_t pointer) noexcept;

// kernels
std::unique_ptr<Bundle> bundle_from_sycl(const Context &context, const Device &device, rust::Str source,
                                         IncludeFile include, const rust::Vec<rust::String> &options,
                                         rust::Str registered);
std::unique_ptr<Bundle> bundle_from_opencl(const Context &context, const Device &device, rust::Str source,
                                           const rust::Vec<rust::String> &options);
std::unique_ptr<Bundle> bundle_from_spirv(const Context &context, const Device &device,
                                          rust::Slice<const std::uint8_t> module);
std::unique_ptr<Kernel> bundle_kernel(const Bundle &bundle, rust::Str name);
std::unique_ptr<Kernel> kernel_from_opencl(const Context &context, const Device &device, rust::Str source,
                                           rust::Str name, const rust::Vec<rust::String> &options,
                                           rust::Vec<std::uint8_t> &built);
std::unique_ptr<Kernel> kernel_from_spirv(const Context &context, const Device &device,
                                          rust::Slice<const std::uint8_t> binary, rust::Str name,
                                          rust::Vec<std::uint8_t> &built);
std::unique_ptr<Kernel> kernel_from_binary(const Context &context, const Device &device,
                                           rust::Slice<const std::uint8_t> program, rust::Str name,
                                           const rust::Vec<rust::String> &options);
rust::Vec<std::uint8_t> kernel_binary(const Kernel &kernel, const Context &context, const Device &device);
rust::Vec<std::uint32_t> kernel_slots(const Kernel &kernel, bool ask_driver);
std::array<std::size_t, 4> kernel_group_sizes(const Kernel &kernel, const Device &device);
std::uint64_t kernel_local_memory(const Kernel &kernel, const Device &device);
std::array<std::size_t, 3> kernel_work_group(const Kernel &kernel, const Queue &queue, const Extents &extents,
                                             rust::Slice<const KernelArg> args);

// emulated GPUs
rust::String emulation_fault(rust::Str gpus, rust::Str memory, rust::Str system_usm, rust::Str faults);

} // namespace usmq
