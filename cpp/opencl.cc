// Kernels from OpenCL C and SPIR-V on OpenCL backends, through native interoperability.
#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

// Native handles that get_native retains for us.
struct Native {
  cl_context context;
  cl_device_id device;
  Native(const Context &c, const Device &d)
      : context(sycl::get_native<sycl::backend::opencl>(c)), device(sycl::get_native<sycl::backend::opencl>(d)) {}
  Native(const Native &) = delete;
  ~Native() {
    try {
      opencl_entry<decltype(&clReleaseContext)>("clReleaseContext")(context);
      opencl_entry<decltype(&clReleaseDevice)>("clReleaseDevice")(device);
    } catch (...) {
      // A loader without release functions leaks two references; nothing better can be done in a destructor.
    }
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

std::unique_ptr<Kernel> build(const Context &context, const Native &native, cl_program program, const std::string &name,
                              const std::string &options) {
  // From here on SYCL's objects own the program and release it, also when a later step throws.
  // The function is looked up before, since a destructor must not throw.
  struct Release {
    decltype(&clReleaseProgram) release;
    cl_program program;
    ~Release() { release(program); }
  };
  const Release owner{opencl_entry<decltype(&clReleaseProgram)>("clReleaseProgram"), program};

  const cl_int status = opencl_entry<decltype(&clBuildProgram)>("clBuildProgram")(program, 1, &native.device,
                                                                                  options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), build_log(program, native.device));
  }
  cl_int error = CL_SUCCESS;
  cl_kernel kernel = opencl_entry<decltype(&clCreateKernel)>("clCreateKernel")(program, name.c_str(), &error);
  if (error == CL_INVALID_KERNEL_NAME) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), "the program has no kernel named " + name);
  }
  opencl_check(error, "clCreateKernel");
  auto made = sycl::make_kernel<sycl::backend::opencl>(kernel, context);
  opencl_entry<decltype(&clReleaseKernel)>("clReleaseKernel")(kernel); // make_kernel retained it
  return std::make_unique<Kernel>(std::move(made));
}

} // namespace

std::unique_ptr<Kernel> kernel_from_opencl(const Context &context, const Device &device, rust::Str source,
                                           rust::Str name, const rust::Vec<rust::String> &options) {
  std::string flags;
  for (const auto &option : options) {
    flags += std::string(option) + " ";
  }
  const Native native(context, device);
  const char *text = source.data();
  const std::size_t length = source.size();
  cl_int error = CL_SUCCESS;
  cl_program program = opencl_entry<decltype(&clCreateProgramWithSource)>("clCreateProgramWithSource")(
      native.context, 1, &text, &length, &error);
  opencl_check(error, "clCreateProgramWithSource");
  return build(context, native, program, std::string(name), flags);
}

std::unique_ptr<Kernel> kernel_from_spirv(const Context &context, const Device &device,
                                          rust::Slice<const std::uint8_t> binary, rust::Str name) {
  const Native native(context, device);
  cl_int error = CL_SUCCESS;
  cl_program program = opencl_entry<decltype(&clCreateProgramWithIL)>("clCreateProgramWithIL")(
      native.context, binary.data(), binary.size(), &error);
  if (error == CL_INVALID_VALUE) {
    throw sycl::exception(sycl::make_error_code(sycl::errc::build), "the driver does not accept this SPIR-V module");
  }
  opencl_check(error, "clCreateProgramWithIL");
  return build(context, native, program, std::string(name), "");
}

} // namespace usmq
