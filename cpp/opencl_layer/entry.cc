// The entry points of a layer, which the OpenCL loader calls.
#include "layer.h"

#include <atomic>
#include <new>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace usmq::layer {

namespace {

// A copy: loaders of 2026.2 free theirs during process exit, and the runtime may still call.
cl_icd_dispatch below;

std::atomic<bool> active{false};

} // namespace

const cl_icd_dispatch &next = below;

} // namespace usmq::layer

EXPORTED cl_int CL_API_CALL clGetLayerInfo(cl_layer_info info, std::size_t room, void *to, std::size_t *size) {
  using namespace usmq::layer;
  switch (info) {
  case CL_LAYER_API_VERSION:
    return answer<cl_layer_api_version>(CL_LAYER_API_VERSION_100, room, to, size);
  case CL_LAYER_NAME:
    return answer(name, std::strlen(name) + 1, room, to, size);
  default:
    return CL_INVALID_VALUE;
  }
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                        const cl_icd_dispatch **own) {
  using namespace usmq::layer;
  constexpr cl_uint entries = sizeof(cl_icd_dispatch) / sizeof(void *);
  if (target == nullptr || own_count == nullptr || own == nullptr || count < entries) {
    return CL_INVALID_VALUE;
  }
  // A second loader in the process opens the layer again.
  static const bool first = (below = *target, true);
  static_cast<void>(first);
  auto *table = new (std::nothrow) cl_icd_dispatch(*target); // the loader keeps it
  if (table == nullptr) {
    return CL_OUT_OF_HOST_MEMORY;
  }
  replace_functions(*table);
  *own_count = entries;
  *own = table;
  active.store(true);
  return CL_SUCCESS;
}

// Loaders of runtime 2026.2 and later, which close their layers, call only this function; its properties are all
// optional. Headers before 2026.2 do not declare it. Closing needs no action.
EXPORTED cl_int CL_API_CALL clInitLayerWithProperties(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                                      const cl_icd_dispatch **own,
                                                      const cl_properties * /*properties*/) {
  return clInitLayer(count, target, own_count, own);
}

// Whether a loader uses this layer. One that refuses it may leave it mapped.
EXPORTED bool usmq_layer_is_active() { return usmq::layer::active.load(); }
