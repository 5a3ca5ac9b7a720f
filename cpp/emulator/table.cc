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

} // namespace

} // namespace usmq::emulator

const char *const usmq::layer::name = "usmq emulator";

void usmq::layer::replace_functions(cl_icd_dispatch &table) {
  using namespace usmq::emulator;
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
}
