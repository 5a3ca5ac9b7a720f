// User events of Level Zero: events of a pool that the host signals.
#include "level_zero.h"

#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <sycl/ext/oneapi/backend/level_zero.hpp>

namespace usmq {

namespace {

constexpr auto kBackend = sycl::backend::ext_oneapi_level_zero;

// Declared from the specification of Level Zero 1.0, core, sections "Event Pools" and "Events": the runtime's packages
// have no header of it.
using PoolHandle = struct PoolObject *;

struct PoolDescription {
  int type = 0x10; // ZE_STRUCTURE_TYPE_EVENT_POOL_DESC
  const void *next = nullptr;
  std::uint32_t flags = 1; // ZE_EVENT_POOL_FLAG_HOST_VISIBLE
  std::uint32_t count = 0;
};

struct EventDescription {
  int type = 0x11; // ZE_STRUCTURE_TYPE_EVENT_DESC
  const void *next = nullptr;
  std::uint32_t index = 0;
  std::uint32_t signal_scope = 4; // ZE_EVENT_SCOPE_FLAG_HOST
  std::uint32_t wait_scope = 4;
};

using CreatePool = int (*)(ze_context_handle_t, const PoolDescription *, std::uint32_t, ze_device_handle_t *,
                           PoolHandle *);
using CreateEvent = int (*)(PoolHandle, const EventDescription *, ze_event_handle_t *);
using OnPool = int (*)(PoolHandle);
using OnEvent = int (*)(ze_event_handle_t);

// An entry point of the loader that the SYCL runtime has opened; see opencl_entry.
template <typename Function> Function entry(const char *name) {
  USMQ_FAULT_POINT(name);
  static std::atomic<void *> loader{nullptr};
  void *library = loader.load();
  if (library == nullptr) {
    library = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_NOLOAD);
    loader.store(library);
  }
  void *symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::feature_not_supported),
                          std::string("the Level Zero loader of the SYCL runtime has no ") + name);
  }
  return reinterpret_cast<Function>(symbol);
}

void check(int status, const char *call) {
  if (status != 0) {
    std::array<char, 16> code{};
    std::snprintf(code.data(), code.size(), "0x%x", static_cast<unsigned>(status));
    throw sycl::exception(sycl::make_error_code(sycl::errc::runtime),
                          std::string(call) + " failed with Level Zero result " + code.data());
  }
}

// The event pools of a context, visible to all of its devices.
class Pools {
public:
  explicit Pools(const Context &context) : context(context) {}
  Pools(const Pools &) = delete;
  ~Pools() {
    for (const PoolHandle pool : pools_) {
      destroy_(pool);
    }
  }

  ze_event_handle_t create() {
    static const auto create = entry<CreateEvent>("zeEventCreate");
    const std::lock_guard<std::mutex> guard(lock_);
    if (pools_.empty() || next_ == kCount) {
      add();
    }
    EventDescription description;
    description.index = next_;
    ze_event_handle_t event = nullptr;
    check(create(pools_.back(), &description, &event), "zeEventCreate");
    ++next_;
    return event;
  }

  const Context context;

private:
  static constexpr std::uint32_t kCount = 64;

  void add() {
    static const auto create = entry<CreatePool>("zeEventPoolCreate");
    std::vector<ze_device_handle_t> devices;
    for (const Device &device : context.get_devices()) {
      devices.push_back(sycl::get_native<kBackend>(device));
    }
    PoolDescription description;
    description.count = kCount;
    pools_.reserve(pools_.size() + 1);
    PoolHandle pool = nullptr;
    check(create(sycl::get_native<kBackend>(context), &description, static_cast<std::uint32_t>(devices.size()),
                 devices.data(), &pool),
          "zeEventPoolCreate");
    pools_.push_back(pool);
    next_ = 0;
  }

  std::mutex lock_;
  std::vector<PoolHandle> pools_;
  std::uint32_t next_ = 0;
  OnPool destroy_ = entry<OnPool>("zeEventPoolDestroy");
};

// The driver does not count who uses an event: its owner keeps it until no command waits for it any more. The SYCL
// events that stand for it do not own it, since the adapters would use it for commands of their own.
class LevelZeroUserEvent : public UserEvent {
public:
  explicit LevelZeroUserEvent(std::shared_ptr<Pools> pools) : pools_(std::move(pools)), native_(pools_->create()) {}
  LevelZeroUserEvent(const LevelZeroUserEvent &) = delete;
  ~LevelZeroUserEvent() override { destroy_(native_); }

  sycl::event event() const override {
    USMQ_FAULT_POINT("sycl::make_event");
    return sycl::make_event<kBackend>({native_, sycl::ext::oneapi::level_zero::ownership::keep}, pools_->context);
  }

  void signal() const override {
    static const auto signal = entry<OnEvent>("zeEventHostSignal");
    check(signal(native_), "zeEventHostSignal");
  }

  void reset() const override {
    static const auto reset = entry<OnEvent>("zeEventHostReset");
    check(reset(native_), "zeEventHostReset");
  }

private:
  std::shared_ptr<Pools> pools_;
  OnEvent destroy_ = entry<OnEvent>("zeEventDestroy");
  ze_event_handle_t native_;
};

class LevelZeroUserEvents : public UserEvents {
public:
  explicit LevelZeroUserEvents(const Context &context) : pools_(std::make_shared<Pools>(context)) {}
  std::unique_ptr<UserEvent> create() const override { return std::make_unique<LevelZeroUserEvent>(pools_); }

private:
  std::shared_ptr<Pools> pools_;
};

} // namespace

std::unique_ptr<UserEvents> level_zero_user_events(const Context &context) {
  return std::make_unique<LevelZeroUserEvents>(context);
}

std::size_t level_zero_device(const Device &device) {
  return reinterpret_cast<std::size_t>(sycl::get_native<kBackend>(device));
}

} // namespace usmq
