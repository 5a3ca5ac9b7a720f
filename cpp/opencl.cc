// Kernels from OpenCL C and SPIR-V, and the arguments of any kernel, on OpenCL backends through native
// interoperability.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <mutex>
#include <sycl/backend/opencl.hpp>
#include <vector>

namespace usmq {

namespace {

// Native handles that get_native retains.
struct Native {
  Owned<cl_context> context{"clReleaseContext"};
  Owned<cl_device_id> device{"clReleaseDevice"};
  Native(const Context &c, const Device &d) {
    context.object = sycl::get_native<sycl::backend::opencl>(c);
    device.object = sycl::get_native<sycl::backend::opencl>(d);
  }
};

std::string build_log(cl_program program, cl_device_id device) {
  const auto info = opencl_entry<decltype(&clGetProgramBuildInfo)>("clGetProgramBuildInfo");
  std::size_t size = 0;
  opencl_check(info(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size), "clGetProgramBuildInfo");
  std::string log(size, '\0');
  opencl_check(info(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr), "clGetProgramBuildInfo");
  return log.substr(0, log.find('\0'));
}

// Appends the built program for this device. Stays empty if the driver does not return it.
void read_binary(cl_program program, cl_device_id device, rust::Vec<std::uint8_t> &binary) {
  const auto info = opencl_entry<decltype(&clGetProgramInfo)>("clGetProgramInfo");
  // The answers have an entry for each device of the context.
  std::size_t bytes = 0;
  opencl_check(info(program, CL_PROGRAM_DEVICES, 0, nullptr, &bytes), "clGetProgramInfo");
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  opencl_check(info(program, CL_PROGRAM_DEVICES, bytes, static_cast<void *>(devices.data()), nullptr),
               "clGetProgramInfo");
  std::vector<std::size_t> sizes(devices.size());
  opencl_check(info(program, CL_PROGRAM_BINARY_SIZES, sizes.size() * sizeof(std::size_t), sizes.data(), nullptr),
               "clGetProgramInfo");
  std::vector<std::vector<unsigned char>> programs;
  std::vector<unsigned char *> targets;
  for (const std::size_t size : sizes) {
    programs.emplace_back(size);
    targets.push_back(programs.back().data());
  }
  opencl_check(info(program, CL_PROGRAM_BINARIES, targets.size() * sizeof(unsigned char *),
                    static_cast<void *>(targets.data()), nullptr),
               "clGetProgramInfo");
  const auto at = static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
  if (at < devices.size()) {
    binary.reserve(sizes[at]);
    std::copy(programs[at].begin(), programs[at].end(), std::back_inserter(binary));
  }
}

std::shared_ptr<_cl_program> retained(cl_program program) {
  static const auto release = opencl_entry<decltype(&clReleaseProgram)>("clReleaseProgram");
  opencl_check(opencl_entry<decltype(&clRetainProgram)>("clRetainProgram")(program), "clRetainProgram");
  return {program, release};
}

// `binary` gets the built program.
std::unique_ptr<Kernel> build(const Context &context, const Native &native, cl_program program, const std::string &name,
                              const std::string &options, rust::Vec<std::uint8_t> &binary) {
  const cl_int status = opencl_entry<decltype(&clBuildProgram)>("clBuildProgram")(program, 1, &native.device.object,
                                                                                  options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), build_log(program, native.device.object));
  }
  cl_int error = CL_SUCCESS;
  Owned<cl_kernel> kernel("clReleaseKernel");
  kernel.object = opencl_entry<decltype(&clCreateKernel)>("clCreateKernel")(program, name.c_str(), &error);
  if (error == CL_INVALID_KERNEL_NAME) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), "the program has no kernel named " + name);
  }
  opencl_check(error, "clCreateKernel");
  try {
    read_binary(program, native.device.object, binary);
  } catch (const sycl::exception &) {
    binary.clear(); // The kernel works without it.
  }
  USMQ_FAULT_POINT("sycl::make_kernel");
  // make_kernel retains the kernel.
  auto handle = sycl::make_kernel<sycl::backend::opencl>(kernel.object, context);
  return std::make_unique<Kernel>(Kernel{handle, retained(program)});
}

// The compiler takes all options in one line.
std::string line(const rust::Vec<rust::String> &options) {
  std::string flags;
  for (const auto &option : options) {
    flags += std::string(option) + " ";
  }
  return flags;
}

// The argument sizes to try; OpenCL has no query for sizes.
constexpr std::size_t kLargest = 256;
constexpr std::uint32_t kLocal = std::numeric_limits<std::uint32_t>::max();

// The only size that the driver accepts for an argument: others return CL_INVALID_ARG_SIZE. 0 if it accepts several,
// as some drivers do, or none.
std::uint32_t slot(cl_kernel kernel, cl_uint index, decltype(&clSetKernelArg) set) {
  const std::array<std::uint64_t, kLargest / sizeof(std::uint64_t)> zeros{};
  std::uint32_t found = 0;
  for (std::size_t size = 1; size <= kLargest; ++size) {
    if (set(kernel, index, size, zeros.data()) == CL_SUCCESS) {
      if (found != 0) {
        return 0;
      }
      found = static_cast<std::uint32_t>(size);
    }
  }
  // Local memory has a size and no value.
  return found == 0 && set(kernel, index, sizeof(std::uint64_t), nullptr) == CL_SUCCESS ? kLocal : found;
}

// Tries the arguments of a copy, so that the kernel's own arguments stay unset.
void ask(cl_kernel kernel, rust::Vec<std::uint32_t> &slots) {
  const auto set = opencl_entry<decltype(&clSetKernelArg)>("clSetKernelArg");
  cl_int error = CL_SUCCESS;
  Owned<cl_kernel> copy("clReleaseKernel");
  copy.object = opencl_entry<decltype(&clCloneKernel)>("clCloneKernel")(kernel, &error);
  if (error != CL_SUCCESS) {
    return;
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i] = slot(copy.object, static_cast<cl_uint>(i), set);
  }
}

// A kernel of its own, so that neither its arguments nor their use by other threads matter. The suggestion depends on
// no value of an argument.
void set_zeros(cl_kernel kernel, rust::Slice<const KernelArg> args) {
  const auto set = opencl_entry<decltype(&clSetKernelArg)>("clSetKernelArg");
  std::vector<std::uint8_t> zeros;
  for (std::size_t i = 0; i < args.size(); ++i) {
    zeros.resize(args[i].kind == KernelArgKind::Pointer ? sizeof(void *) : args[i].value);
    opencl_check(set(kernel, static_cast<cl_uint>(i), zeros.size(), zeros.data()), "clSetKernelArg");
  }
}

} // namespace

void *opencl_extension_address(const sycl::platform &platform, const char *name) {
  struct Known {
    sycl::platform platform;
    std::string name;
    void *address;
  };
  static std::mutex lock;
  static auto *all = new std::vector<Known>; // also used during process exit
  const std::lock_guard<std::mutex> guard(lock);
  for (const Known &known : *all) {
    if (known.platform == platform && known.name == name) {
      return known.address;
    }
  }
  const auto find =
      opencl_entry<decltype(&clGetExtensionFunctionAddressForPlatform)>("clGetExtensionFunctionAddressForPlatform");
  void *address = find(sycl::get_native<sycl::backend::opencl>(platform), name);
  all->push_back({platform, name, address});
  return address;
}

void opencl_create_again(cl_kernel kernel, Owned<cl_kernel> &copy) {
  const auto info = opencl_entry<decltype(&clGetKernelInfo)>("clGetKernelInfo");
  cl_program program = nullptr;
  opencl_check(info(kernel, CL_KERNEL_PROGRAM, sizeof(cl_program), static_cast<void *>(&program), nullptr),
               "clGetKernelInfo");
  std::size_t size = 0;
  opencl_check(info(kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &size), "clGetKernelInfo");
  std::string name(size, '\0');
  opencl_check(info(kernel, CL_KERNEL_FUNCTION_NAME, size, name.data(), nullptr), "clGetKernelInfo");
  cl_int error = CL_SUCCESS;
  copy.object = opencl_entry<decltype(&clCreateKernel)>("clCreateKernel")(program, name.c_str(), &error);
  opencl_check(error, "clCreateKernel");
}

void opencl_flush(const Queue &queue) {
  static const auto flush = opencl_entry<decltype(&clFlush)>("clFlush");
  Owned<cl_command_queue> native("clReleaseCommandQueue");
  native.object = sycl::get_native<sycl::backend::opencl>(queue.handle); // which retains it
  opencl_check(flush(native.object), "clFlush");
}

rust::Vec<std::uint32_t> kernel_slots(const Kernel &kernel, bool ask_driver) {
  rust::Vec<std::uint32_t> slots;
  const std::uint32_t count = kernel.handle.get_info<sycl::info::kernel::num_args>();
  for (std::uint32_t i = 0; i < count; ++i) {
    slots.push_back(0);
  }
  if (ask_driver) {
    Owned<cl_kernel> native("clReleaseKernel");
    native.object = sycl::get_native<sycl::backend::opencl>(kernel.handle);
    ask(native.object, slots);
  }
  return slots;
}

std::uint64_t kernel_local_memory(const Kernel &kernel, const Device &device) {
  Owned<cl_kernel> native("clReleaseKernel");
  native.object = sycl::get_native<sycl::backend::opencl>(kernel.handle);
  Owned<cl_device_id> on("clReleaseDevice");
  on.object = sycl::get_native<sycl::backend::opencl>(device);
  const auto info = opencl_entry<decltype(&clGetKernelWorkGroupInfo)>("clGetKernelWorkGroupInfo");
  cl_ulong bytes = 0;
  opencl_check(info(native.object, on.object, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(bytes), &bytes, nullptr),
               "clGetKernelWorkGroupInfo");
  return bytes;
}

std::array<std::size_t, 3> kernel_work_group(const Kernel &kernel, const Queue &queue, const Extents &extents,
                                             rust::Slice<const KernelArg> args) {
  const auto suggest = opencl_extension<clGetKernelSuggestedLocalWorkSizeKHR_fn>(
      queue.handle.get_device().get_platform(), "clGetKernelSuggestedLocalWorkSizeKHR");
  if (suggest == nullptr) {
    return {0, 0, 0};
  }
  Owned<cl_command_queue> on("clReleaseCommandQueue");
  on.object = sycl::get_native<sycl::backend::opencl>(queue.handle); // which retains it
  Owned<cl_kernel> original("clReleaseKernel");
  original.object = sycl::get_native<sycl::backend::opencl>(kernel.handle);
  // OpenCL's first dimension varies fastest, SYCL's last.
  const std::size_t dimensions = extents.dimensions;
  Owned<cl_kernel> copy("clReleaseKernel");
  opencl_create_again(original.object, copy);
  set_zeros(copy.object, args);
  std::array<std::size_t, 3> global{}, suggested{};
  std::reverse_copy(extents.global.begin(), extents.global.begin() + dimensions, global.begin());
  opencl_check(suggest(on.object, copy.object, extents.dimensions, nullptr, global.data(), suggested.data()),
               "clGetKernelSuggestedLocalWorkSizeKHR");
  std::array<std::size_t, 3> local{1, 1, 1};
  std::reverse_copy(suggested.begin(), suggested.begin() + dimensions, local.begin());
  return local;
}

std::unique_ptr<Kernel> kernel_from_opencl(const Context &context, const Device &device, rust::Str source,
                                           rust::Str name, const rust::Vec<rust::String> &options,
                                           rust::Vec<std::uint8_t> &built) {
  const Native native(context, device);
  const char *text = source.data();
  const std::size_t length = source.size();
  cl_int error = CL_SUCCESS;
  Owned<cl_program> program("clReleaseProgram");
  program.object = opencl_entry<decltype(&clCreateProgramWithSource)>("clCreateProgramWithSource")(
      native.context.object, 1, &text, &length, &error);
  opencl_check(error, "clCreateProgramWithSource");
  return build(context, native, program.object, std::string(name), line(options), built);
}

std::unique_ptr<Kernel> kernel_from_spirv(const Context &context, const Device &device,
                                          rust::Slice<const std::uint8_t> binary, rust::Str name,
                                          rust::Vec<std::uint8_t> &built) {
  const Native native(context, device);
  cl_int error = CL_SUCCESS;
  Owned<cl_program> program("clReleaseProgram");
  program.object = opencl_entry<decltype(&clCreateProgramWithIL)>("clCreateProgramWithIL")(
      native.context.object, binary.data(), binary.size(), &error);
  if (error == CL_INVALID_VALUE) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), "the driver does not accept this SPIR-V module");
  }
  opencl_check(error, "clCreateProgramWithIL");
  return build(context, native, program.object, std::string(name), "", built);
}

std::unique_ptr<Kernel> kernel_from_binary(const Context &context, const Device &device,
                                           rust::Slice<const std::uint8_t> binary, rust::Str name,
                                           const rust::Vec<rust::String> &options) {
  const Native native(context, device);
  const std::size_t size = binary.size();
  const unsigned char *bytes = binary.data();
  cl_int status = CL_SUCCESS;
  cl_int error = CL_SUCCESS;
  Owned<cl_program> program("clReleaseProgram");
  program.object = opencl_entry<decltype(&clCreateProgramWithBinary)>("clCreateProgramWithBinary")(
      native.context.object, 1, &native.device.object, &size, &bytes, &status, &error);
  opencl_check(error, "clCreateProgramWithBinary");
  opencl_check(status, "clCreateProgramWithBinary");
  rust::Vec<std::uint8_t> same;
  return build(context, native, program.object, std::string(name), line(options), same);
}

rust::Vec<std::uint8_t> kernel_binary(const Kernel &kernel, const Context &context, const Device &device) {
  const Native native(context, device);
  Owned<cl_kernel> driver_kernel("clReleaseKernel");
  driver_kernel.object = sycl::get_native<sycl::backend::opencl>(kernel.handle);
  cl_program program = nullptr; // which the kernel or its bundle keeps
  opencl_check(opencl_entry<decltype(&clGetKernelInfo)>("clGetKernelInfo")(
                   driver_kernel.object, CL_KERNEL_PROGRAM, sizeof(cl_program), static_cast<void *>(&program), nullptr),
               "clGetKernelInfo");
  rust::Vec<std::uint8_t> binary;
  read_binary(program, native.device.object, binary);
  return binary;
}

} // namespace usmq
