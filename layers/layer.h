// Shared by the parts of the layer: their entry points, the check of a table, and the answers to queries.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
// The table also contains the deprecated functions.
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
// Command buffers are a provisional extension.
#define CL_ENABLE_BETA_EXTENSIONS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace usmq::layer {

// Whether a table has these functions. Loaders differ in the number of functions that they pass.
template <auto... Entries> bool has(const cl_icd_dispatch &table) { return ((table.*Entries != nullptr) && ...); }

// Replaces a function, if the table has it.
template <auto Entry, typename Function> void replace(cl_icd_dispatch &table, Function *by) {
  if (has<Entry>(table)) {
    table.*Entry = by;
  }
}

// Answers a query like OpenCL's clGet…Info functions.
inline cl_int answer(const void *value, std::size_t size, std::size_t room, void *to, std::size_t *size_ret) {
  if (to != nullptr) {
    if (room < size) {
      return CL_INVALID_VALUE;
    }
    if (size != 0) {
      std::memcpy(to, value, size);
    }
  }
  if (size_ret != nullptr) {
    *size_ret = size;
  }
  return CL_SUCCESS;
}

template <typename Value> cl_int answer(const Value &value, std::size_t room, void *to, std::size_t *size_ret) {
  static_assert(std::is_trivially_copyable_v<Value>);
  return answer(static_cast<const void *>(&value), sizeof(Value), room, to, size_ret);
}

} // namespace usmq::layer

// Each part keeps the functions below it, and writes its own over those that it replaces. It returns false, and changes
// nothing, if the process did not ask for it, or if the table lacks a function that the part calls.
namespace usmq::queues {
bool replace_functions(cl_icd_dispatch &table);
}

namespace usmq::emulator {
bool replace_functions(cl_icd_dispatch &table);
// The number of GPUs that the emulator has made; 0 before the first device query.
unsigned gpus() noexcept;
} // namespace usmq::emulator
