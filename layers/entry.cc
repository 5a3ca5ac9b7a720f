// The entry points of the layer, which the OpenCL loader and usmq call.
#include "layer.h"

#include <algorithm>
#include <atomic>
#include <new>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr char name[] = "usmq";

// The parts that a loader uses, as bits; src/runtime/opencl_layers.rs reads them.
constexpr unsigned queues_part = 1;
constexpr unsigned emulator_part = 2;
std::atomic<unsigned> parts{0};

} // namespace

EXPORTED cl_int CL_API_CALL clGetLayerInfo(cl_layer_info info, std::size_t room, void *to, std::size_t *size) {
  using usmq::layer::answer;
  switch (info) {
  case CL_LAYER_API_VERSION:
    return answer<cl_layer_api_version>(CL_LAYER_API_VERSION_100, room, to, size);
  case CL_LAYER_NAME:
    return answer(name, sizeof name, room, to, size);
  default:
    return CL_INVALID_VALUE;
  }
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                        const cl_icd_dispatch **own) {
  constexpr cl_uint entries = sizeof(cl_icd_dispatch) / sizeof(void *);
  if (target == nullptr || own_count == nullptr || own == nullptr) {
    return CL_INVALID_VALUE;
  }
  auto *table = new (std::nothrow) cl_icd_dispatch{}; // the loader keeps it
  if (table == nullptr) {
    return CL_OUT_OF_HOST_MEMORY;
  }
  // The headers of the loader may have more functions than those of this build, or fewer. A loader takes its own
  // functions for null and for those past the end.
  std::memcpy(static_cast<void *>(table), target, std::min(count, entries) * sizeof(void *));
  // The emulator creates its queues through the first part, which sees the devices of the driver.
  const unsigned found = (usmq::queues::replace_functions(*table) ? queues_part : 0) |
                         (usmq::emulator::replace_functions(*table) ? emulator_part : 0);
  if (found == 0) {
    delete table;
    return CL_INVALID_VALUE;
  }
  parts.fetch_or(found);
  *own_count = entries;
  *own = table;
  return CL_SUCCESS;
}

// Loaders of runtime 2026.2 and later, which close their layers, call only this function; its properties are all
// optional. Headers before 2026.2 do not declare it. Closing needs no action.
EXPORTED cl_int CL_API_CALL clInitLayerWithProperties(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                                      const cl_icd_dispatch **own,
                                                      const cl_properties * /*properties*/) {
  return clInitLayer(count, target, own_count, own);
}

// The parts that a loader uses. A loader that refuses the layer may leave it mapped.
EXPORTED unsigned usmq_layer_parts() { return parts.load(); }

// The number of emulated GPUs.
EXPORTED unsigned usmq_layer_gpus() { return usmq::emulator::gpus(); }
