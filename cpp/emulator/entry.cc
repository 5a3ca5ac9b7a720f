// The entry points that the OpenCL loader calls, and the layer's table of functions.
#include "checks.h"
#include "commands.h"
#include "devices.h"
#include "events.h"
#include "graphs.h"
#include "memory.h"

#include <cstdio>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace usmq::emulator {

const cl_icd_dispatch *next = nullptr;

void say(const std::string &line) noexcept {
  try {
    const std::string text = "usmq emulator: " + line + "\n";
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
  } catch (...) {
    // The host is out of memory, and the layer has no other way to report that.
  }
}

namespace {

cl_icd_dispatch table;
// A copy: loaders of 2026.2 free theirs during process exit, and the runtime may still call.
cl_icd_dispatch below;

template <typename Function> void *address(Function *function) { return reinterpret_cast<void *>(function); }

struct Extension {
  const char *name;
  void *function;
};

// Functions of extensions are not in the table: the runtime queries them by name.
void *CL_API_CALL extension_function(cl_platform_id platform, const char *name) {
  void *own = next->clGetExtensionFunctionAddressForPlatform(platform, name);
  const Emulation *known = emulation();
  if (own == nullptr || known == nullptr || known->platform != platform) {
    return own;
  }
  static const Extension replaced[] = {
      {"clHostMemAllocINTEL", address(host_alloc)},
      {"clDeviceMemAllocINTEL", address(device_alloc)},
      {"clSharedMemAllocINTEL", address(shared_alloc)},
      {"clMemFreeINTEL", address(mem_free)},
      {"clMemBlockingFreeINTEL", address(mem_blocking_free)},
      {"clGetMemAllocInfoINTEL", address(mem_alloc_info)},
      {"clSetKernelArgMemPointerINTEL", address(set_argument_pointer)},
      {"clEnqueueMemcpyINTEL", address(enqueue_copy)},
      {"clEnqueueMemFillINTEL", address(enqueue_fill)},
      {"clEnqueueMigrateMemINTEL", address(enqueue_migrate)},
      {"clEnqueueMemAdviseINTEL", address(enqueue_advise)},
  };
  for (const Extension &extension : replaced) {
    if (std::strcmp(extension.name, name) == 0) {
      return extension.function;
    }
  }
  return replace_graph_function(name, own);
}

} // namespace

} // namespace usmq::emulator

EXPORTED cl_int CL_API_CALL clGetLayerInfo(cl_layer_info info, std::size_t room, void *to, std::size_t *size) {
  using usmq::emulator::answer;
  switch (info) {
  case CL_LAYER_API_VERSION:
    return answer<cl_layer_api_version>(CL_LAYER_API_VERSION_100, room, to, size);
  case CL_LAYER_NAME: {
    static constexpr char name[] = "usmq emulator";
    return answer(name, sizeof name, room, to, size);
  }
  default:
    return CL_INVALID_VALUE;
  }
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                        const cl_icd_dispatch **own) {
  using namespace usmq::emulator;
  constexpr cl_uint entries = sizeof(cl_icd_dispatch) / sizeof(void *);
  if (target == nullptr || own_count == nullptr || own == nullptr || count < entries) {
    return CL_INVALID_VALUE;
  }
  below = *target;
  next = &below;
  table = *target;
  table.clGetDeviceIDs = get_device_ids;
  table.clGetDeviceInfo = get_device_info;
  table.clCreateSubDevices = create_sub_devices;
  table.clRetainDevice = retain_device;
  table.clReleaseDevice = release_device;
  table.clCreateContextFromType = create_context_from_type;
  table.clGetExtensionFunctionAddressForPlatform = extension_function;
  table.clSetKernelArg = set_argument;
  table.clSetKernelArgSVMPointer = set_argument_svm_pointer;
  table.clCreateKernel = create_kernel;
  table.clCreateKernelsInProgram = create_kernels_in_program;
  table.clCloneKernel = clone_kernel;
  table.clReleaseKernel = release_kernel;
  table.clCreateCommandQueue = create_command_queue;
  table.clWaitForEvents = wait_for_events;
  table.clGetEventInfo = get_event_info;
  table.clGetEventProfilingInfo = get_event_profiling_info;
  table.clSetEventCallback = set_event_callback;
  table.clReleaseEvent = release_event;
  table.clFinish = finish;
  replace_commands(table);
  *own_count = entries;
  *own = &table;
  return CL_SUCCESS;
}

// Loaders of runtime 2026.2 and later, which close their layers, call only this function; its properties are all
// optional. Headers before 2026.2 do not declare it. Closing needs no action.
EXPORTED cl_int CL_API_CALL clInitLayerWithProperties(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                                      const cl_icd_dispatch **own,
                                                      const cl_properties * /*properties*/) {
  return clInitLayer(count, target, own_count, own);
}
