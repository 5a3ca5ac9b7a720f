// The shim of a build without SYCL (USMQ_ALLOW_STUB=1, DOCS_RS): every function throws "runtime_not_found".
#pragma once

#include "error.h"
#include "rust/cxx.h"

#include <memory>
#include <stdexcept>
#include <vector>

namespace usmq {

struct Device {};
struct Context {};
struct Queue {};
struct Event {};
struct Kernel {};
struct Bundle {};
struct UserEvent {};
struct UserEvents {};
struct CommandList {};
struct SyclGraph {};

// Converts to any function type, so that one line per name suffices and signatures cannot diverge from the bridge.
struct Unavailable {
  template <typename Result, typename... Args> using Function = Result (*)(Args...);
  template <typename Result, typename... Args> operator Function<Result, Args...>() const {
    return [](Args...) -> Result {
      throw std::runtime_error(coded("runtime_not_found", "usmq was built without a SYCL runtime (stub build)"));
    };
  }
};

// clang-format off
#define USMQ_EACH(X)                                                                                                  \
  X(platform_count) X(platform_info) X(platform_devices)                                                              \
  X(device_copy) X(device_id) X(device_info) X(device_aspects) X(aspect_names) X(device_properties) X(device_intel_info) X(device_parent) X(device_split_equally)               \
  X(device_split_by_counts) X(device_split_by_numa) X(device_enable_peer_access) X(device_versions) X(device_builds_opencl) X(device_builds_spirv)                \
  X(context_default) X(device_list) X(device_list_push) X(context_new) X(context_copy_from) X(context_copy_to_heap)   \
  X(context_free_heap) X(context_backend) X(context_id) X(context_devices)                                                               \
  X(queue_new) X(queue_copy_from) X(queue_copy_to_heap) X(queue_free_heap) X(queue_id) X(queue_id_at) X(queue_device) X(queue_context)\
  X(queue_in_order) X(queue_profiling) X(queue_priority) X(queue_join) X(queue_flush) X(queue_wait) X(queue_raise_errors) X(queue_raise_stored)        \
  X(queue_store_error)                                                                                                \
  X(queue_barrier) X(queue_memcpy) X(queue_memset) X(queue_prefetch) X(queue_mem_advise) X(queue_launch) X(queue_barrier_after_foreign)                                                    \
  X(list_new) X(list_add_launch) X(list_add) X(list_end) X(list_submit) X(graph_new) X(graph_submit)                  \
  X(user_events_new) X(user_event_new) X(user_event_event) X(user_event_signal) X(user_event_reset)                   \
  X(event_address) X(event_status) X(event_is_with_driver) X(event_wait) X(event_join) X(event_profiling)                       \
  X(usm_driver) X(usm_info) X(usm_kind) X(usm_device) X(device_native) X(usm_alloc) X(usm_free) X(shared_pointer_new) X(shared_pointer_free)                                                                                           \
  X(bundle_from_sycl) X(bundle_from_opencl) X(bundle_from_spirv) X(bundle_kernel) X(kernel_from_opencl) X(kernel_from_spirv) \
  X(kernel_from_binary) X(kernel_binary) X(kernel_slots) X(kernel_group_sizes) X(kernel_local_memory) X(kernel_work_group)                                                              \
  X(emulation_fault)
// clang-format on
#define USMQ_UNAVAILABLE(name) inline constexpr Unavailable name{};
USMQ_EACH(USMQ_UNAVAILABLE)
#undef USMQ_UNAVAILABLE
#undef USMQ_EACH

} // namespace usmq
