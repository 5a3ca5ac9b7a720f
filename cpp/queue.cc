// Queues and the commands without a kernel: barrier, copy, fill with a byte.
#include "faults.h"
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace usmq {

std::unique_ptr<Event> own(sycl::event event) { return std::make_unique<Event>(Event{std::move(event)}); }

void wait_for(sycl::handler &handler, rust::Slice<const std::size_t> after) {
  for (const std::size_t address : after) {
    handler.depends_on(reinterpret_cast<const Event *>(address)->handle);
  }
}

namespace {

std::vector<sycl::event> listed(rust::Slice<const std::size_t> after) {
  std::vector<sycl::event> events;
  events.reserve(after.size());
  for (const std::size_t address : after) {
    events.push_back(reinterpret_cast<const Event *>(address)->handle);
  }
  return events;
}

// The error stores of all existing queues, so that a queue returned by another library keeps its store.
class ErrorStores {
public:
  std::shared_ptr<ErrorStore> of(const sycl::queue &queue, std::shared_ptr<ErrorStore> fresh) {
    std::lock_guard<std::mutex> guard(lock_);
    if (stores_.size() >= crowded_) {
      for (auto known = stores_.begin(); known != stores_.end();) {
        known = known->second.expired() ? stores_.erase(known) : std::next(known);
      }
      crowded_ = std::max(kFew, 2 * stores_.size());
    }
    // A queue keeps its store alive, so the store of a destroyed queue has expired before another queue takes its
    // place.
    auto &known = stores_[std::hash<sycl::queue>{}(queue)];
    if (auto store = known.lock()) {
      return store;
    }
    known = fresh;
    return fresh;
  }

private:
  static constexpr std::size_t kFew = 64;

  std::mutex lock_;
  std::unordered_map<std::size_t, std::weak_ptr<ErrorStore>> stores_;
  // At this size, entries of destroyed queues are removed, so that the cost of a queue does not grow with their number.
  std::size_t crowded_ = kFew;
};

std::shared_ptr<ErrorStore> errors_of(const sycl::queue &queue, std::shared_ptr<ErrorStore> fresh) {
  // Never destroyed: other threads may still use it at process exit.
  static auto *stores = new ErrorStores;
  return stores->of(queue, std::move(fresh));
}

} // namespace

void ErrorStore::raise_all() {
  std::vector<std::string> texts;
  {
    std::lock_guard<std::mutex> guard(lock_);
    texts.swap(texts_);
    any_.store(false, std::memory_order_relaxed);
  }
  if (texts.empty()) {
    return;
  }
  // The first error keeps its code; later ones are usually its consequences and are appended as text.
  std::string all = texts.front();
  for (std::size_t i = 1; i < texts.size(); ++i) {
    all += "; then: " + texts[i].substr(texts[i].find(kCodeEnd) + 1);
  }
  throw std::runtime_error(all);
}

namespace {

namespace property = sycl::property::queue;
namespace priority_hint = sycl::ext::oneapi::property::queue;

// A property list takes its properties at construction only.
template <typename... Properties>
sycl::property_list properties_with(bool in_order, bool profiling, Properties... properties) {
  if (in_order && profiling) {
    return {property::in_order{}, property::enable_profiling{}, properties...};
  }
  if (in_order) {
    return {property::in_order{}, properties...};
  }
  if (profiling) {
    return {property::enable_profiling{}, properties...};
  }
  return {properties...};
}

sycl::property_list properties_of(bool in_order, bool profiling, PriorityCode priority) {
  switch (priority) {
  case PriorityCode::High:
    return properties_with(in_order, profiling, priority_hint::priority_high{});
  case PriorityCode::Low:
    return properties_with(in_order, profiling, priority_hint::priority_low{});
  default:
    return properties_with(in_order, profiling);
  }
}

} // namespace

std::unique_ptr<Queue> queue_new(const Context &context, const Device &device, bool in_order, bool profiling,
                                 PriorityCode priority) {
  auto errors = std::make_shared<ErrorStore>();
  const auto keep = [errors](const sycl::exception_list &list) {
    for (const auto &error : list) {
      errors->put(describe(error));
    }
  };
  sycl::queue queue(context, device, keep, properties_of(in_order, profiling, priority));
  return std::make_unique<Queue>(Queue{queue, errors_of(queue, std::move(errors))});
}

std::unique_ptr<Queue> queue_copy_from(std::size_t address) {
  const auto &queue = *reinterpret_cast<const sycl::queue *>(address);
  return std::make_unique<Queue>(Queue{queue, errors_of(queue, std::make_shared<ErrorStore>())});
}

std::size_t queue_copy_to_heap(const Queue &queue) {
  return reinterpret_cast<std::size_t>(new sycl::queue(queue.handle));
}

void queue_free_heap(std::size_t address) { delete reinterpret_cast<sycl::queue *>(address); }

std::size_t queue_id(const Queue &queue) { return std::hash<sycl::queue>{}(queue.handle); }

std::size_t queue_id_at(std::size_t address) {
  return std::hash<sycl::queue>{}(*reinterpret_cast<const sycl::queue *>(address));
}

std::unique_ptr<Device> queue_device(const Queue &queue) { return std::make_unique<Device>(queue.handle.get_device()); }

std::unique_ptr<Context> queue_context(const Queue &queue) {
  return std::make_unique<Context>(queue.handle.get_context());
}

bool queue_in_order(const Queue &queue) { return queue.handle.is_in_order(); }

bool queue_profiling(const Queue &queue) {
  return queue.handle.has_property<sycl::property::queue::enable_profiling>();
}

PriorityCode queue_priority(const Queue &queue) {
  if (queue.handle.has_property<priority_hint::priority_high>()) {
    return PriorityCode::High;
  }
  return queue.handle.has_property<priority_hint::priority_low>() ? PriorityCode::Low : PriorityCode::Normal;
}

void queue_join(const Queue &queue) { queue.handle.wait(); }

// The OpenCL adapter's flush waits for the queue, so the driver is asked there.
void queue_flush(const Queue &queue) {
  if (queue.handle.get_backend() == sycl::backend::opencl) {
    opencl_flush(queue);
  } else {
    queue.handle.ext_oneapi_prod();
  }
}

void queue_wait(const Queue &queue) {
  queue.handle.wait_and_throw();
  queue.errors->raise();
}

void queue_raise_errors(const Queue &queue) {
  queue.handle.throw_asynchronous();
  queue.errors->raise();
}

void queue_raise_stored(const Queue &queue) { queue.errors->raise(); }

void queue_store_error(const Queue &queue, rust::Str text) { queue.errors->put(std::string(text)); }

std::unique_ptr<Event> queue_barrier(const Queue &queue, rust::Slice<const std::size_t> after) {
  return own(queue.handle.submit([&](sycl::handler &handler) {
    wait_for(handler, after);
    handler.ext_oneapi_barrier();
  }));
}

std::unique_ptr<Event> queue_barrier_after_foreign(const Queue &queue, std::size_t event) {
  return own(queue.handle.submit([&](sycl::handler &handler) {
    handler.depends_on(*reinterpret_cast<const sycl::event *>(event));
    handler.ext_oneapi_barrier();
  }));
}

std::unique_ptr<Event> queue_memcpy(const Queue &queue, std::size_t target, std::size_t source, std::size_t bytes,
                                    rust::Slice<const std::size_t> after) {
  return own(queue.handle.memcpy(reinterpret_cast<void *>(target), reinterpret_cast<const void *>(source), bytes,
                                 listed(after)));
}

std::unique_ptr<Event> queue_memset(const Queue &queue, std::size_t target, std::uint8_t value, std::size_t bytes,
                                    rust::Slice<const std::size_t> after) {
  return own(queue.handle.memset(reinterpret_cast<void *>(target), value, bytes, listed(after)));
}

std::unique_ptr<Event> queue_prefetch(const Queue &queue, std::size_t pointer, std::size_t bytes,
                                      rust::Slice<const std::size_t> after) {
  return own(queue.handle.prefetch(reinterpret_cast<void *>(pointer), bytes, listed(after)));
}

std::unique_ptr<Event> queue_mem_advise(const Queue &queue, std::size_t pointer, std::size_t bytes, std::int32_t advice,
                                        rust::Slice<const std::size_t> after) {
  return own(queue.handle.mem_advise(reinterpret_cast<void *>(pointer), bytes, advice, listed(after)));
}

namespace {

template <std::size_t Size> struct alignas(Size) Element {
  std::byte bytes[Size];
};

// In SYCL's range the last dimension varies fastest, as in usmq's shapes, so the order stays.
template <int N> sycl::range<N> range_of(const std::array<std::size_t, 3> &extents) {
  if constexpr (N == 1) {
    return {extents[0]};
  } else if constexpr (N == 2) {
    return {extents[0], extents[1]};
  } else {
    return {extents[0], extents[1], extents[2]};
  }
}

// An accessor counts elements, so it needs elements of the kernel's element size.
template <std::size_t Size>
void set_local(sycl::handler &handler, int index, std::size_t dimensions, const std::array<std::size_t, 3> &extents) {
  switch (dimensions) {
  case 2:
    return handler.set_arg(index, sycl::local_accessor<Element<Size>, 2>(range_of<2>(extents), handler));
  case 3:
    return handler.set_arg(index, sycl::local_accessor<Element<Size>, 3>(range_of<3>(extents), handler));
  default:
    return handler.set_arg(index, sycl::local_accessor<Element<Size>, 1>(range_of<1>(extents), handler));
  }
}

void set_local(sycl::handler &handler, int index, const KernelArg &arg, const std::uint8_t *extents_at) {
  std::array<std::size_t, 3> extents{1, 1, 1};
  std::memcpy(extents.data(), extents_at, arg.dimensions * sizeof(std::size_t));
  switch (arg.element) {
  case 2:
    return set_local<2>(handler, index, arg.dimensions, extents);
  case 4:
    return set_local<4>(handler, index, arg.dimensions, extents);
  case 8:
    return set_local<8>(handler, index, arg.dimensions, extents);
  case 16:
    return set_local<16>(handler, index, arg.dimensions, extents);
  default:
    return set_local<1>(handler, index, arg.dimensions, extents);
  }
}

} // namespace

namespace {

const std::uint8_t *value_of(const KernelArg &arg, rust::Slice<const std::uint8_t> more) {
  return arg.value <= arg.bytes.size() ? arg.bytes.data() : more.data() + arg.more;
}

} // namespace

void set_arg(sycl::handler &handler, int index, const KernelArg &arg, rust::Slice<const std::uint8_t> more) {
  namespace exp = sycl::ext::oneapi::experimental;
  switch (arg.kind) {
  case KernelArgKind::Pointer:
    return handler.set_arg(index, reinterpret_cast<void *>(arg.value));
  case KernelArgKind::WorkGroupMemory: {
    // A named variable is required: set_arg recognizes the type of lvalues only.
    exp::work_group_memory<std::byte[]> memory(arg.value, handler);
    return handler.set_arg(index, memory);
  }
  case KernelArgKind::LocalAccessor:
    return set_local(handler, index, arg, more.data() + arg.more);
  default:
    // The handler copies the bytes.
    return handler.set_arg(index, exp::raw_kernel_arg(value_of(arg, more), arg.value));
  }
}

namespace {

template <int N> void start(sycl::handler &handler, const Kernel &kernel, const Extents &extents) {
  const auto global = range_of<N>(extents.global);
  if (extents.local[0] == 0) {
    handler.parallel_for(global, kernel.handle);
  } else {
    handler.parallel_for(sycl::nd_range<N>(global, range_of<N>(extents.local)), kernel.handle);
  }
}

} // namespace

void start_kernel(sycl::handler &handler, const Kernel &kernel, const Extents &extents) {
  switch (extents.dimensions) {
  case 1:
    return start<1>(handler, kernel, extents);
  case 2:
    return start<2>(handler, kernel, extents);
  default:
    return start<3>(handler, kernel, extents);
  }
}

std::unique_ptr<Event> queue_launch(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                    rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more,
                                    rust::Slice<const std::size_t> after) {
  return own(queue.handle.submit([&](sycl::handler &handler) {
    wait_for(handler, after);
    for (std::size_t i = 0; i < args.size(); ++i) {
      set_arg(handler, static_cast<int>(i), args[i], more);
    }
    start_kernel(handler, kernel, extents);
  }));
}

} // namespace usmq
