// Shared by the OpenCL layers: the functions below a layer, and the answers to queries.
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

// Each layer defines its name, and writes its own functions over those that it replaces.
extern const char *const name;
void replace_functions(cl_icd_dispatch &table);

// The functions of the layer or driver below this one; set before any other function of the layer is called.
extern const cl_icd_dispatch &next;

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
