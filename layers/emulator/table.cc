// The functions that the emulator puts in the place of the loader's.
#include "checks.h"
#include "commands.h"
#include "devices.h"
#include "events.h"
#include "graphs.h"
#include "memory.h"

#include <cstdio>

namespace usmq::emulator {

void say(const std::string &line) noexcept {
  try {
    const std::string text = "usmq emulator: " + line + "\n";
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
  } catch (...) {
    // The host is out of memory, and the layer has no other way to report that.
  }
}

namespace {

template <typename Function> void *address(Function *function) { return reinterpret_cast<void *>(function); }

struct Extension {
  const char *name;
  void *function;
};

// Functions of extensions are not in the table: the runtime queries them by name.
void *CL_API_CALL extension_function(cl_platform_id platform, const char *name) {
  void *own = next.clGetExtensionFunctionAddressForPlatform(platform, name);
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

// A copy: loaders of 2026.2 free theirs during process exit, and the runtime may still call.
cl_icd_dispatch below;

} // namespace

const cl_icd_dispatch &next = below;

bool replace_functions(cl_icd_dispatch &table) {
  using T = cl_icd_dispatch;
  const bool fits =
      layer::has<&T::clGetPlatformIDs, &T::clGetDeviceIDs, &T::clGetDeviceInfo, &T::clCreateSubDevices,
                 &T::clCreateContext, &T::clGetExtensionFunctionAddressForPlatform, &T::clGetCommandQueueInfo,
                 &T::clGetEventInfo, &T::clGetKernelInfo, &T::clEnqueueMarkerWithWaitList, &T::clEnqueueNativeKernel,
                 &T::clFlush, &T::clFinish, &T::clWaitForEvents, &T::clRetainEvent, &T::clReleaseEvent,
                 &T::clSetEventCallback>(table);
  if (!fits || !is_wanted()) {
    return false;
  }
  // A second loader in the process opens the layer again.
  static const bool first = (below = table, true);
  static_cast<void>(first);
  layer::replace<&T::clGetDeviceIDs>(table, get_device_ids);
  layer::replace<&T::clGetDeviceInfo>(table, get_device_info);
  layer::replace<&T::clCreateSubDevices>(table, create_sub_devices);
  layer::replace<&T::clRetainDevice>(table, retain_device);
  layer::replace<&T::clReleaseDevice>(table, release_device);
  layer::replace<&T::clCreateContextFromType>(table, create_context_from_type);
  layer::replace<&T::clGetExtensionFunctionAddressForPlatform>(table, extension_function);
  layer::replace<&T::clSetKernelArg>(table, set_argument);
  layer::replace<&T::clSetKernelArgSVMPointer>(table, set_argument_svm_pointer);
  layer::replace<&T::clCreateKernel>(table, create_kernel);
  layer::replace<&T::clCreateKernelsInProgram>(table, create_kernels_in_program);
  layer::replace<&T::clCloneKernel>(table, clone_kernel);
  layer::replace<&T::clReleaseKernel>(table, release_kernel);
  layer::replace<&T::clCreateCommandQueue>(table, create_command_queue);
  layer::replace<&T::clWaitForEvents>(table, wait_for_events);
  layer::replace<&T::clGetEventInfo>(table, get_event_info);
  layer::replace<&T::clGetEventProfilingInfo>(table, get_event_profiling_info);
  layer::replace<&T::clSetEventCallback>(table, set_event_callback);
  layer::replace<&T::clReleaseEvent>(table, release_event);
  layer::replace<&T::clFinish>(table, finish);
  replace_commands(table);
  return true;
}

} // namespace usmq::emulator
