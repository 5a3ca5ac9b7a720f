// The strict rule of SYCL 2020: only its own device uses device and shared USM, only its own context uses host USM. A
// copy may read memory of a CPU in another context, as any host memory.
#pragma once

#include "memory.h"

#include <cstdint>
#include <optional>
#include <string>

namespace usmq::emulator {

// The status of a command that uses memory of another device. The adapter and the runtime pass on its name.
inline constexpr cl_int kForeignMemory = CL_INVALID_MEM_OBJECT;

enum class Access : std::uint8_t { copy_source, other };

// Where a command uses a pointer, for messages.
struct Use {
  const void *pointer = nullptr;
  const char *where = nullptr;
  Access access = Access::other;
};

// Returns kForeignMemory and writes a line to standard error if the queue's device may not use one of the pointers.
cl_int check(cl_command_queue queue, const Use *uses, std::size_t count);
template <std::size_t Count> cl_int check(cl_command_queue queue, const Use (&uses)[Count]) {
  return check(queue, uses, Count);
}

// The same for all pointer arguments of a kernel.
cl_int check_arguments(cl_command_queue queue, cl_kernel kernel);

// Records the owner of a pointer that this thread has queried; see check_staging.
void note_asked_owner(const std::optional<Allocation> &allocation) noexcept;

// The OpenCL functions that the layer replaces.
cl_int CL_API_CALL set_argument_pointer(cl_kernel kernel, cl_uint index, const void *pointer);
cl_int CL_API_CALL set_argument_svm_pointer(cl_kernel kernel, cl_uint index, const void *pointer);
cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, std::size_t size, const void *value);
cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *status);
cl_int CL_API_CALL create_kernels_in_program(cl_program program, cl_uint room, cl_kernel *kernels, cl_uint *count);
cl_kernel CL_API_CALL clone_kernel(cl_kernel kernel, cl_int *status);
cl_int CL_API_CALL release_kernel(cl_kernel kernel);
cl_command_queue CL_API_CALL create_command_queue(cl_context context, cl_device_id device,
                                                  cl_command_queue_properties properties, cl_int *status);

} // namespace usmq::emulator
