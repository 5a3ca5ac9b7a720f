// Detects pointers to memory of another device in copies, fills and kernel arguments.
#include "checks.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace usmq::emulator {

namespace {

struct Arguments {
  std::mutex lock;
  std::map<cl_kernel, std::map<cl_uint, const void *>> of;
};

Arguments &arguments() {
  static auto *instance = new Arguments; // never destroyed: see emulation()
  return *instance;
}

const char *name_of(UsmKind kind) {
  switch (kind) {
  case UsmKind::host:
    return "host";
  case UsmKind::device:
    return "device";
  case UsmKind::shared:
    return "shared";
  }
  return "";
}

void report(const std::string &user, const Allocation &allocation, const std::string &where) {
  say(user + " used " + name_of(allocation.kind) + " memory of " + allocation.owner->label + " (" + where + "); only " +
      allocation.owner->label + " reaches it");
}

// The driver checks memory that is not USM, or of an unknown platform; all devices reach host memory.
std::optional<Allocation> foreign(const Root &user, const void *pointer) {
  auto allocation = find_allocation(pointer);
  if (allocation && allocation->owner != nullptr && allocation->owner != &user) {
    return allocation;
  }
  return std::nullopt;
}

// Memory of a CPU in another context is host memory for a driver, which may copy from it.
bool is_host_memory(cl_command_queue queue, const Allocation &allocation) {
  cl_context context = nullptr;
  return !allocation.owner->is_gpu &&
         next.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(cl_context), static_cast<void *>(&context),
                                    nullptr) == CL_SUCCESS &&
         context != allocation.context;
}

std::string name_of(cl_kernel kernel) {
  std::size_t size = 0;
  if (next.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &size) != CL_SUCCESS) {
    return "?";
  }
  std::string name(size, '\0');
  next.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, size, name.data(), nullptr);
  return name.substr(0, name.find('\0'));
}

void note_argument(cl_kernel kernel, cl_uint index, const void *pointer) {
  if (emulation() == nullptr) {
    return;
  }
  std::lock_guard<std::mutex> guard(arguments().lock);
  arguments().of[kernel][index] = pointer;
}

void forget(cl_kernel kernel) {
  std::lock_guard<std::mutex> guard(arguments().lock);
  arguments().of.erase(kernel);
}

// The owners that this thread queried last, the latest last.
struct Asked {
  Allocation first;
  Allocation second;
};
thread_local Asked asked;

} // namespace

cl_int check(cl_command_queue queue, const Use *uses, std::size_t count) {
  asked = {};
  const Root *user = root_of(queue);
  if (user == nullptr) {
    return CL_SUCCESS;
  }
  for (const Use *use = uses; use != uses + count; ++use) {
    const auto allocation = foreign(*user, use->pointer);
    if (allocation && !(use->access == Access::copy_source && is_host_memory(queue, *allocation))) {
      report(user->label, *allocation, use->where);
      return kForeignMemory;
    }
  }
  return CL_SUCCESS;
}

cl_int check_arguments(cl_command_queue queue, cl_kernel kernel) {
  asked = {};
  const Root *user = root_of(queue);
  if (user == nullptr) {
    return CL_SUCCESS;
  }
  std::map<cl_uint, const void *> pointers;
  {
    std::lock_guard<std::mutex> guard(arguments().lock);
    const auto found = arguments().of.find(kernel);
    if (found == arguments().of.end()) {
      return CL_SUCCESS;
    }
    pointers = found->second;
  }
  for (const auto &[index, pointer] : pointers) {
    if (const auto allocation = foreign(*user, pointer)) {
      report(user->label, *allocation, "argument " + std::to_string(index) + " of kernel " + name_of(kernel));
      return kForeignMemory;
    }
  }
  return CL_SUCCESS;
}

void note_asked_owner(const std::optional<Allocation> &allocation) noexcept {
  asked.first = asked.second;
  asked.second = allocation.value_or(Allocation{});
}

cl_int CL_API_CALL set_argument_pointer(cl_kernel kernel, cl_uint index, const void *pointer) {
  return guarded([&] {
    const cl_int status = usm().set_argument(kernel, index, pointer);
    if (status == CL_SUCCESS) {
      note_argument(kernel, index, pointer);
    }
    return status;
  });
}

cl_int CL_API_CALL set_argument_svm_pointer(cl_kernel kernel, cl_uint index, const void *pointer) {
  return guarded([&] {
    const cl_int status = next.clSetKernelArgSVMPointer(kernel, index, pointer);
    if (status == CL_SUCCESS) {
      note_argument(kernel, index, pointer);
    }
    return status;
  });
}

cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, std::size_t size, const void *value) {
  return guarded([&] {
    const cl_int status = next.clSetKernelArg(kernel, index, size, value);
    if (status == CL_SUCCESS && emulation() != nullptr) {
      // Replaces a pointer that was set before.
      std::lock_guard<std::mutex> guard(arguments().lock);
      const auto found = arguments().of.find(kernel);
      if (found != arguments().of.end()) {
        found->second.erase(index);
      }
    }
    return status;
  });
}

// The driver reuses the handles of released kernels.
cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *status) {
  return guarded(status, [&] {
    cl_kernel kernel = next.clCreateKernel(program, name, status);
    forget(kernel);
    return kernel;
  });
}

cl_int CL_API_CALL create_kernels_in_program(cl_program program, cl_uint room, cl_kernel *kernels, cl_uint *count) {
  return guarded([&] {
    cl_uint made = 0;
    const cl_int status = next.clCreateKernelsInProgram(program, room, kernels, &made);
    if (count != nullptr) {
      *count = made;
    }
    if (status == CL_SUCCESS && kernels != nullptr) {
      std::for_each(kernels, kernels + std::min(made, room), forget);
    }
    return status;
  });
}

cl_kernel CL_API_CALL clone_kernel(cl_kernel kernel, cl_int *status) {
  return guarded(status, [&] {
    cl_kernel copy = next.clCloneKernel(kernel, status);
    if (copy != nullptr) {
      std::lock_guard<std::mutex> guard(arguments().lock);
      const auto found = arguments().of.find(kernel);
      if (found != arguments().of.end()) {
        arguments().of[copy] = found->second;
      } else {
        arguments().of.erase(copy);
      }
    }
    return copy;
  });
}

cl_int CL_API_CALL release_kernel(cl_kernel kernel) {
  return guarded([&] {
    cl_uint count = 0;
    if (emulation() != nullptr &&
        next.clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, nullptr) == CL_SUCCESS &&
        count == 1) {
      forget(kernel);
    }
    return next.clReleaseKernel(kernel);
  });
}

// The OpenCL adapter of the runtime queries the owners of both pointers of a copy. If they differ, it creates a queue
// on the other device, with this function only, and copies through the host in two steps: each step alone is valid,
// and the second hangs, since the adapter then frees memory inside a callback of the driver. So the copy is refused
// here.
cl_command_queue CL_API_CALL create_command_queue(cl_context context, cl_device_id device,
                                                  cl_command_queue_properties properties, cl_int *status) {
  return guarded(status, [&]() -> cl_command_queue {
    const Asked copy = asked;
    asked = {};
    const Root *other = root_of(device);
    const bool differ =
        copy.first.owner != nullptr && copy.second.owner != nullptr && copy.first.owner != copy.second.owner;
    if (other != nullptr && differ && (copy.first.owner == other || copy.second.owner == other)) {
      const bool is_first = copy.first.owner == other;
      const Allocation &foreign_one = is_first ? copy.first : copy.second;
      const Root *user = is_first ? copy.second.owner : copy.first.owner;
      report(user->label, foreign_one, is_first ? "source of a copy" : "destination of a copy");
      return failed(status, kForeignMemory);
    }
    return next.clCreateCommandQueue(context, device, properties, status);
  });
}

} // namespace usmq::emulator
