// Answers queries for events of failed commands.
#include "events.h"

#include "failures.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace usmq::emulator {

namespace {

struct Failed {
  cl_command_queue queue = nullptr;
  cl_int status = kCommandFailed;
  // Whether a wait for an event of the queue, or for the queue, has reported the failure.
  bool told = false;
};

struct Events {
  std::mutex lock;
  std::map<cl_event, Failed> failed;
  // The size of the map, so that other events need no lock.
  std::atomic<std::size_t> count{0};
};

Events &events() {
  static auto *instance = new Events; // never destroyed: see emulation()
  return *instance;
}

// The status of a failed event; CL_SUCCESS for any other.
cl_int status_of(cl_event event) {
  if (events().count == 0) {
    return CL_SUCCESS;
  }
  std::lock_guard<std::mutex> guard(events().lock);
  const auto found = events().failed.find(event);
  return found != events().failed.end() ? found->second.status : CL_SUCCESS;
}

// Marks the failures of a queue as reported. Returns whether one was new. The caller holds the lock.
bool tell_all_of(cl_command_queue queue) {
  bool any = false;
  for (auto &[event, failure] : events().failed) {
    if (failure.queue == queue && !failure.told) {
      failure.told = true;
      any = true;
    }
  }
  return any;
}

bool is_in_order(cl_command_queue queue) {
  cl_command_queue_properties properties = 0;
  next.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr);
  return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
}

struct Callback {
  void(CL_CALLBACK *notify)(cl_event, cl_int, void *);
  void *user_data;
  cl_int status;
};

void CL_CALLBACK call_back(cl_event event, cl_int /*complete*/, void *data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback *>(data));
  callback->notify(event, callback->status, callback->user_data);
}

} // namespace

void mark_failed(cl_event event, cl_command_queue queue, cl_int status) {
  std::lock_guard<std::mutex> guard(events().lock);
  events().failed[event] = {queue, status, false};
  events().count = events().failed.size();
}

bool waits_for_failed(cl_command_queue queue, cl_uint count, const cl_event *list) {
  if (events().count == 0) {
    return false;
  }
  for (cl_uint i = 0; list != nullptr && i < count; ++i) {
    if (status_of(list[i]) != CL_SUCCESS) {
      return true;
    }
  }
  const bool in_order = is_in_order(queue);
  std::lock_guard<std::mutex> guard(events().lock);
  return in_order && std::any_of(events().failed.begin(), events().failed.end(),
                                 [&](const auto &entry) { return entry.second.queue == queue && !entry.second.told; });
}

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event *list) {
  return guarded([&]() -> cl_int {
    const cl_int status = next.clWaitForEvents(count, list);
    if (status != CL_SUCCESS || events().count == 0) {
      return status;
    }
    bool failed_one = false;
    std::lock_guard<std::mutex> guard(events().lock);
    for (cl_uint i = 0; i < count; ++i) {
      const auto found = events().failed.find(list[i]);
      if (found != events().failed.end()) {
        tell_all_of(found->second.queue);
        failed_one = true;
      }
    }
    return failed_one ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : status;
  });
}

cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info info, std::size_t room, void *to, std::size_t *size) {
  return guarded([&]() -> cl_int {
    const cl_int failure = info == CL_EVENT_COMMAND_EXECUTION_STATUS ? status_of(event) : CL_SUCCESS;
    if (failure != CL_SUCCESS) {
      cl_int status = CL_QUEUED;
      const cl_int asked = next.clGetEventInfo(event, info, sizeof status, &status, nullptr);
      if (asked != CL_SUCCESS) {
        return asked;
      }
      return answer(status == CL_COMPLETE ? failure : status, room, to, size);
    }
    return next.clGetEventInfo(event, info, room, to, size);
  });
}

cl_int CL_API_CALL get_event_profiling_info(cl_event event, cl_profiling_info info, std::size_t room, void *to,
                                            std::size_t *size) {
  return guarded([&]() -> cl_int {
    if (status_of(event) != CL_SUCCESS) {
      return CL_PROFILING_INFO_NOT_AVAILABLE;
    }
    return next.clGetEventProfilingInfo(event, info, room, to, size);
  });
}

cl_int CL_API_CALL set_event_callback(cl_event event, cl_int type, void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
                                      void *user_data) {
  return guarded([&]() -> cl_int {
    const cl_int failure = type == CL_COMPLETE ? status_of(event) : CL_SUCCESS;
    if (failure == CL_SUCCESS || notify == nullptr) {
      return next.clSetEventCallback(event, type, notify, user_data);
    }
    auto callback = std::make_unique<Callback>(Callback{notify, user_data, failure});
    const cl_int status = next.clSetEventCallback(event, type, call_back, callback.get());
    if (status == CL_SUCCESS) {
      callback.release(); // NOLINT(bugprone-unused-return-value): call_back owns it
    }
    return status;
  });
}

cl_int CL_API_CALL release_event(cl_event event) {
  return guarded([&]() -> cl_int {
    cl_uint count = 0;
    if (status_of(event) != CL_SUCCESS &&
        next.clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, nullptr) == CL_SUCCESS &&
        count == 1) {
      std::lock_guard<std::mutex> guard(events().lock);
      events().failed.erase(event);
      events().count = events().failed.size();
    }
    return next.clReleaseEvent(event);
  });
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  return guarded([&]() -> cl_int {
    const cl_int status = next.clFinish(queue);
    if (status != CL_SUCCESS || emulation() == nullptr || emulation()->settings.faults.empty()) {
      return status;
    }
    const Root *root = root_of(queue);
    if (root != nullptr && root->is_gpu && is_lost(*root)) {
      return CL_DEVICE_NOT_AVAILABLE;
    }
    std::lock_guard<std::mutex> guard(events().lock);
    return tell_all_of(queue) ? kCommandFailed : CL_SUCCESS;
  });
}

} // namespace usmq::emulator
